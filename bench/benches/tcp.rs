//! READs over TCP, against the most that a network card in software can do on this machine. That card takes a
//! message with the places of a batch (of 256 at most) and answers with their lines. It checks and keeps
//! nothing. Server and client have a core each, both sides of either in turns, the same bytes. The bench also
//! measures filtered READs, as those of GETs are.
//!
//!     cargo bench -p farsight-bench --bench tcp [-- LINES [ROUNDS [MEBIBYTES [DEPTH]]]]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_base::words::{CopyMode, bytes_of, bytes_of_mut, copy_lines, prefetch};
use farsight_base::{ClientId, LINE_BYTES, Line, RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_bench::machine::{allowed_cores, pin_to, thread_cpu_time};
use farsight_fabric::filter::{Filter, Filtered};
use farsight_fabric::{
    Answer, CallHandler, Connection, Host, QueuePair, ReadMode, Region, RegionRights, ServerPort, Ticket,
};
use farsight_fabric_shm::ShmHost;
use farsight_fabric_tcp::{ConnectOptions, ListenOptions, TcpConnection, TcpHost, TcpQueue, Tls, Waiting};

const FORMAT: u32 = 1;
/// READs under way together.
const DEPTHS: [usize; 5] = [1, 16, 64, 256, 1024];
/// READs of one message: of many the server works on the next while the client takes the last.
const PIECE: usize = 256;
/// How long each figure is measured at a time: all in turns, so that what else the machine does meets all.
const TIME: Duration = Duration::from_millis(40);

/// The word of a record's first line that filtered READs look for, and what it holds.
const WANTED_WORD: usize = 5;
const FILTER: Filter = Filter { words: 1 << WANTED_WORD, parts_begin: 3, part_lines: 1, sharing_log2: 0 };

fn wanted(offset_bytes: u64) -> u64 {
    offset_bytes + 1
}

struct NoCalls;

impl CallHandler for NoCalls {
    fn handle(&mut self, _: ClientId, _: Ticket, _request: &[u8], _reply: &mut Vec<u8>) -> Answer {
        Answer::Now
    }
}

/// What one measurement found.
#[derive(Clone, Copy, Default)]
struct Found {
    reads_per_s: f64,
    server_cpu_ns: f64,
}

/// A thread of the server's, on the first core; tells its processor time as it goes.
struct ServerThread {
    stop: Arc<AtomicBool>,
    cpu_ns: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ServerThread {
    /// Runs `work` again and again until it says no, or the thread is dropped. A profile shows the name.
    fn start(name: &str, mut work: impl FnMut() -> bool + Send + 'static) -> Self {
        let (stop, cpu_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, told) = (Arc::clone(&stop), Arc::clone(&cpu_ns));
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            pin(0);
            // Relaxed: neither flag nor figure carries anything with it.
            while !stopped.load(Ordering::Relaxed) && work() {
                told.store(thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
            }
        });
        Self { stop, cpu_ns, thread: Some(thread.expect("a thread")) }
    }

    fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server's thread");
        }
    }
}

/// Binds this thread to one of the cores that the process had at its start: a thread inherits its maker's.
fn pin(index: usize) {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    let cores = CORES.get_or_init(|| allowed_cores().expect("the cores of this process"));
    pin_to(cores, index % cores.len()).expect("a core");
}

/// Measures batches of `depth`, each done by `batch`.
fn measure(server: &ServerThread, depth: usize, mut batch: impl FnMut()) -> Found {
    for _ in 0..20 {
        batch();
    }
    let (begun, cpu_ns) = (Instant::now(), server.cpu_ns());
    let mut batches = 0;
    while begun.elapsed() < TIME {
        batch();
        batches += 1;
    }
    let reads = (batches * depth) as f64;
    Found {
        reads_per_s: reads / begun.elapsed().as_secs_f64(),
        server_cpu_ns: server.cpu_ns().saturating_sub(cpu_ns) as f64 / reads,
    }
}

/// Takes all of `into`, looking again and again if the socket does not wait.
fn take(socket: &mut TcpStream, mut into: &mut [u8]) -> bool {
    while !into.is_empty() {
        match socket.read(into) {
            Ok(0) => return false,
            Ok(length_bytes) => into = &mut into[length_bytes..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("the limit's connection: {error}"),
        }
    }
    true
}

fn give(socket: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(length_bytes) => bytes = &bytes[length_bytes..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("the limit's connection: {error}"),
        }
    }
}

