//! The registry of engines: what each is called, what it can do, and what its tables are made of.
//!
//! Invariant: nobody asks an engine's name to learn what it can do. What differs between engines is a field
//! of [`EngineKind`] or a method of the traits by which client and node work with an engine.
//!
//! Protocol of adding one:
//! 1. Write a type that has the engine's [`EngineKind`] ([`Registered`]).
//! 2. Implement on it the client's trait (`farsight_client::ClientEngine`) and the node's
//!    (`farsight_node::NodeEngine`).
//! 3. Add the type to [`Engines`], or to a list of your own that ends with it.

use std::fmt;
use std::ops::RangeInclusive;

use farsight_base::LINE_BYTES;
use farsight_layout::hash_index::OBJECT_LINES_MAX;
use farsight_layout::pool::BlockGeometry;
use farsight_layout::value_block::{LONGEST_VALUE_BYTES, block_bytes, block_lines};
use farsight_layout::{DEADLINE_BYTES, Geometry, GeometryError};
use farsight_protocol::{KeyKind, POOL_NODES_MAX, Space, TableEngine, TableLayout, ValueKind};

/// The engines that there are: a type each. Of several that fit a table, the first is the usual one.
pub type Engines = (XStore, (Rolex, (XStoreD, (FlexKv, ()))));

/// An engine, and what it can do.
#[expect(clippy::struct_excessive_bools, reason = "independent abilities, each with a name")]
pub struct EngineKind {
    /// What users, programs and the catalogue call it.
    pub name: &'static str,
    /// One sentence on who does what with a table.
    pub about: &'static str,
    /// Nodes of one table.
    pub nodes: RangeInclusive<usize>,
    /// What it is called over other numbers of nodes: itself, where it is called so over any.
    pub elsewhere: &'static str,
    /// Each node has an ordered range of the keys; a sample of them says where the ranges begin.
    pub has_ranges: bool,
    /// A node's processor executes reads, too, for clients that ask for it.
    pub answers_reads: bool,
    /// Its nodes train what there is to train, and say when nothing waits. Otherwise clients train.
    pub nodes_train: bool,
    /// It keeps its keys in order: it has scans, and neighbours of keys.
    pub is_ordered: bool,
    /// Bytes of a value at most where values may have any length, each in a block of its own; 0 if they
    /// may not. Such pairs may have deadlines, at which they end by themselves.
    pub block_value_bytes_max: usize,
    /// Bytes of a key, its value and its deadline, if it has one, at most together, where keys may be bytes
    /// of any length; 0 if they may not.
    pub byte_pair_bytes_max: usize,
    /// Whether several nodes may have each of its pairs.
    pub has_replicas: bool,
    /// Lines of a leaf's block, by the bytes that it holds of a value.
    pub block_lines: fn(value_bytes: usize) -> Result<usize, GeometryError>,
    /// The regions of a table on its first node; that of blocks comes behind them.
    pub spaces_of_first: &'static [Space],
    /// Its regions on each other node.
    pub spaces: &'static [Space],
}

/// A type that stands for an engine.
pub trait Registered: 'static {
    /// What the engine is.
    const KIND: &'static EngineKind;
}

/// A list of engines.
pub trait Registry: 'static {
    /// All of them.
    fn kinds() -> Vec<&'static EngineKind>;

    /// The engine of this name.
    ///
    /// # Errors
    /// [`UnknownEngine`].
    fn named(name: &str) -> Result<&'static EngineKind, UnknownEngine> {
        let kinds = Self::kinds();
        let found = kinds.iter().find(|kind| kind.name == name).copied();
        found.ok_or_else(|| UnknownEngine { got: name.to_owned(), known: kinds })
    }

    /// The engine of a table with such keys, over so many nodes, for which none is requested.
    #[must_use]
    fn usual(nodes: usize, keys: KeyKind) -> Option<&'static EngineKind> {
        let has_such_keys = |kind: &EngineKind| keys != KeyKind::Bytes || kind.has_byte_keys();
        Self::kinds().into_iter().find(|kind| kind.nodes.contains(&nodes) && has_such_keys(kind))
    }

    /// What `kind` is called over so many nodes.
    #[must_use]
    fn over(kind: &'static EngineKind, nodes: usize) -> &'static EngineKind {
        let elsewhere = || Self::named(kind.elsewhere).unwrap_or(kind);
        if kind.nodes.contains(&nodes) { kind } else { elsewhere() }
    }
}

