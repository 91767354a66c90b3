//! Which compute nodes write for others, and which partitions of a table each of them has.
//!
//! Invariant: a partition is at most one compute node's. It is that node's until the node says otherwise, has
//! ended, or says nothing for a lease. A process at an address is one compute node: the last that it was.
//!
//! The coordinator keeps this record. It tells clients where to send writes, and nothing else depends on it.
//! Who writes compares and swaps slots, with or without a lease. So two compute nodes that both believe
//! to have a partition, or one whose lease is over, cost time and never a write.
//!
//! So the coordinator may move partitions at any time, by [how much is written there](super::balance). It
//! does not wait until their former compute node has let go. For the same reason it may tell clients of
//! [some of the partitions](super::knob) alone, those that are written most.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_protocol::{ComputeNode, PROXIES_MAX, Proxy, ProxyLease, ProxyOffer, ProxyPace, WriteLoad};

use super::balance::{Heat, Share, hand_out, level};
use super::knob::{ALL, Knob};

/// How long partitions are a compute node's that does not ask again.
const LEASE: Duration = Duration::from_secs(2);

/// Between two looks whether partitions should move.
const LEVELED_EACH: Duration = Duration::from_secs(1);

/// One compute node that serves.
struct Leased {
    owner: ComputeNode,
    until: MonotonicNs,
    offer: ProxyOffer,
}

/// The record of one table.
pub(super) struct Proxies {
    pace: ProxyPace,
    leased: Vec<Leased>,
    /// What each of those has, in their order.
    shares: Vec<Share>,
    heat: Heat,
    leveled: Option<MonotonicNs>,
    knob: Knob,
    /// The partitions of which clients are told; `None` before they are chosen anew.
    told: Option<Box<[bool]>>,
}

impl Proxies {
    /// An empty one.
    pub(super) fn new(pace: ProxyPace) -> Self {
        Self {
            pace,
            leased: Vec::new(),
            shares: Vec::new(),
            heat: Heat::new(pace),
            leveled: None,
            knob: Knob::new(pace),
            told: None,
        }
    }

    /// Renews what `owner` has, and gives it more, or takes some away; `None` if others are too many.
    pub(super) fn lease(
        &mut self,
        owner: ComputeNode,
        offer: ProxyOffer,
        now: MonotonicNs,
    ) -> Option<ProxyLease> {
        self.expire(now);
        // A process that has connected anew is another compute node, at the same place.
        self.keep(|leased| leased.owner == owner || leased.offer.place() != offer.place());
        self.heat.note(now, &offer.heat);
        let offered = usize::from(offer.partitions).min(HASH_PARTITIONS);
        let is_known = self.leased.iter().any(|leased| leased.owner == owner);
        if offered == 0 {
            self.end(owner);
        } else if !is_known && self.leased.len() == PROXIES_MAX {
            return None;
        } else {
            self.renew(Leased { owner, until: now.plus(self.pace.of(LEASE)), offer }, offered);
        }
        hand_out(&mut self.shares, &self.heat);
        let is_due = self.leveled.is_none_or(|leveled| now.since(leveled) >= self.pace.of(LEVELED_EACH));
        if is_due || !is_known {
            if level(&mut self.shares, &self.heat) || !is_known {
                self.knob.note_moved();
            }
            self.leveled = Some(now);
            self.told = None;
        }
        let own = self.leased.iter().position(|leased| leased.owner == owner);
        let partitions = own.map_or(0, |index| self.shares[index].partitions.len());
        Some(ProxyLease {
            partitions: u16::try_from(partitions).expect("there are fewer"),
            lease_ms: self.pace.of(LEASE).as_millis() as u32,
        })
    }

    /// Notes an offer.
    fn renew(&mut self, leased: Leased, offered: usize) {
        let known = self.leased.iter().position(|other| other.owner == leased.owner);
        let index = known.unwrap_or(self.leased.len());
        if known.is_none() {
            self.shares.push(Share::default());
            self.leased.push(leased);
        } else {
            self.leased[index] = leased;
        }
        self.shares[index].offered = offered;
        self.shares[index].shrink(&self.heat);
    }

