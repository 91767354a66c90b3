//! Why no connection comes about over TCP.

use farsight_fabric_tcp::{ListenOptions, TcpHost};
use farsight_layout::FORMAT_VERSION;

use super::causes::{self, check};

const LOCALHOST: &str = "127.0.0.1";

#[test]
fn every_error_names_peer_step_and_remedy() {
    let other = TcpHost::listen("127.0.0.1:0", &ListenOptions::new(FORMAT_VERSION + 1)).expect("a host");
    let peer = other.local_address().to_string();
    let mut causes = causes::strangers("tcp", LOCALHOST);
    causes.push(causes::other_version("tcp", other, peer));
    causes.extend(causes::certificates("tcp", LOCALHOST));
    causes.extend(causes::listening("tcp", LOCALHOST));
    check(causes);
}