impl Registry for () {
    fn kinds() -> Vec<&'static EngineKind> {
        Vec::new()
    }
}

impl<E: Registered, Rest: Registry> Registry for (E, Rest) {
    fn kinds() -> Vec<&'static EngineKind> {
        std::iter::once(E::KIND).chain(Rest::kinds()).collect()
    }
}

/// A name of no engine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no engine is called {got:?}; there are {}", names(known))]
pub struct UnknownEngine {
    /// The name.
    pub got: String,
    /// The engines that there are.
    pub known: Vec<&'static EngineKind>,
}

fn names(kinds: &[&EngineKind]) -> String {
    kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// Why an engine has no such table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnfitTable {
    /// It cannot be over so many nodes.
    #[error("a table of {engine} has {} to {} nodes, not {got}", engine.nodes.start(), engine.nodes.end())]
    Nodes {
        /// The engine.
        engine: &'static EngineKind,
        /// Those wanted.
        got: usize,
    },
    /// Its ranges cannot be.
    #[error(
        "a table of {engine} over {nodes} nodes has {expected} boundaries, ascending, not zero: not {got:?}"
    )]
    Ranges {
        /// The engine.
        engine: &'static EngineKind,
        /// Its nodes.
        nodes: usize,
        /// Boundaries of such a table.
        expected: usize,
        /// Those wanted.
        got: Vec<u64>,
    },
    /// It has no values of any length.
    #[error("{engine} has values of one size alone, not of any length; engines with them: {}", names(able))]
    Blocks {
        /// The engine.
        engine: &'static EngineKind,
        /// The engines that there are with such values.
        able: Vec<&'static EngineKind>,
    },
    /// The limit of its values is none.
    #[error(
        "values of any length in a table of {engine} have a limit of 1 to {} B, not {got_bytes} B",
        engine.block_value_bytes_max
    )]
    Limit {
        /// The engine.
        engine: &'static EngineKind,
        /// The limit wanted.
        got_bytes: u32,
    },
    /// Its keys have eight bytes.
    #[error("keys of {engine} have eight bytes, not any length; engines with such keys: {}", names(able))]
    ByteKeys {
        /// The engine.
        engine: &'static EngineKind,
        /// The engines that there are with keys of any length.
        able: Vec<&'static EngineKind>,
    },
    /// It keeps each pair once.
    #[error("{engine} has each pair on one node; engines with replicas: {}", names(able))]
    Replicas {
        /// The engine.
        engine: &'static EngineKind,
        /// The engines that there are with replicas.
        able: Vec<&'static EngineKind>,
    },
    /// There are not so many nodes.
    #[error("each pair can be on 1 to {nodes} of {nodes} nodes, not on {got}")]
    TooManyReplicas {
        /// The nodes.
        nodes: usize,
        /// The replicas wanted.
        got: usize,
    },
    /// No table of it has values as long.
    #[error(transparent)]
    Value(#[from] GeometryError),
    /// Its leaves are of another shape.
    #[error("leaves of {engine} have {expected} lines, not {got}: use nodes and clients of the same release")]
    Leaves {
        /// The engine.
        engine: &'static EngineKind,
        /// Lines that they have.
        expected: usize,
        /// Lines wanted.
        got: usize,
    },
}

