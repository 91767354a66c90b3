//! A bulk load by writes, for tables that take no other: those that keep no order.
//!
//! The load ends with an error at the first key that is there. Pairs show as they are written, and a load
//! that ends early leaves those.

use farsight_index::{EngineError, OldValues, Writes};
use farsight_protocol::{ErrorCode, ServerError, TableInfo, WriteOperation, WriteOutcome};

use crate::LoadError;
use crate::attached::Operations;
use crate::bulk_load::Load;
use crate::expiry::LoadDeadlines;

/// Pairs that are written together at most.
const TOGETHER_MAX: usize = 1024;
/// Bytes of values that are written together, unless one has more.
const TOGETHER_BYTES: usize = 1 << 20;

/// A load under way.
pub(crate) struct WritesLoad {
    name: String,
    operations: Box<dyn Operations>,
    keys: Vec<u64>,
    values: Vec<u8>,
    bounds: Vec<usize>,
    outcomes: Vec<WriteOutcome>,
    written: u64,
    deadlines: Option<LoadDeadlines>,
}

impl WritesLoad {
    /// Into the table that is described so.
    pub(crate) fn new(
        info: &TableInfo,
        deadlines: Option<LoadDeadlines>,
        operations: Box<dyn Operations>,
    ) -> Self {
        Self {
            name: info.definition.name.clone(),
            operations,
            keys: Vec::new(),
            values: Vec::new(),
            bounds: vec![0],
            outcomes: Vec::new(),
            written: 0,
            deadlines,
        }
    }

    fn send(&mut self) -> Result<(), LoadError> {
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
        if let Some(deadlines) = self.deadlines {
            self.values.extend_from_slice(&deadlines.now().to_bytes());
        }
        self.values.extend_from_slice(value);
        self.bounds.push(self.values.len());
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), LoadError> {
        self.send()
    }
}