    /// Who has which partitions, by number, to a client that has written so much.
    pub(super) fn all(&mut self, now: MonotonicNs, load: &WriteLoad) -> Vec<Proxy> {
        self.expire(now);
        self.heat.note(now, &load.own);
        if self.percent_said().is_none() && self.knob.note(now, load) {
            self.told = None;
        }
        let told = self.told.take().unwrap_or_else(|| self.choose_told());
        let runs = |share: &Share| {
            Proxy::runs_of(share.partitions.iter().copied().filter(|number| told[usize::from(*number)]))
        };
        let proxy = |(leased, share): (&Leased, &Share)| Proxy {
            compute_node: leased.owner,
            address: leased.offer.address.clone(),
            epoch: leased.offer.epoch,
            work: leased.offer.work,
            has: u16::try_from(share.partitions.len()).expect("there are fewer"),
            runs: runs(share),
        };
        let mut all: Vec<Proxy> = self.leased.iter().zip(&self.shares).map(proxy).collect();
        all.sort_unstable_by_key(|proxy| proxy.compute_node);
        self.told = Some(told);
        all
    }

    /// The part of all that are served which is set, of those that are written most.
    fn choose_told(&self) -> Box<[bool]> {
        let served: Vec<u16> =
            self.shares.iter().flat_map(|share| share.partitions.iter().copied()).collect();
        let count = match self.percent_said() {
            Some(percent) => (served.len() * usize::from(percent)).div_ceil(100),
            None => (served.len() * usize::from(self.knob.tenths())).div_ceil(usize::from(ALL)),
        };
        self.heat.hottest(served, count)
    }

    /// Takes back what this compute node had.
    pub(super) fn end(&mut self, owner: ComputeNode) {
        self.keep(|leased| leased.owner != owner);
    }

    fn percent_said(&self) -> Option<u8> {
        self.leased.iter().filter_map(|leased| leased.offer.percent).max()
    }

    fn expire(&mut self, now: MonotonicNs) {
        self.keep(|leased| leased.until > now);
    }

    fn keep(&mut self, is_kept: impl Fn(&Leased) -> bool) {
        if self.leased.iter().all(&is_kept) {
            return;
        }
        self.told = None;
        self.knob.note_moved();
        let mut kept = self.leased.iter().map(&is_kept);
        self.shares.retain(|_| kept.next().expect("as many"));
        self.leased.retain(is_kept);
        if self.leased.is_empty() {
            self.knob = Knob::new(self.pace);
        }
    }
}

#[cfg(test)]
mod tests {
    use farsight_protocol::{ServedWork, TableId};

