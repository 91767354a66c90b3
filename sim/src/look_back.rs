//! The judges that look at a cluster after its last fault, when nothing is under way any more.
//!
//! The server answers and has trained. A cache that was there all the time catches up, and a fresh one leads
//! every GET to its leaf. The server counts as many pairs as a scan finds. Nothing is left over: no latch, no
//! line that is being written, no leaf that the tree does not name, no client, queue pair or request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::sync::Ordering;
use farsight_base::{Stamp, WORDS_PER_LINE};
use farsight_client::Access;
use farsight_fabric::Region as _;
use farsight_fabric_sim::{Held, Kind, SimRegion, Simulation};
use farsight_layout::{Geometry, OWNER_WORD};
use farsight_oracles::Identity;
use farsight_protocol::{BlockSpaceStats, NodeStats, TableStats};

use crate::client::{Client, Plan};
use crate::cluster::{Cluster, OneServer};
use crate::node::Node;
use crate::run::NEWCOMER;
use crate::store::Scan;

/// Virtual time that training may take after the last write.
const TRAINING_MAX: Duration = Duration::from_secs(5);
/// Keys of one batch while looking back.
const BATCH_OF_READS: usize = 100;
/// Looks that an old cache may take until no GET walks: each scrubs a sub-model at least.
const LOOKS_MAX: usize = 40;
/// An old cache is asked about one key in so many: about one of every leaf.
const KEYS_A_LOOK: usize = 6;
/// Between two looks: as long as a session waits before it asks for another sub-model.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Fills the cache of the program of `plan`, with which it looks back at the end.
pub(crate) fn remember<C: Cluster>(plan: &Arc<Plan<C>>) -> Result<(), String> {
    await_training(plan)?;
    let filled = Client::<C>::open(plan, plan.seed).and_then(|mut reader| reader.prefill());
    filled.map_err(|_| broken(&"the first model cannot be fetched"))
}

/// Reads everything again, by the program of `plan`, which no rule met. Returns the pairs found.
pub(crate) fn look_back<C: Cluster>(plan: &Arc<Plan<C>>) -> Result<Stored, String> {
    await_training(plan)?;
    look_with_old_cache(plan)?;
    look_with_fresh_cache(plan)
}

/// Within this time a server hears that a client has ended, and gives back what that had under way.
const HEARD_MAX: Duration = Duration::from_secs(1);

/// What a scan of everything found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) pairs: usize,
    /// Bytes of the blocks that their values take, if values have any length.
    pub(crate) block_bytes: u64,
}

/// Reads everything by calls and without, whatever memory has lost: the server scrubs what it meets. A
/// look-up meets the lines that it needs, a scan those of every leaf.
pub(crate) fn mend_all<K: Kind>(plan: &Arc<Plan<OneServer<K>>>) -> Result<(), String> {
    for access in [Access::Rpc, Access::OneSided] {
        let plan = Arc::new(Plan { access, ..plan.again() });
        let mut reader = Client::<OneServer<K>>::open(&plan, plan.seed).map_err(|_| broken(&"no session"))?;
        for keys in plan.keys.chunks(BATCH_OF_READS) {
            reader.read_keys(keys).map_err(|_| broken(&"a read failed"))?;
        }
        reader.scan_from(&[Scan::EVERYTHING]).map_err(|_| broken(&"a scan failed"))?;
    }
    Ok(())
}

/// Asks what is left over. Returns what the server says of the table: the machine's own time stands in it.
/// Where memory has lost bits, lines that nobody wants any more may still say what they like.
pub(crate) fn check_left_over<K: Kind>(
    node: &Node<K>,
    plan: &Plan<OneServer<K>>,
    stored: Stored,
    has_decayed: bool,
) -> Result<TableStats, String> {
    let client = node.connect().map_err(|error| broken(&error))?;
    let stats = check_counts(client.stats().map_err(|error| broken(&error))?, &node.regions(), has_decayed)?;
    drop(client);
    check_pairs(stats.part().tree.pairs, stored)?;
    check_all_gone(plan)?;
    check_blocks(node, &plan.simulation, stored)?;
    Ok(stats)
}

