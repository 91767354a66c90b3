//! The lane over several nodes: an operation's verbs at all of them in one round trip, nodes that are slow,
//! nodes that die.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use farsight_base::pinned::PinnedMemory;
use farsight_base::{LINE_BYTES, Line, RegionId, WORDS_PER_LINE};
use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, RegionRights};

use super::FabricUnderTest;
use super::harness::{Ask, FORMAT, NOTICE, PATIENCE, QueueOf, Running, at, request};

/// Nodes in these tests.
const NODES: usize = 3;

/// A server a subject, and a queue to each.
struct PoolOfNodes<F: FabricUnderTest> {
    queues: Vec<QueueOf<F>>,
    regions: Vec<RegionId>,
    _connections: Vec<F::Connection>,
    servers: Vec<Running<F::Host>>,
}

impl<F: FabricUnderTest> PoolOfNodes<F> {
    fn new(subjects: &[F]) -> Self {
        assert_eq!(subjects.len(), NODES, "a subject a node");
        let servers: Vec<_> =
            subjects.iter().map(|subject| Running::start(subject.listen(FORMAT), 1)).collect();
        let regions: Vec<_> = servers
            .iter()
            .map(|server| server.host().create_region(1 << 20, RegionRights::ReadWrite).expect("a region"))
            .map(|region| region.id())
            .collect();
        let connections: Vec<_> =
            subjects.iter().map(|subject| subject.connect(FORMAT).expect("a connection")).collect();
        let open = |(connection, region): (&F::Connection, &RegionId)| {
            let mut queue = connection.open_queue().expect("a queue");
            queue.attach(*region).expect("the region attaches");
            queue
        };
        let queues = connections.iter().zip(&regions).map(open).collect();
        Self { queues, regions, _connections: connections, servers }
    }

    fn doorbells(&self) -> Vec<u64> {
        self.queues.iter().map(|queue| queue.meters().doorbells).collect()
    }
}

/// Operations of several steps side by side: a word counted and a line written at every node in one step,
/// read back in the next.
pub fn operations_reach_all_nodes<F: FabricUnderTest>(subjects: &[F]) {
    const OPERATIONS: u64 = 200;
    let mut pool = PoolOfNodes::<F>::new(subjects);
    let regions = pool.regions.clone();
    let counted = RefCell::new(vec![Vec::new(); NODES]);
    let lane = PoolLane::new(&mut pool.queues);
    let outcome = lane.run(&mut PinnedMemory::default(), 8, 0..OPERATIONS, |slot, index| {
        let (counted, regions) = (&counted, &regions);
        async move {
            let place = (1 + index) * LINE_BYTES as u64;
            for (node, region) in regions.iter().enumerate() {
                slot.post_fetch_add(node, 0, at(*region, 0), 1);
                let words: Vec<u64> =
                    (0..WORDS_PER_LINE as u64).map(|word| index << 8 | word << 4 | node as u64).collect();
                slot.post_write(node, slot.verbs() - 1, at(*region, place), &words);
            }
            slot.completed().await;
            for (node, region) in regions.iter().enumerate() {
                counted.borrow_mut()[node].push(slot.take_word(node, 0).expect("a word"));
                slot.post_read(node, 0, at(*region, place), 1, ReadMode::Plain);
            }
            slot.completed().await;
            for node in 0..NODES {
                let mut copy = [Line::ZERO];
                slot.take_read(node, 0, &mut copy).expect("a READ");
                assert_eq!(copy[0].0[7], index << 8 | 7 << 4 | node as u64);
            }
        }
    });
    outcome.expect("the lane ends well");
    for mut of_node in counted.into_inner() {
        of_node.sort_unstable();
        assert!(of_node.into_iter().eq(0..OPERATIONS), "each addition found another count");
    }
}

/// What all operations post between two waits goes in one doorbell a node, and none where nothing was posted.
pub fn a_round_is_one_doorbell_a_node<F: FabricUnderTest>(subjects: &[F]) {
    let mut pool = PoolOfNodes::<F>::new(subjects);
    let regions = pool.regions.clone();
    let before = pool.doorbells();
    PoolLane::new(&mut pool.queues)
        .run(&mut PinnedMemory::default(), 4, 0..4_usize, |slot, _| {
            let regions = &regions;
            async move {
                for (node, region) in regions[..NODES - 1].iter().enumerate() {
                    for verb in 0..5 {
                        let from = at(*region, (verb * LINE_BYTES) as u64);
                        slot.post_read(node, verb, from, 1, ReadMode::Plain);
                    }
                }
                slot.completed().await;
            }
        })
        .expect("the lane ends well");
    let after = pool.doorbells();
    let rung: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(rung, [1, 1, 0]);
    assert_eq!(pool.queues[0].meters().reads, 20);
}

