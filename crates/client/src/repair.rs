//! A new node in the place of a lost one: brought what the lost one had, and taken into the pool.
//!
//! Invariant: whatever step this ends after, nothing that was acknowledged is lost. It may be done again from
//! the beginning, and several may do it at once. The coordinator hears of one attempt at a time, and the new
//! node counts the newest alone. The steps, and what each leaves, are in docs/protocol/flexkv.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Line;
use farsight_base::clock::{Clock, MonotonicNs};
use farsight_base::words::bytes_of;
use farsight_fabric::{Connection, FabricError};
use farsight_index::{EngineError, Engines, FlexKv, Registered};
use farsight_index_flexkv::{BroughtAhead, CallResult, CopyFor, CopySink, FlexError, FlexSession};
use farsight_protocol::{
    Begun, Closed, ControlRequest, ErrorCode, Fenced, LeftOut, LostNodes, NodeHello, POOL_DROPPED_MAX,
    PoolAddresses, PoolMap, PoolPlace, Space, TAKEN_BYTES_MAX, TableId, TableInfo, TakeIn, TakenPiece,
};
use serde::de::DeserializeOwned;

use crate::ask::Asker;
use crate::connect::Dial;
use crate::engine::Lookup;
use crate::engine::flexkv::copier;
#[cfg(injected)]
use crate::injected;
use crate::nodes::{Known, Nodes};
use crate::{CatalogueError, PoolError};

/// How long a node may take to end its compute nodes.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// Between two questions whether it has.
const PAUSE: Duration = Duration::from_millis(10);
/// Times that the pool is looked at, which others may change meanwhile.
const LOOKS_MAX: usize = 8;
/// Passes over a table: while others write, and when nobody does.
const PASSES: usize = 2;
/// The coordinator hears of an attempt so many times in the time for which it trusts it.
const HEARD_TIMES: u32 = 8;

/// A node that was taken in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// Its place in the list of the pool's nodes, from 0.
    pub place: usize,
    /// Tables of which it has again what the lost node had.
    pub tables: Vec<String>,
    /// Bytes that it was brought while others wrote.
    pub ahead_bytes: u64,
    /// Bytes that it was brought when nobody did.
    pub rest_bytes: u64,
    /// How long nobody read or wrote.
    pub stood_for: Duration,
    /// Tables that have lost a part, and are to be dropped.
    pub left: Vec<String>,
    /// The node is the first of the list, so that no name leads to those tables any more: they are gone.
    pub forgets_left: bool,
}

/// How far a repair is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairProgress<'a> {
    /// The place of the node that is brought things.
    pub place: usize,
    /// The table that is copied.
    pub table: &'a str,
    /// Partitions of it that are copied: each twice, first while others write.
    pub done: usize,
    /// And of how many.
    pub of: usize,
}

/// Why no node, or not each one, was taken in.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// A node could not be asked, or refused.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// No node is there that could take a lost one's place.
    #[error(
        "no node is there to take the place of node {} of the pool. Start one at its address, and \
         repair again", place + 1
    )]
    NotThere {
        /// The lost node's place.
        place: usize,
        /// Why it is not reached.
        source: FabricError,
    },
    /// The process that was lost is there.
    #[error(
        "node {} of the pool was left out and still runs, with what it had then. Start it again, and repair again",
        place + 1
    )]
    FormerNode {
        /// Its place.
        place: usize,
    },
    /// None of the nodes knows a pool.
    #[error("none of these nodes belongs to a pool yet: there is nothing to repair")]
    NoPool,
    /// The new node gives a table other memory than the others do.
    #[error(
        "table {table:?} has {expected} lines on the pool's nodes and {got} on the new one. Start that with the \
         memory for tables that the others have"
    )]
    Unequal {
        /// The table.
        table: String,
        /// Lines of its regions elsewhere.
        expected: String,
        /// And on the new node.
        got: String,
    },
    /// More tables have lost a part than a node can be told of.
    #[error("{got} tables have lost a part, more than a node is told of: {max}. Start all nodes again")]
    TooManyLeft {
        /// How many.
        got: usize,
        /// The most.
        max: usize,
    },
    /// The pool did not come to rest.
    #[error("the pool changed under each of {looks} looks: repair again")]
    Unsettled {
        /// Looks.
        looks: usize,
    },
    /// A node did not end its compute nodes, or hears of another repair.
    #[error("{peer} is not ready for a new node after {waited:?}: {why}")]
    NotEnded {
        /// Its address.
        peer: String,
        /// How long that was waited for.
        waited: Duration,
        /// What it waits for.
        why: String,
    },
}

