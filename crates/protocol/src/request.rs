//! Requests: what a client asks of a server's processor.
//!
//! Header, 16 B: operation 8, flags 8, count 16, table 32, argument 64; then the operation's words.

use farsight_base::{Epoch, LeafNumber};
use serde::de::DeserializeOwned;

use crate::wire::{Words, put, put_padded};
use crate::{
    ControlRequest, DecodeError, DelegatedEntries, Direction, EXPECTED_VERSION_BYTES, FindWanted,
    HEADER_BYTES, OPERATIONS_MAX, StagedWrite, TableId, ValueEntries, ValuePiece, WriteOperation,
};

/// Bytes of a delegated write before its entries.
pub const DELEGATE_BYTES: usize = HEADER_BYTES + 8;

const CONTROL: u8 = 1;
const GET: u8 = 2;
const SCAN: u8 = 3;
pub(crate) const WRITE: u8 = 4;
const LOOKUP: u8 = 5;
const TOP_MODEL: u8 = 6;
const SUB_MODELS: u8 = 7;
const BULK_LOAD: u8 = 8;
const GET_VALUES: u8 = 16;
const SCAN_VALUES: u8 = 17;
pub(crate) const WRITE_VALUES: u8 = 18;
pub(crate) const STAGE_VALUE: u8 = 19;
pub(crate) const WRITE_STAGED: u8 = 20;
pub(crate) const FETCH_VALUE: u8 = 21;
pub(crate) const LET_GO: u8 = 22;
const LOAD_VALUES: u8 = 23;
pub(crate) const LOAD_LONG: u8 = 24;
pub(crate) const DELEGATE: u8 = 25;
pub(crate) const IDENTIFIED: u8 = 26;
pub(crate) const FIND: u8 = 27;

/// Bytes of a value in a frame: rounded up to whole words.
#[must_use]
pub fn padded(value_bytes: usize) -> usize {
    value_bytes.next_multiple_of(8)
}

