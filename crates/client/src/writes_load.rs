//! A bulk load by writes, for tables that take no other: those whose values have any length.
//!
//! An ordered table that has pairs is refused before anything is written. Of another the load ends with an
//! error at the first key that is there. Pairs show as they are written, and a load
//! that ends early leaves those. Where pairs have deadlines, they stay as long as the table says.

use std::sync::Arc;
use std::time::Instant;

use farsight_index::{Direction, EngineError, OldValues, Pair, Pairs, ScanRequest, Writes};
use farsight_layout::Deadline;
use farsight_protocol::{ErrorCode, Expiry, ServerError, TableInfo, WriteOperation, WriteOutcome};

use crate::attached::Operations;
use crate::bulk_load::Load;
use crate::server_time::ServerTime;
use crate::{Lifetime, LoadError};

/// Pairs that are written together at most.
const TOGETHER_MAX: usize = 1024;
/// Pairs that are looked at together, to find one that has not ended.
const LOOKED_AT: usize = 256;
/// Bytes of values that are written together, unless one has more.
const TOGETHER_BYTES: usize = 1 << 20;

/// A load under way.
pub(crate) struct WritesLoad {
    name: String,
    operations: Box<dyn Operations>,
    /// How pairs end, and the nodes' time, if they have deadlines.
    expiry: Option<(Expiry, ServerTime)>,
    /// The table was looked at, or cannot be: it has no order.
    has_looked: bool,
    keys: Vec<u64>,
    values: Vec<u8>,
    bounds: Vec<usize>,
    outcomes: Vec<WriteOutcome>,
    written: u64,
}

impl WritesLoad {
    /// Into the table that is described so. `time` is that of its nodes, if its pairs have deadlines.
    pub(crate) fn new(
        info: &Arc<TableInfo>,
        operations: Box<dyn Operations>,
        time: Option<ServerTime>,
        is_ordered: bool,
    ) -> Self {
        Self {
            name: info.definition.name.clone(),
            operations,
            expiry: info.definition.values.expiry().zip(time),
            has_looked: !is_ordered,
            keys: Vec::new(),
            values: Vec::new(),
            bounds: vec![0],
            outcomes: Vec::new(),
            written: 0,
        }
    }

    /// Refuses a table that has a pair which has not ended.
    fn look(&mut self) -> Result<(), LoadError> {
        let mut pairs = Pairs::default();
        let mut from = Some(0);
        // Each page begins behind the one before.
        while let Some(first) = from {
            let page = ScanRequest { from: first, limit: if self.expiry.is_some() { LOOKED_AT } else { 1 } };
            let scanned = self.operations.scan_batch(u64::MAX, Direction::Ascending, &[page], &mut pairs);
            scanned.map_err(|source| self.failed(source))?;
            let now_ms = self.now_ms();
            let lasts = |pair: &Pair<'_>| {
                let deadline = Deadline::split(pair.value).map(|(deadline, _)| deadline);
                !now_ms.zip(deadline).is_some_and(|(now_ms, deadline)| deadline.is_past(now_ms))
            };
            if let Some(Pair { key, .. }) = pairs.scan(0).find(lasts) {
                return Err(self.refused(ErrorCode::BadLoad, format!("the table has pairs, key {key} first")));
            }
            from = pairs.last_key().and_then(|last| last.checked_add(1));
        }
        Ok(())
    }

    /// The nodes' time, if pairs have deadlines.
    fn now_ms(&self) -> Option<u64> {
        self.expiry.map(|(_, time)| time.now_ms(Instant::now()))
    }

    fn send(&mut self) -> Result<(), LoadError> {
        if !std::mem::replace(&mut self.has_looked, true) {
            self.look()?;
        }
        let Self { keys, values, bounds, outcomes, .. } = self;
        outcomes.clear();
        let writes = Writes { operation: WriteOperation::Insert, keys, values, bounds };
        let written = self.operations.write(writes, outcomes, &mut OldValues::default());
        let inserted = |outcome: &&WriteOutcome| matches!(outcome, WriteOutcome::Inserted(_));
        self.written += outcomes.iter().filter(inserted).count() as u64;
        written.map_err(|source| self.failed(source))?;
        let other = self.keys.iter().zip(&self.outcomes).find(|(_, outcome)| !inserted(outcome));
        match other {
            None => {}
            Some((_, WriteOutcome::Failed(code))) => {
                let text = format!("{} pairs are written", self.written);
                return Err(self.refused(*code, text));
            }
            Some((key, _)) => {
                let text =
                    format!("key {key} came from elsewhere meanwhile; {} pairs are written", self.written);
                return Err(self.refused(ErrorCode::BadLoad, text));
            }
        }
        self.keys.clear();
        self.values.clear();
        self.bounds.truncate(1);
        Ok(())
    }

    fn failed(&self, source: EngineError) -> LoadError {
        LoadError::Engine { table: self.name.clone(), pairs: self.written, source: Box::new(source) }
    }

    fn refused(&self, code: ErrorCode, text: String) -> LoadError {
        LoadError::Refused { table: self.name.clone(), source: ServerError::new(code, text) }
    }
}

impl Load for WritesLoad {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        if self.keys.len() == TOGETHER_MAX || self.values.len() >= TOGETHER_BYTES {
            self.send()?;
        }
        self.keys.push(key);
        if let (Some((expiry, _)), Some(now_ms)) = (self.expiry, self.now_ms()) {
            self.values.extend_from_slice(&Lifetime::OfTable.deadline(expiry, now_ms).to_bytes());
        }
        self.values.extend_from_slice(value);
        self.bounds.push(self.values.len());
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), LoadError> {
        self.send()
    }
}
