//! Which compute nodes that serve get which partitions: loads come close, and few partitions move.
//!
//! Invariants:
//! - a partition is at most one's, and none has more than it offered to serve;
//! - partitions move only if the greatest load falls by a twentieth of the mean and by more than chance
//!   explains. So what is even stays where it is.
//!
//! A partition's load is its *heat*: the writes that compute nodes said they executed there, for others or
//! for themselves, each two seconds counted half. FlexKV as published gives each compute node one partition
//! of each rank of heat. Its hottest partition alone is more than a fair share of popular keys, so loads
//! differ by a factor of two then. Here the next partition goes to the one with the least load (LPT),
//! whatever their numbers.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_protocol::ProxyPace;

/// What is counted counts half after so long.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Partitions that move at one time, at most.
const MOVES_MAX: usize = 128;
/// The greatest load has to fall by this part of the mean.
const GAIN_MIN: f64 = 0.05;
/// And by so many standard deviations of what it counts.
const DEVIATIONS_MIN: f64 = 3.0;

/// How much is written in each partition.
pub(super) struct Heat {
    half_life: Duration,
    writes: Box<[f64]>,
    halved: MonotonicNs,
}

/// What one compute node has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Share {
    /// As many as it would serve.
    pub(super) offered: usize,
    /// Those that it has, ascending.
    pub(super) partitions: Vec<u16>,
}

impl Heat {
    /// Nothing is written yet.
    pub(super) fn new(pace: ProxyPace) -> Self {
        let writes = vec![0.0; HASH_PARTITIONS].into();
        Self { half_life: pace.of(HALF_LIFE), writes, halved: MonotonicNs(0) }
    }

    /// Notes writes, by partition. Partitions that there are not are nobody's.
    pub(super) fn note(&mut self, now: MonotonicNs, writes: &[(u16, u32)]) {
        let halvings = now.since(self.halved).as_nanos() / self.half_life.as_nanos();
        if halvings > 0 {
            // Behind sixty-four of them nothing is left to see.
            let factor = 0.5_f64.powi(halvings.min(64) as i32);
            self.writes.iter_mut().for_each(|writes| *writes *= factor);
            self.halved = now;
        }
        for (partition, count) in writes {
            if let Some(writes) = self.writes.get_mut(usize::from(*partition)) {
                *writes += f64::from(*count);
            }
        }
    }

    /// Of these partitions so many that are written most, as marks by number.
    pub(super) fn hottest(&self, mut partitions: Vec<u16>, count: usize) -> Box<[bool]> {
        // Stable: those that are alike stay in their order.
        partitions.sort_by(|one, other| self.load(*other).total_cmp(&self.load(*one)));
        let mut hottest = vec![false; HASH_PARTITIONS];
        partitions.iter().take(count).for_each(|partition| hottest[usize::from(*partition)] = true);
        hottest.into()
    }

    /// The load of a partition. One that nobody writes is some, so that numbers come close, too.
    fn load(&self, partition: u16) -> f64 {
        self.writes[usize::from(partition)] + 1.0
    }

    fn load_of(&self, share: &Share) -> f64 {
        share.partitions.iter().map(|partition| self.load(*partition)).sum()
    }

    fn greatest(&self, shares: &[Share]) -> f64 {
        shares.iter().map(|share| self.load_of(share)).fold(0.0, f64::max)
    }
}

impl Share {
    fn has_room(&self) -> bool {
        self.partitions.len() < self.offered
    }

    fn add(&mut self, partition: u16) {
        let place = self.partitions.partition_point(|own| *own < partition);
        self.partitions.insert(place, partition);
    }

    /// Lets those go that are more than it offers, the coldest first.
    pub(super) fn shrink(&mut self, heat: &Heat) {
        if self.partitions.len() > self.offered {
            self.partitions.sort_by(|one, other| heat.load(*other).total_cmp(&heat.load(*one)));
            self.partitions.truncate(self.offered);
            self.partitions.sort_unstable();
        }
    }
}