/// A request, borrowed from its frame.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// A rare request, in postcard.
    Control(&'a [u8]),
    /// Values of keys, by the tree. The reply: a value a key, in the keys' order, an absent one with version
    /// zero; `count` says how many. More keys than a reply has room for are refused.
    Get {
        /// The table.
        table: TableId,
        /// The keys.
        keys: Words<'a>,
    },
    /// Up to `limit` pairs from `from` on, by the tree. The reply: as many pairs as it has room for and as a
    /// few leaves hold, `count` of them. `argument` says where to go on ([`Direction::goes_on_at`]), 0 at the
    /// table's end.
    Scan {
        /// The table.
        table: TableId,
        /// Which way.
        direction: Direction,
        /// The first key on this way: the least one wanted, or, downwards, the greatest.
        from: u64,
        /// Pairs at most.
        limit: u16,
    },
    /// Writes of one kind, executed in order. The reply: an outcome an entry, in the entries' order. Where
    /// the operation returns the value before ([`WriteOperation::returns_value`]), it follows its outcome.
    Write {
        /// The table.
        table: TableId,
        /// The kind.
        operation: WriteOperation,
        /// Keys, hints, values.
        entries: WriteEntries<'a>,
    },
    /// The fallback: the value of `key`, with what the client lacks of the model to find it next time. The
    /// reply: a value (version zero: absent), then `count` sub-models and branches
    /// ([`SubModelsWanted::Path`]). Of a path that leads through `known` comes what is behind it. `argument`
    /// is the generation of the server's model, zero before the first. A client with a model of another
    /// generation fetches the top model anew.
    Lookup {
        /// The table.
        table: TableId,
        /// The key.
        key: u64,
        /// The generation of the client's model; zero without one.
        generation: u64,
        /// The number of the sub-model that the client has for the key; all ones without one.
        known: u32,
    },
    /// Words of the top model from `first_word` on. The reply: as many as it has room for; `count` is the
    /// number of all words, `argument` the model's generation. It is always the newest model: a client that
    /// gathers another generation begins again. Without a model count, argument and body are empty.
    TopModel {
        /// The table.
        table: TableId,
        /// The first word wanted.
        first_word: u32,
        /// The generation wanted; zero: the newest.
        generation: u64,
    },
    /// To a compute node that writes for others: writes of one kind, in order. `until` is the last time, by
    /// the clock that its replies tell, at which it may still find out what it changes; of a request without
    /// entries it is zero. The reply: an outcome an entry, and if the operation returns the value before
    /// ([`WriteOperation::returns_value`]), that behind its outcome, with its length. `argument` is the time
    /// there.
    Delegate {
        /// The table.
        table: TableId,
        /// The coordinator's epoch in which the table has that number.
        epoch: Epoch,
        /// The time, in nanoseconds.
        until: u64,
        /// What is done with each key.
        operation: WriteOperation,
        /// Keys and operands.
        entries: DelegatedEntries<'a>,
    },
    /// To a compute node that serves: where keys stand, or what they hold. The operands are empty. The reply:
    /// two words a key ([`SentAddress`](crate::SentAddress)), or a version, a length and a value.
    /// `argument` is the time there.
    Find {
        /// The table.
        table: TableId,
        /// The coordinator's epoch in which the table has that number.
        epoch: Epoch,
        /// What is asked of each key.
        wanted: FindWanted,
        /// The keys.
        entries: DelegatedEntries<'a>,
    },
    /// Sub-models about a key. The reply: `count` sub-models and branches, then a word, the key from which to
    /// go on (zero: nothing is behind). `argument` is the generation they belong to, always the newest. It is
    /// zero without a model; then there is no word either.
    SubModels {
        /// The table.
        table: TableId,
        /// The key.
        key: u64,
        /// Which sub-models.
        wanted: SubModelsWanted,
        /// The generation wanted.
        generation: u64,
    },
    /// A piece of a bulk load: ascending pairs behind those of the piece before, from the same client. Piece
    /// zero begins a load and discards an unfinished one, of any client; a refused piece discards the
    /// load. The reply: `count` is the pairs in this piece, `argument` those of the load so far.
    BulkLoad {
        /// The table, empty when the first piece arrives.
        table: TableId,
        /// True for the last piece: the table becomes visible.
        last: bool,
        /// The piece's number, from zero.
        piece: u64,
        /// Keys and values; hints are unused.
        entries: WriteEntries<'a>,
    },
    /// As [`Request::BulkLoad`], of a table whose values have any length.
    LoadValues {
        /// The table, empty when the first piece arrives.
        table: TableId,
        /// True for the last piece: the table becomes visible.
        last: bool,
        /// The piece's number, from zero.
        piece: u64,
        /// Keys and values; hints are unused.
        entries: ValueEntries<'a>,
    },
    /// A piece of a bulk load that holds a part of one value, of which no message carries the whole. Its
    /// number is the piece's. Parts come in order, and nothing else of the load between them. The reply is
    /// that of [`Request::LoadValues`]: the pair counts with its last part.
    LoadLong {
        /// The table, empty when the first piece arrives.
        table: TableId,
        /// The part.
        part: ValuePiece<'a>,
    },
    /// Of a table whose values have any length: values of keys, by the tree. The reply: version, length and
    /// value a key, in the keys' order, an absent one with version zero. It is of the first `count` keys, at
    /// least one if there is any, and as many as it has room for.
    GetValues {
        /// The table.
        table: TableId,
        /// The keys.
        keys: Words<'a>,
    },
    /// As [`Request::Scan`], of a table whose values have any length. The reply has a length before each
    /// value.
    ScanValues {
        /// The table.
        table: TableId,
        /// Which way.
        direction: Direction,
        /// The first key on this way.
        from: u64,
        /// Pairs at most.
        limit: u16,
    },
    /// As [`Request::Write`], of a table whose values have any length; not for removals, which bring none.
    /// Each entry's value is an operand ([`Operand::of_any_length`](crate::Operand::of_any_length)). A value
    /// before comes with its length before it. Then the reply is of the first `count` entries, at least one,
    /// and as many as it had room for. The others were not executed.
    WriteValues {
        /// The table.
        table: TableId,
        /// The kind.
        operation: WriteOperation,
        /// Keys, hints, values.
        entries: ValueEntries<'a>,
    },
    /// A piece of a value that is longer than a message, of a table whose values have any length. The first
    /// piece takes memory for the whole value; the others come in order. Nobody sees it. The reply:
    /// `argument` is the bytes that are there.
    StageValue {
        /// The table.
        table: TableId,
        /// The piece.
        piece: ValuePiece<'a>,
    },
    /// A write of a value whose pieces came before. The reply is that of [`Request::WriteValues`] with one
    /// entry. What was staged is let go, whatever becomes of the write.
    WriteStaged {
        /// The table.
        table: TableId,
        /// The write.
        write: StagedWrite,
    },
    /// A piece of a value, for clients: the server keeps a copy of a value that is longer than a reply until
    /// its last piece was sent. Offset zero begins. The reply: version, length and bytes of the piece, as
    /// many as it has room for; `argument` is the length of the whole value. Version zero: absent.
    FetchValue {
        /// The table.
        table: TableId,
        /// The number under which the client knows the copy.
        number: u64,
        /// The key.
        key: u64,
        /// Bytes of the value before the piece.
        offset: u64,
    },
    /// The client needs what is kept for it under this number no more. The reply: nothing.
    LetGo {
        /// The table.
        table: TableId,
        /// The number.
        number: u64,
    },
}

