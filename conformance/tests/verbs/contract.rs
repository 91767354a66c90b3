//! The suite of the verb contract.

use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

farsight_conformance::fabric_suite!(Verbs::new(), if is_asked_for());
