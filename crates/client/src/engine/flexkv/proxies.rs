//! Compute nodes that write for this one: who they are, and the way to them.
//!
//! Invariant: what is known of them is a hint of half a second ago. A call goes to the process that the
//! coordinator named, by the epoch of its listener, or to nobody: another one at its address is told nothing.
//!
//! Protocol: the sessions of a process share what the coordinator said. A batch that finds it [`AGE_MAX`] old
//! asks again, and says what was written since. A compute node that was not reached, or did not answer, is
//! left out for [`LEFT_OUT`].
//!
//! Time: the replies of a compute node tell its clock. A call that is sent some time later says the sum of
//! both, and [`DECIDED_WITHIN`] more. That is no later than so long after it was sent, whatever the clocks
//! say; they only have to run at about one rate. Who misses the reply waits until then. A process has one
//! clock for all of that, which is its fabric's.

use std::cell::RefCell;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farsight_base::Epoch;
use farsight_base::clock::{Clock, MonotonicNs};
use farsight_base::sync::{AtomicU32, AtomicU64, Ordering};
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::{ReadsByOthers, leaves_calls_unknown};
use farsight_index_flexkv::{ProxyCall, ProxyCalls, ProxyFailure};
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_protocol::{
    ControlRequest, PROXIES_MAX, Proxy, ProxyPace, Reply, Request, TableId, WriteLoad, WriteOperation,
};

use crate::call::{call, receive, send};
use crate::nodes::Nodes;

/// The age at which what the coordinator said counts no more.
const AGE_MAX: Duration = Duration::from_millis(500);
/// For how long a compute node that failed is asked nothing.
const LEFT_OUT: Duration = Duration::from_secs(5);
/// How long connecting to one may take.
const CONNECT_MAX: Duration = Duration::from_millis(500);

/// For how long a call may be under way before it is known what it replaces.
const DECIDED_WITHIN: Duration = Duration::from_secs(1);
/// What the caller adds to that for clocks of other rates: far more than theirs differ by.
const RATES: Duration = Duration::from_millis(250);
/// The age at which what a compute node said of its clock counts no more.
const TIME_AGE_MAX: Duration = Duration::from_secs(60);

/// A process that writes for others: its address, and the epoch of its listener.
type Place = (String, u64);

/// Who writes for whom, at one time.
struct Routes {
    /// By partition the place in `places`.
    by_partition: Box<[Option<u8>]>,
    places: Vec<Place>,
}

/// What the sessions of a process know.
pub(super) struct KnownProxies<C> {
    clock: OnceLock<Arc<dyn Clock>>,
    /// How many times sooner than usual the coordinator is asked: a [`ProxyPace`].
    pace: AtomicU32,
    /// What they do for GETs, by its place in [`ReadsByOthers::ALL`].
    reads: AtomicU32,
    written: Written,
    state: Mutex<State>,
    /// Held while a connection is made: others that want one of them wait, for [`CONNECT_MAX`] at most.
    connections: Mutex<BTreeMap<Place, Arc<C>>>,
}

/// What its sessions have written since the coordinator was told.
struct Written {
    writes: AtomicU64,
    spent_ns: AtomicU64,
    /// By partition, what they executed themselves.
    own: Box<[AtomicU32]>,
}

struct State {
    asked: Option<MonotonicNs>,
    routes: Arc<Routes>,
    left_out: BTreeMap<Place, MonotonicNs>,
}

impl<C> Default for KnownProxies<C> {
    fn default() -> Self {
        let state = State { asked: None, routes: Arc::default(), left_out: BTreeMap::new() };
        let (clock, written) = (OnceLock::new(), Written::default());
        let pace = AtomicU32::new(ProxyPace::default().times());
        let reads = AtomicU32::new(0);
        Self { clock, pace, reads, written, state: Mutex::new(state), connections: Mutex::default() }
    }
}

impl Default for Written {
    fn default() -> Self {
        let own = (0..HASH_PARTITIONS).map(|_| AtomicU32::new(0)).collect();
        Self { writes: AtomicU64::new(0), spent_ns: AtomicU64::new(0), own }
    }
}

impl Written {
    /// All of it, to be told.
    fn take(&self) -> WriteLoad {
        // Relaxed, here and wherever these are counted: statistics.
        let own = self.own.iter().map(|writes| writes.swap(0, Ordering::Relaxed));
        WriteLoad {
            own: (0..).zip(own).filter(|(_, writes)| *writes > 0).collect(),
            writes: self.writes.swap(0, Ordering::Relaxed),
            spent_ns: self.spent_ns.swap(0, Ordering::Relaxed),
        }
    }
}