/// Which sub-models a client asks for, about a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubModelsWanted {
    /// The key's sub-model and all behind it, in the order of their keys, as many as the reply has room for.
    /// A branch comes before the first sub-model below it; all on the way to the first come.
    AllFrom = 0,
    /// The key's sub-model, and the branches on the way to it, the innermost first.
    Path = 1,
    /// The sub-models beside the key's, and the branches on the way to them, the innermost first. Those of
    /// one branch are beside each other, and those of a few neighbouring numbers of the top model.
    Neighbours = 2,
}

impl SubModelsWanted {
    /// All of them, by number.
    pub const ALL: [Self; 3] = [Self::AllFrom, Self::Path, Self::Neighbours];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The entries of a write: `count` times key word, hint word, operand padded to words
/// ([`WriteOperation::operand_bytes`]). What stands in the padding and in the higher half of a hint's word is
/// ignored.
#[derive(Clone, Copy, Debug)]
pub struct WriteEntries<'a> {
    bytes: &'a [u8],
    count: usize,
    value_bytes: usize,
}

/// One entry of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteEntry<'a> {
    /// The key.
    pub key: u64,
    /// Where the client believes the key to be; hostile until checked.
    pub hint: LeafNumber,
    /// The operand: mostly the value ([`WriteOperation::operand_bytes`]).
    pub value: &'a [u8],
}

impl<'a> WriteEntries<'a> {
    fn new(bytes: &'a [u8], count: usize, value_bytes: u64) -> Result<Self, DecodeError> {
        let Ok(value_bytes) = u16::try_from(value_bytes).map(usize::from) else {
            let limit = format!("at most {} B", u16::MAX);
            return Err(DecodeError::new("the size of a write's values", 8, limit, value_bytes.to_string()));
        };
        let expected = count * (16 + padded(value_bytes));
        if bytes.len() != expected {
            let got = format!("{} B", bytes.len());
            return Err(DecodeError::new(
                "a write's entries",
                HEADER_BYTES,
                format!("{expected} B for {count} values of {value_bytes} B"),
                got,
            ));
        }
        Ok(Self { bytes, count, value_bytes })
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of each operand.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = WriteEntry<'a>> + use<'a> {
        let value_bytes = self.value_bytes;
        self.bytes.chunks_exact(16 + padded(value_bytes)).map(move |entry| WriteEntry {
            key: u64::from_le_bytes(entry[..8].try_into().expect("eight bytes")),
            hint: LeafNumber(u32::from_le_bytes(entry[8..12].try_into().expect("four bytes"))),
            value: &entry[16..16 + value_bytes],
        })
    }

    /// Appends one entry to a frame begun by [`Request::begin_write`] or [`Request::begin_bulk_load`].
    #[inline]
    pub fn push(frame: &mut Vec<u8>, entry: WriteEntry<'_>) {
        put(frame, entry.key);
        put(frame, u64::from(entry.hint.0));
        put_padded(frame, entry.value);
    }
}

pub(crate) fn header(
    into: &mut Vec<u8>,
    operation: u8,
    flags: u8,
    count: usize,
    table: TableId,
    argument: u64,
) {
    let count = u16::try_from(count).expect("a message has no room for more operations");
    into.clear();
    into.extend_from_slice(&[operation, flags]);
    into.extend_from_slice(&count.to_le_bytes());
    into.extend_from_slice(&table.0.to_le_bytes());
    put(into, argument);
}

impl<'a> Request<'a> {
    /// Encodes a control request.
    ///
    /// # Panics
    /// Never: control requests always serialize.
    pub fn control(into: &mut Vec<u8>, request: &ControlRequest) {
        header(into, CONTROL, 0, 0, TableId(0), 0);
        into.extend_from_slice(&postcard::to_stdvec(request).expect("a control request serializes"));
    }

