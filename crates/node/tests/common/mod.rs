//! What the tests share: a fabric inside this process, and a client that speaks the protocol.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part of these modules")]

pub mod local_host;
pub mod stepped;
pub mod talk;