impl EngineKind {
    /// XStore on one node.
    pub const XSTORE: &'static Self = XStore::KIND;
    /// ROLEX.
    pub const ROLEX: &'static Self = Rolex::KIND;
    /// FlexKV.
    pub const FLEXKV: &'static Self = FlexKv::KIND;
    /// XStore over several nodes.
    pub const XSTORE_D: &'static Self = XStoreD::KIND;

    /// The engines that there are: those of [`Engines`].
    #[must_use]
    pub fn all() -> Vec<&'static Self> {
        Engines::kinds()
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`UnknownEngine`].
    pub fn named(name: &str) -> Result<&'static Self, UnknownEngine> {
        Engines::named(name)
    }

    /// How a table of it over so many nodes is described in the catalogue. Its ranges, if it has any, have
    /// the same number of a sample's keys each, or, if that has fewer keys than there are nodes, the same
    /// width.
    #[must_use]
    pub fn table(&self, sample: &[u64], nodes: usize) -> TableEngine {
        let name = self.name.to_owned();
        let boundaries = if self.has_ranges { boundaries(sample.to_vec(), nodes) } else { Vec::new() };
        TableEngine { name, boundaries }
    }

    /// True if its values may have any length.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.block_value_bytes_max > 0
    }

    /// True if its keys may be bytes of any length.
    #[must_use]
    pub fn has_byte_keys(&self) -> bool {
        self.byte_pair_bytes_max > 0
    }

    /// True if each of its tables is on one node.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        *self.nodes.end() == 1
    }

    /// Values of any length, up to the longest that this engine has; up to the longest of any where it has
    /// none.
    #[must_use]
    pub fn longest_values(&self) -> ValueKind {
        if self.has_blocks() {
            ValueKind::blocks(self.block_value_bytes_max as u32)
        } else {
            ValueKind::BLOCKS
        }
    }

    /// The regions of a table with such values on the node with this index.
    pub fn spaces(&self, node: usize, values: ValueKind) -> impl Iterator<Item = Space> {
        let spaces = if node == 0 { self.spaces_of_first } else { self.spaces };
        let has_one_more = values.are_blocks() && !spaces.contains(&Space::Blocks);
        spaces.iter().copied().chain(has_one_more.then_some(Space::Blocks))
    }

    /// Refuses a table over so many nodes that this engine does not make so.
    ///
    /// # Errors
    /// [`UnfitTable`].
    pub fn check(&'static self, layout: &TableLayout, nodes: usize) -> Result<(), UnfitTable> {
        if !self.nodes.contains(&nodes) {
            return Err(UnfitTable::Nodes { engine: self, got: nodes });
        }
        let boundaries = &layout.engine.boundaries;
        let expected = if self.has_ranges { nodes - 1 } else { 0 };
        let is_sound = boundaries.len() == expected
            && boundaries.first().is_none_or(|first| *first > 0)
            && boundaries.is_sorted_by(|low, high| low < high);
        if !is_sound {
            return Err(UnfitTable::Ranges { engine: self, nodes, expected, got: boundaries.clone() });
        }
        if layout.definition.key_kind == KeyKind::Bytes && !self.has_byte_keys() {
            let able = EngineKind::all().into_iter().filter(|kind| kind.has_byte_keys()).collect();
            return Err(UnfitTable::ByteKeys { engine: self, able });
        }
        let values = layout.definition.values;
        if let ValueKind::Blocks { max_bytes, .. } = values {
            if !self.has_blocks() {
                let able = EngineKind::all().into_iter().filter(|kind| kind.has_blocks()).collect();
                return Err(UnfitTable::Blocks { engine: self, able });
            }
            if !(1..=self.block_value_bytes_max).contains(&(max_bytes as usize)) {
                return Err(UnfitTable::Limit { engine: self, got_bytes: max_bytes });
            }
        }
        match layout.definition.replicas() {
            1 => {}
            _ if !self.has_replicas => {
                let able = EngineKind::all().into_iter().filter(|kind| kind.has_replicas).collect();
                return Err(UnfitTable::Replicas { engine: self, able });
            }
            got if !(1..=nodes).contains(&got) => return Err(UnfitTable::TooManyReplicas { nodes, got }),
            _ => {}
        }
        let expected = (self.block_lines)(values.leaf_bytes())?;
        match usize::from(layout.block_lines) {
            got if got == expected => Ok(()),
            got => Err(UnfitTable::Leaves { engine: self, expected, got }),
        }
    }
}

