//! Shared memory as a subject of the suites.

use std::path::PathBuf;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::FabricError;
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost};

use super::{FabricUnderTest, HasUrl};

/// A directory of its own for one test's socket.
#[derive(Debug)]
pub struct Shm {
    directory: PathBuf,
}

impl Shm {
    /// An address that nobody has had.
    ///
    /// # Panics
    /// If no directory can be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the counter only has to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("farsight-fabric-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        Self { directory }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl HasUrl for Shm {
    fn url(&self) -> String {
        format!("shm://{}", self.directory.join("socket").display())
    }
}

impl FabricUnderTest for Shm {
    type Host = ShmHost;
    type Connection = ShmConnection;

    fn listen(&self, format_version: u32) -> ShmHost {
        ShmHost::listen(self.directory.join("socket"), ListenOptions::new(format_version)).expect("a server")
    }

    fn connect(&self, format_version: u32) -> Result<ShmConnection, FabricError> {
        ShmConnection::connect(self.directory.join("socket"), ConnectOptions::new(format_version))
    }
}
