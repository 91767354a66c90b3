//! The catalogue: which tables a node has.

use std::fmt;

use farsight_base::{LINE_BYTES, RegionId};
use farsight_layout::value_block::LONGEST_VALUE_BYTES;
use farsight_layout::{DEADLINE_BYTES, SHORT_VALUE_BYTES};
use serde::{Deserialize, Serialize};

use crate::former_layouts::{FirstDefinition, FormerLayout, SecondDefinition};
use crate::{ErrorCode, PoolPlace, ServerError, Space, TableEngine};

/// Bytes of a table's name at most.
pub const TABLE_NAME_BYTES_MAX: usize = 64;

/// The version of layouts that a directory of data keeps.
const LAYOUT_VERSION: u8 = 3;

/// Bytes of the name of a type of values at most.
pub const VALUE_TYPE_BYTES_MAX: usize = 32;

/// A table, by the number that its coordinator gave it in this epoch. No other table ever gets that number:
/// a client that keeps the number of a dropped table finds none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TableId(pub u32);

/// How a table's keys were made from what users store; all clients of a table agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KeyKind {
    /// Unsigned integers, as they are.
    U64,
    /// Signed integers, sign bit flipped.
    I64,
    /// Floating point numbers in total order.
    F64,
    /// Eight bytes in lexicographic order.
    Bytes8,
    /// Bytes of any length, as they are. Engines without order alone have them.
    Bytes,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::Bytes8 => "bytes8",
            Self::Bytes => "bytes",
        })
    }
}

/// What a table's values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ValueKind {
    /// So many bytes each, which lie in the leaves.
    Fixed(u16),
    /// Any number of bytes up to a limit, each in a block of its own.
    Blocks {
        /// The limit.
        max_bytes: u32,
        /// How pairs end by themselves, if they do.
        expiry: Option<Expiry>,
    },
}

/// That pairs have deadlines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expiry {
    /// How long a pair stays whose writer says nothing of that; zero: until it is removed.
    pub default_ms: u64,
}

impl ValueKind {
    /// Values of any length, up to the longest that any table has.
    pub const BLOCKS: Self = Self::blocks(LONGEST_VALUE_BYTES as u32);

    /// Values of any length up to so many bytes, of pairs that stay.
    #[must_use]
    pub const fn blocks(max_bytes: u32) -> Self {
        Self::Blocks { max_bytes, expiry: None }
    }

    /// The same values, of pairs that have deadlines. Values of one size stay as they are.
    #[must_use]
    pub const fn expiring(self, default_ms: u64) -> Self {
        match self {
            Self::Fixed(_) => self,
            Self::Blocks { max_bytes, .. } => Self::Blocks { max_bytes, expiry: Some(Expiry { default_ms }) },
        }
    }

    /// How pairs end by themselves, if they do.
    #[inline]
    #[must_use]
    pub fn expiry(self) -> Option<Expiry> {
        match self {
            Self::Fixed(_) => None,
            Self::Blocks { expiry, .. } => expiry,
        }
    }

    /// Bytes that are stored of a value before it: its pair's deadline, if pairs have one.
    #[inline]
    #[must_use]
    pub fn deadline_bytes(self) -> usize {
        if self.expiry().is_some() { DEADLINE_BYTES } else { 0 }
    }

    /// Bytes that a leaf holds of each value: all of it, or the reference to its block.
    #[must_use]
    pub fn leaf_bytes(self) -> usize {
        match self {
            Self::Fixed(bytes) => bytes.into(),
            Self::Blocks { .. } => SHORT_VALUE_BYTES,
        }
    }

    /// Bytes of the longest value.
    #[must_use]
    pub fn bytes_max(self) -> usize {
        match self {
            Self::Fixed(bytes) => bytes.into(),
            Self::Blocks { max_bytes, .. } => max_bytes as usize,
        }
    }

    /// True if values have any length.
    #[must_use]
    pub fn are_blocks(self) -> bool {
        matches!(self, Self::Blocks { .. })
    }

    /// True if a value may have so many bytes.
    #[inline]
    #[must_use]
    pub fn allows(self, value_bytes: usize) -> bool {
        match self {
            Self::Fixed(bytes) => value_bytes == usize::from(bytes),
            Self::Blocks { max_bytes, .. } => value_bytes <= max_bytes as usize,
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes} B"),
            Self::Blocks { max_bytes, .. } => write!(f, "up to {max_bytes} B"),
        }
    }
}

