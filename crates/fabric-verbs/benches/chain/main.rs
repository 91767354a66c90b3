//! A chain of 16 READs of 64 B through this provider, beside the same in plain C over libibverbs (`chain.c`),
//! in rounds by turns. The process whose memory is read must not be put on a processor meanwhile.
//!
//!     cargo xtask softroce --chain
//!
//! It takes the path of the C program and the device to use, by default the first.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::prng::SplitMix64;
use farsight_base::{ClientId, Line, RegionId, RemoteAddress};
use farsight_fabric::{
    Answer, CallHandler, Connection, Host, QueuePair, ReadMode, Region, RegionRights, ServerPort, Ticket,
};
use farsight_fabric_verbs::{ConnectOptions, ListenOptions, VerbsConnection, VerbsHost, VerbsQueue, devices};

const CHAIN: usize = 16;
const REGION_BYTES: u64 = 1 << 20;
const CHAINS: usize = 300;
const WARM_UP: usize = 50;
const ROUNDS: usize = 21;
const FORMAT_VERSION: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(3600);

/// What a round is done with: how READs are checked, and how the reader waits. It polls, as the C program
/// does, or it spins for a moment and then sleeps, as sessions do.
#[derive(Clone, Copy)]
struct Way {
    mode: ReadMode,
    is_polling: bool,
}

/// Answers every call with nothing.
struct Silent;

impl CallHandler for Silent {
    fn handle(&mut self, _: ClientId, _: Ticket, _request: &[u8], _reply: &mut Vec<u8>) -> Answer {
        Answer::Now
    }
}

/// The process whose memory is read: says where it is, and sleeps until its input ends.
fn own(device: &str) {
    let mut options = ListenOptions::new(FORMAT_VERSION);
    options.device = Some(device.to_owned());
    let host = Arc::new(VerbsHost::listen("127.0.0.1:0", &options).expect("a server"));
    let region = host.create_region(REGION_BYTES, RegionRights::ReadOnly).expect("a region");
    let mut port = host.open_port().expect("a port");
    std::thread::spawn(move || {
        loop {
            if port.serve(1, &mut Silent) == 0 {
                port.wait(PATIENCE);
            }
        }
    });
    let control = Arc::clone(&host);
    std::thread::spawn(move || while control.step(PATIENCE).is_ok() {});
    println!("{} {}", host.socket_address(), region.id().0);
    std::io::stdout().flush().expect("a reader");
    let _ = std::io::stdin().lines().next();
}

/// The other process, and a queue to it.
struct Reader {
    owner: Child,
    region: RegionId,
    queue: VerbsQueue,
    _connection: VerbsConnection,
}

impl Reader {
    fn start(device: &str) -> Self {
        let mut owner = Command::new(std::env::current_exe().expect("this program"))
            .args(["own", device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let mut line = String::new();
        BufReader::new(owner.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("its answer");
        let (address, region) = line.trim().split_once(' ').expect("address and region");
        let region = RegionId(region.parse().expect("a number"));
        let mut options = ConnectOptions::new(FORMAT_VERSION);
        options.device = Some(device.to_owned());
        let connection = VerbsConnection::connect(address, options).expect("a connection");
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(region).expect("the region");
        Self { owner, region, queue, _connection: connection }
    }

    /// Reads one chain from random places.
    fn read(&mut self, random: &mut SplitMix64, Way { mode, is_polling }: Way) {
        for slot in 0..CHAIN {
            let offset_bytes = random.below(REGION_BYTES / 64) * 64;
            self.queue.post_read(slot, RemoteAddress { region: self.region, offset_bytes }, 1, mode);
        }
        self.queue.doorbell().expect("the doorbell");
        while is_polling && !self.queue.is_complete(CHAIN - 1) {
            self.queue.poll().expect("completions");
        }
        self.queue.drain().expect("completions");
        let mut line = [Line::default()];
        for slot in 0..CHAIN {
            self.queue.take_read(slot, &mut line).expect("a line");
        }
        std::hint::black_box(&line);
    }

    /// The median time of a chain, in microseconds.
    fn measure(&mut self, way: Way) -> f64 {
        let mut random = SplitMix64::new(1);
        (0..WARM_UP).for_each(|_| self.read(&mut random, way));
        let times = (0..CHAINS).map(|_| {
            let begun = Instant::now();
            self.read(&mut random, way);
            begun.elapsed().as_secs_f64() * 1e6
        });
        median(times.collect())
    }

    /// How often the owner's threads were put on a processor, ever.
    fn owner_turns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.owner.id())).expect("its threads");
        let turns = tasks.map(|task| {
            let path = task.expect("a thread").path().join("schedstat");
            let text = std::fs::read_to_string(path).expect("the scheduler's count");
            text.split_whitespace().nth(2).and_then(|turns| turns.parse::<u64>().ok()).expect("a number")
        });
        turns.sum()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.owner.kill();
        let _ = self.owner.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the C program measures: the median time of a chain.
fn plain_c(program: &str, device: &str) -> f64 {
    let output = Command::new(program).args([device, &CHAINS.to_string()]).output().expect("the C program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().next().and_then(|time| time.parse().ok()).expect("its median")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let first = || devices().expect("RDMA").first().expect("a device").name.clone();
    match arguments.as_slice() {
        ["own", device] => own(device),
        [program] => compare(program, &first()),
        [program, device] => compare(program, device),
        _ => println!("usage: chain C_PROGRAM [DEVICE]"),
    }
}

fn compare(program: &str, device: &str) {
    let mut reader = Reader::start(device);
    let way = |mode, is_polling| Way { mode, is_polling };
    let ways = [
        ("polling", way(ReadMode::Plain, true)),
        ("waiting", way(ReadMode::Plain, false)),
        ("stamped, waiting", way(ReadMode::Stamped, false)),
    ];
    let mut c = Vec::new();
    let mut ours = ways.map(|_| Vec::new());
    let mut turns = 0;
    for _ in 0..ROUNDS {
        c.push(plain_c(program, device));
        let before = reader.owner_turns();
        for ((_, way), times) in ways.iter().zip(&mut ours) {
            times.push(reader.measure(*way));
        }
        turns += reader.owner_turns() - before;
    }
    println!("chains of {CHAIN} READs of 64 B on {device}, medians of {ROUNDS} rounds of {CHAINS} chains:");
    println!("  {:18} {:8.1} us", "plain C, polling", median(c.clone()));
    for ((name, _), times) in ways.iter().zip(ours) {
        let ratios = times.iter().zip(&c).map(|(ours, c)| ours / c).collect();
        let time = median(times);
        println!("  {name:18} {time:8.1} us, {:.2} of C's in the same round", median(ratios));
    }
    let chains = ways.len() * ROUNDS * (CHAINS + WARM_UP);
    println!("  the process that is read: put on a processor {turns} times in {chains} chains");
    assert_eq!(turns, 0, "READs are one-sided: the process that is read sleeps");
}