    /// Encodes a get.
    ///
    /// # Panics
    /// If there are more keys than 65,535: no message carries them.
    pub fn get(into: &mut Vec<u8>, table: TableId, keys: &[u64]) {
        header(into, GET, 0, keys.len(), table, 0);
        for key in keys {
            put(into, *key);
        }
    }

    /// Encodes a scan.
    pub fn scan(into: &mut Vec<u8>, table: TableId, direction: Direction, from: u64, limit: u16) {
        header(into, SCAN, direction as u8, usize::from(limit), table, from);
    }

    /// Begins a write of `count` entries to a table with values of `value_bytes`. The entries are to be
    /// appended with [`WriteEntries::push`].
    ///
    /// # Panics
    /// As [`Request::get`].
    pub fn begin_write(
        into: &mut Vec<u8>,
        table: TableId,
        operation: WriteOperation,
        count: usize,
        value_bytes: usize,
    ) {
        header(into, WRITE, operation as u8, count, table, operation.operand_bytes(value_bytes) as u64);
    }

    /// Encodes the fallback.
    pub fn lookup(into: &mut Vec<u8>, table: TableId, key: u64, generation: u64, known: u32) {
        header(into, LOOKUP, 0, 1, table, generation);
        put(into, key);
        put(into, known.into());
    }

    /// Encodes a request for a piece of the top model.
    pub fn top_model(into: &mut Vec<u8>, table: TableId, first_word: u32, generation: u64) {
        header(into, TOP_MODEL, 0, 1, table, generation);
        put(into, u64::from(first_word));
    }

    /// Encodes a request for sub-models.
    pub fn sub_models(
        into: &mut Vec<u8>,
        table: TableId,
        key: u64,
        wanted: SubModelsWanted,
        generation: u64,
    ) {
        header(into, SUB_MODELS, wanted as u8, 1, table, generation);
        put(into, key);
    }

    /// Begins a piece of a bulk load of `count` entries, to be appended with [`WriteEntries::push`].
    ///
    /// # Panics
    /// As [`Request::get`].
    pub fn begin_bulk_load(
        into: &mut Vec<u8>,
        table: TableId,
        last: bool,
        piece: u32,
        count: usize,
        value_bytes: usize,
    ) {
        let argument = u64::from(piece) << 32 | value_bytes as u64;
        header(into, BULK_LOAD, u8::from(last), count, table, argument);
    }

    /// Begins a piece of a bulk load of `count` values of any length, to be appended with
    /// [`ValueEntries::push`].
    ///
    /// # Panics
    /// As [`Request::get`].
    pub fn begin_load_values(into: &mut Vec<u8>, table: TableId, last: bool, piece: u32, count: usize) {
        header(into, LOAD_VALUES, u8::from(last), count, table, piece.into());
    }

    /// Encodes a get of values of any length.
    ///
    /// # Panics
    /// As [`Request::get`].
    pub fn get_values(into: &mut Vec<u8>, table: TableId, keys: &[u64]) {
        header(into, GET_VALUES, 0, keys.len(), table, 0);
        for key in keys {
            put(into, *key);
        }
    }

    /// Encodes a scan of values of any length.
    pub fn scan_values(into: &mut Vec<u8>, table: TableId, direction: Direction, from: u64, limit: u16) {
        header(into, SCAN_VALUES, direction as u8, usize::from(limit), table, from);
    }