/// What a user says of a new table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Its name; see [`check_table_name`].
    pub name: String,
    /// What its keys are.
    pub key_kind: KeyKind,
    /// What its values are.
    pub values: ValueKind,
    /// What the bytes of a value are, by a name on which its clients agree, as numpy's `<f8`; empty if
    /// nothing is said of them. No server looks at it.
    pub value_type: String,
    /// Bytes of each of its regions on a node at most; `None`: as many as the node gives a table.
    pub memory_bytes: Option<u64>,
    /// When its writes are acknowledged, at a node with a disk; `None`: as the node says.
    pub ack: Option<Ack>,
    /// How many nodes have each of its pairs; `None`: one.
    pub replicas: Option<u8>,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Ack {
    /// When it is durable: a crash of the machine loses nothing that anybody was told or has read.
    #[default]
    Durable,
    /// When it is in memory and handed to the system. A crash of the process loses nothing, one of the
    /// machine the last moments: about 50 ms.
    Memory,
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Durable => "durable",
            Self::Memory => "memory",
        })
    }
}

impl TableDefinition {
    /// A table of values of one size, of which nothing more is said.
    pub fn new(name: impl Into<String>, key_kind: KeyKind, value_bytes: u16) -> Self {
        let values = ValueKind::Fixed(value_bytes);
        Self {
            name: name.into(),
            key_kind,
            values,
            value_type: String::new(),
            memory_bytes: None,
            ack: None,
            replicas: None,
        }
    }

    /// How many nodes have each of its pairs.
    #[must_use]
    pub fn replicas(&self) -> usize {
        self.replicas.map_or(1, usize::from)
    }

    /// True if a table that is defined so is the one `wanted`: who says nothing of the type of values, of
    /// memory, acknowledgements or replicas, takes any.
    #[must_use]
    pub fn is_wanted(&self, wanted: &Self) -> bool {
        let Self { name, key_kind, values, value_type, memory_bytes, ack, replicas } = wanted;
        (&self.name, self.key_kind, self.values) == (name, *key_kind, *values)
            && (value_type.is_empty() || self.value_type == *value_type)
            && (memory_bytes.is_none() || self.memory_bytes == *memory_bytes)
            && (ack.is_none() || self.ack == *ack)
            && (replicas.is_none() || self.replicas() == wanted.replicas())
    }

    /// True if who works with a table that is defined so can go on with the `other`: they differ in memory
    /// and acknowledgements at most.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        *self == Self { memory_bytes: self.memory_bytes, ack: self.ack, ..other.clone() }
    }

    /// Checks what a client may choose freely: the name ([`check_table_name`]), and that of the type of
    /// values, up to [`VALUE_TYPE_BYTES_MAX`] visible ASCII characters.
    ///
    /// # Errors
    /// [`ErrorCode::BadName`] with the first offence.
    pub fn check_names(&self) -> Result<(), ServerError> {
        check_table_name(&self.name)?;
        let Self { name, value_type, .. } = self;
        let got = value_type.len();
        let text = if got > VALUE_TYPE_BYTES_MAX {
            format!(
                "a type of values has a name of at most {VALUE_TYPE_BYTES_MAX} B; for table {name:?} it has {got}"
            )
        } else if let Some(wrong) = value_type.chars().find(|c| !c.is_ascii_graphic()) {
            format!("table {name:?}: the name of the type of values has {wrong:?}; allowed is visible ASCII")
        } else {
            return Ok(());
        };
        Err(ServerError::new(ErrorCode::BadName, text))
    }
}

impl fmt::Display for TableDefinition {
    /// What it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys and values of {}", self.key_kind, self.values)?;
        match self.values.expiry() {
            None => {}
            Some(Expiry { default_ms: 0 }) => write!(f, " with deadlines")?,
            Some(Expiry { default_ms }) => write!(f, " that end after {default_ms} ms")?,
        }
        if !self.value_type.is_empty() {
            write!(f, " of type {:?}", self.value_type)?;
        }
        if let Some(bytes) = self.memory_bytes {
            write!(f, " in regions of {bytes} B")?;
        }
        if let Some(ack) = self.ack {
            write!(f, ", acknowledged when {ack}")?;
        }
        self.replicas.map_or(Ok(()), |replicas| write!(f, ", each pair on {replicas} nodes"))
    }
}

/// The layout in which a table is made: what its definition says, and what follows from it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableLayout {
    /// Name, kind of keys, size and type of values.
    pub definition: TableDefinition,
    /// How it is worked with.
    pub engine: TableEngine,
    /// Lines of one leaf's block.
    pub block_lines: u16,
    /// The version of the format in which its leaves are written.
    pub format_version: u32,
}

