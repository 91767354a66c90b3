//! What can go wrong at a client, one enum a family of calls.

use farsight_base::Epoch;
use farsight_fabric::FabricError;
use farsight_index::{EngineError, UnfitTable, UnknownEngine};
use farsight_protocol::{
    DecodeError, ErrorCode, INTEGER_BYTES, Operand, ServerError, TableDefinition, ValueKind, WriteOperation,
};

use crate::PoolError;

/// A failure to find, make or describe tables.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The connection failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The server or memory node said no: [`ServerError::code`] tells programs why.
    #[error("the node at {peer} refused")]
    Refused {
        /// Its address.
        peer: String,
        /// Its words.
        source: ServerError,
    },
    /// The table is written in a format that this program cannot read.
    #[error(
        "table {table:?} at {peer} has format version {got}, this client reads version {expected}: \
         use client and server of the same release"
    )]
    FormatVersion {
        /// The server.
        peer: String,
        /// The table.
        table: String,
        /// What this client reads.
        expected: u32,
        /// What the server has.
        got: u32,
    },
    /// The server's answer is not what this version understands.
    #[error("{peer} answered unintelligibly")]
    Decode {
        /// The server.
        peer: String,
        /// What, where, expected and got.
        source: DecodeError,
    },
    /// The engine has no such table: over so many nodes, or with values as long.
    #[error("table {table:?} cannot be made")]
    Unfit {
        /// The table.
        table: String,
        /// Why.
        source: UnfitTable,
    },
    /// This client does not know the table's engine.
    #[error("table {table:?} cannot be used: use client and server of the same release")]
    UnknownEngine {
        /// The table.
        table: String,
        /// Its engine, and those that there are.
        source: UnknownEngine,
    },
    /// The list of memory nodes is no pool, or not the pool that it was.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The engine cannot work with the table as the server described it.
    #[error("table {table:?} cannot be used")]
    Engine {
        /// The table.
        table: String,
        /// Why.
        source: EngineError,
    },
}

/// A failure to open a table, or to open it again after the server was lost.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The server could not be reached, or refused.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// There is no table of this name any more: it was dropped or renamed, or the server, or a pool's
    /// coordinator, was started again and does not have it.
    #[error("{peer} has no table {table:?} any more: {why}", why = why_gone(*was, *is))]
    TableGone {
        /// Its address.
        peer: String,
        /// The table.
        table: String,
        /// The epoch in which the table was opened.
        was: Epoch,
        /// The epoch that does not have it.
        is: Epoch,
        /// Its words.
        source: ServerError,
    },
    /// The server has a table of this name that is defined otherwise.
    #[error(
        "table {:?} at {peer} is now defined with {got}; it was opened with {expected}. Open it anew", got.name
    )]
    OtherDefinition {
        /// The server.
        peer: String,
        /// The definition that the table had when it was opened.
        expected: Box<TableDefinition>,
        /// The one it has now.
        got: Box<TableDefinition>,
    },
}

impl From<FabricError> for OpenError {
    fn from(error: FabricError) -> Self {
        Self::Catalogue(error.into())
    }
}

/// Why a table that was opened `was` is no more.
fn why_gone(was: Epoch, is: Epoch) -> String {
    if was == is {
        return "it was dropped or renamed since it was opened".to_owned();
    }
    format!(
        "it was started again ({is}, it was {was}), and what was in memory ended with its former epoch. Make the \
         table and load it again"
    )
}