/// Gives out the partitions that nobody has, the hottest first, each to the one with the least load that has
/// room.
pub(super) fn hand_out(shares: &mut [Share], heat: &Heat) {
    let mut is_free = [true; HASH_PARTITIONS];
    let had = shares.iter().flat_map(|share| &share.partitions);
    had.for_each(|partition| is_free[usize::from(*partition)] = false);
    let mut free: Vec<u16> =
        (0..).zip(is_free).filter_map(|(number, is_free)| is_free.then_some(number)).collect();
    // Stable: those that are alike stay in their order.
    free.sort_by(|one, other| heat.load(*other).total_cmp(&heat.load(*one)));
    let mut loads: Vec<f64> = shares.iter().map(|share| heat.load_of(share)).collect();
    for partition in free {
        let with_room = (0..shares.len()).filter(|index| shares[*index].has_room());
        let Some(least) = with_room.min_by(|one, other| loads[*one].total_cmp(&loads[*other])) else {
            return;
        };
        shares[least].add(partition);
        loads[least] += heat.load(partition);
    }
}

/// Moves partitions from those with the greatest loads to those with the least, if that pays. True if any
/// has moved.
pub(super) fn level(shares: &mut [Share], heat: &Heat) -> bool {
    let before = heat.greatest(shares);
    let mut leveled = shares.to_vec();
    for _ in 0..MOVES_MAX {
        if !level_once(&mut leveled, heat) {
            break;
        }
    }
    let gain = before - heat.greatest(&leveled);
    let mean = shares.iter().map(|share| heat.load_of(share)).sum::<f64>() / shares.len().max(1) as f64;
    let pays = gain >= GAIN_MIN * mean && gain > DEVIATIONS_MIN * before.sqrt();
    if pays {
        shares.clone_from_slice(&leveled);
    }
    pays
}

