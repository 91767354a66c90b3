//! What the processes that other tests start do.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use farsight_base::sync::Ordering;
use farsight_base::{Line, RegionId, RemoteAddress, serving};
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, Region, RegionRights};

use farsight_base::prng::SplitMix64;
use farsight_fabric_shm::sandbox::refuse_userfaultfd;

use crate::harness::{ROLE, Running, SOCKET, connect};
use crate::sealing;

/// What a scattering client prints when it was refused, before the number of doorbells that were not.
pub(crate) const DISMISSED: &str = "dismissed behind ";
/// The word in which it counts them.
pub(crate) const COUNT_WORD: u64 = 1;
/// Bytes of the region that scattering clients write.
pub(crate) const REGION_BYTES: u64 = 8 << 20;
/// What a role prints once it has got where the test needs it.
const READY: &str = "ready: ";

/// The entry of every role; without one it is not a test.
#[test]
fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let socket = std::env::var(SOCKET).expect("a role has a socket");
    let socket = Path::new(&socket);
    match role.as_str() {
        "busy client" => busy_client(socket),
        "unguarded busy client" => {
            refuse_userfaultfd().expect("a filter");
            busy_client(socket);
        }
        "writing client" => writing_client(socket),
        "unguarded writing client" => {
            refuse_userfaultfd().expect("a filter");
            writing_client(socket);
        }
        "unguarded writing client that serves" => {
            refuse_userfaultfd().expect("a filter");
            serving::begin();
            writing_client(socket);
        }
        "scattering client" => scattering_client(socket, 0),
        "scattering client that serves" => {
            serving::begin();
            scattering_client(socket, 0);
        }
        "scattering client that has mapped anew" => scattering_client(socket, 6),
        "scattering client that maps anew" => scattering_client(socket, u64::MAX),
        "server" => server(socket),
        "server that withdraws" => server_that_withdraws(socket),
        "server with a forked child" => {
            server_with_a_forked_child(socket);
        }
        "sealing client" => sealing::try_everything(socket),
        other => panic!("there is no role {other}"),
    }
}

/// Tells the test that the role stands.
fn ready() {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{READY}").and_then(|()| output.flush()).expect("a pipe");
}

/// Waits until the process says so.
pub(crate) fn await_ready(child: &mut Child) {
    await_word(child, READY);
}

/// Waits until the process says a line that contains `word`, and returns the rest of that line.
pub(crate) fn await_word(child: &mut Child, word: &str) -> String {
    let output = child.stdout.as_mut().expect("its output is piped");
    // Byte by byte: what comes behind the line is read the next time.
    let (mut line, mut byte) = (Vec::new(), [0]);
    while output.read(&mut byte).is_ok_and(|count| count == 1) {
        if byte[0] != b'\n' {
            line.push(byte[0]);
        } else if let Some((_, rest)) = String::from_utf8_lossy(&std::mem::take(&mut line)).split_once(word) {
            return rest.to_owned();
        }
    }
    panic!("the process ended before it said {word:?}");
}

/// Calls and READs until it is killed, opening and closing queues.
fn busy_client(socket: &Path) {
    let connection = connect(socket);
    let mut told = false;
    loop {
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(RegionId(1)).expect("the region attaches");
        for _ in 0..20 {
            for slot in 0..64 {
                queue.post_call(slot, &[7; 300]).expect("the request fits");
            }
            queue.post_read(64, RemoteAddress { region: RegionId(1), offset_bytes: 0 }, 4, ReadMode::Stamped);
            queue.doorbell().expect("the doorbell rings");
            queue.take_read(64, &mut [Line::ZERO; 4]).expect("a READ");
            while !(0..64).all(|slot| queue.is_complete(slot)) {
                queue.wait(Duration::from_millis(100)).expect("waiting");
                queue.poll().expect("polling");
            }
            if !told {
                ready();
                told = true;
            }
        }
    }
}

