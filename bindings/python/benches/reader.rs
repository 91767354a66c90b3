//! Reads as `benches/beside_rust.py` tells it to: the same batches of the same table as a Python process
//! there.
//!
//!     reader URL KEYS BATCH
//!
//! KEYS is a file of 64-bit words in the machine's order. Each line of standard input is a number of batches.
//! They are read, and the nanoseconds that they took are a line of standard output.

use std::io::{BufRead, Write};
use std::time::Instant;

use farsight::{Answers, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, path, batch] = &arguments[..] else { return Err("usage: reader URL KEYS BATCH".into()) };
    let bytes = std::fs::read(path)?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let batches: Vec<&[u64]> = words.chunks_exact(batch.parse()?).collect();
    let client = farsight::connect(url)?;
    let mut session = client.table::<u64>("t")?.session(Options::default())?;
    let mut answers = Answers::default();
    let mut next = batches.iter().cycle();
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    for line in std::io::stdin().lock().lines() {
        let wanted: usize = line?.trim().parse()?;
        let begun = Instant::now();
        for keys in next.by_ref().take(wanted) {
            session.multi_get(keys, &mut answers)?;
            assert!(answers.versions().iter().all(|version| *version > 0), "every key is stored");
        }
        writeln!(output, "{}", begun.elapsed().as_nanos())?;
    }
    Ok(())
}