/// Moves the partition that brings the greatest and the least load nearest to each other. False if none does.
fn level_once(shares: &mut [Share], heat: &Heat) -> bool {
    let loads: Vec<f64> = shares.iter().map(|share| heat.load_of(share)).collect();
    let all = 0..shares.len();
    let Some(from) = all.clone().max_by(|one, other| loads[*one].total_cmp(&loads[*other])) else {
        return false;
    };
    let with_room = all.filter(|index| shares[*index].has_room());
    let Some(to) = with_room.min_by(|one, other| loads[*one].total_cmp(&loads[*other])) else { return false };
    // What moves less than the whole gap brings the two nearer, and half of it does so best.
    let gap = loads[from] - loads[to];
    let from_half = |partition: &u16| (heat.load(*partition) - gap / 2.0).abs();
    let movable = shares[from].partitions.iter().copied().filter(|partition| heat.load(*partition) < gap);
    let Some(moved) = movable.min_by(|one, other| from_half(one).total_cmp(&from_half(other))) else {
        return false;
    };
    shares[from].partitions.retain(|partition| *partition != moved);
    shares[to].add(moved);
    true
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    const COMPUTE_NODES: usize = 20;

    fn usual_heat() -> Heat {
        Heat::new(ProxyPace::default())
    }

    fn shares(offered: &[usize]) -> Vec<Share> {
        offered.iter().map(|offered| Share { offered: *offered, partitions: Vec::new() }).collect()
    }

    /// Writes of as many seconds, a second's worth noted at a time, of partitions as popular as Zipf says.
    fn zipfian(theta: f64, writes: u64, seed: u64) -> Vec<(u16, u32)> {
        // The popularity of 100,000 keys, spread over partitions.
        let mut random = SplitMix64::new(7);
        let mut popular = vec![0.0; HASH_PARTITIONS];
        for rank in 1..=100_000 {
            popular[random.below(HASH_PARTITIONS as u64) as usize] += f64::from(rank).powf(-theta);
        }
        let sum: f64 = popular.iter().sum();
        let mut noise = SplitMix64::new(seed);
        let count = |popular: &f64| {
            let mean = popular / sum * writes as f64;
            // As a sum of twelve draws, which is nearly normal.
            let normal = (0..12).map(|_| noise.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
            (mean + normal * mean.sqrt()).max(0.0) as u32
        };
        (0..).zip(popular.iter().map(count)).collect()
    }

    /// As the published system assigns partitions: to each compute node one of each rank of heat.
    fn by_ranks(heat: &Heat) -> Vec<Share> {
        let mut hottest_first: Vec<u16> = (0..HASH_PARTITIONS as u16).collect();
        hottest_first.sort_by(|one, other| heat.load(*other).total_cmp(&heat.load(*one)));
        let of = |index| hottest_first.iter().copied().skip(index).step_by(COMPUTE_NODES).collect();
        (0..COMPUTE_NODES).map(|index| Share { offered: HASH_PARTITIONS, partitions: of(index) }).collect()
    }

    /// The greatest load beside the mean one.
    fn spread(shares: &[Share], heat: &Heat) -> f64 {
        let loads: Vec<f64> = shares.iter().map(|share| heat.load_of(share)).collect();
        heat.greatest(shares) * shares.len() as f64 / loads.iter().sum::<f64>()
    }

    #[test]
    fn popular_partitions_are_spread_until_the_hottest_is_alone() {
        let (mut heat, mut shares) = (usual_heat(), shares(&[HASH_PARTITIONS; COMPUTE_NODES]));
        hand_out(&mut shares, &heat);
        heat.note(MonotonicNs(0), &zipfian(0.99, 1_000_000, 1));
        let before = spread(&shares, &heat);
        level(&mut shares, &heat);
        let hottest = (0..HASH_PARTITIONS as u16).map(|partition| heat.load(partition)).fold(0.0, f64::max);
        let mean = shares.iter().map(|share| heat.load_of(share)).sum::<f64>() / COMPUTE_NODES as f64;
        let floor = (hottest / mean).max(1.0);
        let (after, ranks) = (spread(&shares, &heat), spread(&by_ranks(&heat), &heat));
        println!(
            "the greatest load: {before:.2} by numbers, {ranks:.2} by ranks, {after:.2}, {floor:.2} at best"
        );
        assert!(after < floor * 1.05 && ranks > 1.4 * after && before > 1.4 * after);
    }

    #[test]
    fn what_is_even_stays_where_it_is() {
        for (theta, writes) in [(0.0, 1_000_000), (0.5, 1_000_000), (0.99, 10_000_000)] {
            let (mut heat, mut shares) = (usual_heat(), shares(&[HASH_PARTITIONS; COMPUTE_NODES]));
            hand_out(&mut shares, &heat);
            for second in 0..30_u64 {
                let now = MonotonicNs(second * 1_000_000_000);
                heat.note(now, &zipfian(theta, writes, second));
                let before = shares.clone();
                level(&mut shares, &heat);
                assert!(second < 4 || before == shares, "theta {theta}: moves by chance in second {second}");
            }
        }
    }

    #[test]
    fn who_joins_gets_a_share_and_who_shrinks_keeps_the_hottest() {
        let (mut heat, mut shares) = (usual_heat(), shares(&[HASH_PARTITIONS, HASH_PARTITIONS]));
        let mut alone = shares.split_off(1);
        hand_out(&mut alone, &heat);
        assert_eq!(alone[0].partitions.len(), HASH_PARTITIONS);
        shares.append(&mut alone);
        for _ in 0..HASH_PARTITIONS / MOVES_MAX {
            level(&mut shares, &heat);
        }
        assert_eq!(shares[0].partitions.len(), HASH_PARTITIONS / 2);
        heat.note(MonotonicNs(1), &[(shares[0].partitions[9], 500), (u16::MAX, 7)]);
        let hot = shares[0].partitions[9];
        shares[0].offered = 1;
        shares[0].shrink(&heat);
        assert_eq!(shares[0].partitions, [hot]);
        heat.note(MonotonicNs(40_000_000_000), &[]);
        assert!(heat.load(hot) < 1.001, "long ago");
    }

    #[test]
    fn each_partition_is_at_most_ones_and_nobody_has_more_than_it_offered() {
        let mut random = SplitMix64::fresh();
        for _ in 0..200 {
            let offered: Vec<usize> = (0..random.below(8)).map(|_| random.below(1_100) as usize).collect();
            let (mut heat, mut shares) = (usual_heat(), shares(&offered));
            for round in 0..random.below(5) {
                let writes: Vec<_> = (0..random.below(40))
                    .map(|_| (random.next_u64() as u16, random.next_u64() as u32 >> random.below(32)))
                    .collect();
                heat.note(MonotonicNs(round * 3_000_000_000), &writes);
                hand_out(&mut shares, &heat);
                level(&mut shares, &heat);
                let mut all: Vec<u16> = shares.iter().flat_map(|share| share.partitions.clone()).collect();
                assert!(shares.iter().all(|share| share.partitions.len() <= share.offered));
                assert!(shares.iter().all(|share| share.partitions.is_sorted()));
                let count = all.len();
                assert_eq!(count, offered.iter().sum::<usize>().min(HASH_PARTITIONS));
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), count, "a partition is two's");
                assert!(all.iter().all(|partition| usize::from(*partition) < HASH_PARTITIONS));
            }
        }
    }
}
