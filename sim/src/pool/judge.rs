//! The judges that look at a ROLEX table after its last fault, when nothing is under way any more.
//!
//! They check that every leaf of the chain is consistent and unlocked, that the leaves tile the keys, and
//! that they hold what a scan finds. Training must end, and what is trained must lead every GET to its leaf.
//! Once all compute nodes have gone, trainers must give back whatever is not in the chain.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::sync::Ordering;
use farsight_base::{Line, RegionId, WORDS_PER_LINE};
use farsight_client::{GroupSizes, PoolClient, PoolTrainer, Reclaimed};
use farsight_fabric::Region as _;
use farsight_fabric_sim::{Fault, Kind, SimConnection, SimQueue, SimRegion};
use farsight_index::Counters;
use farsight_index_rolex::{LeafPlace, PoolTable};
use farsight_layout::pool::{LockWord, lock_of};
use farsight_layout::{KEY_LINES, KeyLines, LEAF_SLOTS, LeafSlot};
use farsight_protocol::WriteOperation;

use super::{JudgedPool, Stage, connect};
use crate::classes::{Coverage, Mark};
use crate::client::{Client, End, Plan};
use crate::cluster::MemoryPool;
use crate::look_back::check_all_gone;
use crate::run::{NEWCOMER, TABLE};
use crate::store::Scan;

/// Keys of one batch while looking back.
const BATCH: usize = 64;
/// Tries of who looks back: connections that the last fault broke are noticed by the first.
const TRIES: usize = 4;
/// Steps of training within which nothing is left to train.
const TRAINING_STEPS: usize = 200;
/// Groups of one of them.
const TRAINING_BUDGET: usize = 64;

/// Looks at what ended compute nodes left within which nothing is left to look at: one looks at one of them.
const LOOKS_MAX: usize = 2_000;
/// As long as a memory node takes to notice that a compute node has ended.
const ENDS_NOTICED: Duration = Duration::from_millis(60);

/// What the chain of leaves holds.
#[derive(Debug)]
struct Chain {
    /// Its leaves, by memory node.
    leaves: Vec<u64>,
    pairs: usize,
}

impl Chain {
    fn leaves(&self) -> u64 {
        self.leaves.iter().sum()
    }
}

fn broken(error: &dyn fmt::Display) -> String {
    format!("looking back: {error}")
}

impl<K: Kind> JudgedPool<K> for MemoryPool<K> {
    fn remember(stage: &Stage<'_, K, Self>) -> Result<(), String> {
        let reader = Client::<Self>::open(&stage.bystander, stage.bystander.seed);
        let known = reader.and_then(|mut reader| reader.read_keys(&stage.scenario.keys));
        known.map_err(|_| "the table cannot be read".to_owned())
    }

    fn look_back(stage: &Stage<'_, K, Self>, met: &Coverage) -> Result<u64, String> {
        stage.read_keys()?;
        stage.repair_all()?;
        stage.train()?;
        let pairs = stage.read_all(met)?;
        let chain = stage.check_memory()?;
        if chain.pairs != pairs {
            return Err(format!("the leaves hold {} pairs, a scan finds {pairs}", chain.pairs));
        }
        stage.bystander.programs.close();
        stage.check_reclaimed(&chain)?;
        check_all_gone(&stage.bystander)?;
        Ok(chain.leaves() - 1)
    }
}

