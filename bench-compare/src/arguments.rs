//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use farsight::{ServerUrl, VALUE_BYTES_MAX, VALUE_BYTES_MIN};

use crate::durable::DurableStore;
use crate::peers::farsight::Acknowledged;
use crate::redis::Sync;
use crate::stores::StoreName;
use crate::values::ValuesWork;

/// The longest value that is compared.
const LONGEST_BYTES: u64 = 64 << 10;

/// Farsight beside other stores: the same keys, the same operations, in one run
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) child: Option<Child>,
    #[command(flatten)]
    pub(crate) comparison: Comparison,
}

const HELP: &str = "\
Works:
  get u, get z    GETs in batches (--batch), uniform and Zipfian .99; stores
                  without batched GETs are asked one by one
  single u, z     GETs one by one
  scan            1 to 100 pairs from any key
  A to F          YCSB, Zipfian .99 (D: latest); C is get z
  95/5            95 % GETs, 5 % inserts, uniform

RocksDB takes part if built with --features rocksdb; see README.md.

Examples:
  cargo run --release
  cargo run --release -- --keys 10000000 --stores farsight,static-tree,lmdb,btree-map
  cargo run --release -- --dataset longitudes --json longitudes.json
  cargo run --release -- --document ../docs/comparison.md
  cargo run --release -- redis              Farsight over TCP beside Redis
  cargo run --release -- durable            durable writes
  cargo run --release -- values             values of 128 B to 4 KiB";

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct Comparison {
    /// The keys: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "uniform")]
    pub(crate) dataset: String,
    /// Keys to load [default: all of a real set, 1 million of a synthetic one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: Option<u64>,
    /// The stores, Farsight first [default: all that are built in]
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    pub(crate) stores: Vec<StoreName>,
    /// Operations of a batch
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) batch: u64,
    /// Rounds of each work
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) rounds: u64,
    /// Time of one store's turn, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.15, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Where stores on files keep them; memory, so that no disk is measured
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    pub(crate) directory: PathBuf,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Put the result into a document, in place of the one for the same keys
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,
}

/// Another comparison; and what this program does as a child of itself.
#[derive(Debug, Subcommand)]
pub(crate) enum Child {
    Redis(Network),
    Durable(Durable),
    Values(ValueSizes),
    /// Become a Redis server
    #[command(hide = true)]
    RedisServer {
        #[arg(long)]
        program: String,
        #[arg(long)]
        port: u16,
        #[arg(long)]
        core: Option<usize>,
        #[arg(long)]
        sync: Option<Sync>,
    },
    /// Serve Farsight
    #[command(hide = true)]
    Server {
        #[arg(long)]
        socket: PathBuf,
        #[arg(long)]
        core: Option<usize>,
        #[arg(long)]
        listen: Option<ServerUrl>,
        #[arg(long)]
        data: Option<PathBuf>,
        #[arg(long, default_value = "durable")]
        ack: Acknowledged,
    },
    /// Load LMDB, so that its reader is another process than its writer
    #[command(hide = true)]
    LoadLmdb {
        #[arg(long)]
        directory: PathBuf,
        #[arg(long)]
        keys: PathBuf,
    },
}

/// Farsight over TCP beside Redis: GETs and ordered look-ups, at equal requests in flight
///
/// Both servers on one core, this client on another.
#[derive(Debug, Args)]
pub(crate) struct Network {
    /// Keys to load, uniform
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: u64,
    /// Rounds of each work
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) rounds: u64,
    /// Time of one's turn, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// The server's program
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    pub(crate) redis_server: String,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Put the result into a document, in place of the one for as many keys
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,
}

/// Durable writes: Farsight beside LMDB, RocksDB and Redis, and beside one fdatasync
///
/// All keep their files in one directory. A write counts once it is acknowledged. At the end each store is
/// ended and opened again, and every value is checked. Servers that promise it are ended by SIGKILL.
#[derive(Debug, Args)]
pub(crate) struct Durable {
    /// Where all stores keep their files; what is made there is removed at the end
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Keys to load, uniform, and to write, at random
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: u64,
    /// Bytes of the values, with commas between
    #[arg(long, value_name = "B[,B...]", value_delimiter = ',', default_values_t = [8, 128],
        value_parser = clap::value_parser!(u64).range(VALUE_BYTES_MIN as u64..=VALUE_BYTES_MAX as u64))]
    pub(crate) sizes: Vec<u64>,
    /// Writes in flight: with LMDB and RocksDB those of one transaction, with commas between
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_values_t = [1, 64, 2048],
        value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) depths: Vec<u64>,
    /// The stores [default: all that are built in]
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    pub(crate) stores: Vec<DurableStore>,
    /// Rounds at each depth
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) rounds: u64,
    /// Time of one's turn, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Redis's program
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    pub(crate) redis_server: String,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Put the result into a document, in place of the one for as many keys
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,
}

/// Values of 128 B to 4 KiB: Farsight's blocks beside LMDB, Redis and memcpy
///
/// GETs over shared memory beside LMDB and plain copies, over TCP beside Redis; then puts.
#[derive(Debug, Args)]
pub(crate) struct ValueSizes {
    /// Bytes of the values, with commas between
    #[arg(long, value_name = "B[,B...]", value_delimiter = ',', default_values_t = [128, 1024, 4096],
        value_parser = clap::value_parser!(u64).range(VALUE_BYTES_MIN as u64..=LONGEST_BYTES))]
    pub(crate) sizes: Vec<u64>,
    /// What to measure [default: all]
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    pub(crate) works: Vec<ValuesWork>,
    /// MiB of the values of a size: more than the caches hold. All stores together take five times as much
    #[arg(long, value_name = "MIB", default_value_t = 512,
        value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) mib: u64,
    /// Requests of a batch
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) batch: u64,
    /// Rounds of each work
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) rounds: u64,
    /// Time of one's turn, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Where LMDB keeps its file; memory, so that no disk is measured
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    pub(crate) directory: PathBuf,
    /// Redis's program
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    pub(crate) redis_server: String,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Put the result into a document, in place of the one for as many MiB
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 60.0 => Ok(seconds),
        _ => Err(format!("{text} is no time between 0 and 60 s")),
    }
}

/// The command that repeats this run, but for where its results go.
pub(crate) fn command() -> String {
    let features = if cfg!(feature = "rocksdb") { " --features rocksdb" } else { "" };
    let mut command = format!("cargo run --release{features} --");
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        if ["--json", "--document"].contains(&argument.as_str()) {
            given.next();
        } else {
            command.push(' ');
            command.push_str(&argument);
        }
    }
    command.trim_end_matches(" --").to_owned()
}