/// Blocks are in use for the pairs that were found, and for nothing else, once the server has heard that no
/// client is left that might have values under way.
pub(crate) fn check_blocks<K: Kind>(
    node: &Node<K>,
    simulation: &Simulation,
    Stored { block_bytes, .. }: Stored,
) -> Result<(), String> {
    let live_bytes =
        || node.stats().tables.last().and_then(|table| table.blocks).map(|blocks| blocks.live_bytes);
    let is_right = || live_bytes().is_none_or(|live_bytes| live_bytes == block_bytes);
    let deadline = simulation.now().plus(HEARD_MAX);
    while !is_right() {
        if simulation.now() > deadline {
            let live_bytes = live_bytes().unwrap_or_default();
            return Err(format!("blocks of {live_bytes} B are in use, for pairs of {block_bytes} B"));
        }
        simulation.sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

/// A cluster counts as many pairs as were found.
pub(crate) fn check_pairs(counted: u64, Stored { pairs: found, .. }: Stored) -> Result<(), String> {
    if counted == found as u64 {
        return Ok(());
    }
    Err(format!("the server counts {counted} pairs, a scan finds {found}"))
}

/// Once all programs have gone, nothing is held.
pub(crate) fn check_all_gone<C: Cluster>(plan: &Plan<C>) -> Result<(), String> {
    plan.programs.close();
    match plan.simulation.held() {
        held if held == Held::default() => Ok(()),
        left => Err(format!("all have gone, and this is still held: {left:?}")),
    }
}

fn broken(error: &dyn fmt::Display) -> String {
    format!("looking back: {error}")
}

fn await_training<C: Cluster>(plan: &Plan<C>) -> Result<(), String> {
    let simulation = &plan.simulation;
    let client = C::connect(simulation, plan.addresses).map_err(|error| broken(&error))?;
    let deadline = simulation.now().plus(TRAINING_MAX);
    while client.pending_training().map_err(|error| broken(&error))? > 0 {
        if simulation.now() > deadline {
            return Err(format!("training does not end within {TRAINING_MAX:?}"));
        }
        simulation.sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// The program's cache is as old as the scenario ([`remember`]), or as the server's life.
fn look_with_old_cache<C: Cluster>(plan: &Arc<Plan<C>>) -> Result<(), String> {
    let mut reader = Client::<C>::open(plan, plan.seed).map_err(|_| broken(&"no session"))?;
    let mut walks_before = 0;
    for _ in 0..LOOKS_MAX {
        let some: Vec<Identity> = plan.keys.iter().copied().step_by(KEYS_A_LOOK).collect();
        reader.read_keys(&some).map_err(|_| broken(&"a read failed"))?;
        let counters = reader.counters();
        let walks = counters.sibling_steps + counters.fallbacks;
        if walks == walks_before {
            return Ok(());
        }
        walks_before = walks;
        plan.simulation.sleep(BETWEEN_LOOKS);
    }
    Err(format!("after {LOOKS_MAX} looks an old cache still leads astray: {:?}", reader.counters()))
}

fn look_with_fresh_cache<C: Cluster>(plan: &Arc<Plan<C>>) -> Result<Stored, String> {
    let fresh = Arc::new(Plan { group: NEWCOMER, ..plan.again() });
    let mut reader = Client::<C>::open(&fresh, plan.seed).map_err(|_| broken(&"no session"))?;
    reader.prefill().map_err(|_| broken(&"the model cannot be fetched"))?;
    for keys in plan.keys.chunks(BATCH_OF_READS) {
        reader.read_keys(keys).map_err(|_| broken(&"a read failed"))?;
    }
    let counters = reader.counters();
    if counters.sibling_steps + counters.fallbacks > 0 {
        return Err(format!("a model that has caught up leads astray: {counters:?}"));
    }
    let pairs = reader.scan_from(&[Scan::EVERYTHING]).map_err(|_| broken(&"a scan failed"))?;
    Ok(Stored { pairs, block_bytes: reader.block_bytes_found() })
}

/// A server counts as many leaves as its region holds, and has as many regions as tables. Returns what it
/// says of the last of these.
pub(crate) fn check_counts(
    mut stats: NodeStats,
    regions: &[Arc<SimRegion>],
    has_decayed: bool,
) -> Result<TableStats, String> {
    let of_tables: usize = stats.tables.iter().map(|table| table.info.regions.len()).sum();
    if regions.len() != of_tables {
        return Err(format!("{} tables of {of_tables} regions have {}", stats.tables.len(), regions.len()));
    }
    for table in &stats.tables {
        check_leaves(regions, table, has_decayed)?;
    }
    stats.tables.pop().ok_or_else(|| "no table is left".to_owned())
}

/// No leaf's latch is taken, no line is being written, and every block in use is a leaf of the tree.
fn check_leaves(regions: &[Arc<SimRegion>], table: &TableStats, has_decayed: bool) -> Result<(), String> {
    let geometry = Geometry::new(table.info.definition.values.leaf_bytes()).map_err(|e| broken(&e))?;
    let (used, tree) = (table.leaves.used, table.part().tree);
    if used != tree.leaves {
        return Err(format!("{used} blocks are in use for {} leaves", tree.leaves));
    }
    if let Some(blocks) = table.blocks {
        let BlockSpaceStats { live_bytes, free_bytes, quarantined_bytes, lost_bytes, used_bytes, .. } =
            blocks;
        if live_bytes + free_bytes + quarantined_bytes + lost_bytes != used_bytes {
            return Err(format!("the bytes of blocks do not add up: {blocks:?}"));
        }
    }
    let id = table.info.region();
    let region = regions.iter().find(|region| region.id() == id).ok_or("its region is gone")?;
    for (number, words) in region.words().chunks_exact(geometry.leaf_words()).enumerate() {
        // Relaxed: nobody writes.
        if words[OWNER_WORD].load(Ordering::Relaxed) & 1 == 1 {
            return Err(format!("leaf {number} is latched by nobody"));
        }
        let mut stamps = words.iter().step_by(WORDS_PER_LINE).map(|word| Stamp(word.load(Ordering::Relaxed)));
        if !has_decayed && stamps.any(Stamp::is_changing) {
            return Err(format!("leaf {number} has a line that nobody is writing any more"));
        }
    }
    Ok(())
}