impl<K: Kind> Stage<'_, K, MemoryPool<K>> {
    /// Reads every key, before anything is written to it: a write that was lost must not be covered.
    fn read_keys(&self) -> Result<(), String> {
        self.again(&self.bystander, |own, client| {
            own.bystander.keys.chunks(BATCH).try_for_each(|keys| client.read_keys(keys))
        })
    }

    /// Writes to every leaf: whatever a dead holder left there is found, and put right.
    fn repair_all(&self) -> Result<(), String> {
        self.again(&self.bystander, |own, client| {
            let keys = &own.bystander.keys;
            keys.chunks(BATCH).try_for_each(|keys| client.write_keys(WriteOperation::Update, keys))
        })
    }

    fn trainer(&self, client: &PoolClient<SimConnection<K>>) -> Result<PoolTrainer<SimQueue<K>>, String> {
        let sizes = self.scenario.pool.map_or(GroupSizes::USUAL, |shape| shape.group_sizes[1]);
        client.trainer(TABLE, sizes).map_err(|error| broken(&error))
    }

    fn train(&self) -> Result<(), String> {
        let client = connect(&self.bystander).map_err(|error| broken(&error))?;
        let mut trainer = self.trainer(&client)?;
        give_back_all(&mut trainer)?;
        for _ in 0..TRAINING_STEPS {
            if trainer.step(TRAINING_BUDGET).map_err(|error| broken(&error))?.is_all() {
                return Ok(());
            }
        }
        Err(format!("training does not end within {TRAINING_STEPS} steps"))
    }

    /// Reads everything, by a cache that is as old as the scenario and by a fresh one; returns the pairs.
    fn read_all(&self, met: &Coverage) -> Result<usize, String> {
        self.read_keys()?;
        let fresh = Arc::new(Plan { group: NEWCOMER, ..self.bystander.again() });
        let mut pairs = 0;
        let mut counters = Counters::default();
        self.again(&fresh, |own, client| {
            own.bystander.keys.chunks(BATCH).try_for_each(|keys| client.read_keys(keys))?;
            counters = client.counters();
            pairs = client.scan_from(&[Scan::EVERYTHING])?;
            Ok(())
        })?;
        // Who dies between a split and its count leaves a leaf that training does not hear of.
        if counters.sibling_steps > 0 && !may_lose_counts(met) && !self.has_fenced() {
            return Err(format!("what is trained leads astray: {counters:?}"));
        }
        Ok(pairs)
    }

    /// Once all compute nodes have ended, whatever nothing leads to is given back: what is left is the chain.
    fn check_reclaimed(&self, chain: &Chain) -> Result<(), String> {
        self.bystander.simulation.sleep(ENDS_NOTICED);
        let client = connect(&self.bystander).map_err(|error| broken(&error))?;
        let mut trainer = self.trainer(&client)?;
        give_back_all(&mut trainer)?;
        for (index, node) in self.pools.current().iter().enumerate() {
            let used = node.stats().tables.first().map_or(0, |table| table.leaves.used);
            let linked = chain.leaves[index];
            if used != linked {
                return Err(format!("memory node {index}: {used} blocks are in use for {linked} leaves"));
            }
        }
        Ok(())
    }

    /// True if a node has fenced a compute node. Its program need not hear of it: it connects anew with its
    /// next operation, or has no other.
    fn has_fenced(&self) -> bool {
        self.pools.current().iter().any(|node| node.stats().fenced > 0)
    }

    fn again(
        &self,
        plan: &Arc<Plan<MemoryPool<K>>>,
        mut act: impl FnMut(&Self, &mut Client<MemoryPool<K>>) -> Result<(), End>,
    ) -> Result<(), String> {
        for _ in 0..TRIES {
            let client = Client::<MemoryPool<K>>::open(plan, plan.seed);
            match client.and_then(|mut client| act(self, &mut client)) {
                Ok(()) => return Ok(()),
                Err(End::Lost) => {}
                Err(End::Fenced) => plan.programs.leave(plan.group),
                Err(End::Wrong) => return Err(broken(&"something is wrong")),
            }
        }
        Err(broken(&format!("{TRIES} connections broke")))
    }

    /// Leaves tile the keys, are consistent, and hold so many pairs; no block is locked.
    fn check_memory(&self) -> Result<Chain, String> {
        let client = connect(&self.bystander).map_err(|error| broken(&error))?;
        let links = client.links(TABLE).map_err(|error| broken(&error))?;
        let table = links.cache.table();
        let nodes = self.pools.current();
        let region = |(node, id): (usize, RegionId)| {
            nodes[node].regions().into_iter().find(|region| region.id() == id).ok_or("a region is gone")
        };
        let leaves = table.nodes().iter().map(|leaves| leaves.region).enumerate();
        let regions: Vec<Arc<SimRegion>> = leaves.map(region).collect::<Result<_, _>>()?;
        let memory = Memory { table, regions: &regions };
        memory.check_locks()?;
        memory.walk()
    }
}