    use super::*;

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);

    fn usual() -> Proxies {
        Proxies::new(ProxyPace::default())
    }

    fn offer(partitions: u16) -> ProxyOffer {
        let address = "tcp://here:1".to_owned();
        ProxyOffer {
            table: TableId(0),
            partitions,
            address,
            epoch: 7,
            work: ServedWork { writes: 3, combined: 1, found: 2 },
            heat: Vec::new(),
            percent: None,
        }
    }

    fn lease(proxies: &mut Proxies, owner: ComputeNode, partitions: u16, at_ms: u64) -> u16 {
        let address = format!("tcp://here:{}", owner.0);
        let offer = ProxyOffer { address, ..offer(partitions) };
        let leased = proxies.lease(owner, offer, MonotonicNs(at_ms * 1_000_000));
        leased.expect("there is room").partitions
    }

    /// How many partitions each has.
    fn counts(proxies: &mut Proxies, at_ms: u64) -> Vec<(u32, usize)> {
        let all = proxies.all(MonotonicNs(at_ms * 1_000_000), &WriteLoad::default());
        all.iter().map(|proxy| (proxy.compute_node.0, proxy.partitions())).collect()
    }

    #[test]
    fn a_partition_is_one_compute_nodes_until_it_lets_go_ends_or_is_silent() {
        let mut proxies = usual();
        assert_eq!(lease(&mut proxies, A, 600, 0), 600);
        assert_eq!(lease(&mut proxies, B, 600, 0), 512, "those that nobody has, and some of the first one's");
        assert_eq!(counts(&mut proxies, 0), [(1, 512), (2, 512)]);
        // The first one lets some go, of which the second one has room for a part.
        assert_eq!(lease(&mut proxies, A, 100, 1_000), 100);
        assert_eq!(counts(&mut proxies, 1_500), [(1, 100), (2, 600)]);
        assert_eq!(lease(&mut proxies, B, 600, 1_500), 600);
        // It is silent from then on.
        assert_eq!(counts(&mut proxies, 2_999).len(), 2);
        assert_eq!(counts(&mut proxies, 3_000), [(2, 600)]);
        proxies.end(B);
        assert!(counts(&mut proxies, 3_000).is_empty());
        assert_eq!(lease(&mut proxies, A, u16::MAX, 4_000), 1_024);
        assert_eq!(lease(&mut proxies, A, 0, 4_000), 0, "nothing is kept of who wants nothing");
        assert!(counts(&mut proxies, 4_000).is_empty());
    }

    #[test]
    fn a_process_that_connects_anew_has_one_lease() {
        let mut proxies = usual();
        assert_eq!(lease(&mut proxies, A, u16::MAX, 0), 1_024);
        let again = ProxyOffer { address: format!("tcp://here:{}", A.0), ..offer(u16::MAX) };
        let leased = proxies.lease(ComputeNode(77), again, MonotonicNs(5));
        assert_eq!(leased.expect("there is room").partitions, 1_024);
        assert_eq!(counts(&mut proxies, 0), [(77, 1_024)]);
    }

    /// A compute node whose partitions are popular hands some over, once it has said so.
    #[test]
    fn partitions_that_are_written_much_are_spread() {
        let mut proxies = usual();
        lease(&mut proxies, A, u16::MAX, 0);
        while lease(&mut proxies, B, u16::MAX, 0) < 512 {
            proxies.leveled = None;
        }
        let before: Vec<u16> = proxies.shares[0].partitions.clone();
        let heat = before[..4].iter().map(|partition| (*partition, 1_000)).collect();
        let hot = ProxyOffer { heat, address: format!("tcp://here:{}", A.0), ..offer(u16::MAX) };
        proxies.lease(A, hot, MonotonicNs(1_000_000_000)).expect("there is room");
        let own = &proxies.shares[0].partitions;
        let left = before[..4].iter().filter(|partition| own.contains(partition)).count();
        assert_eq!(left, 2, "the other two are the other one's");
    }

    /// Clients are told of the part that is set, of those that are written most, by whomever.
    #[test]
    fn clients_are_told_of_the_partitions_that_are_written_most() {
        let mut proxies = usual();
        let offers = |percent| ProxyOffer { percent, ..offer(u16::MAX) };
        proxies.lease(A, offers(Some(1)), MonotonicNs(0)).expect("there is room");
        let own: Vec<(u16, u32)> = (500..511).map(|partition| (partition, 9)).collect();
        let load = WriteLoad { writes: 99, spent_ns: 1, own };
        proxies.all(MonotonicNs(1), &load);
        proxies.lease(A, offers(Some(1)), MonotonicNs(1_000_000_000)).expect("its own");
        let all = proxies.all(MonotonicNs(1_000_000_000), &WriteLoad::default());
        assert_eq!((all[0].has, &all[0].runs[..]), (1_024, &[(500, 11)][..]), "a hundredth, rounded up");
        let first = all.len();
        proxies.lease(A, offers(None), MonotonicNs(2_000_000_000)).expect("its own");
        let all = proxies.all(MonotonicNs(2_000_000_000), &WriteLoad::default());
        assert_eq!((first, all[0].partitions()), (1, 1_024), "all, before anything is measured");
        // A step down, in the first sample that is long enough.
        let load = WriteLoad { writes: 10_000, spent_ns: 1, own: Vec::new() };
        proxies.lease(A, offers(None), MonotonicNs(3_900_000_000)).expect("its own");
        assert!(proxies.all(MonotonicNs(4_200_000_000), &load)[0].partitions() < 1_024);
    }

    /// In simulations everything happens so many times sooner.
    #[test]
    fn a_faster_pace_shortens_leases_and_samples() {
        let mut proxies = Proxies::new(ProxyPace::new(100).expect("a pace"));
        assert_eq!(lease(&mut proxies, A, 100, 0), 100);
        assert_eq!(counts(&mut proxies, 19).len(), 1);
        assert!(counts(&mut proxies, 20).is_empty(), "2 s are 20 ms");
        lease(&mut proxies, A, 100, 30);
        let load = WriteLoad { writes: 10_000, spent_ns: 1, own: Vec::new() };
        let told = |proxies: &mut Proxies, at_ms: u64| proxies.all(MonotonicNs(at_ms * 1_000_000), &load);
        assert_eq!(told(&mut proxies, 30)[0].partitions(), 100);
        lease(&mut proxies, A, 100, 45);
        assert_eq!(told(&mut proxies, 51)[0].partitions(), 0, "the other end, behind a sample of 20 ms");
    }

    #[test]
    fn the_record_is_bounded() {
        let mut proxies = usual();
        for number in 0..PROXIES_MAX as u32 {
            assert_eq!(lease(&mut proxies, ComputeNode(number), 1, 0), 1);
        }
        let more = ComputeNode(PROXIES_MAX as u32);
        let elsewhere = ProxyOffer { address: "tcp://there:1".to_owned(), ..offer(1) };
        assert!(proxies.lease(more, elsewhere, MonotonicNs(0)).is_none());
        assert_eq!(lease(&mut proxies, ComputeNode(1), 2, 0), 2, "who is there already may renew");
        assert_eq!(lease(&mut proxies, more, 1, 3_000), 1, "the others' leases are over");
    }
}