/// A failure to read. It says nothing about what is stored; reads can be repeated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The buffer for a value is not as long as the table's values, or these have any length.
    #[error("table {table:?} has values of {expected}, the buffer given has {got_bytes} B")]
    WrongBufferSize {
        /// The table.
        table: String,
        /// What the table's values are.
        expected: ValueKind,
        /// Bytes of the buffer.
        got_bytes: usize,
    },
    /// The read did not come to an end.
    #[error("cannot read table {table:?}")]
    Engine {
        /// The table.
        table: String,
        /// Why.
        source: Box<EngineError>,
    },
    /// The connection was lost and made anew, and the table could not be opened again.
    #[error("cannot read table {table:?} any more")]
    Reopen {
        /// The table.
        table: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// The server was started again in the middle of a scan: what it has now does not belong to the pairs
    /// that the scan has returned.
    #[error(
        "the scan of table {table:?} was cut off: its server or pool was started again ({is}, it was {was})"
    )]
    ScanCut {
        /// The table.
        table: String,
        /// The server's epoch that the scan began in.
        was: Epoch,
        /// The server's epoch now.
        is: Epoch,
    },
    /// The table's name has come to lead to another table in the middle of a scan.
    #[error("the scan of table {table:?} was cut off: its name leads to another table now")]
    ScanMoved {
        /// The table.
        table: String,
    },
}

/// A failure to write.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// A value is not as long as the table's values, or longer than they may be. Nothing of the call was
    /// sent.
    #[error("table {table:?} has values of {expected}, value {index} of the call has {got_bytes} B")]
    WrongValueSize {
        /// The table.
        table: String,
        /// Which entry of the batch; zero for a single write.
        index: usize,
        /// What the table's values are.
        expected: ValueKind,
        /// Bytes of the value given.
        got_bytes: usize,
    },
    /// A key of bytes and its value are longer together than the table's engine has them. Nothing of the call
    /// was sent.
    #[error(
        "table {table:?} has keys and values of {max_bytes} B together at most: entry {index} of the call has a \
         key of {key_bytes} B and a value of {value_bytes} B"
    )]
    PairTooLong {
        /// The table.
        table: String,
        /// Which entry of the batch; zero for a single write.
        index: usize,
        /// Bytes of the key.
        key_bytes: usize,
        /// Bytes of the value.
        value_bytes: usize,
        /// Bytes of both together at most.
        max_bytes: usize,
    },
    /// The table's values are no integers. Nothing of the call was sent.
    #[error(
        "table {table:?} has values of {value_bytes} B: fetch-and-add wants integers of {INTEGER_BYTES} B. Read the \
         value and compare-and-set the sum"
    )]
    NotInteger {
        /// The table.
        table: String,
        /// Bytes of the table's values.
        value_bytes: usize,
    },
    /// A lifetime was given for pairs of a table that keeps its pairs until they are removed. Nothing was
    /// sent.
    #[error("pairs of table {table:?} have no deadlines: make a table with them (`farsight create --ttl`)")]
    NoDeadlines {
        /// The table.
        table: String,
    },
    /// The value that was to be written once more could not be read. Nothing changed.
    #[error("cannot look at what is to be written again in table {table:?}")]
    Look {
        /// The table.
        table: String,
        /// Why.
        source: Box<ReadError>,
    },
    /// The server executed the call and could not do this write. Nothing changed.
    #[error("table {table:?} did not take the {operation:?}: {reason}", reason = reason(*code))]
    Refused {
        /// The table.
        table: String,
        /// What was tried.
        operation: WriteOperation,
        /// Why not.
        code: ErrorCode,
    },
    /// No answer to the writes came, or none that can be read, or the server met a bug while it executed
    /// them. Each of them may have been executed once, or not at all.
    ///
    /// Where a node can tell what became of it, a write is repeated by itself, and acts once. Of this one no
    /// node could tell: it has died without a log, or forgotten the write, or was not reached in time. Or the
    /// engine's writes are no calls. To learn more, read the keys: a version that has grown means that the
    /// write, or another client's, took place. Puts, updates to a known value and removes can simply be
    /// repeated; an insert that now finds its key may be finding its own earlier write. A compare-and-set by
    /// version can be repeated, too: it takes effect once, and if it finds another version that may be its
    /// own. A fetch-and-add or a swap must not be: it would act twice. What a server without a log had in
    /// memory is gone with it, and the writes too.
    #[error("the outcome of {entries} {operation:?} on table {table:?} is unknown")]
    Indeterminate {
        /// The table.
        table: String,
        /// What was tried.
        operation: WriteOperation,
        /// Writes of the call that were not answered.
        entries: usize,
        /// How the answer was lost.
        source: Box<EngineError>,
    },
    /// The server refused a call as a whole, or it could not be sent. Of the writes whose outcomes were not
    /// returned none was executed.
    #[error("cannot write to table {table:?}")]
    Engine {
        /// The table.
        table: String,
        /// Why.
        source: Box<EngineError>,
    },
    /// The connection was lost before the call and made anew, and the table could not be opened again.
    /// Nothing of the call was sent.
    #[error("cannot write to table {table:?} any more")]
    Reopen {
        /// The table.
        table: String,
        /// Why.
        source: Box<OpenError>,
    },
}

