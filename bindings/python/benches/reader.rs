//! Reads as `benches/beside_rust.py` tells it to: the same batches of the same table as a Python process
//! there.
//!
//!     reader URL KEYS BATCH KEY_BYTES
//!
//! KEYS is a file of keys, one behind the other: of 64-bit words in the machine's order, or of `KEY_BYTES`
//! bytes if that is not 8. Each line of standard input is a number of batches. They are read, and the
//! nanoseconds that they took are a line of standard output.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use farsight::{Answers, Client, KeyType, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, path, batch, key_bytes] = &arguments[..] else {
        return Err("usage: reader URL KEYS BATCH KEY_BYTES".into());
    };
    let (client, bytes, batch) = (farsight::connect(url)?, std::fs::read(path)?, batch.parse()?);
    match key_bytes.parse()? {
        8 => {
            let words: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            read::<u64>(&client, &words, batch)
        }
        key_bytes => read::<[u8]>(&client, &bytes.chunks_exact(key_bytes).collect::<Vec<_>>(), batch),
    }
}

fn read<K: KeyType + ?Sized>(
    client: &Client,
    keys: &[K::Ref<'_>],
    batch: usize,
) -> Result<(), Box<dyn Error>> {
    let mut session = client.table::<K>("t")?.session(Options::default())?;
    let batches: Vec<_> = keys.chunks_exact(batch).collect();
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
