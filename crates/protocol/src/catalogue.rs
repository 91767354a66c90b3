//! The catalogue: which tables a server has.

use farsight_base::RegionId;
use serde::{Deserialize, Serialize};

use crate::{ErrorCode, ServerError};

/// Bytes of a table's name at most.
pub const TABLE_NAME_BYTES_MAX: usize = 64;

/// Bytes of the name of a type of values at most.
pub const VALUE_TYPE_BYTES_MAX: usize = 32;

/// A table, by the number that its server gave it in this epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TableId(pub u16);

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
}

impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::Bytes8 => "bytes8",
        })
    }
}

/// What a user says of a new table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Its name; see [`check_table_name`].
    pub name: String,
    /// What its keys are.
    pub key_kind: KeyKind,
    /// Bytes of each value.
    pub value_bytes: u16,
    /// What the bytes of a value are, by a name on which its clients agree, as numpy's `<f8`; empty if
    /// nothing is said of them. No server looks at it.
    pub value_type: String,
}

impl TableDefinition {
    /// A table of whose values nothing more is said.
    pub fn new(name: impl Into<String>, key_kind: KeyKind, value_bytes: u16) -> Self {
        Self { name: name.into(), key_kind, value_bytes, value_type: String::new() }
    }

    /// True if a table that is defined so is the one `wanted`: who says nothing of the type of values takes
    /// any.
    #[must_use]
    pub fn is_wanted(&self, wanted: &Self) -> bool {
        let Self { name, key_kind, value_bytes, value_type } = wanted;
        (&self.name, self.key_kind, self.value_bytes) == (name, *key_kind, *value_bytes)
            && (value_type.is_empty() || self.value_type == *value_type)
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

impl std::fmt::Display for TableDefinition {
    /// What it holds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys and values of {} B", self.key_kind, self.value_bytes)?;
        if self.value_type.is_empty() { Ok(()) } else { write!(f, " of type {:?}", self.value_type) }
    }
}

/// A table as a client needs to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableInfo {
    /// Its number.
    pub id: TableId,
    /// Its definition.
    pub definition: TableDefinition,
    /// The version of the format in which its leaves are written.
    pub format_version: u32,
    /// The number of the region that holds its leaves.
    pub leaf_region: u32,
    /// Leaves that the region holds; leaf numbers lie below it.
    pub capacity_leaves: u32,
}

impl TableInfo {
    /// The region that holds its leaves.
    #[must_use]
    pub fn region(&self) -> RegionId {
        RegionId(self.leaf_region)
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
