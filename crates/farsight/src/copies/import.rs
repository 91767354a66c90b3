//! Tables out of a copy.
//!
//! Protocol, of each table:
//! 1. Make it, under a name of its own that says what it is.
//! 2. Load its pairs: in bulk where they ascend and the engine keeps an order, else by puts. Pairs with
//!    deadlines are put, each with the instant at which it ends.
//! 3. Give it its name. *A crash before leaves a table under the other name, which is refused by the next
//!    import until it is dropped.* An error drops it.

use farsight_client::{Access, BulkLoad, CatalogueError, EngineKind, NewTable, Session, Table, WriteError};
use farsight_durability::{Archive, CopiedPair, CopiedTable, read_manifest, read_table};
use farsight_index::OwnedKey;
use farsight_protocol::{
    ErrorCode, KeyKind, TABLE_NAME_BYTES_MAX, TableDefinition, TableLayout, ValueKind, WriteOperation,
    WriteOutcome,
};

use super::{CopiesError, TableCopied};
use crate::Client;
use crate::all_pairs::integer_of;

/// What a table that is not whole yet is called begins so.
const PREFIX: &str = "importing-";
/// Pairs of a batch of puts at most.
const BATCH_PAIRS: usize = 1024;
/// Bytes of values with which a batch ends.
const BATCH_BYTES: usize = 1 << 20;

/// How tables are taken in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// Which tables; all of the copy if there are none.
    pub tables: Vec<String>,
    /// What the table is called then, if there is one alone.
    pub name: Option<String>,
    /// Their engine; without one that which each had, or what that is called over so many nodes.
    pub engine: Option<&'static EngineKind>,
    /// Bytes of each of their regions on a node at most; as many as a node gives a table without a number.
    pub memory_bytes: Option<u64>,
    /// How many nodes have each pair; without a number as many as had, where the engine has replicas.
    pub replicas: Option<u8>,
}

/// A table to be made, and what the copy has of it.
struct Wanted<'m> {
    name: String,
    new: NewTable,
    copied: &'m CopiedTable,
}

/// Makes tables of the copy in `archive`, of whose names none may be there. Each shows all of its pairs at
/// once. Tells `progress` the name of each, how many of its pairs are there so far, and of how many.
///
/// # Errors
/// [`CopiesError`]; then the tables before the one that failed are there, and those behind it are not.
pub fn import_tables(
    client: &Client,
    archive: &dyn Archive,
    options: &ImportOptions,
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Result<Vec<TableCopied>, CopiesError> {
    let manifest = read_manifest(archive)?;
    let has = || manifest.tables.iter().map(|table| table.name.clone()).collect();
    let of_name = |name: &String| {
        let found = manifest.tables.iter().find(|table| table.name == *name);
        let (place, table) = (archive.place(""), name.clone());
        found.ok_or_else(|| CopiesError::NoTable { place, table, has: has() })
    };
    let chosen: Vec<&CopiedTable> = if options.tables.is_empty() {
        manifest.tables.iter().collect()
    } else {
        options.tables.iter().map(of_name).collect::<Result<_, _>>()?
    };
    if let (Some(name), tables) = (&options.name, chosen.len())
        && tables != 1
    {
        return Err(CopiesError::OneName { name: name.clone(), tables });
    }
    let wanted = chosen.into_iter().map(|copied| wanted(copied, options));
    let wanted: Vec<Wanted<'_>> = wanted.collect::<Result<_, _>>()?;
    let client = client.inner();
    for Wanted { name, new, .. } in &wanted {
        check_absent(client, name, "drop or rename it, or give this one another name")?;
        check_absent(client, &new.definition.name, "an import that was cut has left it; drop it")?;
    }
    wanted.into_iter().map(|wanted| take_in(client, archive, wanted, progress)).collect()
}

/// The table that is to be made of a copied one.
fn wanted<'m>(copied: &'m CopiedTable, options: &ImportOptions) -> Result<Wanted<'m>, CopiesError> {
    let table = || copied.name.clone();
    let refused = |source| CopiesError::Definition { table: table(), source };
    let TableLayout { definition, engine, .. } =
        TableLayout::from_bytes(&copied.definition).map_err(refused)?;
    let engine = match options.engine {
        Some(engine) => engine,
        None => EngineKind::named(&engine.name).map_err(|unknown| {
            refused(farsight_protocol::ServerError::new(ErrorCode::BadRequest, unknown.to_string()))
        })?,
    };
    let name = options.name.clone().unwrap_or_else(table);
    let replicas = options.replicas.or(definition.replicas.filter(|_| engine.has_replicas));
    let definition = TableDefinition {
        name: name.clone(),
        values: values_in(engine, definition.values, copied.value_bytes_max),
        memory_bytes: options.memory_bytes,
        replicas,
        ..definition
    };
    definition.check_names().map_err(refused)?;
    let definition = TableDefinition { name: unfinished_name(&name), ..definition };
    let integer = |key: &Vec<u8>| integer_of(key, &copied.name);
    let sample = match definition.key_kind {
        // No engine with such keys has ranges.
        KeyKind::Bytes => Vec::new(),
        _ => copied.sample.iter().map(integer).collect::<Result<_, _>>()?,
    };
    let new = NewTable { definition, engine: Some(engine), sample };
    Ok(Wanted { name, new, copied })
}