impl From<FabricError> for RepairError {
    fn from(error: FabricError) -> Self {
        Self::Catalogue(error.into())
    }
}

/// Takes new nodes in that stand in the places of lost ones, at their addresses. Where nobody stands there,
/// the next of `newcomers` is taken in. Returns those that were taken in; none if no node is lost.
///
/// # Errors
/// [`RepairError`]. What was taken in before stays so.
pub fn repair<C: Connection>(
    dial: &Dial<C>,
    newcomers: Vec<String>,
    progress: &mut dyn FnMut(RepairProgress<'_>),
) -> Result<Vec<Repaired>, RepairError> {
    let mut repaired = Vec::new();
    let looks = LOOKS_MAX + dial.nodes() + newcomers.len();
    let mut newcomers = newcomers.into_iter();
    for _ in 0..looks {
        let peers = PoolNodes::connect(dial)?;
        match peers.look() {
            Ok(Looked::Changed) => {}
            Ok(Looked::Whole) => return Ok(repaired),
            Ok(Looked::Lost(pool)) => repaired.push(Repair { peers: &peers, dial, pool }.run(progress)?),
            Err(error @ (RepairError::NotThere { place, .. } | RepairError::FormerNode { place })) => {
                dial.set_address(place, newcomers.next().ok_or(error)?);
            }
            Err(error) => return Err(error),
        }
    }
    Err(RepairError::Unsettled { looks })
}

/// Connections to those of a pool's nodes that are reached. None of them is a compute node's.
struct PoolNodes<C: Connection> {
    all: Vec<Result<Peer<C>, FabricError>>,
}

struct Peer<C: Connection> {
    connection: C,
    asker: Asker<C>,
}

impl<C: Connection> Peer<C> {
    fn new(connection: C) -> Result<Self, FabricError> {
        Ok(Self { asker: Asker::new(&connection)?, connection })
    }

    fn ask<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, CatalogueError> {
        self.asker.ask(&self.connection, request)
    }

    fn step<T: DeserializeOwned>(&self, step: TakeIn) -> Result<T, CatalogueError> {
        self.ask(&ControlRequest::TakeIn(step))
    }

    /// How clients reach the nodes of its pool, if it knows.
    fn addresses(&self) -> Result<PoolAddresses, CatalogueError> {
        let map: PoolMap = self.ask(&ControlRequest::Map)?;
        if map.is_sound() {
            return Ok(map.addresses);
        }
        Err(PoolError::UnsoundMap { peer: self.connection.peer().to_owned() }.into())
    }

    /// Asks again until the answer is no wait.
    fn await_done<T>(
        &self,
        mut ask: impl FnMut(&Self) -> Result<Result<T, String>, CatalogueError>,
    ) -> Result<T, RepairError> {
        let clock = self.connection.clock();
        let mut waited = Duration::ZERO;
        loop {
            let why = match ask(self)? {
                Ok(done) => return Ok(done),
                Err(why) => why,
            };
            if waited >= ENDED_WITHIN {
                return Err(RepairError::NotEnded { peer: self.connection.peer().to_owned(), waited, why });
            }
            waited += PAUSE;
            clock.sleep(PAUSE);
        }
    }
}

fn of_closed(closed: Closed) -> Result<(u32, u32), String> {
    match closed {
        Closed::Done { newest, next_table } => Ok((newest, next_table)),
        Closed::Wait { why, .. } => Err(why),
    }
}

fn of_fenced(fenced: Fenced) -> Result<(), String> {
    match fenced {
        Fenced::Done => Ok(()),
        Fenced::Wait { why, .. } => Err(why),
    }
}

/// A pool of which nodes are lost.
struct LostPool {
    /// What names it, and its list of nodes.
    name: u64,
    epochs: Vec<u64>,
    term: u32,
    lost: LostNodes,
    /// The lost one whose place is taken next, and the epoch of the new node.
    place: usize,
    epoch: u64,
}

/// True for a node that stands there in a pool of so many nodes.
fn is_in_pool(place: usize, hello: &NodeHello, nodes: usize) -> bool {
    hello.place.as_ref().is_some_and(|own| usize::from(own.index) == place && own.epochs.len() == nodes)
}

enum Looked {
    /// It goes on without no node.
    Whole,
    /// It has changed meanwhile, or its nodes had to be told of something.
    Changed,
    Lost(LostPool),
}

impl<C: Connection> PoolNodes<C> {
    fn connect(dial: &Dial<C>) -> Result<Self, FabricError> {
        let all: Vec<_> = (0..dial.nodes()).map(|place| dial.connect(place).and_then(Peer::new)).collect();
        if let (true, Some(Err(error))) = (all.iter().all(Result::is_err), all.first()) {
            return Err(error.clone());
        }
        Ok(Self { all })
    }

    fn peer(&self, place: usize) -> Result<&Peer<C>, FabricError> {
        self.all[place].as_ref().map_err(Clone::clone)
    }

    /// Finds out without which nodes the pool goes on. Has its nodes agree on that, and on their list.
    fn look(&self) -> Result<Looked, RepairError> {
        let mut hellos: Vec<Option<NodeHello>> = Vec::new();
        for peer in &self.all {
            let hello = peer.as_ref().ok().map(|peer| peer.ask(&ControlRequest::Hello)).transpose()?;
            hellos.push(hello);
        }
        let there: Vec<(usize, &NodeHello)> = (0..hellos.len())
            .filter_map(|place| hellos[place].as_ref().map(|hello| (place, hello)))
            .filter(|(place, hello)| is_in_pool(*place, hello, hellos.len()))
            .collect();
        if there.is_empty() {
            return Err(RepairError::NoPool);
        }
        let missing = (0..hellos.len()).filter(|place| there.iter().all(|(known, _)| known != place));
        let said_by: Vec<_> = there.iter().map(|(place, hello)| (*place, hello.lost)).collect();
        let lost = LostNodes::agreed(LostNodes::of(missing), &said_by, hellos.len());
        let there: Vec<_> = there.into_iter().filter(|(place, _)| !lost.contains(*place)).collect();
        let Some(term) = there.iter().map(|(_, hello)| hello.term).max() else {
            return Err(RepairError::NoPool);
        };
        if self.spread(&there, term)? || self.leave_out(&there, lost, term)? {
            return Ok(Looked::Changed);
        }
        let epochs = there[0].1.place.as_ref().map(|place| place.epochs.clone()).unwrap_or_default();
        self.check_peers(&there, &epochs)?;
        let mut gone = (0..hellos.len()).filter(|place| lost.contains(*place));
        let Some(first) = gone.clone().next() else { return Ok(Looked::Whole) };
        let Some(place) = gone.find(|place| hellos[*place].is_some()) else {
            let source = self.all[first].as_ref().err().cloned();
            return Err(match source {
                Some(source) => RepairError::NotThere { place: first, source },
                None => RepairError::NoPool,
            });
        };
        let epoch = hellos[place].as_ref().map_or(0, |hello| hello.epoch);
        if epochs[place] == epoch {
            return Err(RepairError::FormerNode { place });
        }
        let name = there[0].1.pool.unwrap_or(epochs[0]);
        Ok(Looked::Lost(LostPool { name, epochs, term, lost, place, epoch }))
    }

    /// Refuses nodes that stand elsewhere than in one list.
    fn check_peers(&self, there: &[(usize, &NodeHello)], epochs: &[u64]) -> Result<(), RepairError> {
        for (place, hello) in there {
            let is_in_list = hello.place.as_ref().is_some_and(|own| own.epochs == epochs);
            if !is_in_list || epochs.get(*place) != Some(&hello.epoch) {
                let peer = self.peer(*place)?.connection.peer().to_owned();
                return Err(CatalogueError::from(PoolError::NotOfPool { peer, place: *place }).into());
            }
        }
        Ok(())
    }

    /// Tells nodes with an older list of the newer one. True if there were any.
    fn spread(&self, there: &[(usize, &NodeHello)], term: u32) -> Result<bool, RepairError> {
        let know = |(_, hello): &&(usize, &NodeHello)| hello.term == term;
        let by = LostNodes::of(there.iter().filter(know).map(|(place, _)| *place));
        let Some((first, knows)) = there.iter().find(know) else { return Ok(false) };
        let epochs = knows.place.as_ref().map(|place| place.epochs.clone()).unwrap_or_default();
        let behind: Vec<usize> =
            there.iter().filter(|(_, hello)| hello.term < term).map(|(place, _)| *place).collect();
        if behind.is_empty() {
            return Ok(false);
        }
        let addresses = self.peer(*first)?.addresses()?;
        self.adopt(&behind, &TakeIn::Adopt { epochs, term, lost: knows.lost, by, addresses })?;
        Ok(true)
    }

    fn adopt(&self, places: &[usize], list: &TakeIn) -> Result<(), RepairError> {
        for place in places {
            self.peer(*place)?.await_done(|peer| peer.step(list.clone()).map(of_fenced))?;
        }
        Ok(())
    }

    /// Has all that are there go on without the others. True if one of them did not yet.
    fn leave_out(
        &self,
        there: &[(usize, &NodeHello)],
        lost: LostNodes,
        term: u32,
    ) -> Result<bool, RepairError> {
        if there.iter().all(|(_, hello)| hello.lost == lost) {
            return Ok(false);
        }
        for (place, _) in there {
            self.peer(*place)?.await_done(|peer| {
                let left_out: LeftOut = peer.ask(&ControlRequest::LeaveOut { lost, term })?;
                Ok(match left_out {
                    LeftOut::Done(_) => Ok(()),
                    LeftOut::Wait { why, .. } => Err(why),
                })
            })?;
        }
        Ok(true)
    }
}

/// A repair of one place.
struct Repair<'r, C: Connection> {
    peers: &'r PoolNodes<C>,
    dial: &'r Dial<C>,
    pool: LostPool,
}

