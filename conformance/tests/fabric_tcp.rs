//! The suite of the verb contract over TCP.

use farsight_conformance::fabric::tcp::Tcp;

farsight_conformance::fabric_suite!(Tcp::default());
