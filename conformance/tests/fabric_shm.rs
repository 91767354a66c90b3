//! The suite of the verb contract over shared memory.

use farsight_conformance::fabric::shm::Shm;

farsight_conformance::fabric_suite!(Shm::new());