impl WriteError {
    /// Refuses an operand, entry `index` of a call, that is not as long as the operation's in a table with
    /// this name and such values.
    ///
    /// # Errors
    /// [`WriteError::WrongValueSize`], [`WriteError::NotInteger`].
    #[inline]
    pub fn check_operand(
        (table, values): (&str, ValueKind),
        operation: WriteOperation,
        index: usize,
        operand: &[u8],
    ) -> Result<(), Self> {
        let ValueKind::Fixed(value_bytes) = values else {
            return Self::check_any_length((table, values), operation, index, operand);
        };
        let (value_bytes, operand_bytes) = (usize::from(value_bytes), operand.len());
        let is_of_integers = operation != WriteOperation::FetchAdd || value_bytes == INTEGER_BYTES;
        if operand_bytes == operation.operand_bytes(value_bytes) && is_of_integers {
            return Ok(());
        }
        Err(Self::wrong_operand((table, value_bytes), operation, index, operand_bytes))
    }

    /// Refuses a value, entry `index` of a call, that is not as long as a table's with this name and such
    /// values.
    ///
    /// # Errors
    /// [`WriteError::WrongValueSize`].
    pub fn check_value((table, expected): (&str, ValueKind), index: usize, value: &[u8]) -> Result<(), Self> {
        let got_bytes = value.len();
        if expected.allows(got_bytes) {
            return Ok(());
        }
        Err(Self::WrongValueSize { table: table.to_owned(), index, expected, got_bytes })
    }

    fn check_any_length(
        (table, values): (&str, ValueKind),
        operation: WriteOperation,
        index: usize,
        operand: &[u8],
    ) -> Result<(), Self> {
        // The caller of a fetch-and-add gives no deadline: the session does.
        let is_whole = |parts: &Operand<'_>| operation != WriteOperation::FetchAdd || parts.value.is_empty();
        let parts = Operand::of_any_length(operation, operand).filter(is_whole);
        let Some(Operand { argument, value }) = parts else {
            let (table, got_bytes) = (table.to_owned(), operand.len());
            return Err(Self::WrongValueSize { table, index, expected: values, got_bytes });
        };
        match operation {
            WriteOperation::FetchAdd if !values.allows(INTEGER_BYTES) => {
                Err(Self::NotInteger { table: table.to_owned(), value_bytes: values.bytes_max() })
            }
            WriteOperation::CompareAndSetValue => Self::check_value((table, values), index, argument)
                .and_then(|()| Self::check_value((table, values), index, value)),
            _ => Self::check_value((table, values), index, value),
        }
    }

    #[cold]
    fn wrong_operand(
        (table, value_bytes): (&str, usize),
        operation: WriteOperation,
        index: usize,
        operand_bytes: usize,
    ) -> Self {
        let table = table.to_owned();
        if operation == WriteOperation::FetchAdd && value_bytes != INTEGER_BYTES {
            return Self::NotInteger { table, value_bytes };
        }
        let expected_bytes = if operation.has_value() { value_bytes } else { 0 };
        let expected = ValueKind::Fixed(expected_bytes as u16);
        // What the operand has besides the value.
        let beside = operation.operand_bytes(value_bytes) - expected_bytes;
        let got_bytes = operand_bytes.saturating_sub(beside);
        Self::WrongValueSize { table, index, expected, got_bytes }
    }
}

