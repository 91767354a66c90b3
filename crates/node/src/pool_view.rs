//! Without which nodes a pool goes on, as one of the others sees it.
//!
//! Invariants:
//! - nodes that are left out stay so, and more than half of the pool's nodes are not. All nodes outside of a
//!   set agree to leave it out. So of any two sets some node knows both, and the later one has the earlier;
//! - a node lets a compute node in that leaves the same nodes out as itself;
//! - a compute node believes what it reads for as long as every node that it does not leave out has said. A
//!   node leaves others out once all that it has said is over, and no verb of a compute node that it let in
//!   executes here any more. A compute node that reads at a node which is left out learns so by the clock.
//!
//! Protocol, of who cannot reach a node:
//! 1. Ask each of the others to leave it out. They refuse while another compute node says that it can reach
//!    all of them.
//! 2. The node says nothing more to compute nodes, and waits until what it has said is over.
//! 3. The node ends all compute nodes' connections, as a [fence](crate::fence) does.
//! 4. From now on it leaves the others out. It gives out memory for a shard whose head it is now. Until then
//!    another request takes the place of this one: also one to leave out no more than before.
//! 5. All of them do so: work with what is left. Several may do this at once.
//!
//! A new node takes the place of a lost one: [`crate::taking_in`].

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{
    ErrorCode, Fenced, LeftOut, LostNodes, NodeHello, PoolAddresses, PoolMap, PoolPlace, ServerError,
};

use crate::NodeState;
#[cfg(injected)]
use crate::injected;
use crate::taking_in::TakingIn;

/// An attempt to take a node in goes on so many times as long as reads are believed, from when it was heard
/// of.
const TRUSTED_FOR: u32 = 5;
/// And at least for so long.
const TRUSTED_MIN: Duration = Duration::from_millis(100);

/// What a node knows of its pool.
#[derive(Debug)]
pub(crate) struct PoolView {
    /// How long a compute node may believe what it reads.
    believed: Duration,
    /// Left out.
    pub(crate) lost: LostNodes,
    /// To be left out; those above if nobody is.
    closing: LostNodes,
    /// When all is over that this node has said.
    believed_until: Option<MonotonicNs>,
    /// When a compute node last said that it reaches all nodes.
    whole_at: Option<MonotonicNs>,
    /// How a new node takes the place of a lost one.
    pub(crate) taking_in: TakingIn,
    /// How clients reach the pool's nodes, of the list that this one has. Whoever is first to tell them is
    /// believed; then they change with the list alone.
    pub(crate) addresses: PoolAddresses,
}

impl PoolView {
    /// The view of a node whose pool has all of its nodes. Compute nodes believe what they read for so long.
    /// Its starter may have told it how clients reach them.
    pub(crate) fn new(believed: Duration, addresses: PoolAddresses) -> Self {
        let (lost, closing) = (LostNodes::default(), LostNodes::default());
        let taking_in = TakingIn::new((believed * TRUSTED_FOR).max(TRUSTED_MIN));
        Self { believed, lost, closing, believed_until: None, whole_at: None, taking_in, addresses }
    }

    /// How long that is by this node's clock: theirs may be slow. So long after a compute node has reached
    /// all nodes, none of them counts as lost.
    pub(crate) fn believed_here(&self) -> Duration {
        self.believed * 5 / 4
    }

    /// Refuses who leaves other nodes out.
    pub(crate) fn check(&self, lost: LostNodes) -> Result<(), ServerError> {
        if lost == self.lost && lost == self.closing {
            return Ok(());
        }
        #[cfg(injected)]
        if injected::OLD_LIST_LET_IN.is_injected() && self.taking_in.term() > 0 {
            return Ok(());
        }
        let text =
            format!("the pool goes on without nodes {:#b}, not {:#b}: connect anew", self.closing.0, lost.0);
        Err(ServerError::new(ErrorCode::Fenced, text))
    }

    /// For how many microseconds a compute node may believe what it reads that leaves these nodes out.
    fn renew(&mut self, lost: LostNodes, is_whole: bool, now: MonotonicNs) -> u32 {
        if self.check(lost).is_err() {
            return 0;
        }
        self.believed_until = self.believed_until.max(Some(now.plus(self.believed_here())));
        if is_whole {
            self.whole_at = Some(now);
        }
        u32::try_from(self.believed.as_micros()).unwrap_or(u32::MAX)
    }

    /// Has a new node in the place of a lost one: the pool goes on without these alone.
    pub(crate) fn take_in(&mut self, lost: LostNodes, term: u32, addresses: PoolAddresses) {
        (self.lost, self.closing, self.whole_at) = (lost, lost, None);
        self.taking_in.end(term);
        if addresses.are_known() {
            self.addresses = addresses;
        }
    }

    /// Steps 1 and 2: why these nodes are not left out yet, if they are not to be.
    fn begin(&mut self, wanted: LostNodes, now: MonotonicNs) -> Option<Fenced> {
        let reached = self.whole_at.map_or(Duration::MAX, |at| now.since(at));
        if self.closing != wanted && reached < self.believed_here() {
            let pause = self.believed_here().saturating_sub(reached);
            return Some(Fenced::wait(pause, "a compute node has reached all nodes lately"));
        }
        self.closing = wanted;
        let left = self.believed_until.map_or(Duration::ZERO, |until| until.since(now));
        (!left.is_zero()).then(|| Fenced::wait(left, "compute nodes may still read there"))
    }
}

