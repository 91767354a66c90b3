//! `farsight serve`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use farsight::{Server, default_socket};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::size;

/// Run a server until SIGINT or SIGTERM
///
/// Prints one line, "ready url=URL pid=PID", when clients can connect. Tables live in this process's memory
/// and end with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight serve
  farsight serve --socket /run/farsight/main.sock --workers 2 --memory 16G")]
pub(crate) struct Serve {
    /// Path of the socket at which clients connect
    #[arg(long, value_name = "PATH", default_value_os_t = default_socket())]
    socket: PathBuf,
    /// Threads that execute writes and calls; reads of clients need none
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Most memory a table takes, as in 512M or 4G [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// A user, by number, that may connect besides the server's own; repeatable
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
}

impl Serve {
    /// A server like that of `farsight serve --socket PATH`.
    pub(crate) fn at(socket: PathBuf) -> Self {
        Self { socket, workers: 1, memory: None, allow_uid: Vec::new() }
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        self.serve(|| Ok(()))
    }

    /// Serves; calls `guarded` once signals are heard, before it begins.
    pub(crate) fn serve(self, guarded: impl FnOnce() -> Result<()>) -> Result<ExitCode> {
        // Before the server starts: a signal that comes early still ends it cleanly.
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle SIGINT and SIGTERM")?;
        guarded()?;
        let mut builder = Server::builder().socket(self.socket).workers(self.workers);
        if let Some(bytes) = self.memory {
            builder = builder.table_memory_bytes(bytes);
        }
        if !self.allow_uid.is_empty() {
            let own = rustix::process::geteuid().as_raw();
            builder = builder.allowed_uids(self.allow_uid.into_iter().chain([own]));
        }
        let server = builder.start()?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "ready url={} pid={}", server.url(), std::process::id())?;
        out.flush()?;
        signals.forever().next();
        server.shutdown()?;
        Ok(ExitCode::SUCCESS)
    }
}