/// A failure of a bulk load. The table stays empty unless it was the last piece's answer that was lost, or
/// the last piece in which the server met a bug.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A key is not greater than the one before it.
    #[error("a bulk load needs ascending keys: pair {index} has key {key} after {previous}")]
    NotAscending {
        /// Which pair, from zero.
        index: u64,
        /// The key before.
        previous: u64,
        /// The key.
        key: u64,
    },
    /// A value is not as long as the table's values, or longer than they may be.
    #[error("table {table:?} has values of {expected}, pair {index} of the load has {got_bytes} B")]
    WrongValueSize {
        /// The table.
        table: String,
        /// Which pair, from zero.
        index: u64,
        /// What the table's values are.
        expected: ValueKind,
        /// Bytes of the value given.
        got_bytes: usize,
    },
    /// The server refused a piece.
    #[error("table {table:?} did not take the load{remedy}", remedy = load_remedy(source.code))]
    Refused {
        /// The table.
        table: String,
        /// The server's words.
        source: ServerError,
    },
    /// The server's answer is not what this version understands.
    #[error("the answer to a load of table {table:?} is unintelligible")]
    Decode {
        /// The table.
        table: String,
        /// What, where, expected and got.
        source: DecodeError,
    },
    /// A pool's table that holds pairs, or held some.
    #[error("table {table:?} has held pairs: a pool's table is loaded in bulk before it ever does; put them")]
    Used {
        /// The table.
        table: String,
    },
    /// The pairs of a pool's table could not be written.
    #[error("the load of table {table:?} ended after {pairs} pairs")]
    Engine {
        /// The table.
        table: String,
        /// Pairs that had been taken.
        pairs: u64,
        /// Why.
        source: Box<EngineError>,
    },
    /// The pairs of a pool's table are loaded, but its learned index could not be written.
    #[error("all {pairs} pairs of the load of table {table:?} are there, but without a learned index")]
    Directory {
        /// The table.
        table: String,
        /// The pairs.
        pairs: u64,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection failed.
    #[error("the load of table {table:?} was cut off after {pairs} pairs")]
    Fabric {
        /// The table.
        table: String,
        /// Pairs that the server had acknowledged.
        pairs: u64,
        /// Why.
        source: FabricError,
    },
}

/// What to do about a load that was refused with this code, where that is known.
fn load_remedy(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RegionFull => {
            " (load fewer pairs, or start its server or memory nodes again with more memory a table)"
        }
        ErrorCode::NoMemory => {
            " (drop tables, remove pairs, or start its server or memory nodes again with more memory)"
        }
        ErrorCode::Bug => ", or has it all the same: its server met a bug",
        _ => "",
    }
}

/// What an error code of a single write means to its caller.
fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RegionFull => {
            "its region is full. Remove neighbouring pairs, which frees leaves. Or start its server or memory nodes \
             again with more memory a table"
        }
        ErrorCode::NoMemory => {
            "its server or memory node has as much memory as it may have, which `farsight stats` shows. Drop tables, \
             remove pairs, or start it again with a higher memory limit"
        }
        ErrorCode::Contended => "its leaf stayed latched beyond the bound. Try again",
        ErrorCode::VersionsExhausted => "its versions are used up. Load it into a new table",
        ErrorCode::OutOfResources => "its server or memory node is out of memory",
        ErrorCode::UnknownTable => "its server or memory node no longer has it",
        ErrorCode::WrongValueSize => "its values have another size",
        ErrorCode::Fenced => "this process was taken for dead. Connect anew",
        ErrorCode::Bug => "its server met a bug and may have executed it or not",
        ErrorCode::Damaged => "memory lost a bit of it",
        ErrorCode::NotInteger => {
            "the value that is there is no integer of 8 B. Read it and compare-and-set another one"
        }
        ErrorCode::BadRequest
        | ErrorCode::TableExists
        | ErrorCode::BadName
        | ErrorCode::BadLoad
        | ErrorCode::Forgotten
        | ErrorCode::Executing
        | ErrorCode::TakingIn
        | ErrorCode::OtherPool => "its server or memory node did not understand the request",
    }
}
