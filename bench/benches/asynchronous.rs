//! GETs of many asynchronous tasks, beside those of one thread in batches, on the same table and in turns.
//! Each task asks for one key, awaits the answer, and asks for the next. Wall time: the tasks' runtime and
//! the table's driver are two threads.
//!
//!     cargo bench -p farsight-bench --bench asynchronous [-- KEYS [ROUNDS]]

use std::time::Instant;

use farsight::{Answers, AsyncTable, Options, Server, Session};
use farsight_base::prng::{SplitMix64, mix};
use farsight_bench::machine::{allowed_cores, pin_to};
use tokio::runtime::Runtime;

const TASK_COUNTS: [usize; 4] = [1, 64, 256, 1024];
const GETS: usize = 1 << 20;

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let key_count = numbers.first().copied().unwrap_or(1_000_000);
    let rounds = numbers.get(1).copied().unwrap_or(5);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::builder().socket(directory.path().join("s")).start().expect("a server");
    let client = farsight::connect(&server.url().to_string()).expect("a connection");
    let table = client.create_table::<u64>("t", 8).expect("a table");
    let mut keys: Vec<u64> = (0..key_count as u64).map(mix).collect();
    keys.sort_unstable();
    let mut load = table.bulk_load().expect("an empty table");
    for key in &keys {
        load.push(*key, &(!key).to_le_bytes()).expect("ascending keys");
    }
    load.finish().expect("a loaded table");
    let mut session = table.session(Options::default()).expect("a session");
    session.prefill().expect("a model");
    // The driver on the last core, which it inherits, and everything else of this program on the first.
    let cores = allowed_cores().expect("at least one core");
    pin_to(&cores, cores.len() - 1).expect("an allowed core");
    let asynchronous = table.asynchronous(Options::default()).expect("a driver");
    pin_to(&cores, 0).expect("an allowed core");
    println!(
        "{} KiB on huge pages; M GETs/s of wall time, and GETs a doorbell",
        client.collapse_to_huge_pages() >> 10
    );

    let mut random = SplitMix64::new(5);
    let queries: Vec<u64> = (0..GETS).map(|_| keys[random.below(keys.len() as u64) as usize]).collect();
    let mut columns = vec![Vec::new(); 2 + TASK_COUNTS.len()];
    for _ in 0..rounds {
        let mut line = vec![batches(&mut session, &queries), singly(&mut session, &queries[..GETS / 4])];
        line.extend(TASK_COUNTS.map(|tasks| {
            let queries = if tasks == 1 { &queries[..GETS / 64] } else { &queries };
            let before = asynchronous.meters();
            let rate = tasks_of_one_thread(&asynchronous, queries, tasks);
            let doorbells = (asynchronous.meters() - before).doorbells;
            print!("{tasks} tasks: {rate:.2} ({:.1})  ", queries.len() as f64 / doorbells as f64);
            rate
        }));
        println!("batches of 64: {:.2}  singly: {:.2}", line[0], line[1]);
        columns.iter_mut().zip(line).for_each(|(column, rate)| column.push(rate));
    }
    for column in &mut columns {
        column.sort_by(f64::total_cmp);
    }
    let medians: Vec<f64> = columns.iter().map(|column| column[rounds / 2]).collect();
    println!("medians: batches of 64 {:.2}, singly {:.2}", medians[0], medians[1]);
    for (tasks, rate) in TASK_COUNTS.iter().zip(&medians[2..]) {
        println!("  {tasks:>5} tasks {rate:.2}, {:.2} of the batches", rate / medians[0]);
    }
}

/// Millions a second.
fn rate(operations: usize, begun: Instant) -> f64 {
    operations as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn batches(session: &mut Session<u64>, queries: &[u64]) -> f64 {
    let mut answers = Answers::default();
    let begun = Instant::now();
    for batch in queries.chunks(64) {
        session.multi_get(batch, &mut answers).expect("answers");
        assert!(answers.get(63).is_some(), "every key is stored");
    }
    rate(queries.len(), begun)
}

fn singly(session: &mut Session<u64>, queries: &[u64]) -> f64 {
    let mut value = [0; 8];
    let begun = Instant::now();
    for key in queries {
        assert!(session.get_into(*key, &mut value).expect("an answer").is_some());
    }
    rate(queries.len(), begun)
}

fn tasks_of_one_thread(table: &AsyncTable<u64>, queries: &[u64], tasks: usize) -> f64 {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let shares: Vec<Vec<u64>> = queries.chunks(queries.len() / tasks).map(<[u64]>::to_vec).collect();
    let begun = Instant::now();
    runtime.block_on(async {
        let running: Vec<_> = shares
            .into_iter()
            .map(|share| {
                let table = table.clone();
                tokio::spawn(async move {
                    for key in share {
                        assert!(table.get(key).await.expect("an answer").is_some(), "every key is stored");
                    }
                })
            })
            .collect();
        for task in running {
            task.await.expect("no task panics");
        }
    });
    rate(queries.len(), begun)
}
