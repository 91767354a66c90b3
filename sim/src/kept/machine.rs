//! A machine: a disk, the server that runs there, and its ends.
//!
//! Protocol of an end: the next server is started by a process that begins before any client hears of the
//! end. So it may be there when they connect again, and is told of calls that the one before has executed.
//! Mostly it is away for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use farsight_durability::LogOptions;
use farsight_durability::disk::{Disk as _, Fault, SimulatedDisk};
use farsight_fabric_sim::{Kind, Simulation};
use farsight_node::{DataOptions, NodeOptions, Sequencer};
use farsight_protocol::Ack;

use super::Kept;
use crate::classes::Mark;
use crate::journal::Journal;
use crate::node::Node;
use crate::run::OPERATOR;

/// The longest time for which nobody listens.
const AWAY_NS_MAX: u64 = 400_000;
/// Lives of a machine's servers that end before the last one begins.
const LIVES_MAX: u64 = 16;
/// Starts of one server that may fail.
const FAILED_STARTS_MAX: u64 = 3;
/// The operation of the disk that fails is one of so many of its life.
const FAULT_WITHIN: u64 = 400;
/// A disk that fills up has room for so many bytes more, at most.
const ROOM_BYTES_MAX: u64 = 64 << 10;
/// The longest pause between two steps of the sequencer; it doubles while there is nothing to do.
const STEP_PAUSE_NS: u64 = 2_000;
/// Doublings of that pause at most.
const STEP_DOUBLINGS_MAX: u32 = 6;
/// The longest pause between two looks whether snapshots are due.
const LOOK_NS_MAX: u64 = 200_000;
/// How long a slow sync takes at most.
const SLOW_SYNC_NS_MAX: u64 = 3_000_000_000;
/// The first segment of a log.
const FIRST_SEGMENT: &str = "log-0000000000000001";

/// What ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The process alone: what it has written is there.
    OfTheProcess,
    /// The machine: what was not synced may be lost.
    PowerCut,
}

/// What a machine is started with.
pub(super) struct MachineSetting {
    pub(super) simulation: Simulation,
    pub(super) journal: Journal,
    /// Processes of clients that have work left.
    pub(super) left: Arc<AtomicUsize>,
    pub(super) address: &'static str,
    pub(super) options: NodeOptions,
    pub(super) kept: Kept,
    pub(super) seed: u64,
}

/// A machine.
pub(super) struct Machine<K: Kind> {
    setting: MachineSetting,
    running: Mutex<Running<K>>,
    /// Servers started.
    lives: AtomicU64,
    /// A server has ended, and the next one is not there.
    is_ending: AtomicBool,
    /// The log has what no sync has covered.
    is_syncing: AtomicBool,
}

struct Running<K: Kind> {
    disk: SimulatedDisk,
    node: Option<Arc<Node<K>>>,
    random: SplitMix64,
}

impl<K: Kind> Machine<K> {
    /// A machine with an empty disk, and its first server.
    pub(super) fn start(setting: MachineSetting) -> Result<Arc<Self>, String> {
        let random = SplitMix64::new(setting.seed ^ 0x6d61_6368);
        let running = Running { disk: SimulatedDisk::default(), node: None, random };
        let own = Arc::new(Self {
            setting,
            running: Mutex::new(running),
            lives: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            is_syncing: AtomicBool::new(false),
        });
        own.start_server()?;
        Ok(own)
    }

    /// The newest server.
    pub(super) fn node(&self) -> Arc<Node<K>> {
        Arc::clone(self.running().node.as_ref().expect("the first was started with this"))
    }

    /// Starts who ends servers now and then, and makes room on a full disk, as long as there are clients.
    pub(super) fn begin_fate(self: &Arc<Self>) {
        let own = Arc::clone(self);
        self.setting.simulation.process("fate", OPERATOR, move || {
            // Relaxed, here and below: all of it happens on one thread.
            while own.has_clients() && own.lives.load(Ordering::Relaxed) < LIVES_MAX {
                let life_ns = own.below(own.setting.kept.life_ns_max);
                own.setting.simulation.sleep(Duration::from_nanos(1 + life_ns));
                let disk = own.disk();
                if matches!(disk.struck(), Some(Fault::CapacityBytes(_))) && own.below(2) == 0 {
                    own.setting.journal.mark(Mark::DiskFull, 1);
                    disk.set_faults(&[]);
                } else if own.has_clients() {
                    own.end(own.some_ending());
                }
            }
        });
    }