impl Default for Routes {
    fn default() -> Self {
        Self { by_partition: vec![None; HASH_PARTITIONS].into(), places: Vec::new() }
    }
}

impl Routes {
    /// By what the coordinator said, without those that `is_out`.
    fn of(proxies: Vec<Proxy>, is_out: impl Fn(&Place) -> bool) -> Self {
        let mut routes = Self::default();
        for Proxy { address, epoch, runs, .. } in proxies.into_iter().take(PROXIES_MAX) {
            let place = (address, epoch);
            if is_out(&place) {
                continue;
            }
            // One that has connected anew may be there twice. It has one call of a session under way at a
            // time.
            let known = routes.places.iter().position(|other| *other == place);
            let number = known.unwrap_or(routes.places.len()) as u8;
            for (first, count) in runs {
                let run = usize::from(first)..usize::from(first) + usize::from(count);
                // The coordinator is believed, but not about how many there are.
                if let Some(partitions) = routes.by_partition.get_mut(run) {
                    partitions.fill(Some(number));
                }
            }
            if known.is_none() {
                routes.places.push(place);
            }
        }
        routes
    }

    /// The same without the partitions of one of them. The numbers of the others stay.
    fn without(&self, place: &Place) -> Self {
        let number = self.places.iter().position(|other| other == place);
        let left = |of: &Option<u8>| of.filter(|of| Some(usize::from(*of)) != number);
        Self { by_partition: self.by_partition.iter().map(left).collect(), places: self.places.clone() }
    }
}

impl<C> KnownProxies<C> {
    /// Asks the coordinator at another pace from now on.
    pub(super) fn set_pace(&self, pace: ProxyPace) {
        // Relaxed, here and below: it orders nothing.
        self.pace.store(pace.times(), Ordering::Relaxed);
    }

    /// Has them do this for GETs from now on.
    pub(super) fn set_reads(&self, reads: ReadsByOthers) {
        // Relaxed: as the pace.
        self.reads.store(reads as u32, Ordering::Relaxed);
    }

    /// What was said last, and whether the caller is to ask anew.
    fn current(&self, now: MonotonicNs) -> (Arc<Routes>, bool) {
        let mut state = self.state();
        let age_max = AGE_MAX / self.pace.load(Ordering::Relaxed);
        let is_old = state.asked.is_none_or(|asked| now.since(asked) >= age_max);
        if is_old {
            // The others go on with what they know.
            state.asked = Some(now);
        }
        (Arc::clone(&state.routes), is_old)
    }

    /// Notes what the coordinator said.
    fn note(&self, proxies: Vec<Proxy>, now: MonotonicNs) -> Arc<Routes> {
        let routes = {
            let mut state = self.state();
            state.left_out.retain(|_, until| *until > now);
            state.routes = Arc::new(Routes::of(proxies, |place| state.left_out.contains_key(place)));
            Arc::clone(&state.routes)
        };
        self.connections().retain(|place, _| routes.places.contains(place));
        routes
    }