/// The limit: sixteen bytes a READ one way, its lines the other.
struct Limit {
    socket: TcpStream,
    server: ServerThread,
    request: Vec<u8>,
    answer: Vec<Line>,
    line_count: usize,
}

impl Limit {
    fn start(region: &Arc<dyn Region>, line_count: usize, is_spinning: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let mut peer = listener.accept().expect("a connection").0;
        for socket in [&socket, &peer] {
            socket.set_nodelay(true).expect("an option");
            socket.set_nonblocking(is_spinning).expect("an option");
        }
        let region = Arc::clone(region);
        let (mut request, mut answer) = (vec![0_u8; 16 * 1024], vec![Line::ZERO; 1024 * line_count]);
        let mut filled = 0;
        let server = ServerThread::start("limit", move || {
            filled += match peer.read(&mut request[filled..]) {
                Ok(0) => return false,
                Ok(length_bytes) => length_bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => panic!("the limit's connection: {error}"),
            };
            let depth = filled / 16;
            let first =
                |place: &[u8]| u64::from_le_bytes(place[..8].try_into().expect("eight bytes")) as usize;
            let places = request[..depth * 16].chunks_exact(16);
            let words =
                |place: &[u8]| &region.words()[first(place)..first(place) + line_count * WORDS_PER_LINE];
            for place in places.clone() {
                words(place).chunks(WORDS_PER_LINE).for_each(|line| prefetch(&line[0]));
            }
            for (place, lines) in places.zip(answer.chunks_exact_mut(line_count)) {
                copy_lines(words(place), lines, CopyMode::Plain);
            }
            give(&mut peer, bytes_of(&answer[..depth * line_count]));
            request.copy_within(depth * 16..filled, 0);
            filled -= depth * 16;
            true
        });
        Self { socket, server, request: Vec::new(), answer: vec![Line::ZERO; 1024], line_count }
    }

    fn measure(&mut self, depth: usize, places: &mut impl FnMut() -> u64) -> Found {
        let Self { socket, server, request, answer, line_count } = self;
        measure(server, depth, || {
            for begin in (0..depth).step_by(PIECE) {
                request.clear();
                for _ in begin..depth.min(begin + PIECE) {
                    request.extend_from_slice(&(places() / 8).to_le_bytes());
                    request.extend_from_slice(&[0; 8]);
                }
                give(socket, request);
            }
            // A client that looks at lines as they come needs no room for all of them.
            let mut lines = depth * *line_count;
            while lines > 0 {
                let piece = lines.min(answer.len());
                assert!(take(socket, bytes_of_mut(&mut answer[..piece])), "the server went");
                lines -= piece;
            }
        })
    }
}

/// Farsight's own: a server that exports the same region, and a client of it.
struct Own {
    server: ServerThread,
    _control: ServerThread,
    host: Arc<TcpHost>,
    _connection: TcpConnection,
    queue: TcpQueue,
    region: RegionId,
    line_count: usize,
}

impl Own {
    fn start(region: &Arc<dyn Region>, line_count: usize, waiting: Waiting, tls: Option<&Tls>) -> Self {
        let options = ListenOptions { tls: tls.cloned(), waiting, ..ListenOptions::new(FORMAT) };
        let host = Arc::new(TcpHost::listen("127.0.0.1:0", &options).expect("a server"));
        host.export_region(region, RegionRights::ReadOnly).expect("the region");
        let mut port = host.open_port().expect("a port");
        let name = if tls.is_some() { "server, TLS" } else { "server" };
        let server = ServerThread::start(name, move || {
            if port.serve(64, &mut NoCalls) == 0 {
                port.wait(Duration::from_millis(100));
            }
            true
        });
        let stepping = Arc::clone(&host);
        let control = ServerThread::start("control", move || {
            stepping.step(Duration::from_millis(100)).expect("a step");
            true
        });
        let options = ConnectOptions { tls: tls.cloned(), waiting, ..ConnectOptions::new(FORMAT) };
        let connection =
            TcpConnection::connect(&host.local_address().to_string(), options).expect("a client");
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(region.id()).expect("the region");
        let region = region.id();
        Self { server, _control: control, host, _connection: connection, queue, region, line_count }
    }