    /// Ends the server for the last time, and starts one without faults.
    pub(super) fn end_last(self: &Arc<Self>, ending: Ending) -> Result<(), String> {
        self.node().end();
        self.leave(ending);
        self.start_server()
    }

    fn some_ending(&self) -> Ending {
        let Kept { ack, power_cuts_percent, .. } = self.setting.kept;
        let is_cut = ack == Ack::Durable && self.below(100) < power_cuts_percent;
        if is_cut { Ending::PowerCut } else { Ending::OfTheProcess }
    }

    /// Ends the server now. Another one follows.
    fn end(self: &Arc<Self>, ending: Ending) {
        if self.is_ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let in_flight = self.is_syncing.load(Ordering::Relaxed);
        let journal = &self.setting.journal;
        journal.mark(Mark::EndedInFlight, in_flight.into());
        journal.mark(Mark::TailLost, u64::from(in_flight && ending == Ending::PowerCut));
        let own = Arc::clone(self);
        self.setting.simulation.process("machine", OPERATOR, move || own.succeed(ending));
        self.node().end();
    }

    /// Starts the next server.
    fn succeed(self: &Arc<Self>, ending: Ending) {
        // A step of its own may have ended it: what that owns goes now.
        self.node().end();
        self.leave(ending);
        if self.below(2) == 0 {
            self.away();
        }
        for failed in 0.. {
            let may_fail = failed < FAILED_STARTS_MAX && self.lives.load(Ordering::Relaxed) < LIVES_MAX;
            if may_fail {
                self.draw_faults();
            }
            let Err(why) = self.start_server() else { break };
            let struck = self.disk().struck();
            if struck.is_none() {
                return self.setting.journal.complain(format!("a server does not start: {why}"));
            }
            self.setting.journal.mark(Mark::StartFailed, 1);
            self.leave(if let Some(Fault::CrashAt(_)) = struck {
                Ending::PowerCut
            } else {
                self.some_ending()
            });
            self.away();
        }
        self.is_ending.store(false, Ordering::Relaxed);
    }

    fn away(&self) {
        let away = Duration::from_nanos(self.below(AWAY_NS_MAX));
        self.setting.simulation.sleep(away);
    }

    /// What the next server finds. No fault is set there.
    fn leave(&self, ending: Ending) {
        let mut running = self.running();
        let journal = &self.setting.journal;
        match running.disk.struck() {
            Some(Fault::CapacityBytes(_)) => journal.mark(Mark::DiskFull, 1),
            Some(_) => journal.mark(Mark::DiskFailed, 1),
            None => {}
        }
        running.disk.set_faults(&[]);
        if ending == Ending::PowerCut {
            let seed = running.random.next_u64();
            running.disk = running.disk.crash(seed);
        }
    }

    fn draw_faults(&self) {
        let Kept { ack, disk_faults_percent, full_disks_percent, .. } = self.setting.kept;
        let (disk, kind, at) = (self.disk(), self.below(100), self.below(FAULT_WITHIN));
        let fault = if kind < disk_faults_percent {
            // The last operation of a machine, or one that fails.
            if ack == Ack::Durable && self.below(2) == 0 { Fault::CrashAt(at) } else { Fault::FailAt(at) }
        } else if kind < disk_faults_percent + full_disks_percent {
            Fault::CapacityBytes(disk.used_bytes() + self.below(ROOM_BYTES_MAX))
        } else {
            return;
        };
        disk.set_faults(&[fault]);
    }

    fn start_server(self: &Arc<Self>) -> Result<(), String> {
        let MachineSetting { simulation, address, options, kept, seed, .. } = &self.setting;
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let disk = self.disk();
        let data = DataOptions {
            ack: kept.ack,
            log: LogOptions { segment_bytes: kept.segment_bytes },
            snapshot_bytes: kept.snapshot_bytes,
            piece_bytes: kept.piece_bytes,
            one_thread: Some(simulation.clock_of(OPERATOR)),
            ..DataOptions::new(Arc::new(disk))
        };
        let options = NodeOptions { data: Some(data), ..options.clone() };
        let seed = seed ^ life << 16;
        let (node, sequencer) = Node::<K>::start_from_disk(simulation, address, &options, seed)?;
        let node = Arc::new(node);
        node.hear_departed(seed);
        self.setting.journal.mark(Mark::Recovered, u64::from(life > 0));
        self.running().node = Some(Arc::clone(&node));
        self.run_sequencer(&node, sequencer, seed);
        if self.has_clients() {
            self.run_snapshots(node);
        }
        Ok(())
    }

