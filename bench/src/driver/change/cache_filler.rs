//! The memory of a full cache, as the process that has it grows.
//!
//! Invariant: that process has done nothing else. A benchmark's own process would tell little: its allocator
//! hands out again what the keys of other tables have taken.
//!
//! Protocol: the benchmark starts the process with the server's address and the table's name. The process
//! fills a cache, and prints by how many bytes it grew.

use std::path::PathBuf;
use std::process::{self, Command};

use farsight::{Client, ServerUrl};

use super::bed::OPTIONS;
use crate::driver::DriverError;
use crate::machine::ResidentMemory;

/// How to start the process: a command line, to which the driver adds the server's address and the table's
/// name. It prints what [`filled_cache_bytes`] returns there.
#[derive(Debug, Clone)]
pub struct CacheFiller {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
}

impl CacheFiller {
    /// Bytes by which a new process grows that fills a cache of `table`.
    pub(super) fn measure(&self, server: &ServerUrl, table: &str) -> Result<u64, DriverError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(server.to_string()).arg(table);
        let spawned = |source| DriverError::Spawn { program: self.program.clone(), source };
        let output = command.output().map_err(spawned)?;
        let [out, log] =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        out.trim()
            .parse()
            .map_err(|_| DriverError::NotFilled { evidence: format!("{out}{log}").trim().to_owned() })
    }
}

/// Fills a cache of `table` and returns the bytes by which this process grew.
///
/// # Errors
/// [`DriverError`].
pub fn filled_cache_bytes(server: &ServerUrl, table: &str) -> Result<u64, DriverError> {
    let own_bytes = || ResidentMemory::of(process::id()).map(|memory| memory.anonymous_bytes);
    let table = Client::connect(server)?.table::<u64>(table)?;
    let mut session = table.session(OPTIONS)?;
    let before = own_bytes()?;
    session.prefill()?;
    Ok(own_bytes()?.saturating_sub(before))
}
