//! `farsight doctor`.

mod cluster;
mod disk;
mod kernel;
mod limits;
mod processors;
mod rdma;
mod server;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::connection::{Connection, socket_of};
use crate::output::output;

/// Check this machine and the server: what is wrong, and the command that repairs it
///
/// One line a check, ok or warn. The exit code is 1 if anything warns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight doctor
  farsight doctor --connect shm:///run/farsight/main.sock
  farsight doctor --connect tcp://127.0.0.1:7474
  farsight doctor --connect etcd://127.0.0.1:2379/users
  farsight doctor --data /var/lib/farsight")]
pub(crate) struct Doctor {
    #[command(flatten)]
    connection: Connection,
    /// A directory of data, or one that `serve --data` will make: check its disk, and write there for some
    /// milliseconds
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// What one check found.
struct Finding {
    what: &'static str,
    is_ok: bool,
    text: String,
    /// The command, or the sentence, that repairs it; empty if all is well.
    remedy: String,
}

impl Finding {
    fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self { what, is_ok: true, text: text.into(), remedy: String::new() }
    }

    fn warn(what: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, is_ok: false, text: text.into(), remedy: remedy.into() }
    }
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut findings = vec![
            server::version(),
            kernel::release(),
            kernel::huge_pages(),
            kernel::shared_memory_huge_pages(),
            kernel::write_protection(),
            processors::cores(),
            processors::governor(),
            limits::locked_memory(),
            limits::open_files(),
        ];
        findings.extend(rdma::devices());
        findings.extend(self.data.iter().flat_map(|directory| disk::disk(directory)));
        match self.connection.url() {
            Ok(url) => {
                findings.extend(socket_of(&url).map(server::socket_directory));
                findings.extend(url.cluster().map(|name| cluster::cluster(&self.connection, name)));
                findings.push(server::server(&self.connection, &url));
                findings.extend(server::snapshots(&self.connection));
            }
            Err(error) => findings.push(Finding::warn("socket", error.to_string(), "")),
        }
        let mut out = output();
        for finding in &findings {
            let status = if finding.is_ok { "ok  " } else { "warn" };
            writeln!(out, "{status}  {:<13} {}", finding.what, finding.text)?;
            if !finding.remedy.is_empty() {
                writeln!(out, "      {:<13} repair: {}", "", finding.remedy)?;
            }
        }
        let is_well = findings.iter().all(|finding| finding.is_ok);
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
