//! Farsight: a session on a table of a server in another process.

use anyhow::{Result, ensure};
use farsight::{Answers, Pairs, Session, WriteOutcome};

use super::Source;
use crate::store::Store;
use crate::tally::Tally;

struct Remote {
    session: Session<u64>,
    cache_bytes: u64,
    answers: Answers,
    pairs: Pairs<u64>,
    puts: Vec<(u64, [u8; 8])>,
    outcomes: Vec<WriteOutcome>,
}

pub(super) fn open(source: &Source<'_>) -> Result<Box<dyn Store>> {
    let load = source.farsight;
    Ok(Box::new(Remote {
        session: load.table.session(load.options)?,
        cache_bytes: load.report().cache_bytes,
        answers: Answers::default(),
        pairs: Pairs::default(),
        puts: Vec::new(),
        outcomes: Vec::new(),
    }))
}

/// The number in a value of eight bytes.
#[inline(always)]
pub(super) fn number(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}

impl Store for Remote {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        let mut value = [0; 8];
        for key in keys {
            let version = self.session.get_into(*key, &mut value)?;
            tally.read(*key, version.map(|_| u64::from_le_bytes(value)));
        }
        Ok(())
    }

    fn get_batch(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        self.session.multi_get(keys, &mut self.answers)?;
        for (index, key) in keys.iter().enumerate() {
            tally.read(*key, self.answers.get(index).map(|(value, _)| number(value)));
        }
        Ok(())
    }

    fn scan(&mut self, scans: &[(u64, usize)], tally: &mut Tally<'_>) -> Result<()> {
        self.session.scan_batch(scans, &mut self.pairs)?;
        for (index, (from, limit)) in scans.iter().enumerate() {
            tally.begin_scan(*from, *limit);
            self.pairs.scan(index).for_each(|pair| tally.pair(pair.key, number(pair.value)));
            tally.end_scan();
        }
        Ok(())
    }

    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        self.puts.clear();
        self.puts.extend(pairs.iter().map(|(key, value)| (*key, value.to_le_bytes())));
        self.session.put_many(&self.puts, &mut self.outcomes)?;
        let failed = self.outcomes.iter().find(|outcome| matches!(outcome, WriteOutcome::Failed(_)));
        ensure!(failed.is_none() && self.outcomes.len() == pairs.len(), "a put failed: {failed:?}");
        Ok(())
    }

    fn client_bytes(&self) -> Option<u64> {
        Some(self.cache_bytes)
    }
}
