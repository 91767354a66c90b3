//! A server's port that stays its test's own while no server listens.
//!
//! Invariant: nothing else takes the port between two lives of a server. A port of the system's choice
//! would go to the next socket that asks. These lie outside the range of which the system chooses, and this
//! process gives each out once.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric_tcp::Waiting;

/// Ports from here on: those below belong to well-known services.
const PORT_MIN: u16 = 10_000;

/// The system's range begins here unless it says otherwise.
const EPHEMERAL_MIN: u16 = 32_768;

/// A program that another thread starts holds this process's sockets until it is loaded.
const HELD_MAX: Duration = Duration::from_secs(20);

static GIVEN_OUT: AtomicU64 = AtomicU64::new(0);

/// An address of `host` at which nobody listens, and which no other caller in this process gets.
///
/// # Panics
/// If `host` is not this machine's, or no port is free.
#[must_use]
pub fn own_address(host: IpAddr) -> SocketAddr {
    let ports = ports_of_nobody();
    let count = u64::from(ports.end - ports.start);
    let first = u64::from(std::process::id()) * 97;
    let candidates = || {
        // Relaxed: the number is all that is shared.
        let nth = GIVEN_OUT.fetch_add(1, Ordering::Relaxed);
        let offset = u16::try_from((first + nth) % count).expect("less than the number of ports");
        SocketAddr::new(host, ports.start + offset)
    };
    let mut tried = std::iter::repeat_with(candidates).take(usize::try_from(count).expect("16 bits"));
    tried.find(|address| TcpListener::bind(address).is_ok()).expect("a free port of this machine")
}

/// How both sides at an address wait: in one test of four as is usual, a brief look before they sleep. The
/// others sleep at once. Where several tests share few cores, a look is mostly in vain, and half of the
/// processor's time went into looks.
#[must_use]
pub fn waiting_at(address: &str) -> Waiting {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_some_and(|port| port.is_multiple_of(4)) { Waiting::Briefly } else { Waiting::Asleep }
}

/// What `listen` gives once its port is free.
///
/// # Panics
/// If it fails by something else, or the port is not free in time.
pub fn listen_at_own<H, E: std::fmt::Display>(
    mut listen: impl FnMut() -> Result<H, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> H {
    let begun = Instant::now();
    loop {
        match listen() {
            Ok(host) => return host,
            Err(error) if is_in_use(&error) && begun.elapsed() < HELD_MAX => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("a server: {error}"),
        }
    }
}

/// The ports below those of which the system chooses.
fn ports_of_nobody() -> std::ops::Range<u16> {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = told.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(EPHEMERAL_MIN);
    // A system that chooses of nearly all leaves none: then chance decides, as it does for everyone.
    if end > PORT_MIN + 1_000 { PORT_MIN..end } else { PORT_MIN..EPHEMERAL_MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_gets_another_address() {
        let host = IpAddr::from([127, 0, 0, 1]);
        let mut addresses: Vec<_> = (0..100).map(|_| own_address(host)).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 100);
    }

    #[test]
    fn a_port_that_is_held_for_a_moment_is_waited_for() {
        let address = own_address(IpAddr::from([127, 0, 0, 1]));
        let holder = TcpListener::bind(address).unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(holder);
        });
        let in_use = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
        let listener = listen_at_own(|| TcpListener::bind(address), in_use);
        assert_eq!(listener.local_addr().unwrap(), address);
        ending.join().unwrap();
    }
}
