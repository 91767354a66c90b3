//! Compute nodes that hold locks and do nothing more, where a fence ends connections and not processes.

use farsight_conformance::engine::silent;
use farsight_conformance::fabric::tcp::Tcp;

#[test]
fn over_tcp() {
    silent::a_silent_lock_holder_is_fenced_everywhere([Tcp::default(), Tcp::default()]);
}
