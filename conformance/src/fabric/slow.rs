//! A subject of which suites ask less: a verb wakes two processes, or is simulated, or each write waits for
//! another thread.

use farsight_fabric::FabricError;

use super::{FabricUnderTest, HasUrl};

/// A subject that does a twentieth of the rounds.
#[derive(Default)]
pub struct Slow<F>(pub F);

impl<F: HasUrl> HasUrl for Slow<F> {
    fn url(&self) -> String {
        self.0.url()
    }
}

impl<F: FabricUnderTest> FabricUnderTest for Slow<F> {
    type Host = F::Host;
    type Connection = F::Connection;

    fn listen(&self, format_version: u32) -> F::Host {
        self.0.listen(format_version)
    }

    fn connect(&self, format_version: u32) -> Result<F::Connection, FabricError> {
        self.0.connect(format_version)
    }

    fn queues_take_memory(&self) -> bool {
        self.0.queues_take_memory()
    }

    fn parked_max(&self) -> usize {
        self.0.parked_max()
    }

    fn rounds(&self, usual: usize) -> usize {
        (usual / 20).max(1)
    }
}