impl TableLayout {
    /// Its bytes, as a directory of data keeps them. They begin with a zero, as those of the first version
    /// never do, and the version.
    ///
    /// # Panics
    /// Never: a layout always serializes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let begin = vec![0, LAYOUT_VERSION];
        postcard::to_extend(self, begin).expect("a layout serializes")
    }

    /// The layout of these bytes, which this or an older release wrote.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] for bytes that are none, or of a later version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ServerError> {
        let none = |error| {
            let text = format!("what is kept of its definition is none: {error}");
            ServerError::new(ErrorCode::BadRequest, text)
        };
        match bytes {
            [0, LAYOUT_VERSION, layout @ ..] => postcard::from_bytes(layout).map_err(none),
            [0, 2, layout @ ..] => {
                postcard::from_bytes::<FormerLayout<SecondDefinition>>(layout).map(Self::from).map_err(none)
            }
            [0, version, ..] => {
                let text = format!(
                    "its definition is of version {version}, this program reads up to {LAYOUT_VERSION}: use the \
                     release that wrote it"
                );
                Err(ServerError::new(ErrorCode::BadRequest, text))
            }
            // Of the first version, or none.
            first => {
                postcard::from_bytes::<FormerLayout<FirstDefinition>>(first).map(Self::from).map_err(none)
            }
        }
    }

    /// True if a table that is made so was made as `wanted`, whatever it is called now.
    #[must_use]
    pub fn is_as_made(&self, wanted: &Self) -> bool {
        let definition = TableDefinition { name: self.definition.name.clone(), ..wanted.definition.clone() };
        *self == Self { definition, ..wanted.clone() }
    }

    /// True if a table that is made so is the one `wanted`, wherever its ranges begin: its maker says.
    #[must_use]
    pub fn is_wanted(&self, wanted: &Self) -> bool {
        self.engine.is_like(&wanted.engine)
            && self.definition.is_wanted(&wanted.definition)
            && (self.block_lines, self.format_version) == (wanted.block_lines, wanted.format_version)
    }
}

/// One region of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegionInfo {
    /// What it is for.
    pub space: Space,
    /// Its number.
    pub id: u32,
    /// Blocks that it holds; their numbers lie below.
    pub capacity: u32,
}

impl RegionInfo {
    /// Its number, as fabrics take it.
    #[must_use]
    pub fn id(&self) -> RegionId {
        RegionId(self.id)
    }
}

/// A table's part on one node, as a client needs to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableInfo {
    /// Its number, the same on every node.
    pub id: TableId,
    /// Its definition.
    pub definition: TableDefinition,
    /// How it is worked with.
    pub engine: TableEngine,
    /// Lines of one leaf's block.
    pub block_lines: u16,
    /// The version of the format in which its leaves are written.
    pub format_version: u32,
    /// The node's place among those for which the table was made.
    pub place: PoolPlace,
    /// Its regions on this node, one a space; leaves are always among them.
    pub regions: Vec<RegionInfo>,
}

impl TableInfo {
    /// The layout in which it was made.
    #[must_use]
    pub fn layout(&self) -> TableLayout {
        TableLayout {
            definition: self.definition.clone(),
            engine: self.engine.clone(),
            block_lines: self.block_lines,
            format_version: self.format_version,
        }
    }

    /// The region of this space.
    #[must_use]
    pub fn region_of(&self, space: Space) -> Option<&RegionInfo> {
        self.regions.iter().find(|region| region.space == space)
    }

    /// The region that holds its leaves; number zero if the node named none.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.region_of(Space::Leaves).map_or(RegionId(0), RegionInfo::id)
    }

    /// Leaves that it holds on this node; their numbers lie below.
    #[must_use]
    pub fn capacity_leaves(&self) -> u32 {
        self.region_of(Space::Leaves).map_or(0, |region| region.capacity)
    }

    /// Bytes of one leaf's block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.block_lines) * LINE_BYTES as u64
    }

    /// Bytes that this region of the table has at least.
    #[must_use]
    pub fn bytes_of(&self, region: &RegionInfo) -> u64 {
        let block_bytes = match region.space {
            Space::Leaves => self.block_bytes(),
            Space::Meta | Space::Blocks | Space::Index => LINE_BYTES as u64,
        };
        u64::from(region.capacity) * block_bytes
    }
}

/// Checks a table's name: 1 to [`TABLE_NAME_BYTES_MAX`] of `a-z A-Z 0-9 _ -`.
///
/// # Errors
/// [`ErrorCode::BadName`] with the first offence.
pub fn check_table_name(name: &str) -> Result<(), ServerError> {
    let refuse = |text: String| Err(ServerError::new(ErrorCode::BadName, text));
    if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
        return refuse(format!(
            "a table's name has 1 to {TABLE_NAME_BYTES_MAX} bytes, this one {}",
            name.len()
        ));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "_-".contains(*c))) {
        Some(c) => refuse(format!("table name {name:?} has {c:?}; allowed are letters, digits, _ and -")),
        None => Ok(()),
    }
}