    /// Lets the sequencer take its steps. Its syncs take time, and a server may end meanwhile.
    fn run_sequencer(self: &Arc<Self>, node: &Arc<Node<K>>, mut sequencer: Sequencer, seed: u64) {
        let mut random = SplitMix64::new(seed.rotate_left(32));
        let (own, host) = (Arc::downgrade(self), Arc::downgrade(node.host()));
        let Kept { sync_ns_max, slow_syncs_one_in, .. } = self.setting.kept;
        let workers = self.setting.options.workers;
        let (mut doublings, mut was_any, mut syncs_at) = (0, false, None);
        node.host().run(move |now| {
            let (own, host) = (own.upgrade()?, host.upgrade()?);
            let has_landed = syncs_at.is_some_and(|at| now >= at);
            if has_landed {
                sequencer.do_sync();
                syncs_at = None;
            }
            let is_any = sequencer.advance() | has_landed;
            host.show_stores();
            // Workers have replies to send: those of this step, or of the group that it left under way.
            if is_any || was_any {
                (0..workers).for_each(|port| host.rouse_port(port, now));
            }
            was_any = is_any;
            if sequencer.is_syncing() && syncs_at.is_none() {
                let is_slow = slow_syncs_one_in.is_some_and(|one_in| random.below(one_in) == 0);
                own.setting.journal.mark(Mark::SlowSync, is_slow.into());
                let most_ns = if is_slow { SLOW_SYNC_NS_MAX } else { sync_ns_max };
                syncs_at = Some(now.plus(Duration::from_nanos(1 + random.below(most_ns))));
            }
            own.is_syncing.store(syncs_at.is_some(), Ordering::Relaxed);
            own.look();
            doublings = if is_any { 0 } else { STEP_DOUBLINGS_MAX.min(doublings + 1) };
            let again_at = now.plus(Duration::from_nanos(1 + random.below(STEP_PAUSE_NS << doublings)));
            Some(syncs_at.map_or(again_at, |at: MonotonicNs| at.min(again_at)))
        });
    }

    /// Lets snapshots be made, as long as there are clients.
    fn run_snapshots(self: &Arc<Self>, node: Arc<Node<K>>) {
        let own: Weak<Self> = Arc::downgrade(self);
        let simulation = self.setting.simulation.clone();
        let Some(mut snapshots) = node.snapshots() else { return };
        self.setting.simulation.process("snapshots", OPERATOR, move || {
            while let Some(own) = own.upgrade().filter(|own| own.has_clients() && node.is_alive()) {
                simulation.sleep(Duration::from_nanos(1 + own.below(LOOK_NS_MAX)));
                if !node.is_alive() {
                    break;
                }
                let rounds = || node.stats().data.map_or(0, |data| data.snapshot_rounds);
                let before = rounds();
                // On a full or failing disk none is made.
                let made = snapshots.step(&|| !node.is_alive());
                if node.is_alive() {
                    let is_made = made.is_ok() && rounds() > before;
                    own.setting.journal.mark(Mark::Snapshot, is_made.into());
                    let names = own.disk().list().unwrap_or_default();
                    let is_removed = is_made && !names.iter().any(|name| name == FIRST_SEGMENT);
                    own.setting.journal.mark(Mark::SegmentRemoved, is_removed.into());
                    own.look();
                }
            }
        });
    }

    /// Ends a server whose disk has ended it.
    fn look(self: &Arc<Self>) {
        let (struck, node) = (self.disk().struck(), self.node());
        match (struck, node.failure()) {
            (Some(Fault::CrashAt(_)), _) => self.end(Ending::PowerCut),
            (Some(Fault::FailAt(_)), Some(_)) => self.end(self.some_ending()),
            (_, Some(failure)) => {
                self.setting.journal.complain(format!("a server met a bug: {failure}"));
                self.end(Ending::OfTheProcess);
            }
            _ => {}
        }
    }

    fn has_clients(&self) -> bool {
        self.setting.left.load(Ordering::Relaxed) > 0
    }

    fn below(&self, end: u64) -> u64 {
        self.running().random.below(end)
    }

    fn disk(&self) -> SimulatedDisk {
        self.running().disk.clone()
    }

    fn running(&self) -> MutexGuard<'_, Running<K>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
