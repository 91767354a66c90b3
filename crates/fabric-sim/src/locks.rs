//! Words that are locks, and who waits for a processor while it holds one.
//!
//! Invariant: a process has a lock from the doorbell of the compare-and-swap that may take it. It has it no
//! more once that has failed, or from the doorbell of a WRITE over it. A process one of whose queue pairs
//! broke, or whose program connected anew, has none. It goes on as another compute node, and leaves what it
//! had to who repairs it. Nobody has a lock in a region that is withdrawn.

use std::collections::BTreeMap;

use farsight_base::RegionId;

use crate::pair::{Atomic, Operation, Pair};
use crate::region::SimRegion;
use crate::state::{ClientState, State};

/// Whether a word of a region is a lock.
pub(crate) type IsLock = Box<dyn Fn(&SimRegion, usize) -> bool + Send>;

/// Where a lock is: node, region, word.
type Place = (usize, usize, usize);

/// The locks of a simulation.
pub(crate) struct LockWatch {
    is_lock: IsLock,
    /// By process and place: the queue pair and the number of the verb that took the lock.
    held: BTreeMap<(Option<usize>, Place), (usize, u64)>,
    /// The first call that was sent under one.
    called: Option<String>,
}

impl LockWatch {
    pub(crate) fn new(is_lock: IsLock) -> Self {
        Self { is_lock, held: BTreeMap::new(), called: None }
    }
}

impl State {
    /// The first call that a process sent while it held a lock.
    pub(crate) fn called_under_lock(&self) -> Option<String> {
        self.locks.as_ref()?.called.clone()
    }

    fn place(&self, pair: usize, region: usize, word: usize) -> Place {
        (self.clients[self.pairs[pair].client].host, region, word)
    }

    /// A compare-and-swap is sent.
    pub(crate) fn note_locking(&mut self, pair: usize, serial: u64, atomic: &Atomic) {
        let place = self.place(pair, atomic.region, atomic.word);
        let Some(watch) = &mut self.locks else { return };
        let is_swap = matches!(atomic.operation, Operation::CompareSwap { .. });
        if is_swap && (watch.is_lock)(&self.hosts[place.0].regions[place.1].0, place.2) {
            watch.held.entry((self.running, place)).or_insert((pair, serial));
        }
    }

    /// A compare-and-swap has found another word than it expected.
    pub(crate) fn note_not_locked(&mut self, pair: usize, serial: u64) {
        if let Some(watch) = &mut self.locks {
            watch.held.retain(|_, by| *by != (pair, serial));
        }
    }

    /// A WRITE is sent.
    pub(crate) fn note_written(&mut self, pair: usize, region: usize, first: usize, words: usize) {
        let (host, ..) = self.place(pair, region, first);
        let running = self.running;
        if let Some(watch) = &mut self.locks {
            watch.held.retain(|(process, place), _| {
                let is_over =
                    (place.0, place.1) == (host, region) && (first..first + words).contains(&place.2);
                *process != running || !is_over
            });
        }
    }

    /// Whether the program of a queue pair has no use for its locks in a region any more.
    fn is_abandoned(&self, pair: usize, region: usize) -> bool {
        let Pair { client, opened_by, is_closed, .. } = self.pairs[pair];
        let is_broken = |pair: &Pair| pair.refusals.is_broken() || self.clients[pair.client].lost.is_some();
        let mut of_process = self.pairs.iter().filter(|pair| pair.opened_by == opened_by && !pair.is_closed);
        let own = &self.clients[client];
        let is_anew = |other: &ClientState| (other.host, other.group) == (own.host, own.group);
        let is_withdrawn = self.hosts[own.host].is_gone(region) || self.has_heard_withdrawn(pair, region);
        is_withdrawn
            || is_closed
            || of_process.any(is_broken)
            || self.clients[client + 1..].iter().any(is_anew)
    }

    /// A call is sent.
    pub(crate) fn note_called(&mut self, pair: usize) {
        let Some(mut watch) = self.locks.take() else { return };
        // Mostly there is none, and a simulation has many pairs.
        watch.held.retain(|(process, place), (pair, _)| {
            *process != self.running || !self.is_abandoned(*pair, place.1)
        });
        let own = watch.held.keys().find(|(process, _)| *process == self.running);
        if let (Some((_, (host, region, word))), None) = (own, &watch.called) {
            let name = self.running.map_or("nobody", |process| &self.processes[process].name);
            watch.called = Some(format!(
                "{name} calls {} at {} ns while it holds the lock in word {word} of {} at {}",
                self.hosts[self.clients[self.pairs[pair].client].host].address,
                self.now_ns,
                RegionId(*region as u32 + 1),
                self.hosts[*host].address,
            ));
        }
        self.locks = Some(watch);
    }
}
