//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farsight::Neighbour;

use crate::commands::{self, neighbour};

/// An in-memory, ordered key-value store whose clients read the data where it lies.
#[derive(Debug, Parser)]
#[command(name = "farsight", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  farsight serve &                         start a server
  farsight create prices --value-size 16   make a table of u64 keys
  farsight put prices 100 'sixteen bytes'  store a pair
  farsight get prices 100                  read it
  farsight scan prices --from 50           list pairs in key order
  farsight floor prices 4711               find the pair at a key or below it
  farsight load places boundaries          load a table with half a million real keys
  farsight export /backups/monday          copy tables, whatever their engines
  farsight stats                           see tree, model, memory
  farsight doctor                          see what this machine lacks

  farsight get prices 1 --connect etcd://host:2379/pool    find a pool by its name in etcd

Client commands talk to the server at --connect, $FARSIGHT_URL, or the default
socket, in this order. The default socket is farsight.sock in the first of
$XDG_RUNTIME_DIR, /run/user/UID, /run/farsight (for root) and
$XDG_STATE_HOME/farsight (~/.local/state/farsight) that is this user's alone.
`farsight COMMAND --help` explains a command.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(visible_alias = "memory-node")]
    Serve(commands::serve::Serve),
    ComputeNode(commands::compute_node::Serving),
    Get(commands::get::Get),
    Put(commands::put::Put),
    Add(commands::add::Add),
    Delete(commands::delete::Delete),
    Ttl(commands::ttl::Ttl),
    Drop(commands::drop::Drop),
    Rename(commands::rename::Rename),
    Scan(commands::scan::Scan),
    /// Print the pair with the greatest key below a key
    #[command(after_help = neighbour::EXAMPLES)]
    Lower(neighbour::Neighbours),
    /// Print the pair with the greatest key that is not above a key
    #[command(after_help = neighbour::EXAMPLES)]
    Floor(neighbour::Neighbours),
    /// Print the pair with the least key that is not below a key
    #[command(after_help = neighbour::EXAMPLES)]
    Ceiling(neighbour::Neighbours),
    /// Print the pair with the least key above a key
    #[command(after_help = neighbour::EXAMPLES)]
    Higher(neighbour::Neighbours),
    Tables(commands::tables::Tables),
    Create(commands::create::Create),
    Load(commands::load::Load),
    Export(commands::export::Export),
    Import(commands::import::Import),
    Stats(commands::stats::Stats),
    Dataset(commands::dataset::Dataset),
    Bench(Box<commands::bench::Bench>),
    Figure(commands::figure::Figure),
    Simulate(commands::simulate::Simulate),
    Doctor(commands::doctor::Doctor),
    Repair(commands::repair::Repair),
    Snapshot(commands::snapshot::Snapshot),
    Backup(commands::backup::Backup),
    Restore(commands::restore::Restore),
    Verify(commands::verify::Verify),
    Log(commands::log::Log),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve(command) => command.run(),
            Self::ComputeNode(command) => command.run(),
            Self::Get(command) => command.run(),
            Self::Put(command) => command.run(),
            Self::Add(command) => command.run(),
            Self::Delete(command) => command.run(),
            Self::Ttl(command) => command.run(),
            Self::Drop(command) => command.run(),
            Self::Rename(command) => command.run(),
            Self::Scan(command) => command.run(),
            Self::Lower(command) => command.run(Neighbour::Lower),
            Self::Floor(command) => command.run(Neighbour::Floor),
            Self::Ceiling(command) => command.run(Neighbour::Ceiling),
            Self::Higher(command) => command.run(Neighbour::Higher),
            Self::Tables(command) => command.run(),
            Self::Create(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Import(command) => command.run(),
            Self::Stats(command) => command.run(),
            Self::Dataset(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Figure(command) => command.run(),
            Self::Simulate(command) => command.run(),
            Self::Doctor(command) => command.run(),
            Self::Repair(command) => command.run(),
            Self::Snapshot(command) => command.run(),
            Self::Backup(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Verify(command) => command.run(),
            Self::Log(command) => command.run(),
        }
    }
}
