//! Which compute nodes write for others, and which partitions of a hash table's index.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

use crate::{ComputeNode, TableId};

/// Compute nodes that serve one table at most.
pub const PROXIES_MAX: usize = 32;
/// Bytes of the address of one at most.
pub const PROXY_ADDRESS_BYTES_MAX: usize = 256;

/// What a compute node that serves asks the coordinator, again and again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProxyOffer {
    /// The table.
    pub table: TableId,
    /// How many partitions of its index it would serve. Of those that it has above that it lets go.
    pub partitions: u16,
    /// Where it listens, for clients of the pool's fabric: a URL.
    pub address: String,
    /// The epoch of that listener: another process there has another.
    #[serde(with = "crate::exact::word")]
    pub epoch: u64,
    /// What it has done for others so far.
    pub work: ServedWork,
    /// By partition, the writes that it has executed there for others since its offer before.
    pub heat: Vec<(u16, u32)>,
    /// For how many percent of the partitions that are served clients are to be told so, the most written
    /// first. `None` leaves that to the coordinator. Of several that say a number, the greatest counts.
    pub percent: Option<u8>,
}

impl ProxyOffer {
    /// The process that makes it.
    #[must_use]
    pub fn place(&self) -> (&str, u64) {
        (&self.address, self.epoch)
    }
}

/// What a compute node that serves has done for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServedWork {
    /// Writes.
    #[serde(with = "crate::exact::word")]
    pub writes: u64,
    /// Of those, writes that another one of the same key stood for.
    #[serde(with = "crate::exact::word")]
    pub combined: u64,
    /// Keys of GETs that it found, or read.
    #[serde(with = "crate::exact::word")]
    pub found: u64,
}

impl Sum for ServedWork {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, of| Self {
            writes: sum.writes + of.writes,
            combined: sum.combined + of.combined,
            found: sum.found + of.found,
        })
    }
}

/// What it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProxyLease {
    /// Partitions that it serves from now on.
    pub partitions: u16,
    /// For how long, if it does not ask again.
    pub lease_ms: u32,
}

/// What a process has written in a table since it last asked who writes for others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WriteLoad {
    /// Writes that others may execute: those that they did, and its own.
    #[serde(with = "crate::exact::word")]
    pub writes: u64,
    /// Nanoseconds that its sessions spent in them, all together.
    #[serde(with = "crate::exact::word")]
    pub spent_ns: u64,
    /// By partition, those of them that it executed itself.
    pub own: Vec<(u16, u32)>,
}

/// A compute node that serves partitions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proxy {
    /// Its number.
    pub compute_node: ComputeNode,
    /// Where it listens.
    pub address: String,
    /// The epoch of that listener.
    #[serde(with = "crate::exact::word")]
    pub epoch: u64,
    /// What it said it has done for others.
    pub work: ServedWork,
    /// How many partitions it has.
    pub has: u16,
    /// Those for which clients are to send it writes: the first of each run, and how many.
    pub runs: Vec<(u16, u16)>,
}

impl Proxy {
    /// For how many partitions clients are to send it writes.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.runs.iter().map(|(_, count)| usize::from(*count)).sum()
    }

    /// Ascending partitions as runs.
    #[must_use]
    pub fn runs_of(partitions: impl IntoIterator<Item = u16>) -> Vec<(u16, u16)> {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for partition in partitions {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == partition => *count += 1,
                _ => runs.push((partition, 1)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_partitions_are_one_run() {
        assert_eq!(Proxy::runs_of([3, 4, 5, 9, 11, 12]), [(3, 3), (9, 1), (11, 2)]);
        assert!(Proxy::runs_of([]).is_empty());
    }
}