impl<C: Connection> Repair<'_, C> {
    /// The places of the nodes that are left, the coordinator first.
    fn others(&self) -> Vec<usize> {
        (0..self.pool.epochs.len()).filter(|place| !self.pool.lost.contains(*place)).collect()
    }

    fn run(&self, progress: &mut dyn FnMut(RepairProgress<'_>)) -> Result<Repaired, RepairError> {
        let LostPool { term, lost, place, epoch, .. } = self.pool;
        let mut epochs = self.pool.epochs.clone();
        epochs[place] = epoch;
        let others = self.others();
        let (coordinator, new) = (self.peers.peer(others[0])?, self.peers.peer(place)?);
        let known = coordinator.addresses()?;
        let known = if known.are_known() { known } else { self.dial.common() };
        let addresses = known.with(place, &self.dial.address(place));
        let first = TakeIn::Begin { epochs: epochs.clone(), addresses: addresses.clone() };
        // An attempt that was cut ends soon.
        let begun: Begun = coordinator.await_done(|peer| match peer.step(first.clone()) {
            Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::TakingIn => {
                Ok(Err(source.to_string()))
            }
            begun => begun.map(Ok),
        })?;
        let attempt = begun.attempt;
        let held = Held::new(coordinator, begun);
        for other in &others[1..] {
            self.peers.peer(*other)?.step::<()>(TakeIn::Know { attempt })?;
        }
        let taken_in = LostNodes(lost.0 & !(1 << place));
        let own = PoolPlace { epochs: epochs.clone(), index: place as u8 };
        let (pool, term) = (self.pool.name, term + 1);
        let (lost, told) = (taken_in, addresses.clone());
        new.step::<()>(TakeIn::Receive { attempt, place: own, pool, term, lost, addresses: told })?;
        let brought = self.bring_ahead(&held, new, progress)?;
        let ended_at = held.clock.now();
        let (newest, next_table) = self.end_others(&held, &others)?;
        let copied = self.copy(&held, new, brought, progress)?;
        held.renew()?;
        let left: Vec<TableId> = copied.left.iter().map(|(id, _)| *id).collect();
        if left.len() > POOL_DROPPED_MAX {
            return Err(RepairError::TooManyLeft { got: left.len(), max: POOL_DROPPED_MAX });
        }
        // The one that has copied is behind the newest that was there.
        new.step::<()>(TakeIn::Whole { attempt, newest: newest.saturating_add(1), next_table, left })?;
        coordinator.await_done(|peer| peer.step(TakeIn::Commit { attempt }).map(of_fenced))?;
        let by = LostNodes::of(std::iter::once(others[0]));
        self.peers.adopt(&others[1..], &TakeIn::Adopt { epochs, term, lost, by, addresses })?;
        let stood_for = held.clock.now().since(ended_at);
        let Copied { tables, ahead_bytes, rest_bytes, left } = copied;
        let left = left.into_iter().map(|(_, name)| name).collect();
        let forgets_left = place == 0;
        Ok(Repaired { place, tables, ahead_bytes, rest_bytes, stood_for, left, forgets_left })
    }

    /// Has all compute nodes end, and lets none in. The greatest number of one, and a greater one than any
    /// table's.
    fn end_others(&self, held: &Held<'_, C>, others: &[usize]) -> Result<(u32, u32), RepairError> {
        let attempt = held.begun.attempt;
        let close = |peer: &Peer<C>| peer.step(TakeIn::Close { attempt }).map(of_closed);
        let (newest, mut next_table) = held.coordinator.await_done(close)?;
        for other in &others[1..] {
            let (_, next) = self.peers.peer(*other)?.await_done(|peer| {
                held.renew()?;
                peer.step(TakeIn::EndFormer { attempt, newest }).map(of_closed)
            })?;
            next_table = next_table.max(next);
        }
        Ok((newest, next_table))
    }

    /// True if the new node is to have its part of a table.
    fn is_kept(&self, info: &TableInfo) -> bool {
        let replicas = info.definition.replicas();
        replicas > 1 && replicas > self.pool.lost.count() && info.engine.name == FlexKv::KIND.name
    }

    /// Makes the tables at the new node that it is to have, and brings it their objects while others write.
    fn bring_ahead(
        &self,
        held: &Held<'_, C>,
        new: &Peer<C>,
        progress: &mut dyn FnMut(RepairProgress<'_>),
    ) -> Result<Brought<C>, RepairError> {
        let nodes = Arc::new(self.connect(held)?);
        // A compute node as others: memory that it has seen rests while it lives.
        nodes.locks()?;
        let (mut tables, mut bytes) = (HashMap::new(), 0);
        for info in nodes.table_infos()?.into_iter().filter(|info| self.is_kept(info)) {
            held.renew()?;
            let (id, attempt) = (info.id, held.begun.attempt);
            let known = nodes.adopt(info)?;
            let made: TableInfo = new.step(TakeIn::Table { attempt, id, layout: known.info.layout() })?;
            let to = copy_for(&known, &made, self.pool.place)?;
            let copy = |session: &FlexSession, queues: &mut [C::Queue], sink: &mut dyn CopySink| {
                session.copy_ahead(queues, to, sink)
            };
            let (objects, sent_bytes) = self.send(held, new, (&nodes, &known), (0, progress), copy)?;
            bytes += sent_bytes;
            tables.insert(id, (to, objects));
        }
        Ok(Brought { tables, bytes, _nodes: nodes })
    }

    /// Brings the new node what it is to have and has not.
    fn copy(
        &self,
        held: &Held<'_, C>,
        new: &Peer<C>,
        brought: Brought<C>,
        progress: &mut dyn FnMut(RepairProgress<'_>),
    ) -> Result<Copied, RepairError> {
        let nodes = Arc::new(self.connect(held)?);
        nodes.register_taker(held.begun.attempt)?;
        let mut tables = brought.tables;
        let mut copied = Copied { ahead_bytes: brought.bytes, ..Copied::default() };
        for info in nodes.table_infos()? {
            let (id, name) = (info.id, info.definition.name.clone());
            // No table is made while a node is left out.
            let Some((to, mut objects)) = tables.remove(&id).filter(|_| self.is_kept(&info)) else {
                copied.left.push((id, name));
                continue;
            };
            held.renew()?;
            let known = nodes.adopt(info)?;
            let copy = |session: &FlexSession, queues: &mut [C::Queue], sink: &mut dyn CopySink| {
                session.copy_for(queues, to, &mut objects, sink)
            };
            let ((), sent_bytes) = self.send(held, new, (&nodes, &known), (1, progress), copy)?;
            copied.rest_bytes += sent_bytes;
            copied.tables.push(name);
        }
        Ok(copied)
    }

    /// Sends what a session of a table copies, in this of two passes over it. Returns how many bytes, too.
    fn send<T>(
        &self,
        held: &Held<'_, C>,
        new: &Peer<C>,
        (nodes, known): (&Arc<Nodes<C>>, &Known<C>),
        (pass, progress): (usize, &mut dyn FnMut(RepairProgress<'_>)),
        copy: impl FnOnce(&FlexSession, &mut [C::Queue], &mut dyn CopySink) -> Result<T, FlexError>,
    ) -> Result<(T, u64), RepairError> {
        let (place, table) = (self.pool.place, known.info.definition.name.as_str());
        let mut told = |done, of| {
            progress(RepairProgress { place, table, done: pass * of + done, of: PASSES * of });
        };
        let (pieces, told) = (Vec::new(), &mut told as &mut dyn FnMut(usize, usize));
        let mut sink = Sink { held, new, table: known.info.id, pieces, bytes: 0, sent_bytes: 0, told };
        let session = copier(nodes, known)?;
        let failed = |source| CatalogueError::Engine { table: table.to_owned(), source };
        let mut queues = nodes.queues(known)?;
        let done = copy(&session, &mut queues, &mut sink);
        let done = done.map_err(|error| failed(EngineError::Engine(Arc::new(error))))?;
        sink.end().map_err(|error| match error.downcast::<CatalogueError>() {
            Ok(error) => *error,
            Err(error) => failed(EngineError::Engine(Arc::from(error))),
        })?;
        Ok((done, sink.sent_bytes))
    }

    /// Connections of their own to the nodes that are left.
    fn connect(&self, held: &Held<'_, C>) -> Result<Nodes<C>, RepairError> {
        let connect = |place: usize| Ok((place, self.dial.connect(place)?));
        let connections = self.others().into_iter().map(connect).collect::<Result<_, FabricError>>()?;
        let nodes = Nodes::over(connections, self.pool.epochs.len(), Lookup::of::<Engines>())?;
        held.renew()?;
        Ok(nodes)
    }
}

/// What a new node was brought while others wrote.
struct Brought<C: Connection> {
    tables: HashMap<TableId, (CopyFor, BroughtAhead)>,
    bytes: u64,
    /// The compute node that has read it. It lives until nobody writes any more.
    _nodes: Arc<Nodes<C>>,
}

/// What a new node was brought.
#[derive(Default)]
struct Copied {
    tables: Vec<String>,
    ahead_bytes: u64,
    rest_bytes: u64,
    left: Vec<(TableId, String)>,
}

/// How the new node's regions are filled; refused if they are others than those of the nodes that are left.
fn copy_for<C: Connection>(known: &Known<C>, made: &TableInfo, place: usize) -> Result<CopyFor, RepairError> {
    let lines = |info: &TableInfo| {
        [Space::Index, Space::Blocks].map(|space| info.region_of(space).map_or(0, |region| region.capacity))
    };
    let (expected, got) = (lines(&known.infos[0]), lines(made));
    if expected != got {
        let table = made.definition.name.clone();
        let [expected, got] = [expected, got].map(|lines| format!("{lines:?}"));
        return Err(RepairError::Unequal { table, expected, got });
    }
    let [index_lines, object_lines] = got;
    Ok(CopyFor { place, replicas: made.definition.replicas(), index_lines, object_lines })
}

/// An attempt that the coordinator hears of in time.
struct Held<'h, C: Connection> {
    coordinator: &'h Peer<C>,
    begun: Begun,
    clock: Arc<dyn Clock>,
    heard_at: std::cell::Cell<MonotonicNs>,
}

impl<'h, C: Connection> Held<'h, C> {
    fn new(coordinator: &'h Peer<C>, begun: Begun) -> Self {
        let clock = coordinator.connection.clock();
        let heard_at = std::cell::Cell::new(clock.now());
        Self { coordinator, begun, clock, heard_at }
    }

    /// Has the coordinator hear of it, if a part of the time has passed for which it is trusted.
    fn renew(&self) -> Result<(), CatalogueError> {
        let now = self.clock.now();
        let every = Duration::from_micros(self.begun.trusted_us.into()) / HEARD_TIMES;
        if now.since(self.heard_at.get()) >= every {
            let attempt = self.begun.attempt;
            self.coordinator.step::<()>(TakeIn::Hear { attempt })?;
            self.heard_at.set(now);
        }
        Ok(())
    }
}

/// Sends what is copied to the new node.
struct Sink<'s, C: Connection> {
    held: &'s Held<'s, C>,
    new: &'s Peer<C>,
    table: TableId,
    pieces: Vec<TakenPiece>,
    /// Of these, and of those that are sent.
    bytes: usize,
    sent_bytes: u64,
    told: &'s mut dyn FnMut(usize, usize),
}

impl<C: Connection> Sink<'_, C> {
    /// Sends the last ones.
    fn end(&mut self) -> CallResult<()> {
        #[cfg(injected)]
        if injected::TAKEN_IN_UNWHOLE.is_injected() {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> CallResult<()> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        self.held.renew().map_err(boxed)?;
        let (attempt, table) = (self.held.begun.attempt, self.table);
        let pieces = std::mem::take(&mut self.pieces);
        self.sent_bytes += std::mem::take(&mut self.bytes) as u64;
        self.new.step(TakeIn::Pieces { attempt, table, pieces }).map_err(boxed)
    }
}

fn boxed(error: CatalogueError) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        CatalogueError::Fabric(error) => Box::new(error),
        error => Box::new(error),
    }
}

impl<C: Connection> CopySink for Sink<'_, C> {
    fn take(&mut self, space: Space, first_line: u32, lines: &[Line]) -> CallResult<()> {
        let (mut first_line, mut rest) = (first_line, lines);
        while !rest.is_empty() {
            let room = (TAKEN_BYTES_MAX - self.bytes) / size_of::<Line>();
            if room == 0 || self.pieces.len() == farsight_protocol::TAKEN_PIECES_MAX {
                self.flush()?;
                continue;
            }
            let (now, later) = rest.split_at(room.min(rest.len()));
            // A new node's index is zero. Of its objects some were brought before.
            if space == Space::Blocks || now.iter().any(|line| *line != Line::ZERO) {
                self.bytes += size_of_val(now);
                self.pieces.push(TakenPiece { space, first_line, bytes: bytes_of(now).to_vec() });
            }
            first_line += now.len() as u32;
            rest = later;
        }
        Ok(())
    }

    fn copied(&mut self, done: usize, of: usize) -> CallResult<()> {
        (self.told)(done, of);
        self.held.renew().map_err(boxed)
    }
}
