//! Which compute nodes write for others, and which partitions of a table each of them has.
//!
//! Invariant: a partition is at most one compute node's. It is that node's until the node says otherwise, has
//! ended, or says nothing for a lease.
//!
//! The coordinator keeps this record. It tells clients where to send writes, and nothing else depends on it.
//! Who writes compares and swaps slots, with or without a lease. So two compute nodes that both believe
//! to have a partition, or one whose lease is over, cost time and never a write.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_protocol::{ComputeNode, PROXIES_MAX, Proxy, ProxyLease, ProxyOffer};

/// How long partitions are a compute node's that does not ask again.
const LEASE: Duration = Duration::from_secs(2);

/// What one compute node has.
struct Leased {
    owner: ComputeNode,
    until: MonotonicNs,
    offer: ProxyOffer,
    /// Ascending.
    partitions: Vec<u16>,
}

/// The record of one table.
#[derive(Default)]
pub(super) struct Proxies(Vec<Leased>);

impl Proxies {
    /// Renews what `owner` has, and gives it more, or takes some away; `None` if others are too many.
    pub(super) fn lease(
        &mut self,
        owner: ComputeNode,
        offer: ProxyOffer,
        now: MonotonicNs,
    ) -> Option<ProxyLease> {
        self.expire(now);
        let known = self.0.iter().position(|leased| leased.owner == owner);
        let mut partitions = known.map(|index| self.0.swap_remove(index).partitions).unwrap_or_default();
        let wanted = usize::from(offer.partitions);
        partitions.truncate(wanted);
        let mut is_free = [true; HASH_PARTITIONS];
        let of_others = self.0.iter().flat_map(|leased| &leased.partitions);
        of_others.chain(&partitions).for_each(|partition| is_free[usize::from(*partition)] = false);
        let free = (0..).zip(is_free).filter(|(_, is_free)| *is_free).map(|(partition, _)| partition);
        let missing = wanted - partitions.len();
        partitions.extend(free.take(missing));
        partitions.sort_unstable();
        let lease = ProxyLease {
            partitions: u16::try_from(partitions.len()).expect("at most as many as were wanted"),
            lease_ms: LEASE.as_millis() as u32,
        };
        if partitions.is_empty() {
            return Some(lease);
        }
        if self.0.len() == PROXIES_MAX {
            return None;
        }
        self.0.push(Leased { owner, until: now.plus(LEASE), offer, partitions });
        Some(lease)
    }

    /// Who has which partitions, by number.
    pub(super) fn all(&mut self, now: MonotonicNs) -> Vec<Proxy> {
        self.expire(now);
        self.0.sort_unstable_by_key(|leased| leased.owner);
        let proxy = |leased: &Leased| Proxy {
            compute_node: leased.owner,
            address: leased.offer.address.clone(),
            epoch: leased.offer.epoch,
            writes: leased.offer.writes,
            combined: leased.offer.combined,
            runs: Proxy::runs_of(leased.partitions.iter().copied()),
        };
        self.0.iter().map(proxy).collect()
    }

    /// Takes back what this compute node had.
    pub(super) fn end(&mut self, owner: ComputeNode) {
        self.0.retain(|leased| leased.owner != owner);
    }

    fn expire(&mut self, now: MonotonicNs) {
        self.0.retain(|leased| leased.until > now);
    }
}

#[cfg(test)]
mod tests {
    use farsight_protocol::TableId;

    use super::*;

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);

    fn offer(partitions: u16) -> ProxyOffer {
        let address = "tcp://here:1".to_owned();
        ProxyOffer { table: TableId(0), partitions, address, epoch: 7, writes: 3, combined: 1 }
    }

    fn lease(proxies: &mut Proxies, owner: ComputeNode, partitions: u16, at_ms: u64) -> u16 {
        let leased = proxies.lease(owner, offer(partitions), MonotonicNs(at_ms * 1_000_000));
        leased.expect("there is room").partitions
    }

    fn runs(proxies: &mut Proxies, at_ms: u64) -> Vec<(u32, Vec<(u16, u16)>)> {
        let all = proxies.all(MonotonicNs(at_ms * 1_000_000));
        all.into_iter().map(|proxy| (proxy.compute_node.0, proxy.runs)).collect()
    }

    #[test]
    fn a_partition_is_one_compute_nodes_until_it_lets_go_ends_or_is_silent() {
        let mut proxies = Proxies::default();
        assert_eq!(lease(&mut proxies, A, 600, 0), 600);
        assert_eq!(lease(&mut proxies, B, 600, 0), 424, "the others are the first one's");
        assert_eq!(runs(&mut proxies, 0), [(1, vec![(0, 600)]), (2, vec![(600, 424)])]);
        // The first one lets some go, which the second one gets when it asks.
        assert_eq!(lease(&mut proxies, A, 100, 1_000), 100);
        assert_eq!(lease(&mut proxies, B, 600, 1_500), 600);
        assert_eq!(runs(&mut proxies, 1_500), [(1, vec![(0, 100)]), (2, vec![(100, 176), (600, 424)])]);
        // It is silent from then on.
        assert_eq!(runs(&mut proxies, 2_999).len(), 2);
        assert_eq!(runs(&mut proxies, 3_000), [(2, vec![(100, 176), (600, 424)])]);
        proxies.end(B);
        assert!(runs(&mut proxies, 3_000).is_empty());
        assert_eq!(lease(&mut proxies, A, u16::MAX, 4_000), 1_024);
        assert_eq!(lease(&mut proxies, A, 0, 4_000), 0, "nothing is kept of who wants nothing");
        assert!(runs(&mut proxies, 4_000).is_empty());
    }

    #[test]
    fn the_record_is_bounded() {
        let mut proxies = Proxies::default();
        for number in 0..PROXIES_MAX as u32 {
            assert_eq!(lease(&mut proxies, ComputeNode(number), 1, 0), 1);
        }
        let more = ComputeNode(PROXIES_MAX as u32);
        assert!(proxies.lease(more, offer(1), MonotonicNs(0)).is_none());
        assert_eq!(lease(&mut proxies, A, 2, 0), 2, "who is there already may renew");
        assert_eq!(lease(&mut proxies, more, 1, 3_000), 1, "the others' leases are over");
    }
}
