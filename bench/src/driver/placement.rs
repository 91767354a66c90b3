//! Who runs on which core.
//!
//! Invariant: the server has the first core, client threads go round from the second on. So with fewer
//! threads than cores nobody shares one. The thread that comes round to the first core shares it with the
//! server, which sleeps while clients only read.

use std::fmt;

use super::DriverError;
use crate::machine::{allowed_cores, pin_to};

/// Cores of the server and of the client threads.
#[derive(Debug, Clone)]
pub struct Placement {
    cores: Vec<usize>,
    threads: usize,
    /// Whether the server is one that was not started, and so not placed, here.
    is_foreign_server: bool,
}

impl Placement {
    /// Places a server and `threads` client threads on the cores of this process.
    ///
    /// # Errors
    /// [`DriverError::Machine`].
    pub fn new(threads: usize, is_foreign_server: bool) -> Result<Self, DriverError> {
        Ok(Self { cores: allowed_cores()?, threads, is_foreign_server })
    }

    /// The server's core; `None` if there is but one, where nothing is pinned.
    #[must_use]
    pub fn server_core(&self) -> Option<usize> {
        (self.cores.len() > 1 && !self.is_foreign_server).then(|| self.cores[0])
    }

    pub(super) fn core_count(&self) -> usize {
        self.cores.len()
    }

    fn index_of(&self, thread: usize) -> usize {
        (thread + 1) % self.cores.len()
    }

    /// Keeps the calling thread, client thread `thread`, on its core.
    ///
    /// # Errors
    /// [`DriverError::Machine`].
    pub fn pin(&self, thread: usize) -> Result<(), DriverError> {
        if self.cores.len() > 1 {
            pin_to(&self.cores, self.index_of(thread))?;
        }
        Ok(())
    }

    /// Cores by threads, at most one: the part of a thread's processor time that it can have.
    pub(super) fn share_of_core(&self) -> f64 {
        (self.cores.len() as f64 / self.threads as f64).min(1.0)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cores.len() < 2 {
            return write!(formatter, "server and clients share the only core: expect low rates");
        }
        match self.server_core() {
            Some(core) => write!(formatter, "server on core {core}, ")?,
            None => write!(formatter, "server where it runs, ")?,
        }
        let used = self.threads.min(self.cores.len());
        let cores: Vec<String> =
            (0..used).map(|thread| self.cores[self.index_of(thread)].to_string()).collect();
        let threads = if self.threads == 1 { "client thread" } else { "client threads" };
        let noun = if used == 1 { "core" } else { "cores" };
        write!(formatter, "{} {threads} of another process on {noun} {}", self.threads, cores.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(cores: &[usize], threads: usize) -> Placement {
        Placement { cores: cores.to_vec(), threads, is_foreign_server: false }
    }

    #[test]
    fn threads_avoid_the_server_as_long_as_they_can() {
        let four = placement(&[2, 3, 5, 7], 5);
        assert_eq!(four.server_core(), Some(2));
        let cores: Vec<usize> = (0..5).map(|thread| four.cores[four.index_of(thread)]).collect();
        assert_eq!(cores, [3, 5, 7, 2, 3]);
        assert!((four.share_of_core() - 0.8).abs() < f64::EPSILON);
        assert_eq!(
            placement(&[0, 1], 1).to_string(),
            "server on core 0, 1 client thread of another process on core 1"
        );
        assert_eq!(
            placement(&[0, 1], 3).to_string(),
            "server on core 0, 3 client threads of another process on cores 1, 0"
        );
    }

    #[test]
    fn one_core_is_shared_unpinned() {
        let one = placement(&[4], 2);
        assert_eq!(one.server_core(), None);
        one.pin(1).expect("nothing to do");
        assert!(one.to_string().contains("the only core"), "{one}");
    }
}