impl NodeState {
    /// What this node knows of its pool. Who locks that and the compute nodes locks this first.
    pub(crate) fn pool_view(&self) -> MutexGuard<'_, PoolView> {
        // Each change is complete, or a bug that ends all answers.
        self.pool_view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if this node gives compute nodes their numbers.
    pub(crate) fn is_coordinator(&self) -> bool {
        let coordinator = |place: &PoolPlace| self.pool_view().lost.coordinator(place.epochs.len());
        self.tables.place().is_none_or(|place| coordinator(&place) == Some(place.index.into()))
    }

    /// What this node says of itself.
    pub(crate) fn hello(&self) -> NodeHello {
        let view = self.pool_view();
        let PoolMap { epoch, pool, place, term, addresses } = self.map_in(&view);
        NodeHello { epoch, place, lost: view.lost, term, pool, knows_addresses: addresses.are_known() }
    }

    /// What this node knows of the map of its pool.
    pub(crate) fn map(&self) -> PoolMap {
        self.map_in(&self.pool_view())
    }

    /// A new node that has not all yet tells nobody of its place.
    fn map_in(&self, view: &PoolView) -> PoolMap {
        let place = self.tables.place().filter(|_| view.taking_in.check_whole().is_ok());
        let pool = place.as_ref().and(self.tables.pool()).map(|pool| pool.0);
        let is_of_pool = place.as_ref().is_none_or(|place| view.addresses.0.len() == place.epochs.len());
        let addresses = if is_of_pool { view.addresses.clone() } else { PoolAddresses::default() };
        let (epoch, term) = (self.tables.epoch().0, view.taking_in.term());
        PoolMap { epoch, pool, place: place.as_deref().cloned(), term, addresses }
    }

    /// Hears how clients reach the nodes of its pool, if it does not know. What its starter told it may be of
    /// another pool than it belongs to by now.
    pub(crate) fn hear_addresses(&self, term: u32, addresses: PoolAddresses) {
        let mut view = self.pool_view();
        let nodes = self.tables.place().map_or(0, |place| place.epochs.len());
        let is_of_list = addresses.0.len() == nodes && view.taking_in.check_term(term).is_ok();
        if is_of_list && view.addresses.0.len() != nodes {
            view.addresses = addresses;
        }
    }

    /// As [`PoolView::renew`].
    pub(crate) fn renew(&self, lost: LostNodes, is_whole: bool, now: MonotonicNs) -> u32 {
        self.pool_view().renew(lost, is_whole, now)
    }

    /// Leaves nodes out, or says when to ask again.
    pub(crate) fn leave_out(
        &self,
        lost: LostNodes,
        term: u32,
        now: MonotonicNs,
    ) -> Result<LeftOut, ServerError> {
        let refuse = |code, text| Err(ServerError::new(code, text));
        let Some(place) = self.tables.place() else {
            let text = "this node belongs to no pool yet: a table is made first".to_owned();
            return refuse(ErrorCode::OtherPool, text);
        };
        let nodes = place.epochs.len();
        let mut view = self.pool_view();
        view.taking_in.check_term(term)?;
        // What others have begun and not ended here yet is let go of.
        let wanted = lost.and(view.lost);
        if wanted.contains(place.index.into()) || wanted.0.checked_shr(nodes as u32).unwrap_or(0) != 0 {
            let text = format!("node {} of {nodes} cannot leave out {:#b}", place.index, wanted.0);
            return refuse(ErrorCode::BadRequest, text);
        }
        if wanted == view.lost {
            view.closing = wanted;
            return Ok(LeftOut::Done(wanted));
        }
        if !wanted.leave_a_majority(nodes) {
            let text = format!(
                "{} of {nodes} nodes would be left out, and more than half have to stay",
                wanted.count()
            );
            return refuse(ErrorCode::BadRequest, text);
        }
        if !self.tables.all().iter().any(|table| table.info().definition.replicas() > 1) {
            return refuse(
                ErrorCode::BadRequest,
                "no table has replicas: all of its nodes are needed".to_owned(),
            );
        }
        let mut wait = view.begin(wanted, now);
        if wait.is_none() {
            drop(view);
            wait = self.dismiss_all();
            view = self.pool_view();
        }
        if let Some(Fenced::Wait { pause_ms, why }) = wait {
            return Ok(LeftOut::Wait { lost: wanted, pause_ms, why });
        }
        if view.closing != wanted {
            let why = "others are to be left out, too".to_owned();
            return Ok(LeftOut::Wait { lost: wanted, pause_ms: 1, why });
        }
        for table in self.tables.all() {
            table.hosted().leave_out(wanted);
        }
        view.lost = wanted;
        view.taking_in.give_up();
        if wanted.coordinator(nodes) == Some(place.index.into()) {
            self.tables.succeed_coordinator();
        }
        Ok(LeftOut::Done(wanted))
    }
}