/// Operations at other nodes end while one node is slow, and pauses end, too.
pub fn a_slow_node_holds_nobody_up<F: FabricUnderTest>(subjects: &[F]) {
    let mut pool = PoolOfNodes::<F>::new(subjects);
    let regions = pool.regions.clone();
    let (others, is_answered) = (Cell::new(0), Cell::new(false));
    let lane = PoolLane::new(&mut pool.queues);
    let outcome = lane.run(&mut PinnedMemory::default(), 4, 0..20_usize, |slot, index| {
        let (others, is_answered, regions) = (&others, &is_answered, &regions);
        async move {
            if index == 0 {
                let asked = request(Ask::Sleep, &[1500]);
                let mut reply = Vec::new();
                slot.call(1, &asked, &mut reply).await.expect("a call");
                assert_eq!(reply, asked);
                is_answered.set(true);
                return;
            }
            slot.pause(Duration::from_millis(2)).await;
            for step in 0..5 {
                let node = if (index + step) % 2 == 0 { 0 } else { 2 };
                let mut copy = [Line::ZERO];
                slot.read(node, at(regions[node], 0), &mut copy, ReadMode::Plain).await.expect("a READ");
            }
            others.set(others.get() + u32::from(!is_answered.get()));
        }
    });
    outcome.expect("the lane ends well");
    assert!(is_answered.get());
    assert_eq!(others.get(), 19, "operations at other nodes that ended before the slow node answered");
}

/// An operation that does nothing but pause ends.
pub fn a_pause_alone_ends<F: FabricUnderTest>(subjects: &[F]) {
    let mut pool = PoolOfNodes::<F>::new(subjects);
    let started = Instant::now();
    let lane = PoolLane::new(&mut pool.queues);
    let slept = lane.block_on(async |slot| {
        let begun = slot.now();
        slot.pause(Duration::from_millis(30)).await;
        slot.now().since(begun)
    });
    assert!(slept.expect("the lane ends well") >= Duration::from_millis(30));
    assert!(started.elapsed() < PATIENCE);
}

/// A call that is not answered in time is left. Its verb is used again, and its answer is nobody's.
pub fn a_late_call_is_left<F: FabricUnderTest>(subjects: &[F]) {
    let mut pool = PoolOfNodes::<F>::new(subjects);
    let (from, started) = (at(pool.regions[1], 0), Instant::now());
    let lane = PoolLane::new(&mut pool.queues);
    let left = lane.block_on(async |slot| {
        let mut reply = Vec::new();
        let in_time = |slot: &PoolSlot<'_, '_, _>| slot.now().plus(Duration::from_millis(20));
        let asked = request(Ask::Sleep, &[600]);
        let is_answered = slot.call_until(1, &asked, &mut reply, in_time(&slot)).await.expect("a call");
        assert!(!is_answered && reply.is_empty(), "an answer after {:?}", started.elapsed());
        let left = started.elapsed();
        slot.read(1, from, &mut [Line::ZERO], ReadMode::Plain).await.expect("a READ");
        let asked = request(Ask::Echo, &[7]);
        slot.call(1, &asked, &mut reply).await.expect("a call");
        assert_eq!(reply, asked);
        let until = slot.now().plus(PATIENCE);
        let is_answered = slot.call_until(0, &asked, &mut reply, until).await.expect("a call");
        assert!(is_answered && reply == asked);
        left
    });
    assert!(left.expect("the lane ends well") >= Duration::from_millis(20));
}

/// A node that dies ends the lane whose operations wait for it, by name; the others' queues live on.
pub fn a_dead_node_is_named<F: FabricUnderTest>(subjects: &[F]) {
    let mut pool = PoolOfNodes::<F>::new(subjects);
    let regions = pool.regions.clone();
    pool.servers[1].die();
    let dead = pool.queues[1].peer().to_owned();
    let started = Instant::now();
    let error = loop {
        let lane = PoolLane::new(&mut pool.queues);
        let read = lane.block_on(async |slot| {
            for (node, region) in regions.iter().enumerate() {
                slot.post_read(node, 0, at(*region, 0), 1, ReadMode::Plain);
            }
            slot.completed().await;
            slot.take_read(1, 0, &mut [Line::ZERO])
        });
        if let Err(error) = read.and_then(|taken| taken) {
            break error;
        }
        assert!(started.elapsed() < NOTICE, "a dead node was not noticed within {NOTICE:?}");
    };
    assert!(matches!(&error, FabricError::Disconnected { peer, .. } if *peer == dead), "{error}");
    for node in [0, 2] {
        let mut copy = [Line::ZERO];
        let from = at(regions[node], 0);
        let lane = PoolLane::new(&mut pool.queues);
        let read = lane.block_on(async |slot| slot.read(node, from, &mut copy, ReadMode::Plain).await);
        read.expect("the lane lives").expect("a READ");
    }
}

/// Instantiates the suite for the three subjects that `$make` makes anew for each test; where they need what
/// not every machine has, if `$ready`.
#[macro_export]
macro_rules! pool_lane_suite {
    ($make:expr) => {
        $crate::pool_lane_suite!($make, if true);
    };
    ($make:expr, if $ready:expr) => {
        $crate::pool_lane_suite!(@tests $make, $ready;
            operations_reach_all_nodes, a_round_is_one_doorbell_a_node, a_slow_node_holds_nobody_up,
            a_pause_alone_ends, a_late_call_is_left, a_dead_node_is_named);
    };
    (@tests $make:expr, $ready:expr; $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                if $ready {
                    $crate::fabric::pool::$test(&$make);
                }
            }
        )+
    };
}