    /// Leaves one out for a while.
    fn leave_out(&self, place: &Place, now: MonotonicNs) {
        let mut state = self.state();
        state.left_out.insert(place.clone(), now.plus(LEFT_OUT));
        state.routes = Arc::new(state.routes.without(place));
        drop(state);
        self.connections().remove(place);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<Place, Arc<C>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's way to them.
pub(super) struct SessionProxies<C: Connection> {
    known: Arc<KnownProxies<C>>,
    clock: Arc<dyn Clock>,
    nodes: Arc<Nodes<C>>,
    table: TableId,
    routes: RefCell<Arc<Routes>>,
    /// A way to each that was asked.
    links: RefCell<BTreeMap<Place, Link<C>>>,
}

/// A session's way to one of them.
struct Link<C: Connection> {
    /// Ends before its connection.
    queue: C::Queue,
    _connection: Arc<C>,
    /// What it last said of its clock, and when that was heard.
    told: Option<(u64, MonotonicNs)>,
    /// When the last request was sent.
    sent: MonotonicNs,
}

impl<C: Connection> SessionProxies<C> {
    pub(super) fn new(known: Arc<KnownProxies<C>>, nodes: Arc<Nodes<C>>, table: TableId) -> Self {
        let clock = Arc::clone(known.clock.get_or_init(|| nodes.connection(0).clock()));
        Self { known, clock, nodes, table, routes: RefCell::default(), links: RefCell::default() }
    }

    /// A new way to the process at `place`.
    fn connect(&self, place: &Place) -> Result<Link<C>, FabricError> {
        let mut connections = self.known.connections();
        let connection = if let Some(connection) = connections.get(place) {
            Arc::clone(connection)
        } else {
            let gone =
                |reason: &str| FabricError::Disconnected { peer: place.0.clone(), reason: reason.to_owned() };
            let reached = self.nodes.connection(0).connect_beside(&place.0, CONNECT_MAX)?;
            let connection = reached.ok_or_else(|| gone("the pool's fabric does not reach it"))?;
            if connection.epoch() != Epoch(place.1) {
                return Err(gone("another process is there by now"));
            }
            let connection = Arc::new(connection);
            connections.insert(place.clone(), Arc::clone(&connection));
            connection
        };
        drop(connections);
        let (queue, sent) = (connection.open_queue()?, self.clock.now());
        Ok(Link { queue, _connection: connection, told: None, sent })
    }

    /// The way to the process at `place`, which is made if there is none.
    fn link<'l>(
        &self,
        links: &'l mut BTreeMap<Place, Link<C>>,
        place: Place,
    ) -> Result<&'l mut Link<C>, ProxyFailure> {
        Ok(match links.entry(place) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let link = self.connect(new.key()).map_err(|_| ProxyFailure::Unsent)?;
                new.insert(link)
            }
        })
    }

    /// Sends a request over a link, and waits for the reply, which tells the time.
    fn ask(&self, link: &mut Link<C>, request: &[u8], reply: &mut Vec<u8>) -> Result<(), FabricError> {
        call(&mut link.queue, request, reply)?;
        self.note_time(link, reply);
        Ok(())
    }

    fn note_time(&self, link: &mut Link<C>, reply: &[u8]) {
        if let Ok(Ok(answer)) = Reply::decode(reply) {
            link.told = Some((answer.argument, self.clock.now()));
        }
    }

    /// What the failure of a call means that was sent then. If a write may be executed, that is over by now.
    fn failed(&self, sent: MonotonicNs, error: FabricError, call: ProxyCall) -> ProxyFailure {
        if !leaves_calls_unknown(&error) {
            return ProxyFailure::Unsent;
        }
        if call == ProxyCall::Writes {
            let passed = self.clock.now().since(sent);
            self.clock.sleep((DECIDED_WITHIN + RATES).saturating_sub(passed));
        }
        ProxyFailure::Unknown(error)
    }
}

impl<C: Connection> ProxyCalls for SessionProxies<C> {
    fn table(&self) -> (Epoch, TableId) {
        (self.nodes.connection(0).epoch(), self.table)
    }

    fn message_bytes_max(&self) -> usize {
        C::Queue::MESSAGE_BYTES_MAX
    }

    fn refresh(&self) -> Option<MonotonicNs> {
        let mut now = self.clock.now();
        let (mut routes, is_old) = self.known.current(now);
        if is_old {
            // No lock is held while the answer is awaited. A coordinator that does not answer changes nothing
            // for those who write: they find out by their own verbs.
            let request = ControlRequest::Proxies { table: self.table, load: self.known.written.take() };
            if let Ok(proxies) = self.nodes.ask(0, &request) {
                now = self.clock.now();
                routes = self.known.note(proxies, now);
            }
        }
        if !Arc::ptr_eq(&routes, &self.routes.borrow()) {
            self.links.borrow_mut().retain(|place, _| routes.places.contains(place));
            *self.routes.borrow_mut() = routes;
        }
        (!self.routes.borrow().places.is_empty()).then_some(now)
    }

    fn note_batch(&self, begun: MonotonicNs, writes: usize) {
        let Written { writes: counted, spent_ns, .. } = &self.known.written;
        counted.fetch_add(writes as u64, Ordering::Relaxed);
        spent_ns.fetch_add(self.clock.now().since(begun).as_nanos() as u64, Ordering::Relaxed);
    }

    fn proxy_of(&self, partition: usize) -> Option<usize> {
        let proxy = self.routes.borrow().by_partition[partition].map(usize::from);
        if proxy.is_none() {
            self.known.written.own[partition].fetch_add(1, Ordering::Relaxed);
        }
        proxy
    }

