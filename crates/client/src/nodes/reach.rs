//! Which of its nodes a client reaches, and how a pool goes on without one.
//!
//! Invariant: a client works without a node only if each of the others goes on without it, too. They let no
//! compute node in that does otherwise. What they have said of reads is over by then. So nobody who still
//! reads at the lost node believes what it reads.
//!
//! Protocol, where a node cannot be reached, or others say that they go on without one:
//! 1. Ask each of the others to leave it out. One that waits for something says so: try again later.
//! 2. All do: work with them. The first of them is the coordinator.
//!
//! A compute node renews what it believes at every node, before half of its time is over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::Ordering;
use farsight_fabric::lane::PoolLane;
use farsight_fabric::{Connection, FabricError};
use farsight_protocol::{ControlRequest, ErrorCode, LeftOut, LostNodes, NodeHello};

use super::Nodes;
use super::taking_in::newest_term;
use crate::engine::Lookup;
use crate::{CatalogueError, PoolError};

/// How long a client waits until a node goes on without others, at most.
const LEFT_OUT_WITHIN: Duration = Duration::from_secs(3);
/// The longest pause before a node is asked again.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Until when a compute node believes what it reads.
#[derive(Debug, Default)]
pub(super) struct Believed(Mutex<Renewed>);

#[derive(Debug, Default)]
struct Renewed {
    /// Until when, and from when on it is renewed.
    until: Option<(MonotonicNs, MonotonicNs)>,
    /// All nodes have answered the last time.
    is_whole: bool,
}