/// Counts in the region's first word, and goes on doing nothing once it is refused.
fn writing_client(socket: &Path) {
    let connection = connect(socket);
    let mut queue = connection.open_queue().expect("a queue");
    let at = RemoteAddress { region: RegionId(1), offset_bytes: 0 };
    queue.attach(at.region).expect("the region attaches");
    ready();
    loop {
        queue.post_fetch_add(0, at, 1);
        if let Err(error) = queue.doorbell().and_then(|()| queue.take_word(0).map(drop)) {
            assert!(matches!(error, FabricError::Dismissed { .. }), "{error}");
            break;
        }
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Adds to words all over the region until it is refused, says so, and goes on doing nothing. At first it
/// maps the region anew, so many times: by huge pages and by attaching it again, in turns.
fn scattering_client(socket: &Path, anew: u64) {
    const ROUNDS: u64 = 4096;
    let ready_after = anew.checked_mul(ROUNDS).unwrap_or(0);
    let (mut rounds, mut told) = (0, 0);
    let connection = connect(socket);
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(RegionId(1)).expect("the region attaches");
    let mut random = SplitMix64::fresh();
    let refused = loop {
        if rounds == ready_after {
            ready();
        }
        rounds += 1;
        if rounds.is_multiple_of(ROUNDS) && rounds / ROUNDS <= anew {
            if (rounds / ROUNDS).is_multiple_of(2) {
                connection.collapse_to_huge_pages();
            } else {
                queue.detach(RegionId(1));
                // A link that has ended says so at the next doorbell.
                let _ = queue.attach(RegionId(1));
            }
        }
        for slot in 0..8 {
            let word = COUNT_WORD + 1 + random.below(REGION_BYTES / 8 - COUNT_WORD - 1);
            let at = RemoteAddress { region: RegionId(1), offset_bytes: word * 8 };
            if slot % 2 == 0 {
                queue.post_fetch_add(slot, at, 1);
            } else {
                queue.post_write(slot, at, &[random.next_u64()]);
            }
        }
        queue.post_fetch_add(8, RemoteAddress { region: RegionId(1), offset_bytes: COUNT_WORD * 8 }, 1);
        if let Err(error) = queue.doorbell() {
            break error;
        }
        told += 1;
    };
    assert!(matches!(refused, FabricError::Dismissed { .. }), "{refused}");
    let mut output = std::io::stdout().lock();
    writeln!(output, "{DISMISSED}{told}").and_then(|()| output.flush()).expect("a pipe");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Serves one region, whose first word is 42, until it is killed.
fn server(socket: &Path) {
    let server = Running::start(socket);
    let region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
    region.words()[0].store(42, Ordering::Release);
    ready();
    loop {
        std::thread::park();
    }
}

/// Serves two regions, whose words are 1 and 2, until somebody has connected for a while. Then it serves the
/// first alone, a third whose words are 3, and the number 7.
fn server_that_withdraws(socket: &Path) {
    let server = Running::start(socket);
    let create = |value: u64| {
        let region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
        region.words().iter().for_each(|word| word.store(value, Ordering::Release));
        region
    };
    let _regions = [create(1), create(2)];
    ready();
    while server.host.client_count() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(300));
    server.host.withdraw_region(RegionId(2)).expect("it was there");
    let _third = create(3);
    server.host.notify(7);
    loop {
        std::thread::park();
    }
}

/// A server whose forked child keeps all of its sockets open for three seconds.
fn server_with_a_forked_child(socket: &Path) {
    let server = Running::start(socket);
    let _region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
    std::thread::spawn(move || {
        while server.host.client_count() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: the child calls nothing but sleep and _exit, which are async-signal-safe.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it takes a number.
            unsafe { libc::sleep(3) };
            // SAFETY: it takes a number and ends the process.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "fork failed");
        let _ = std::io::stdout().write_all(format!("{READY}\n").as_bytes());
        let _ = std::io::stdout().flush();
        loop {
            std::thread::park();
        }
    });
    loop {
        std::thread::park();
    }
}