    fn measure(&mut self, depth: usize, is_filtered: bool, places: &mut impl FnMut() -> u64) -> Found {
        let Self { server, queue, region, line_count, .. } = self;
        let mut lines = vec![Line::ZERO; *line_count];
        measure(server, depth, || {
            for slot in 0..depth {
                let from = RemoteAddress { region: *region, offset_bytes: places() };
                if is_filtered {
                    queue.post_filtered_read(slot, from, *line_count, wanted(from.offset_bytes), FILTER);
                } else {
                    queue.post_read(slot, from, *line_count, ReadMode::Stamped);
                }
                if (slot + 1).is_multiple_of(PIECE) || slot + 1 == depth {
                    queue.doorbell().expect("a doorbell");
                }
            }
            for slot in 0..depth {
                queue.drain_slot(slot).expect("a READ");
                if is_filtered {
                    let filtered = queue.view_filtered(slot, &mut lines).expect("a READ");
                    assert!(matches!(filtered, Filtered::Picked { word: WANTED_WORD, .. }), "{filtered:?}");
                } else {
                    std::hint::black_box(queue.view_read(slot, &mut lines).expect("a READ"));
                }
            }
        })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.host.wake();
    }
}

fn certificates() -> Tls {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    Tls::from_pem(certificate.as_bytes(), key.as_bytes(), certificate.as_bytes()).expect("a side")
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let number = |index: usize, otherwise| numbers.get(index).copied().unwrap_or(otherwise);
    let (line_count, rounds, mebibytes) = (number(0, 7), number(1, 15), number(2, 1024));
    let directory = tempfile::tempdir().expect("a directory");
    let memory =
        ShmHost::listen(directory.path().join("socket"), farsight_fabric_shm::ListenOptions::new(FORMAT));
    let memory = memory.expect("a host of the region");
    let bytes = (mebibytes as u64) << 20;
    let region = memory.create_region(bytes, RegionRights::ReadOnly).expect("memory");
    for (index, line) in region.words().chunks(WORDS_PER_LINE).enumerate() {
        // Word 5 of each line is occupied and has the line's place in it: a record begins anywhere.
        line[0].store(2 | 1 << (56 + WANTED_WORD), Ordering::Relaxed);
        line[WANTED_WORD].store(wanted((index * LINE_BYTES) as u64), Ordering::Relaxed);
    }
    let huge = region.collapse_to_huge_pages(bytes);
    println!("READs of {line_count} lines from {mebibytes} MiB, {} MiB on huge pages", huge >> 20);
    pin(1);
    let mut random = SplitMix64::new(7);
    let pieces = bytes / (line_count * LINE_BYTES) as u64;
    let mut places = move || random.below(pieces) * (line_count * LINE_BYTES) as u64;
    let tls = certificates();
    let own = [
        ("asleep", Waiting::Asleep, None, false),
        ("briefly", Waiting::Briefly, None, false),
        ("spinning", Waiting::Spinning, None, false),
        ("TLS, briefly", Waiting::Briefly, Some(&tls), false),
        ("filtered", Waiting::Briefly, None, true),
        ("filtered, TLS", Waiting::Briefly, Some(&tls), true),
    ];
    let names = ["limit, asleep", "limit, spinning"].into_iter().chain(own.iter().map(|own| own.0));
    let names: Vec<&str> = names.collect();
    let depths = numbers.get(3).map_or(&DEPTHS[..], std::slice::from_ref);
    for &depth in depths {
        assert!((1..=1024).contains(&depth), "a queue pair has 1024 slots");
        let mut found: Vec<Vec<Found>> = vec![Vec::new(); names.len()];
        for _ in 0..rounds {
            for (index, found) in found.iter_mut().enumerate() {
                found.push(
                    if let Some((_, waiting, tls, is_filtered)) = index.checked_sub(2).map(|index| own[index])
                    {
                        Own::start(&region, line_count, waiting, tls).measure(depth, is_filtered, &mut places)
                    } else {
                        Limit::start(&region, line_count, index == 1).measure(depth, &mut places)
                    },
                );
            }
        }
        let limit = |round: usize| found[0][round].reads_per_s.max(found[1][round].reads_per_s);
        for (found, name) in found.iter().zip(&names) {
            let fractions = found.iter().enumerate().map(|(round, found)| found.reads_per_s / limit(round));
            let fraction = median(fractions.collect());
            let rate = median(found.iter().map(|found| found.reads_per_s).collect()) / 1e6;
            let cpu_ns = median(found.iter().map(|found| found.server_cpu_ns).collect());
            print!("depth {depth:>4} {name:>16}: {rate:>7.3} M/s, {fraction:.2} of the limit, ");
            println!("server {cpu_ns:.0} ns a READ");
        }
    }
}