    /// Begins a write of `count` values of any length, to be appended with [`ValueEntries::push`].
    ///
    /// # Panics
    /// As [`Request::get`], and for removals.
    pub fn begin_write_values(into: &mut Vec<u8>, table: TableId, operation: WriteOperation, count: usize) {
        assert!(operation.has_value(), "no {operation:?} of values of any length");
        header(into, WRITE_VALUES, operation as u8, count, table, 0);
    }

    /// Encodes a request for a piece of a value.
    pub fn fetch_value(into: &mut Vec<u8>, table: TableId, number: u64, key: u64, offset: u64) {
        header(into, FETCH_VALUE, 0, 1, table, number);
        put(into, key);
        put(into, offset);
    }

    /// Encodes that what is kept under this number is needed no more.
    pub fn let_go(into: &mut Vec<u8>, table: TableId, number: u64) {
        header(into, LET_GO, 0, 1, table, number);
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that no encoder writes.
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let Some((head, body)) = frame.split_at_checked(HEADER_BYTES) else {
            let got = format!("{} B", frame.len());
            return Err(DecodeError::new("a request's header", 0, format!("{HEADER_BYTES} B"), got));
        };
        let [operation, flags] = [head[0], head[1]];
        let count = u16::from_le_bytes([head[2], head[3]]);
        let table = TableId(u32::from_le_bytes(head[4..8].try_into().expect("four bytes")));
        let argument = u64::from_le_bytes(head[8..].try_into().expect("eight bytes"));
        check_unused(operation, flags, count, table, argument)?;
        match operation {
            CONTROL => Ok(Self::Control(body)),
            GET | GET_VALUES => {
                let keys = exact("a get's keys", body, operations(count)?)?;
                let has_blocks = operation == GET_VALUES;
                Ok(if has_blocks { Self::GetValues { table, keys } } else { Self::Get { table, keys } })
            }
            SCAN | SCAN_VALUES => {
                exact("a scan", body, 0)?;
                let (direction, from, limit) = (Direction::from_number(flags)?, argument, count);
                let has_blocks = operation == SCAN_VALUES;
                Ok(if has_blocks {
                    Self::ScanValues { table, direction, from, limit }
                } else {
                    Self::Scan { table, direction, from, limit }
                })
            }
            WRITE => {
                let operation = kind_of_write(flags)?;
                let entries = WriteEntries::new(body, operations(count)?, argument)?;
                Ok(Self::Write { table, operation, entries })
            }
            WRITE_VALUES => {
                let operation = kind_of_write_of_values(flags)?;
                let entries = ValueEntries::new(body, operations(count)?)?;
                Ok(Self::WriteValues { table, operation, entries })
            }
            DELEGATE | FIND => {
                Self::decode_for_others((operation, flags), operations(count)?, table, argument, body)
            }
            LOOKUP => {
                let words = exact("a lookup's key and sub-model", body, 2)?;
                let known = number("a lookup's sub-model", words.get(1))?;
                Ok(Self::Lookup { table, key: words.get(0), generation: argument, known })
            }
            TOP_MODEL => {
                let what = "a request for the top model";
                let first_word = number(what, exact(what, body, 1)?.get(0))?;
                Ok(Self::TopModel { table, first_word, generation: argument })
            }
            SUB_MODELS => {
                let key = exact("a request for sub-models", body, 1)?.get(0);
                let wanted = SubModelsWanted::from_number(flags).ok_or_else(|| {
                    DecodeError::new("which sub-models", 1, "0 to 2".into(), flags.to_string())
                })?;
                Ok(Self::SubModels { table, key, wanted, generation: argument })
            }
            BULK_LOAD => {
                let entries = WriteEntries::new(body, count.into(), argument & 0xffff_ffff)?;
                Ok(Self::BulkLoad { table, last: flags == 1, piece: argument >> 32, entries })
            }
            LOAD_VALUES => {
                let entries = ValueEntries::new(body, count.into())?;
                Ok(Self::LoadValues { table, last: flags == 1, piece: argument, entries })
            }
            other => Self::decode_in_pieces(other, flags, table, argument, body),
        }
    }
}

/// The kind of a write each of whose entries has a value.
pub(crate) fn kind_of_write(flags: u8) -> Result<WriteOperation, DecodeError> {
    let unknown = || DecodeError::new("a write's kind", 1, "0 to 8".into(), flags.to_string());
    WriteOperation::from_number(flags).ok_or_else(unknown)
}

fn kind_of_write_of_values(flags: u8) -> Result<WriteOperation, DecodeError> {
    WriteOperation::from_number(flags).filter(|kind| kind.has_value()).ok_or_else(|| {
        let expected = "0 to 8, but for 3 and 6".to_owned();
        DecodeError::new("the kind of a write of values", 1, expected, flags.to_string())
    })
}

/// A postcard message that fills `body`.
pub(crate) fn decode_whole<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => {
            let end = HEADER_BYTES + body.len() - rest.len();
            Err(DecodeError::new(what, end, "its end".into(), format!("{} B more", rest.len())))
        }
        Err(error) => {
            Err(DecodeError::new(what, HEADER_BYTES, "a message of its type".into(), error.to_string()))
        }
    }
}