/// Looks at all that ended compute nodes left.
fn give_back_all<K: Kind>(trainer: &mut PoolTrainer<SimQueue<K>>) -> Result<(), String> {
    for _ in 0..LOOKS_MAX {
        if trainer.reclaim().map_err(|error| broken(&error))? == Reclaimed::default() {
            return Ok(());
        }
    }
    Err(format!("after {LOOKS_MAX} looks ended compute nodes still have blocks"))
}

/// Whether something may have come between a split and its count.
fn may_lose_counts(met: &Coverage) -> bool {
    use Fault::{
        BrokenQueue, CutProgram, CutServer, CutToProgram, CutToServer, FlappingLink, KilledClient, LostCall,
        LostReply,
    };
    let losses = [
        BrokenQueue,
        CutProgram,
        CutServer,
        CutToProgram,
        CutToServer,
        FlappingLink,
        KilledClient,
        LostCall,
        LostReply,
    ];
    met.seen(Mark::Fenced) > 0 || losses.iter().any(|fault| met.strikes.of(*fault) > 0)
}

/// The leaves of a pool as they stand in memory.
struct Memory<'m> {
    table: &'m PoolTable,
    regions: &'m [Arc<SimRegion>],
}

impl Memory<'_> {
    fn lines(&self, place: LeafPlace) -> Vec<Line> {
        let words = self.table.geometry().lines() * WORDS_PER_LINE;
        let first = place.number() as usize * words;
        let (lines, _) = self.regions[place.node()].words()[first..first + words].as_chunks();
        // Relaxed: nobody writes.
        lines
            .iter()
            .map(|line: &[_; WORDS_PER_LINE]| Line(line.each_ref().map(|word| word.load(Ordering::Relaxed))))
            .collect()
    }

    fn check_locks(&self) -> Result<(), String> {
        for (node, leaves) in self.table.nodes().iter().enumerate() {
            for place in (0..leaves.blocks).filter_map(|number| LeafPlace::new(node, number)) {
                let lines = self.lines(place);
                let key_lines = lines.first_chunk::<KEY_LINES>().expect("a block has a key part");
                if let Some(owner) = lock_of(key_lines).owner() {
                    return Err(format!("{place} is locked by compute node {owner} for ever"));
                }
            }
        }
        Ok(())
    }

    fn walk(&self) -> Result<Chain, String> {
        let blocks: u64 = self.table.nodes().iter().map(|leaves| u64::from(leaves.blocks)).sum();
        let mut chain = Chain { leaves: vec![0; self.regions.len()], pairs: 0 };
        let mut place = LeafPlace::new(0, 0).expect("every pool has a first leaf");
        let mut low = 0;
        while chain.leaves() < blocks {
            chain.leaves[place.node()] += 1;
            let lines = self.lines(place);
            let leaf_lines = self.table.geometry().leaf().leaf_lines();
            if lines[..leaf_lines].iter().any(|line| line.stamp().is_changing()) {
                return Err(format!("{place} has a line that nobody is writing any more"));
            }
            let key_lines = lines.first_chunk::<KEY_LINES>().expect("a block has a key part");
            let (lock, view) = (lock_of(key_lines), KeyLines(key_lines));
            let fences = view.fences().filter(|fences| fences.low == low && lock == LockWord::FREE);
            let Some(fences) = fences.filter(|_| view.incarnation().is_some()) else {
                return Err(format!("{place} should be the open leaf from {low} on: {key_lines:x?}"));
            };
            let mut slots = [(0, LeafSlot::FIRST); LEAF_SLOTS];
            chain.pairs += view.sorted(&mut slots);
            let Some(high) = fences.high else { return Ok(chain) };
            place = self.table.place(view.next()).ok_or_else(|| format!("{place} has no sibling"))?;
            low = high;
        }
        Err(format!("the chain has no end within {blocks} leaves"))
    }
}
