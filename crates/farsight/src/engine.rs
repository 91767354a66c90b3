//! Which engine a new table is of.

use farsight_client::EngineKind;
use farsight_protocol::Ack;

use crate::KeyType;

/// What may be said of a new table.
#[derive(Clone, Debug)]
pub struct TableOptions<K: KeyType + ?Sized> {
    /// Its engine; without one the first of [`EngineKind::all`] that has tables over so many nodes, with such
    /// keys.
    pub engine: Option<&'static EngineKind>,
    /// Keys as they will come, in any order, of an engine whose nodes have ranges of them, as XStore-D. The
    /// ranges have the same number of them each, and never change. With fewer keys than nodes they are of the
    /// same width.
    pub sample: Vec<K::Owned>,
    /// What the bytes of a value are, by a name on which its users agree, as numpy's `<f8`: up to 32 visible
    /// ASCII characters. A table that is there must have this one; empty takes any.
    pub value_type: String,
    /// Bytes of each of its regions on a node at most: of its leaves, and of its blocks or objects. From
    /// 2 MiB to what the node gives any table, which is what it gets without a number here.
    pub memory_bytes: Option<u64>,
    /// When its writes are acknowledged, at a server with a directory of data; without it as the server says.
    pub ack: Option<Ack>,
    /// How many nodes of a pool have each of its pairs, of an engine with replicas, as FlexKV: one without a
    /// number here.
    pub replicas: Option<u8>,
}

impl<K: KeyType + ?Sized> Default for TableOptions<K> {
    fn default() -> Self {
        Self {
            engine: None,
            sample: Vec::new(),
            value_type: String::new(),
            memory_bytes: None,
            ack: None,
            replicas: None,
        }
    }
}