    fn reads(&self) -> ReadsByOthers {
        // Relaxed: as the pace.
        ReadsByOthers::ALL[self.known.reads.load(Ordering::Relaxed) as usize]
    }

    fn helper_of(&self, partition: usize) -> Option<usize> {
        self.routes.borrow().by_partition[partition].map(usize::from)
    }

    fn until(&self, proxy: usize) -> Result<u64, ProxyFailure> {
        let place = self.routes.borrow().places[proxy].clone();
        let mut links = self.links.borrow_mut();
        let link = self.link(&mut links, place)?;
        let is_old = link.told.is_none_or(|(_, heard)| self.clock.now().since(heard) > TIME_AGE_MAX);
        if is_old {
            let (mut frame, mut reply) = (Vec::new(), Vec::new());
            Request::begin_delegate(&mut frame, self.table(), 0, WriteOperation::Put, 0);
            // It asks for nothing, so nothing is in doubt.
            self.ask(link, &frame, &mut reply).map_err(|_| ProxyFailure::Unsent)?;
        }
        let (time, heard) = link.told.ok_or(ProxyFailure::Unsent)?;
        let later = self.clock.now().since(heard) + DECIDED_WITHIN;
        Ok(time.saturating_add(later.as_nanos() as u64))
    }

    fn send(&self, proxy: usize, request: &[u8], call: ProxyCall) -> Result<(), ProxyFailure> {
        let place = self.routes.borrow().places[proxy].clone();
        let mut links = self.links.borrow_mut();
        let link = self.link(&mut links, place)?;
        link.sent = self.clock.now();
        let sent = send(&mut link.queue, request);
        sent.map_err(|error| self.failed(link.sent, error, call))
    }

    fn receive(&self, proxy: usize, reply: &mut Vec<u8>, call: ProxyCall) -> Result<(), ProxyFailure> {
        let place = self.routes.borrow().places[proxy].clone();
        let Some(mut link) = self.links.borrow_mut().remove(&place) else {
            // A call was sent over it, no later than now.
            let reason = "the way to it is gone".to_owned();
            let gone = FabricError::Disconnected { peer: place.0, reason };
            return Err(self.failed(self.clock.now(), gone, call));
        };
        receive(&mut link.queue, reply).map_err(|error| self.failed(link.sent, error, call))?;
        self.note_time(&mut link, reply);
        self.links.borrow_mut().insert(place, link);
        Ok(())
    }

    fn leave_out(&self, proxy: usize) {
        let routes = Arc::clone(&self.routes.borrow());
        let place = &routes.places[proxy];
        self.links.borrow_mut().remove(place);
        self.known.leave_out(place, self.clock.now());
        // What is left of this batch does not ask it, either.
        *self.routes.borrow_mut() = Arc::new(routes.without(place));
    }

    fn name(&self, proxy: usize) -> String {
        self.routes.borrow().places[proxy].0.clone()
    }
}

#[cfg(test)]
mod tests {
    use farsight_protocol::{ComputeNode, ServedWork};

    use super::*;

    fn proxy(number: u32, address: &str, runs: &[(u16, u16)]) -> Proxy {
        let (compute_node, address) = (ComputeNode(number), address.to_owned());
        let work = ServedWork::default();
        Proxy { compute_node, address, epoch: 7, work, has: 0, runs: runs.to_vec() }
    }

    #[test]
    fn a_process_is_one_place_however_often_the_coordinator_names_it() {
        let proxies = vec![
            proxy(1, "sim://a", &[(0, 4)]),
            proxy(2, "sim://b", &[(4, 4)]),
            proxy(9, "sim://a", &[(8, 2), (1_020, 9)]),
        ];
        let routes = Routes::of(proxies, |_| false);
        assert_eq!(routes.places, [("sim://a".to_owned(), 7), ("sim://b".to_owned(), 7)]);
        let of = |partition: usize| routes.by_partition[partition];
        assert_eq!([0, 3, 4, 7, 8, 9, 10].map(of), [0, 0, 1, 1, 0, 0, 99].map(|of| (of < 99).then_some(of)));
        assert_eq!(of(1_020), None, "a run beyond the last partition is none");
        let left = routes.without(&("sim://a".to_owned(), 7));
        assert_eq!([0, 4, 8].map(|partition| left.by_partition[partition]), [None, Some(1), None]);
        assert_eq!(left.places, routes.places, "numbers stay");
    }
}
