//! The harness judged by itself: cables carry, lose and delay what they are told to.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::namespaces::{Network, Way};

const PACKETS: usize = 200;
const PACKET_BYTES: usize = 100;
/// How long nothing must come before nothing more is expected.
const SILENCE: Duration = Duration::from_millis(300);

/// A socket at each end of a cable.
struct Ends {
    server: UdpSocket,
    client: UdpSocket,
}

impl Ends {
    fn new(network: &Network, client: usize) -> Self {
        let socket = |address: &str| {
            let socket = UdpSocket::bind(address).expect("a socket");
            socket.set_read_timeout(Some(SILENCE)).expect("a bound");
            socket
        };
        let server = network.on_server(|| socket("0.0.0.0:0"));
        let client = {
            let port = server.local_addr().expect("its address").port();
            let socket = network.on_client(client, || socket("0.0.0.0:0"));
            socket.connect((Network::server_address(client), port)).expect("a route");
            socket
        };
        Self { server, client }
    }

    /// Sends packets to the server, which sends back what arrives. Returns how many arrived there, and here.
    fn exchange(&self) -> (usize, usize) {
        let mut packet = [7; PACKET_BYTES];
        (0..PACKETS).for_each(|_| {
            self.client.send(&packet).expect("its sender notices nothing");
        });
        let mut arrived = 0;
        while arrived < PACKETS
            && let Ok((_, from)) = self.server.recv_from(&mut packet)
        {
            arrived += 1;
            self.server.send_to(&packet, from).expect("its sender notices nothing");
        }
        let mut returned = 0;
        while returned < arrived && self.client.recv(&mut packet).is_ok() {
            returned += 1;
        }
        (arrived, returned)
    }
}

#[test]
fn cables_do_what_they_are_told() {
    let Some(network) = Network::with_clients(2) else { return };
    let (ends, others) = (Ends::new(&network, 0), Ends::new(&network, 1));
    assert_eq!(ends.exchange(), (PACKETS, PACKETS));

    network.lose(0, Way::ToServer, 100);
    assert_eq!(ends.exchange(), (0, 0));
    assert_eq!(others.exchange(), (PACKETS, PACKETS), "the other cable is whole");
    network.heal(0);

    network.lose(0, Way::ToClient, 100);
    assert_eq!(ends.exchange(), (PACKETS, 0));
    network.cut(0);
    assert_eq!(ends.exchange(), (0, 0));
    network.heal(0);
    assert_eq!(ends.exchange(), (PACKETS, PACKETS));

    // By chance less than one in a million runs leaves these bounds.
    network.lose(0, Way::ToServer, 30);
    let (arrived, returned) = ends.exchange();
    assert!((100..180).contains(&arrived) && returned == arrived, "{arrived} of {PACKETS} arrived");
    network.heal(0);

    // 200 packets of 142 B with their headers are 227 kbit; the burst takes a tenth of them.
    network.slow_down(0, 200);
    let begun = Instant::now();
    assert_eq!(ends.exchange(), (PACKETS, PACKETS), "slow is not lost");
    assert!(begun.elapsed() > Duration::from_secs(1), "it took {:?}", begun.elapsed());
    network.heal(0);
    assert_eq!(ends.exchange(), (PACKETS, PACKETS));
}
