//! Writes whose connection was lost while they were under way: what an engine hands to the one that goes on
//! with them over another connection.

use std::collections::VecDeque;

use farsight_protocol::{AuthorId, WriteOutcome};

use crate::OldValues;

/// As whom a session sends calls to one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Author {
    /// Its number there.
    pub id: AuthorId,
    /// The number of its connection.
    pub connection: u32,
    /// Calls numbered so far.
    pub numbered: u64,
}

/// A call that was sent and not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostCall {
    /// Its number.
    pub sequence: u64,
    /// Its entries: the first ones that are not answered and in no lost call before.
    pub entries: usize,
}

/// One node's share of a batch of writes.
#[derive(Clone, Debug, Default)]
pub struct UnfinishedShare {
    /// Who sent it; `None` if nobody did.
    pub author: Option<Author>,
    /// The calls that were lost, in their order.
    pub lost: VecDeque<LostCall>,
    /// What became of the first entries, all that are answered.
    pub outcomes: Vec<WriteOutcome>,
    /// Their values before, if the operation returns them.
    pub old_values: OldValues,
}

/// A batch of writes that was cut off: a share for each node of the table.
#[derive(Clone, Debug, Default)]
pub struct Unfinished {
    /// In the nodes' order.
    pub shares: Vec<UnfinishedShare>,
}