/// Refuses a header with something in a field that its operation does not use.
fn check_unused(
    operation: u8,
    flags: u8,
    count: u16,
    table: TableId,
    argument: u64,
) -> Result<(), DecodeError> {
    use WriteOperation::{CompareAndSet, CompareAndSetValue, FetchAdd, Remove, RemoveIf};

    let is = |what: &'static str, offset: usize, expected: u64, got: u64| {
        if expected == got {
            return Ok(());
        }
        Err(DecodeError::new(what, offset, expected.to_string(), got.to_string()))
    };
    match operation {
        GET | GET_VALUES | LOOKUP | TOP_MODEL | CONTROL | STAGE_VALUE | FETCH_VALUE | LET_GO | LOAD_LONG => {
            is("a request's flags", 1, 0, u64::from(flags))?;
        }
        BULK_LOAD | LOAD_VALUES => is("a load's flags, but for bit 0", 1, 0, u64::from(flags >> 1))?,
        _ => {}
    }
    match operation {
        GET | GET_VALUES => is("a get's argument", 8, 0, argument),
        WRITE_VALUES => is("the argument of a write of values", 8, 0, argument),
        FIND => is("a question's argument", 8, 0, argument),
        WRITE => {
            let operand = "the bytes of a write's operands";
            match WriteOperation::from_number(flags) {
                Some(operation @ (Remove | RemoveIf | FetchAdd)) => {
                    is(operand, 8, operation.operand_bytes(0) as u64, argument)
                }
                Some(CompareAndSet) => is(operand, 8, argument.max(EXPECTED_VERSION_BYTES as u64), argument),
                Some(CompareAndSetValue) => is(operand, 8, argument & !1, argument),
                _ => Ok(()),
            }
        }
        LOOKUP | TOP_MODEL | SUB_MODELS | STAGE_VALUE | WRITE_STAGED | FETCH_VALUE | LET_GO | LOAD_LONG => {
            is("a request's count", 2, 1, u64::from(count))
        }
        LOAD_VALUES => is("a load's number of a piece, 32 bits", 8, argument & 0xffff_ffff, argument),
        CONTROL => {
            is("a control request's count", 2, 0, u64::from(count))?;
            is("a control request's table", 4, 0, u64::from(table.0))?;
            is("a control request's argument", 8, 0, argument)
        }
        _ => Ok(()),
    }
}

fn operations(count: u16) -> Result<usize, DecodeError> {
    if usize::from(count) <= OPERATIONS_MAX {
        return Ok(count.into());
    }
    Err(DecodeError::new("a request's count", 2, format!("at most {OPERATIONS_MAX}"), count.to_string()))
}

/// A word that holds a number of 32 bits.
fn number(what: &'static str, word: u64) -> Result<u32, DecodeError> {
    u32::try_from(word)
        .map_err(|_| DecodeError::new(what, HEADER_BYTES, "at most 4,294,967,295".into(), word.to_string()))
}

pub(crate) fn exact<'a>(what: &'static str, body: &'a [u8], words: usize) -> Result<Words<'a>, DecodeError> {
    if body.len() == 8 * words {
        return Words::new(what, body);
    }
    Err(DecodeError::new(what, HEADER_BYTES, format!("{} B", 8 * words), format!("{} B", body.len())))
}