impl<C: Connection> Nodes<C> {
    /// The nodes of a pool that were reached, by their places. Others have said that they go on without
    /// `lost`, when their pool had taken in so many nodes. The first request asks whether the pool goes on
    /// without the rest of those that were not reached.
    pub(crate) fn reach(
        reached: Vec<(usize, Result<C, FabricError>)>,
        pool_nodes: usize,
        told @ (lost, _): (LostNodes, u32),
        engines: Lookup<C>,
    ) -> Result<Self, FabricError> {
        let (mut connections, mut failure) = (Vec::new(), None);
        let is_reached =
            |(place, reached): &&(usize, Result<C, FabricError>)| reached.is_ok() && !lost.contains(*place);
        // Where too few are left, one of them may have come back since.
        let are_enough = 2 * reached.iter().filter(is_reached).count() > pool_nodes;
        let told @ (lost, _) = if are_enough { told } else { (LostNodes::default(), told.1) };
        for (place, connection) in reached {
            match connection {
                Ok(connection) if !lost.contains(place) => connections.push((place, connection)),
                Ok(_) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let nodes = Self::over(connections, pool_nodes, engines)?;
        match failure {
            Some(failure) if !nodes.lost.leave_a_majority(pool_nodes) => Err(failure),
            failure => Ok(Self { failure, told, ..nodes }),
        }
    }

    /// Fails as a loss if the pool is another one than this client has reached.
    pub(super) fn agree_on_view(&self) -> Result<(), FabricError> {
        // Relaxed: as where it is set.
        if !self.has_replicas.load(Ordering::Relaxed) || self.pool_size < 3 {
            return Ok(());
        }
        match self.epochs() {
            Err(CatalogueError::Fabric(error)) if self.poisoned.check("").is_err() => Err(error),
            // What else is wrong its first request tells.
            _ => Ok(()),
        }
    }

    /// Other connections to the same nodes. One that cannot be reached is an error, to be tried again, unless
    /// a table is known that goes on without it.
    pub(super) fn connect_again(&self, timeout: Duration) -> Result<Self, FabricError> {
        let former = self.places.iter().zip(&self.all).map(|(place, node)| (*place, &node.connection));
        // Relaxed: as where it is set.
        let moved = LostNodes(self.moved.load(Ordering::Relaxed) as u16);
        let missing = self.missing.iter().filter(|(place, _)| !moved.contains(*place));
        let former: Vec<_> = former.chain(missing.map(|(place, of)| (*place, of))).collect();
        let again = |(place, connection): &(usize, &Arc<C>)| (*place, connection.reconnect(timeout));
        let mut reached: Vec<_> = former.iter().map(again).collect();
        // Of some there never was a connection.
        for place in (0..self.pool_size).filter(|place| former.iter().all(|(known, _)| known != place)) {
            match (&self.dial, &self.failure) {
                (Some(dial), _) => reached.push((place, dial.connect(place))),
                (None, Some(failure)) => reached.push((place, Err(failure.clone()))),
                (None, None) => {}
            }
        }
        reached.sort_unstable_by_key(|(place, _)| *place);
        let mut nodes = Self::reach(reached, self.pool_size, self.said(), self.engines)?;
        match &nodes.failure {
            // Relaxed: as where it is set.
            Some(failure) if !self.has_replicas.load(Ordering::Relaxed) => return Err(failure.clone()),
            _ => {
                let is_missing = |(place, _): &(usize, &Arc<C>)| !nodes.places.contains(place);
                let missing = former.into_iter().filter(is_missing);
                nodes.missing = missing.map(|(place, connection)| (place, Arc::clone(connection))).collect();
            }
        }
        nodes.dial.clone_from(&self.dial);
        nodes.inherit(self);
        Ok(nodes)
    }

    /// Has the others agree that nodes are lost which were not reached.
    ///
    /// # Errors
    /// Why one was not reached, if they do not.
    pub(crate) fn agree_on_missing(&self) -> Result<(), CatalogueError> {
        if self.failure.is_some() { self.epochs().map(drop) } else { Ok(()) }
    }

    /// Compares what each node says of its pool with what this client has reached. Has all of them go on
    /// without the others, if they do not yet.
    pub(super) fn agree(&self, hellos: &[NodeHello]) -> Result<(), CatalogueError> {
        let term = newest_term(hellos);
        // Relaxed: who connects again has seen it, or learns it anew.
        self.term.store(term, Ordering::Relaxed);
        self.follow_moved(hellos)?;
        let said = hellos.iter().fold(LostNodes::default(), |lost, hello| lost.and(hello.lost));
        if said.and(self.lost) != self.lost {
            // Those who say so may have an older list than others. So it is no news against a newer one.
            let sayers = hellos.iter().filter(|hello| hello.lost.0 & !self.lost.0 != 0);
            let told_term = sayers.map(|hello| hello.term).max().unwrap_or(term);
            self.term.store(told_term, Ordering::Relaxed);
            let said_by =
                self.places.iter().copied().zip(hellos.iter().map(|hello| hello.lost)).collect::<Vec<_>>();
            return Err(self.left_behind(LostNodes::agreed(self.lost, &said_by, self.pool_size)).into());
        }
        let is_behind = |hello: &NodeHello| hello.place.is_some() && hello.term < term;
        let (told, told_term) = self.told;
        let came_back = told.0 & !said.0;
        if hellos.iter().any(is_behind) {
            self.spread_list(hellos, term)?;
            return Err(self.taken_in(told.0).into());
        }
        if came_back != 0 && term > told_term {
            return Err(self.taken_in(came_back).into());
        }
        if hellos.iter().any(|hello| hello.lost != self.lost) {
            self.leave_out()?;
        }
        Ok(())
    }

    /// Whether the pool may go on without one of these nodes more: a table has replicas, and enough are left.
    pub(super) fn may_go_on_without(&self, peer: &str) -> bool {
        let Some(node) = (0..self.count()).find(|node| self.peer(*node) == peer) else { return false };
        let lost = self.lost.and(LostNodes::of(std::iter::once(self.places[node])));
        // Relaxed: as where it is set.
        lost.leave_a_majority(self.pool_size) && self.has_replicas.load(Ordering::Relaxed)
    }

    /// Fails if a node was not reached, and nobody has agreed that it is lost.
    pub(super) fn check_agreed(&self) -> Result<(), FabricError> {
        match &self.failure {
            Some(failure) if self.epochs.get().is_none() => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Has each node go on without those that are lost, and waits for it.
    pub(super) fn leave_out(&self) -> Result<(), CatalogueError> {
        let (lost, term) = (self.lost, self.term.load(Ordering::Relaxed));
        let request = ControlRequest::LeaveOut { lost, term };
        for node in 0..self.count() {
            let mut waited = Duration::ZERO;
            loop {
                let asked = self.ask(node, &request).map_err(|error| self.of_refusal(error))?;
                let (LeftOut::Done(lost) | LeftOut::Wait { lost, .. }) = asked;
                if lost != self.lost {
                    return Err(self.left_behind(lost).into());
                }
                let LeftOut::Wait { pause_ms, why, .. } = asked else { break };
                if waited >= LEFT_OUT_WITHIN {
                    let reason = format!("it does not go on without nodes {:#b}: {why}", lost.0);
                    return Err(FabricError::Disconnected { peer: self.peer(node).to_owned(), reason }.into());
                }
                let pause = Duration::from_millis(pause_ms.into()).min(PAUSE_MAX);
                waited += pause;
                self.pause(node, pause)?;
            }
        }
        Ok(())
    }

    pub(super) fn pause(&self, node: usize, pause: Duration) -> Result<(), FabricError> {
        let super::Node { connection, asker } = &self.all[node];
        asker.with_queue(connection, |queue| {
            PoolLane::new(std::slice::from_mut(queue)).block_on(async |slot| slot.pause(pause).await)
        })
    }

    /// What a refusal to go on without a node means: that this client does not reach it, if that is so, or
    /// that others are in the way.
    pub(super) fn of_refusal(&self, error: CatalogueError) -> CatalogueError {
        match (&self.failure, error) {
            (Some(failure), CatalogueError::Refused { .. }) => failure.clone().into(),
            (None, CatalogueError::Refused { peer, source }) => {
                FabricError::Disconnected { peer, reason: source.to_string() }.into()
            }
            (_, error) => error,
        }
    }

    /// The epochs of all nodes of the pool, also those that are lost: as each of the others knows them.
    pub(super) fn epochs_of_pool(&self, hellos: &[NodeHello]) -> Result<Vec<u64>, CatalogueError> {
        let mut epochs: Option<Vec<u64>> = None;
        for (node, hello) in hellos.iter().enumerate() {
            let Some(place) = &hello.place else { return Err(self.no_pool(node).into()) };
            let is_there = usize::from(place.index) == self.places[node]
                && place.epochs.get(self.places[node]) == Some(&hello.epoch)
                && place.epochs.len() == self.pool_size
                && epochs.as_ref().is_none_or(|epochs| *epochs == place.epochs);
            if !is_there {
                return Err(self.no_pool(node).into());
            }
            epochs = Some(place.epochs.clone());
        }
        Ok(epochs.expect("a pool has nodes"))
    }

    fn no_pool(&self, node: usize) -> PoolError {
        PoolError::NotOfPool { peer: self.peer(node).to_owned(), place: self.places[node] }
    }

    /// Notes that the pool goes on without these nodes, not as this client has reached it.
    pub(super) fn left_behind(&self, said: LostNodes) -> FabricError {
        // Of those that are missing here nobody else has said so, perhaps.
        let news = said.0 & !self.lost.0;
        // Relaxed: who connects again has seen the error, or learns it anew.
        self.said_lost.fetch_or(news.into(), Ordering::Relaxed);
        self.poisoned.raise();
        let reason = "the pool goes on without other nodes than before".to_owned();
        FabricError::Disconnected { peer: self.peer(0).to_owned(), reason }
    }

    /// Notes that new nodes stand in the places of some that were lost.
    pub(super) fn taken_in(&self, places: u16) -> FabricError {
        // Relaxed: as in `left_behind`.
        self.came_back.fetch_or(places.into(), Ordering::Relaxed);
        self.poisoned.raise();
        let reason = "a new node has taken the place of a lost one".to_owned();
        FabricError::Disconnected { peer: self.peer(0).to_owned(), reason }
    }

    /// Notes that a node has another list of nodes than it had.
    pub(super) fn list_changed(&self) -> FabricError {
        self.taken_in(0)
    }

    /// The nodes without which the pool goes on, as far as this client has heard.
    pub(super) fn said_lost(&self) -> LostNodes {
        let said = LostNodes(self.said_lost.load(Ordering::Relaxed) as u16).and(match self.failure {
            // Nobody has agreed to that, perhaps.
            Some(_) => LostNodes::default(),
            None => self.lost,
        });
        LostNodes(said.0 & !(self.came_back.load(Ordering::Relaxed) as u16))
    }

    /// The same, and how many nodes the pool had taken in then.
    fn said(&self) -> (LostNodes, u32) {
        (self.said_lost(), self.term.load(Ordering::Relaxed).max(self.told.1))
    }

    /// A refusal because this compute node is ended, or goes by another list of nodes, as a loss of the
    /// connections. Over shared memory a client is told to go, and may ask something before it hears that.
    pub(crate) fn of_view(&self, error: CatalogueError) -> CatalogueError {
        match error {
            CatalogueError::Refused { peer, source } if source.code == ErrorCode::Fenced => {
                self.poisoned.raise();
                FabricError::Disconnected { peer, reason: source.to_string() }.into()
            }
            error => error,
        }
    }

    /// Until when this compute node believes what it reads: that no node that it leaves out, or reads at, was
    /// left out by others. Asks all nodes if half of that time is over.
    pub(crate) fn renew(&self, now: MonotonicNs) -> Result<MonotonicNs, CatalogueError> {
        let is_whole = {
            let renewed = self.renewed();
            if let Some((until, again_at)) = renewed.until
                && now < again_at
            {
                return Ok(until);
            }
            renewed.is_whole
        };
        // No lock is held while an answer is awaited: several sessions may ask at a time.
        let request = ControlRequest::Renew { lost: self.lost, is_whole };
        let mut shortest_us = u32::MAX;
        for node in 0..self.count() {
            let asked = self.ask(node, &request).map_err(|error| self.of_view(error));
            shortest_us = shortest_us.min(asked.inspect_err(|_| self.renewed().is_whole = false)?);
        }
        if shortest_us == 0 {
            return Err(self.left_behind(self.said_lost()).into());
        }
        let lasts = Duration::from_micros(shortest_us.into());
        let until = now.plus(lasts);
        let mut renewed = self.renewed();
        renewed.is_whole = true;
        renewed.until = renewed.until.max(Some((until, now.plus(lasts / 2))));
        Ok(until)
    }

    fn renewed(&self) -> MutexGuard<'_, Renewed> {
        // Each change is complete.
        self.believed.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