/// Where the ranges of all nodes but the first begin.
fn boundaries(mut sample: Vec<u64>, nodes: usize) -> Vec<u64> {
    sample.sort_unstable();
    sample.dedup();
    let count = sample.len();
    let boundary = |node: usize| match sample.get(node * count / nodes) {
        Some(key) if count >= nodes => *key,
        _ => (((node as u128) << u64::BITS) / nodes as u128) as u64,
    };
    (1..nodes).map(boundary).collect()
}

impl PartialEq for EngineKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for EngineKind {}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl fmt::Debug for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// XStore on one node: clients read one-sided by a learned cache, the node writes.
pub struct XStore;

impl Registered for XStore {
    const KIND: &'static EngineKind = &EngineKind {
        name: "xstore",
        about: "One node: clients read one-sided by a learned cache, its processor writes",
        nodes: 1..=1,
        elsewhere: "xstore-d",
        has_ranges: true,
        answers_reads: true,
        nodes_train: true,
        is_ordered: true,
        block_value_bytes_max: LONGEST_VALUE_BYTES,
        byte_pair_bytes_max: 0,
        has_replicas: false,
        block_lines: |value_bytes| Ok(Geometry::new(value_bytes)?.leaf_lines()),
        spaces_of_first: &[Space::Leaves, Space::Meta],
        spaces: &[Space::Leaves, Space::Meta],
    };
}

/// XStore over several nodes: each has an ordered range of the keys, and its processor writes there.
pub struct XStoreD;

impl Registered for XStoreD {
    const KIND: &'static EngineKind = &EngineKind {
        name: "xstore-d",
        about: "A pool: XStore's learned cache, the nodes' processors write",
        nodes: 2..=POOL_NODES_MAX,
        elsewhere: "xstore",
        ..*XStore::KIND
    };
}

/// ROLEX: compute nodes read and write the memory of the nodes one-sided.
pub struct Rolex;

impl Registered for Rolex {
    const KIND: &'static EngineKind = &EngineKind {
        name: "rolex",
        about: "A pool, or one node: compute nodes read and write one-sided",
        nodes: 1..=POOL_NODES_MAX,
        elsewhere: "rolex",
        has_ranges: false,
        answers_reads: false,
        nodes_train: false,
        is_ordered: true,
        block_value_bytes_max: 0,
        byte_pair_bytes_max: 0,
        has_replicas: false,
        block_lines: |value_bytes| Ok(BlockGeometry::new(value_bytes)?.lines()),
        spaces_of_first: &[Space::Leaves, Space::Meta],
        spaces: &[Space::Leaves],
    };
}

/// FlexKV: compute nodes read and write a hash index, and objects, one-sided.
pub struct FlexKv;

/// Bytes of a key, its value and its deadline, if it has one, of FlexKV at most: an object's without header.
const OBJECT_PAIR_BYTES_MAX: usize = OBJECT_LINES_MAX as usize * LINE_BYTES - block_bytes(0, 0);

impl Registered for FlexKv {
    const KIND: &'static EngineKind = &EngineKind {
        name: "flexkv",
        about: "A pool, or one node: a hash index without order, which compute nodes read and write one-sided",
        nodes: 1..=POOL_NODES_MAX,
        elsewhere: "flexkv",
        has_ranges: false,
        answers_reads: false,
        nodes_train: true,
        is_ordered: false,
        block_value_bytes_max: OBJECT_PAIR_BYTES_MAX - size_of::<u64>() - DEADLINE_BYTES,
        byte_pair_bytes_max: OBJECT_PAIR_BYTES_MAX,
        has_replicas: true,
        block_lines: |value_bytes| Ok(block_lines(size_of::<u64>(), value_bytes)),
        spaces_of_first: &[Space::Index, Space::Blocks],
        spaces: &[Space::Index, Space::Blocks],
    };
}

