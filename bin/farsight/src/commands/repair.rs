//! `farsight repair`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use farsight::{RepairProgress, Repaired};
use indicatif::{ProgressBar, ProgressStyle};

use crate::connection::Connection;
use crate::output::output;

/// Take a new memory node into a pool, in the place of one that it has lost
///
/// A pool whose tables have replicas goes on when it loses a node, and has fewer replicas from then on.
/// Start a node at the lost one's address, as you started the lost one: it is empty. Then run this. Or start
/// one at another address, and name that beside a node of the pool. Of a pool by its name, a node that is
/// registered and belongs to no pool is the new one. It copies to the new node what that is
/// to have of each table with replicas, and the pool goes on with it. From then on it may lose another one.
///
/// It copies most of that while programs read and write. Then, for a short time, none does: operations wait
/// up to ten seconds, and fail then. Programs that are connected go on by themselves. If this is cut off, run
/// it again. Two at once do no harm: one waits for the other. Tables without replicas have lost a part for
/// good. They are named, and are to be dropped.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Repair {
    #[command(flatten)]
    connection: Connection,
}

const HELP: &str = "\
Example, of a pool whose second node was lost:
  farsight serve --listen tcp://127.0.0.1:7502 &
  farsight repair --wait 5s --connect tcp://127.0.0.1:7501,tcp://127.0.0.1:7502,tcp://127.0.0.1:7503";

impl Repair {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let begun = Instant::now();
        let bar = bar();
        let repaired = self.connection.repair(&mut |progress| show(&bar, progress));
        bar.finish_and_clear();
        let mut out = output();
        let repaired = repaired?;
        if repaired.is_empty() {
            writeln!(out, "no node of the pool is lost")?;
        }
        for Repaired { place, tables, left, forgets_left, stood_for, .. } in repaired {
            let (took, stood) = (begun.elapsed().as_secs_f64(), stood_for.as_secs_f64());
            let tables = names(&tables);
            writeln!(
                out,
                "node {} taken in after {took:.2} s, for {stood:.2} s of which others waited; tables: {tables}",
                place + 1
            )?;
            match (left.is_empty(), forgets_left) {
                (true, _) => {}
                (false, true) => {
                    writeln!(out, "lost with the first node, without replicas: {}", names(&left))?;
                }
                (false, false) => {
                    writeln!(out, "have lost a part, without replicas: {}; drop them", names(&left))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn names(tables: &[String]) -> String {
    if tables.is_empty() { "none".to_owned() } else { tables.join(", ") }
}

/// A progress bar on stderr; nothing where that is no terminal.
fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {msg}, {human_pos} of {human_len} partitions, {eta} left");
    ProgressBar::new(0).with_style(style.expect("the template is well-formed"))
}

fn show(bar: &ProgressBar, RepairProgress { place, table, done, of }: RepairProgress<'_>) {
    bar.set_length(of as u64);
    bar.set_message(format!("node {}, table {table}", place + 1));
    bar.set_position(done as u64);
}
