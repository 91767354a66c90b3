//! Questions of other compute nodes about keys: where they stand, or what they hold.
//!
//! Invariant: what is said to be absent, or held, was READ behind the call. An address may be one that this
//! compute node remembers: who asked compares it with its slot.

use farsight_base::clock::MonotonicNs;
use farsight_client::{FixedSession, Origin};
use farsight_fabric::{ServerPort, Ticket};
use farsight_index::{Answers, EngineError, Key};
use farsight_protocol::{
    DelegatedEntries, ErrorCode, FindWanted, HEADER_BYTES, ReplyWriter, SentAddress, ServerError,
};

use crate::calls::{REFUSAL_BYTES_MAX, has_byte_keys, integer};
use crate::serving::ServedTable;

/// Calls that are answered together.
pub(crate) struct Looks {
    /// The table, and in which epoch of the pool.
    pub(crate) origin: Origin,
    pub(crate) wanted: FindWanted,
    /// Each with its number of keys, and the bytes of its reply at most.
    calls: Vec<(Ticket, usize, usize)>,
    /// Keys one behind the other, and where each begins, and the last one ends.
    keys: Vec<u8>,
    bounds: Vec<usize>,
}

/// What was found, by the numbers of keys.
pub(crate) enum Found {
    Addresses(Vec<SentAddress>),
    Values(Answers),
}

/// Bytes of the reply about so many keys at most.
pub(crate) fn reply_bytes_max(served: &ServedTable, wanted: FindWanted, keys: usize) -> usize {
    let values = served.table.info().definition.values;
    let entry_bytes = match wanted {
        FindWanted::Addresses => SentAddress::WORDS * size_of::<u64>(),
        FindWanted::Values => {
            ReplyWriter::exchanged_value_bytes(values.deadline_bytes() + values.bytes_max())
        }
    };
    (HEADER_BYTES + entry_bytes * keys).max(REFUSAL_BYTES_MAX)
}

impl Looks {
    pub(crate) fn new(origin: Origin, wanted: FindWanted) -> Self {
        Self { origin, wanted, calls: Vec::new(), keys: Vec::new(), bounds: vec![0] }
    }

    /// Takes up a call.
    pub(crate) fn push(&mut self, ticket: Ticket, reply_bytes_max: usize, entries: DelegatedEntries<'_>) {
        for entry in entries.iter() {
            self.keys.extend_from_slice(entry.key);
            self.bounds.push(self.keys.len());
        }
        self.calls.push((ticket, entries.len(), reply_bytes_max));
    }

    /// How many keys it has.
    pub(crate) fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Finds its keys.
    pub(crate) fn find(&self, served: &ServedTable, session: &mut FixedSession) -> Result<Found, FindError> {
        let keys = self.bounds.windows(2).map(|ends| &self.keys[ends[0]..ends[1]]);
        let keys: Vec<Key<'_>> = if has_byte_keys(served) {
            keys.map(Key::Bytes).collect()
        } else {
            keys.map(|key| integer(key).map(Key::from)).collect::<Result<_, _>>()?
        };
        Ok(match self.wanted {
            FindWanted::Addresses => {
                let mut found = Vec::with_capacity(keys.len());
                session.locate(&keys, &mut found)?;
                Found::Addresses(found)
            }
            FindWanted::Values => {
                let mut answers = Answers::default();
                session.read(&keys, &mut answers)?;
                Found::Values(answers)
            }
        })
    }

    /// Answers its calls: how many.
    pub(crate) fn finish(
        &self,
        found: Result<&Found, &[u8]>,
        now: MonotonicNs,
        port: &mut dyn ServerPort,
    ) -> usize {
        let (mut first, mut reply) = (0, Vec::new());
        for (ticket, keys, reply_bytes_max) in &self.calls {
            match found {
                Ok(found) => {
                    found.write_reply(first..first + keys, now, &mut reply);
                    if reply.len() > *reply_bytes_max {
                        // Memory says that a value is longer than the table's are.
                        let text = format!("the values have more than {reply_bytes_max} B");
                        ReplyWriter::new(&mut reply).refuse(&ServerError::new(ErrorCode::Damaged, text));
                    }
                    port.finish(*ticket, &reply);
                }
                Err(refusal) => {
                    port.finish(*ticket, refusal);
                }
            }
            first += keys;
        }
        self.calls.len()
    }
}

impl Found {
    fn write_reply(&self, keys: std::ops::Range<usize>, now: MonotonicNs, reply: &mut Vec<u8>) {
        let mut writer = ReplyWriter::new(reply);
        let count = keys.len() as u32;
        match self {
            Self::Addresses(found) => {
                writer.push_words(found[keys].iter().flat_map(|address| address.to_words()));
            }
            Self::Values(answers) => {
                for index in keys {
                    let (value, version) = answers.get(index).unwrap_or_default();
                    writer.push_long_value(version, value);
                }
            }
        }
        writer.set(count, now.0);
    }
}

/// Why keys were not found.
pub(crate) enum FindError {
    /// The call is not sound.
    Refused(ServerError),
    /// The engine failed.
    Engine(EngineError),
}

impl From<ServerError> for FindError {
    fn from(error: ServerError) -> Self {
        Self::Refused(error)
    }
}

impl From<EngineError> for FindError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}
