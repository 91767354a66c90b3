//! The suite of the engine contract over XStore and TCP.

use std::sync::Arc;

use farsight_conformance::engine::direct::DirectStore;
use farsight_conformance::fabric::tcp::Tcp;

farsight_conformance::engine_suite!(DirectStore::start(Arc::new(Tcp::default()), 64 << 20));
