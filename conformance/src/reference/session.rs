//! The client's half: each operation is calls.
//!
//! Protocol: a batch goes in as few calls as messages allow, one after the other. A scan that a reply cuts
//! off goes on behind its last pair.

use std::sync::Arc;

use farsight_fabric::QueuePair;
use farsight_fabric::lane::Lane;
use farsight_index::{
    Answers, Counters, Direction, Engine, EngineError, OldValues, Ordered, Pair, Pairs, ScanRequest, Writes,
};
use farsight_protocol::{
    DecodeError, ErrorCode, HEADER_BYTES, OPERATIONS_MAX, PairsReader, Reply, Request, TableId, TableInfo,
    WriteEntries, WriteEntry, WriteOutcome, padded,
};

/// One session.
pub(super) struct ReferenceSession {
    table: TableId,
    value_bytes: usize,
    request: Vec<u8>,
    reply: Vec<u8>,
    counters: Counters,
}

impl ReferenceSession {
    pub(super) fn new(table: &TableInfo) -> Self {
        Self {
            table: table.id,
            value_bytes: table.definition.values.leaf_bytes(),
            request: Vec::new(),
            reply: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Sends the request and waits for its answer.
    fn call<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<Reply<'_>, EngineError> {
        let (request, reply, lane) = (&self.request, &mut self.reply, Lane::new(queue));
        lane.block_on(|slot| async move { slot.call(request, reply).await })??;
        Reply::decode(&self.reply).map_err(undecoded)?.map_err(|error| match error.code {
            // Nobody knows how far it came.
            ErrorCode::Bug => EngineError::Indeterminate(Arc::new(error)),
            _ => EngineError::Engine(Arc::new(error)),
        })
    }

    /// Operations that one message carries, where each takes so many bytes of it.
    fn fitting<Q: QueuePair>(bytes: usize) -> usize {
        ((Q::MESSAGE_BYTES_MAX - HEADER_BYTES) / bytes).min(OPERATIONS_MAX)
    }

    /// Reads the values of `keys`, which one reply carries, and hands over index, version and value of each.
    fn read<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        mut found: impl FnMut(usize, u64, &[u8]),
    ) -> Result<(), EngineError> {
        self.counters.gets += keys.len() as u64;
        let value_bytes = self.value_bytes;
        Request::get(&mut self.request, self.table, keys);
        let reply = self.call(queue)?;
        let mut values = PairsReader::new(reply.words().map_err(undecoded)?, value_bytes);
        for index in 0..keys.len() {
            let (version, value) = values.value().map_err(undecoded)?;
            found(index, version, value);
        }
        Ok(())
    }

    /// One call of a scan: appends its pairs, and says where the next one begins.
    fn scan_page<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        direction: Direction,
        scan: ScanRequest,
        pairs: &mut Pairs,
    ) -> Result<Option<ScanRequest>, EngineError> {
        let limit = scan.limit.min(OPERATIONS_MAX);
        let value_bytes = self.value_bytes;
        Request::scan(&mut self.request, self.table, direction, scan.from, limit as u16);
        let reply = self.call(queue)?;
        let next = direction.goes_on_at(reply.argument);
        let mut sent = PairsReader::new(reply.words().map_err(undecoded)?, value_bytes);
        let (mut left, mut last) = (scan.limit, None);
        while let Some(pair) = sent.pair().map_err(undecoded)? {
            let is_early = direction.is_behind(scan.from, pair.key);
            if is_early || last.is_some_and(|last| !direction.is_behind(pair.key, last)) || left == 0 {
                let got = format!("key {} after {last:?}", pair.key);
                return Err(undecoded(DecodeError::new(
                    "a scan's pairs",
                    HEADER_BYTES,
                    format!("{direction:?}"),
                    got,
                )));
            }
            pairs.push(Pair { key: pair.key, version: pair.version, value: pair.value });
            (left, last) = (left - 1, Some(pair.key));
        }
        if next.is_some_and(|next| !direction.is_behind(next, last.unwrap_or(scan.from))) {
            let got = format!("to go on from {next:?} after {last:?}");
            return Err(undecoded(DecodeError::new(
                "a scan's pairs",
                8,
                format!("a key behind it, {direction:?}"),
                got,
            )));
        }
        let next = next.filter(|_| left > 0);
        Ok(next.map(|from| ScanRequest { from, limit: left }))
    }
}

impl<Q: QueuePair> Engine<Q> for ReferenceSession {
    fn get(&mut self, queues: &mut [Q], key: u64, value: &mut [u8]) -> Result<Option<u64>, EngineError> {
        let mut version = 0;
        self.read(&mut queues[0], &[key], |_, of_key, found| {
            value.copy_from_slice(found);
            version = of_key;
        })?;
        Ok((version > 0).then_some(version))
    }

    fn multi_get(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        answers.reset(keys.len(), self.value_bytes);
        let mut first = 0;
        for keys in keys.chunks(Self::fitting::<Q>(8 + padded(self.value_bytes))) {
            self.read(&mut queues[0], keys, |index, version, value| {
                answers.value_mut(first + index).copy_from_slice(value);
                answers.set_version(first + index, version);
            })?;
            first += keys.len();
        }
        Ok(())
    }

    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        let mut left = writes.iter();
        while left.len() > 0 {
            let (table, value_bytes) = (self.table, self.value_bytes);
            let operand_bytes = writes.operation.operand_bytes(value_bytes);
            let count = left.len().min(Self::fitting::<Q>(16 + padded(operand_bytes)));
            Request::begin_write(&mut self.request, table, writes.operation, count, value_bytes);
            for (key, value) in left.by_ref().take(count) {
                let hint = farsight_base::LeafNumber::NONE;
                WriteEntries::push(&mut self.request, WriteEntry { key, hint, value });
            }
            self.counters.writes += count as u64;
            let reply = self.call(&mut queues[0])?;
            if writes.operation.returns_value() {
                for sent in reply.exchanged(count, value_bytes).map_err(undecoded_write)? {
                    let (sent, old) = sent.map_err(undecoded_write)?;
                    outcomes.push(sent.outcome);
                    old_values.push(old);
                }
                continue;
            }
            for outcome in reply.outcomes(count).map_err(undecoded_write)? {
                outcomes.push(outcome.map_err(undecoded_write)?.outcome);
            }
        }
        Ok(())
    }

    /// Nothing is cached.
    fn prefill(&mut self, _: &mut [Q]) -> Result<(), EngineError> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl<Q: QueuePair> Ordered<Q> for ReferenceSession {
    fn scan_batch(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        pairs.reset(self.value_bytes);
        for scan in scans {
            let mut next = Some(*scan).filter(|scan| scan.limit > 0);
            while let Some(scan) = next {
                next = self.scan_page(&mut queues[0], direction, scan, pairs)?;
            }
            pairs.end_scan();
            self.counters.scans += 1;
        }
        Ok(())
    }
}

fn undecoded(error: DecodeError) -> EngineError {
    EngineError::Engine(Arc::new(error))
}

/// The write was sent: what became of it, nobody knows.
fn undecoded_write(error: DecodeError) -> EngineError {
    EngineError::Indeterminate(Arc::new(error))
}