#[cfg(test)]
mod tests {
    use farsight_protocol::TableDefinition;

    use super::*;

    #[test]
    fn engines_are_found_by_their_names() {
        for kind in Engines::kinds() {
            assert_eq!(Engines::named(kind.name), Ok(kind));
        }
        let error = Engines::named("xstored").unwrap_err().to_string();
        assert_eq!(error, "no engine is called \"xstored\"; there are xstore, rolex, xstore-d, flexkv");
    }

    #[test]
    fn the_first_that_fits_is_the_usual_one() {
        let usual = |nodes| Engines::usual(nodes, KeyKind::U64).map(|kind| kind.name);
        assert_eq!([1, 2, 16, 17].map(usual), [Some("xstore"), Some("rolex"), Some("rolex"), None]);
        let usual = |nodes| Engines::usual(nodes, KeyKind::Bytes).map(|kind| kind.name);
        assert_eq!([1, 16, 17].map(usual), [Some("flexkv"), Some("flexkv"), None]);
        assert_eq!(Engines::over(EngineKind::XSTORE, 3), EngineKind::XSTORE_D);
        assert_eq!(Engines::over(EngineKind::XSTORE_D, 1), EngineKind::XSTORE);
        assert_eq!(Engines::over(EngineKind::ROLEX, 1), EngineKind::ROLEX);
    }

    #[test]
    fn ranges_have_the_same_number_of_a_samples_keys() {
        assert_eq!(boundaries(vec![60, 50, 10, 20, 30, 40, 10], 3), [30, 50]);
        assert_eq!(boundaries(vec![0, 1, 2], 3), [1, 2]);
        assert_eq!(boundaries(vec![7; 100], 1), []);
    }

    #[test]
    fn values_of_any_length_are_refused_where_there_are_none() {
        let layout_of = |kind: &'static EngineKind, values: ValueKind| {
            let definition = TableDefinition { values, ..TableDefinition::new("t", KeyKind::U64, 8) };
            let block_lines = (kind.block_lines)(values.leaf_bytes()).expect("lines") as u16;
            TableLayout { definition, engine: kind.table(&[], 1), block_lines, format_version: 0 }
        };
        let check_of = |kind: &'static EngineKind, values| kind.check(&layout_of(kind, values), 1);
        let check = |kind: &'static EngineKind, max_bytes| check_of(kind, ValueKind::blocks(max_bytes));
        assert_eq!(check(EngineKind::XSTORE, 1 << 24), Ok(()));
        assert_eq!(
            check(EngineKind::XSTORE, 0),
            Err(UnfitTable::Limit { engine: EngineKind::XSTORE, got_bytes: 0 })
        );
        let refusal = check(EngineKind::ROLEX, 9).expect_err("no blocks").to_string();
        assert!(
            refusal.starts_with("rolex has values of one size")
                && refusal.ends_with("xstore, xstore-d, flexkv")
        );
        for kind in [EngineKind::XSTORE, EngineKind::FLEXKV] {
            assert_eq!(check_of(kind, kind.longest_values().expiring(0)), Ok(()));
        }
        let spaces: Vec<_> = EngineKind::XSTORE.spaces(0, ValueKind::BLOCKS).collect();
        assert_eq!(spaces, [Space::Leaves, Space::Meta, Space::Blocks]);
    }

    #[test]
    fn without_a_sample_they_have_the_same_width() {
        assert_eq!(boundaries(vec![], 4), [1 << 62, 1 << 63, 3 << 62]);
        assert_eq!(boundaries(vec![5, 5, 5], 2), [1 << 63]);
        assert_eq!(boundaries(vec![], 16).len(), 15);
    }
}