/// What values are in a table of this engine: their limit is lower where the engine's is, if all have room.
fn values_in(engine: &EngineKind, values: ValueKind, longest_bytes: u32) -> ValueKind {
    match values {
        ValueKind::Blocks { max_bytes, expiry } if engine.has_blocks() => {
            let max_bytes = max_bytes.min(longest_bytes.max(engine.block_value_bytes_max as u32));
            ValueKind::Blocks { max_bytes, expiry }
        }
        values => values,
    }
}

/// What a table is called until all of its pairs are there.
fn unfinished_name(name: &str) -> String {
    let rest: String = name.chars().take(TABLE_NAME_BYTES_MAX - PREFIX.len()).collect();
    format!("{PREFIX}{rest}")
}

fn check_absent(
    client: &farsight_client::Client,
    name: &str,
    remedy: &'static str,
) -> Result<(), CopiesError> {
    match client.describe_table(name) {
        Ok(_) => Err(CopiesError::IsThere { table: name.to_owned(), remedy }),
        Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::UnknownTable => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes a table and fills it.
fn take_in(
    client: &farsight_client::Client,
    archive: &dyn Archive,
    wanted: Wanted<'_>,
    progress: &mut dyn FnMut(&str, u64, u64),
) -> Result<TableCopied, CopiesError> {
    let Wanted { name, new, copied } = wanted;
    let unfinished = new.definition.name.clone();
    let table = client.create_table(new)?;
    let progress = &mut |pairs| progress(&name, pairs, copied.pairs);
    let filled = fill(&table, archive, copied, progress);
    drop(table);
    let done = filled.and_then(|()| Ok(client.rename_table(&unfinished, &name)?));
    match done {
        Ok(()) => Ok(TableCopied { name, pairs: copied.pairs, bytes: copied.bytes }),
        Err(source) => Err(match client.drop_table(&unfinished) {
            Ok(()) => source,
            Err(error) => CopiesError::LeftBehind {
                table: unfinished,
                why: error.to_string(),
                source: Box::new(source),
            },
        }),
    }
}

/// Puts the pairs of a copied table into a new one.
fn fill(
    table: &Table,
    archive: &dyn Archive,
    copied: &CopiedTable,
    progress: &mut dyn FnMut(u64),
) -> Result<(), CopiesError> {
    let is_in_bulk = copied.is_ascending && table.engine().is_ordered && table.values().expiry().is_none();
    let mut sink = if is_in_bulk {
        Sink::Bulk(Box::new(table.bulk_load()?))
    } else {
        Sink::Puts(Box::new(Puts::new(table.session(Access::OneSided)?)))
    };
    let (values, mut pairs) = (table.values(), 0);
    read_table(archive, copied, &mut |pair: CopiedPair<'_>| {
        let got_bytes = pair.value.len();
        if !values.allows(got_bytes) {
            return Err(CopiesError::Value { table: copied.name.clone(), expected: values, got_bytes });
        }
        pairs += 1;
        if pairs % BATCH_PAIRS as u64 == 0 {
            progress(pairs);
        }
        sink.push(pair, &copied.name)
    })?;
    sink.finish()?;
    progress(pairs);
    Ok(())
}

/// Where pairs go.
enum Sink {
    Bulk(Box<BulkLoad>),
    Puts(Box<Puts>),
}

impl Sink {
    fn push(&mut self, pair: CopiedPair<'_>, table: &str) -> Result<(), CopiesError> {
        match self {
            Self::Bulk(load) => Ok(load.push(integer_of(pair.key, table)?, pair.value)?),
            Self::Puts(puts) => puts.push(pair),
        }
    }

    fn finish(self) -> Result<(), CopiesError> {
        match self {
            Self::Bulk(load) => Ok(load.finish().map(drop)?),
            Self::Puts(mut puts) => puts.send(),
        }
    }
}

/// Puts in batches.
struct Puts {
    session: Session,
    /// Keys, one behind the other, and likewise values.
    keys: Vec<u8>,
    values: Vec<u8>,
    pairs: Vec<PairEnds>,
    outcomes: Vec<WriteOutcome>,
}

/// A pair of a batch.
struct PairEnds {
    /// Where its key ends, and its value.
    key: usize,
    value: usize,
    /// When it ends itself.
    at_ms: u64,
}

impl Puts {
    fn new(session: Session) -> Self {
        let (keys, values, pairs, outcomes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { session, keys, values, pairs, outcomes }
    }

    fn push(&mut self, pair: CopiedPair<'_>) -> Result<(), CopiesError> {
        self.keys.extend_from_slice(pair.key);
        self.values.extend_from_slice(pair.value);
        let (key, value, at_ms) = (self.keys.len(), self.values.len(), pair.ends_at_ms);
        self.pairs.push(PairEnds { key, value, at_ms });
        let bytes = self.keys.len() + self.values.len();
        if self.pairs.len() == BATCH_PAIRS || bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), CopiesError> {
        let Self { session, keys, values, pairs, outcomes } = self;
        let (mut key_at, mut value_at) = (0, 0);
        let entries = pairs.iter().map(|ends| {
            let pair = (&keys[key_at..ends.key], ends.at_ms, &values[value_at..ends.value]);
            (key_at, value_at) = (ends.key, ends.value);
            pair
        });
        let table = session.table().name().to_owned();
        if session.table().info().definition.key_kind == KeyKind::Bytes {
            session.put_until(entries, outcomes)?;
        } else {
            let integers = entries.map(|(key, at_ms, value)| Ok((integer_of(key, &table)?, at_ms, value)));
            let integers = integers.collect::<Result<Vec<_>, CopiesError>>()?;
            session.put_until(integers.into_iter(), outcomes)?;
        }
        let is_inserted = |got: &WriteOutcome| matches!(got, WriteOutcome::Inserted(_));
        if let Some((index, got)) = outcomes.iter().enumerate().find(|(_, got)| !is_inserted(got)) {
            let begin = index.checked_sub(1).map_or(0, |before| pairs[before].key);
            let key = OwnedKey::from(&keys[begin..pairs[index].key]);
            return Err(match *got {
                WriteOutcome::Failed(code) => {
                    WriteError::Refused { table, operation: WriteOperation::Put, code }.into()
                }
                got => CopiesError::Put { table, key, got },
            });
        }
        keys.clear();
        values.clear();
        pairs.clear();
        Ok(())
    }
}
