//! How a pool takes a new node in, in place of a lost one.
//!
//! Invariants:
//! - the coordinator alone decides that the new node is one of the pool, at one instant
//!   ([`NodeState::commit`]).
//!   The others go on with the list of nodes that it has, on the word of who has asked it;
//! - from [`NodeState::close_for`] to that instant the coordinator lets no compute node in but the one that
//!   takes the node in. A compute node works at all nodes of its pool or at none. So from when all former
//!   ones have ended everywhere nobody changes what is copied;
//! - of attempts to bring a node what it is to have, the one with the greatest number counts. A coordinator
//!   gives out a number above all that it knows, and every node knows it before the new one does.
//!
//! Lists of nodes are numbered: the *term* counts the nodes that were taken in. A request to leave nodes out
//! says to which list it belongs.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, Epoch};
use farsight_protocol::{
    Begun, Closed, ComputeNode, ErrorCode, Fenced, LostNodes, PoolAddresses, PoolPlace, ServerError, TableId,
    TableLayout, TakenPiece,
};

use crate::NodeState;
#[cfg(injected)]
use crate::injected;
use crate::pool_view::PoolView;
use crate::table::Table;

/// What a node knows of it.
#[derive(Debug)]
pub(crate) struct TakingIn {
    /// How long an attempt goes on of which the coordinator hears nothing.
    trusted: Duration,
    /// Nodes that the pool has taken in.
    term: u32,
    /// The greatest number of an attempt.
    greatest: u64,
    /// At the coordinator: the attempt that is under way.
    attempt: Option<Attempt>,
    /// At a new node: what it is brought.
    receiving: Option<Receiving>,
}

#[derive(Debug)]
struct Attempt {
    number: u64,
    /// This node's place in the list that it is about.
    place: PoolPlace,
    /// How clients reach the nodes of that list.
    addresses: PoolAddresses,
    /// The place that the new node takes there.
    taken: usize,
    heard_at: MonotonicNs,
    /// No compute node is let in, and those up to this number have to end.
    closed: Option<u32>,
}

#[derive(Debug)]
struct Receiving {
    attempt: u64,
    is_whole: bool,
}

fn refuse<T>(code: ErrorCode, text: String) -> Result<T, ServerError> {
    Err(ServerError::new(code, text))
}

fn left(got: u64, newest: u64) -> ServerError {
    let text = format!(
        "attempt {got} to take a node in was ended: attempt {newest} came behind it, or it was not heard \
         of for too long, or a node was lost. Begin anew"
    );
    ServerError::new(ErrorCode::Forgotten, text)
}

impl TakingIn {
    pub(crate) fn new(trusted: Duration) -> Self {
        Self { trusted, term: 0, greatest: 0, attempt: None, receiving: None }
    }

    /// How many nodes the pool has taken in.
    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    /// Refuses who goes by another list of nodes.
    pub(crate) fn check_term(&self, term: u32) -> Result<(), ServerError> {
        if term == self.term {
            return Ok(());
        }
        let text = format!("the pool has taken in {} nodes, not {term}: connect anew", self.term);
        refuse(ErrorCode::Fenced, text)
    }

    /// Refuses compute nodes while a node is taken in, and while this node is brought what it is to have.
    pub(crate) fn check_open(&mut self, now: MonotonicNs) -> Result<(), ServerError> {
        self.check_whole()?;
        let Some(attempt) = self.living(now).filter(|attempt| attempt.closed.is_some()) else {
            return Ok(());
        };
        let text = format!(
            "a new node is taking the place of node {} of {}, which was lost",
            attempt.taken + 1,
            attempt.place.epochs.len()
        );
        refuse(ErrorCode::TakingIn, text)
    }

    /// Refuses compute nodes at a node that has not all that it is to have.
    pub(crate) fn check_whole(&self) -> Result<(), ServerError> {
        if self.receiving.as_ref().is_none_or(|receiving| receiving.is_whole) {
            return Ok(());
        }
        refuse(ErrorCode::Fenced, "this node has not all yet that a lost node had".to_owned())
    }

    /// Gives up an attempt that is under way.
    pub(crate) fn give_up(&mut self) {
        self.attempt = None;
    }

    /// Takes note that a node was taken in.
    pub(crate) fn end(&mut self, term: u32) {
        self.term = term;
        self.attempt = None;
    }

    /// The attempt that is under way.
    fn living(&mut self, now: MonotonicNs) -> Option<&mut Attempt> {
        let trusted = self.trusted;
        self.attempt.take_if(|attempt| now.since(attempt.heard_at) > trusted);
        self.attempt.as_mut()
    }

    /// The attempt of that number, of which this node hears now.
    fn heard(&mut self, number: u64, now: MonotonicNs) -> Result<&mut Attempt, ServerError> {
        let greatest = self.greatest;
        let attempt = self.living(now).filter(|attempt| attempt.number == number);
        let attempt = attempt.ok_or_else(|| left(number, greatest))?;
        attempt.heard_at = now;
        Ok(attempt)
    }

    /// The same, once no compute node is let in any more.
    fn closed(&mut self, number: u64, now: MonotonicNs) -> Result<&mut Attempt, ServerError> {
        let attempt = self.heard(number, now)?;
        if attempt.closed.is_some() {
            return Ok(attempt);
        }
        let text = format!("attempt {number} has not ended the former compute nodes yet");
        refuse(ErrorCode::BadRequest, text)
    }

    /// Fails unless this node is being brought things by that attempt.
    fn check_receiving(&self, attempt: u64) -> Result<(), ServerError> {
        let (got, is_whole) =
            self.receiving.as_ref().map_or((0, false), |receiving| (receiving.attempt, receiving.is_whole));
        #[cfg(injected)]
        let attempt = if injected::LEFT_ATTEMPT_HEARD.is_injected() { got } else { attempt };
        if got == attempt && !is_whole { Ok(()) } else { Err(left(attempt, got)) }
    }
}

impl PoolView {
    /// The place that a list gives a new node: the one place in which it differs from this node's list. Its
    /// node is lost.
    fn taken(&self, own: &PoolPlace, epochs: &[u64]) -> Result<usize, ServerError> {
        let differs = |place: &usize| own.epochs.get(*place) != epochs.get(*place);
        let differing: Vec<usize> = (0..own.epochs.len().max(epochs.len())).filter(differs).collect();
        match differing[..] {
            [taken] if self.lost.contains(taken) && own.epochs.len() == epochs.len() => {
                if own.epochs.contains(&epochs[taken]) {
                    let text = format!("{:#x} is a node of this pool already", epochs[taken]);
                    return refuse(ErrorCode::BadRequest, text);
                }
                Ok(taken)
            }
            _ => refuse(
                ErrorCode::OtherPool,
                format!(
                    "a new node takes the place of a lost one of {:#b}; this list differs from the pool's in {} \
                     places, {differing:?}",
                    self.lost.0,
                    differing.len()
                ),
            ),
        }
    }
}

impl NodeState {
    fn own_place(&self) -> Result<Arc<PoolPlace>, ServerError> {
        self.tables.place().ok_or_else(|| {
            let text = "this node belongs to no pool yet: a table is made first";
            ServerError::new(ErrorCode::OtherPool, text)
        })
    }

    /// Begins an attempt.
    pub(crate) fn begin_taking_in(
        &self,
        epochs: Vec<u64>,
        addresses: PoolAddresses,
        now: MonotonicNs,
    ) -> Result<Begun, ServerError> {
        let own = self.own_place()?;
        if !self.is_coordinator() {
            let text = format!("node {own} is not the coordinator of its pool");
            return refuse(ErrorCode::BadRequest, text);
        }
        let mut view = self.pool_view();
        view.check(view.lost)?;
        let taken = view.taken(&own, &epochs)?;
        let taking_in = &mut view.taking_in;
        taking_in.check_whole()?;
        if let Some(other) = taking_in.living(now) {
            let text = format!("attempt {} to take a node in is under way", other.number);
            return refuse(ErrorCode::TakingIn, text);
        }
        let number = taking_in.greatest + 1;
        taking_in.greatest = number;
        let place = PoolPlace { epochs, index: own.index };
        taking_in.attempt = Some(Attempt { number, place, addresses, taken, heard_at: now, closed: None });
        let trusted_us = u32::try_from(taking_in.trusted.as_micros()).unwrap_or(u32::MAX);
        Ok(Begun { attempt: number, trusted_us })
    }

    /// Takes note that there is an attempt of this number.
    pub(crate) fn know_attempt(&self, attempt: u64) -> Result<(), ServerError> {
        let mut view = self.pool_view();
        let greatest = view.taking_in.greatest;
        if attempt < greatest {
            return Err(left(attempt, greatest));
        }
        view.taking_in.greatest = attempt;
        Ok(())
    }

    /// Hears of the attempt that is under way.
    pub(crate) fn hear_attempt(&self, attempt: u64, now: MonotonicNs) -> Result<(), ServerError> {
        self.pool_view().taking_in.heard(attempt, now).map(drop)
    }

    /// Lets no compute node in, and ends those that are.
    pub(crate) fn close_for(&self, attempt: u64, now: MonotonicNs) -> Result<Closed, ServerError> {
        let newest = {
            let mut view = self.pool_view();
            let attempt = view.taking_in.heard(attempt, now)?;
            *attempt.closed.get_or_insert_with(|| self.compute_nodes().end_all())
        };
        Ok(self.end_compute_nodes(newest))
    }

    /// Ends those up to a number, as the coordinator has.
    pub(crate) fn end_former(&self, attempt: u64, newest: u32) -> Result<Closed, ServerError> {
        self.know_attempt(attempt)?;
        self.compute_nodes().end_up_to(newest);
        Ok(self.end_compute_nodes(newest))
    }

    fn end_compute_nodes(&self, newest: u32) -> Closed {
        if let Some(Fenced::Wait { pause_ms, why }) = self.dismiss_up_to(newest) {
            return Closed::Wait { pause_ms, why };
        }
        let newest = self.compute_nodes().greatest();
        Closed::Done { newest, next_table: self.tables.next_table() }
    }

    /// The number of the compute node that takes the node in.
    pub(crate) fn register_taker(
        &self,
        client: ClientId,
        attempt: u64,
        lost: LostNodes,
        now: MonotonicNs,
    ) -> Result<ComputeNode, ServerError> {
        let own = self.own_place()?;
        let mut view = self.pool_view();
        view.check(lost)?;
        view.taking_in.closed(attempt, now)?;
        self.compute_nodes().register(self.tables.pool().unwrap_or(own.coordinator()), client)
    }

    /// Begins empty, as the new node.
    pub(crate) fn receive(
        &self,
        attempt: u64,
        (place, pool, addresses): (PoolPlace, u64, PoolAddresses),
        term: u32,
        lost: LostNodes,
    ) -> Result<(), ServerError> {
        let mut view = self.pool_view();
        let former = view.taking_in.receiving.as_ref().map(|receiving| receiving.attempt);
        match (former, self.tables.place()) {
            (Some(former), _) if former >= attempt => return Err(left(attempt, former)),
            (None, Some(own)) => {
                let text = format!(
                    "this node is {own} in a pool: only a node that was started again takes a lost one's place"
                );
                return refuse(ErrorCode::OtherPool, text);
            }
            _ => {}
        }
        if lost.contains(place.index.into()) {
            return refuse(ErrorCode::BadRequest, format!("node {place} would leave itself out"));
        }
        self.tables.receive(&self.listeners, place, Epoch(pool))?;
        view.take_in(lost, term, addresses);
        view.taking_in.greatest = view.taking_in.greatest.max(attempt);
        view.taking_in.receiving = Some(Receiving { attempt, is_whole: false });
        Ok(())
    }

    /// Makes a table, as the new node.
    pub(crate) fn receive_table(
        &self,
        attempt: u64,
        id: TableId,
        layout: TableLayout,
    ) -> Result<Arc<Table>, ServerError> {
        // The lock is held meanwhile: no other attempt begins.
        let view = self.pool_view();
        view.taking_in.check_receiving(attempt)?;
        self.tables.receive_table(&self.listeners, id, layout)
    }

    /// Takes memory, as the new node.
    pub(crate) fn receive_pieces(
        &self,
        attempt: u64,
        table: TableId,
        pieces: &[TakenPiece],
    ) -> Result<(), ServerError> {
        // As above.
        let view = self.pool_view();
        view.taking_in.check_receiving(attempt)?;
        let table = self.tables.get(table)?;
        let hosted = table.hosted();
        pieces.iter().try_for_each(|piece| hosted.receive(piece.space, piece.first_line, &piece.bytes))
    }

    /// Has all, as the new node, and lets compute nodes in.
    pub(crate) fn end_receiving(
        &self,
        attempt: u64,
        newest: u32,
        next_table: u32,
        left: &[TableId],
    ) -> Result<(), ServerError> {
        let mut view = self.pool_view();
        view.taking_in.check_receiving(attempt)?;
        let lost = view.lost;
        self.compute_nodes().know(newest);
        self.tables.end_receiving(next_table, left);
        self.tables.all().iter().for_each(|table| table.hosted().take_in(lost, true));
        view.taking_in.receiving = Some(Receiving { attempt, is_whole: true });
        Ok(())
    }

    /// The pool has the new node: the coordinator says so first.
    pub(crate) fn commit(&self, number: u64, now: MonotonicNs) -> Result<Fenced, ServerError> {
        self.pool_view().taking_in.closed(number, now)?;
        if let Some(wait) = self.dismiss_all() {
            return Ok(wait);
        }
        let mut view = self.pool_view();
        let attempt = view.taking_in.closed(number, now)?;
        let (decided, taken) = ((attempt.place.clone(), attempt.addresses.clone()), attempt.taken);
        let (lost, term) = (LostNodes(view.lost.0 & !(1 << taken)), view.taking_in.term + 1);
        self.go_on_with(&mut view, decided, term, lost);
        Ok(Fenced::Done)
    }

    /// Has the list of nodes that those in `by` have.
    pub(crate) fn adopt(
        &self,
        (epochs, addresses): (Vec<u64>, PoolAddresses),
        term: u32,
        lost: LostNodes,
        by: LostNodes,
    ) -> Result<Fenced, ServerError> {
        let own = self.own_place()?;
        {
            let view = self.pool_view();
            if own.epochs == epochs && view.taking_in.term == term {
                return Ok(Fenced::Done);
            }
            Self::check_adopted(&view, &own, (&epochs, term), (lost, by))?;
        }
        if let Some(wait) = self.dismiss_all() {
            return Ok(wait);
        }
        let mut view = self.pool_view();
        // Others may have done so meanwhile.
        let own = self.own_place()?;
        if own.epochs == epochs && view.taking_in.term == term {
            return Ok(Fenced::Done);
        }
        Self::check_adopted(&view, &own, (&epochs, term), (lost, by))?;
        let place = PoolPlace { epochs, index: own.index };
        self.go_on_with(&mut view, (place, addresses), term, lost);
        Ok(Fenced::Done)
    }

    /// Refuses a list that does not follow this node's own, or that of nodes without which it goes on.
    fn check_adopted(
        view: &PoolView,
        own: &PoolPlace,
        (epochs, term): (&[u64], u32),
        (lost, by): (LostNodes, LostNodes),
    ) -> Result<(), ServerError> {
        view.taking_in.check_term(term.wrapping_sub(1))?;
        view.taking_in.check_whole()?;
        let taken = view.taken(own, epochs)?;
        let heard = by.0 & !view.lost.0 & !(1 << taken) & !(1 << own.index);
        if heard == 0 {
            let text = format!(
                "nodes {:#b} have taken in node {}, and the pool has gone on without them",
                by.0,
                taken + 1
            );
            return refuse(ErrorCode::Fenced, text);
        }
        if lost.contains(own.index.into()) || !lost.leave_a_majority(own.epochs.len()) {
            let text = format!("node {own} cannot go on without {:#b}", lost.0);
            return refuse(ErrorCode::BadRequest, text);
        }
        Ok(())
    }

    fn go_on_with(
        &self,
        view: &mut PoolView,
        (place, addresses): (PoolPlace, PoolAddresses),
        term: u32,
        lost: LostNodes,
    ) {
        self.tables.take_in(place);
        self.tables.all().iter().for_each(|table| table.hosted().take_in(lost, false));
        view.take_in(lost, term, addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUSTED: Duration = Duration::from_nanos(10);
    /// Of three nodes the last is taken in.
    const EPOCHS: [u64; 3] = [5, 6, 9];

    fn begun() -> TakingIn {
        let mut taking_in = TakingIn::new(TRUSTED);
        let place = PoolPlace { epochs: EPOCHS.to_vec(), index: 0 };
        let (heard_at, addresses) = (MonotonicNs(0), PoolAddresses::default());
        let attempt = Attempt { number: 1, place, addresses, taken: 2, heard_at, closed: None };
        taking_in.attempt = Some(attempt);
        taking_in.greatest = 1;
        taking_in
    }

    fn code<T: std::fmt::Debug>(refused: Result<T, ServerError>) -> ErrorCode {
        refused.expect_err("a refusal").code
    }

    #[test]
    fn compute_nodes_are_let_in_but_while_a_node_is_taken_in() {
        let mut taking_in = begun();
        assert_eq!(taking_in.check_open(MonotonicNs(0)), Ok(()), "it has not ended the former ones yet");
        taking_in.attempt.as_mut().expect("an attempt").closed = Some(4);
        assert_eq!(code(taking_in.check_open(MonotonicNs(10))), ErrorCode::TakingIn);
        assert_eq!(taking_in.check_open(MonotonicNs(11)), Ok(()), "nobody has heard of it for so long");
        assert!(taking_in.attempt.is_none());
    }

    #[test]
    fn an_attempt_goes_on_while_it_is_heard_of() {
        let mut taking_in = begun();
        assert_eq!(code(taking_in.closed(1, MonotonicNs(10)).map(drop)), ErrorCode::BadRequest, "not closed");
        taking_in.heard(1, MonotonicNs(20)).expect("it was heard of at 10").closed = Some(4);
        taking_in.closed(1, MonotonicNs(30)).expect("it is closed");
        assert_eq!(code(taking_in.heard(2, MonotonicNs(30)).map(drop)), ErrorCode::Forgotten, "another one");
        assert_eq!(code(taking_in.closed(1, MonotonicNs(41)).map(drop)), ErrorCode::Forgotten, "too late");
        assert_eq!(code(taking_in.closed(1, MonotonicNs(41)).map(drop)), ErrorCode::Forgotten, "for good");
    }

    #[test]
    fn an_attempt_that_is_given_up_or_has_ended_does_nothing_more() {
        let mut given_up = begun();
        given_up.give_up();
        assert_eq!(code(given_up.heard(1, MonotonicNs(1)).map(drop)), ErrorCode::Forgotten);
        assert_eq!((given_up.term(), given_up.greatest), (0, 1), "the next one has another number");
        let mut ended = begun();
        ended.end(1);
        assert_eq!(code(ended.heard(1, MonotonicNs(1)).map(drop)), ErrorCode::Forgotten);
        assert_eq!(ended.check_term(1), Ok(()));
        assert_eq!(code(ended.check_term(0)), ErrorCode::Fenced);
    }

    #[test]
    fn a_new_node_takes_what_its_attempt_brings_until_it_is_whole() {
        let mut taking_in = TakingIn::new(TRUSTED);
        assert_eq!(code(taking_in.check_receiving(1)), ErrorCode::Forgotten, "nothing has begun");
        assert_eq!(taking_in.check_whole(), Ok(()), "it is no new node");
        taking_in.receiving = Some(Receiving { attempt: 2, is_whole: false });
        assert_eq!(taking_in.check_receiving(2), Ok(()));
        assert_eq!(code(taking_in.check_receiving(1)), ErrorCode::Forgotten, "of a left attempt");
        assert_eq!(code(taking_in.check_whole()), ErrorCode::Fenced);
        assert_eq!(code(taking_in.check_open(MonotonicNs(0))), ErrorCode::Fenced);
        taking_in.receiving = Some(Receiving { attempt: 2, is_whole: true });
        assert_eq!(code(taking_in.check_receiving(2)), ErrorCode::Forgotten, "it has all");
        assert_eq!(taking_in.check_open(MonotonicNs(0)), Ok(()));
    }

    #[cfg(injected)]
    #[test]
    fn a_left_attempt_that_counts_is_found() {
        use farsight_base::injection::assert_found;
        assert_found(
            &injected::LEFT_ATTEMPT_HEARD,
            a_new_node_takes_what_its_attempt_brings_until_it_is_whole,
        );
    }

    #[test]
    fn a_list_differs_in_the_place_of_a_lost_node_alone() {
        let mut view = PoolView::new(TRUSTED, PoolAddresses::default());
        view.lost = LostNodes::of([2]);
        let own = PoolPlace { epochs: vec![5, 6, 7], index: 0 };
        assert_eq!(view.taken(&own, &EPOCHS), Ok(2));
        for (strange, why) in [
            (&[5, 8, 7][..], "of a node that is there"),
            (&[5, 6, 7], "the same"),
            (&[8, 6, 9], "two are new"),
            (&[5, 6], "fewer"),
            (&[5, 6, 9, 10], "more"),
        ] {
            assert_eq!(code(view.taken(&own, strange)), ErrorCode::OtherPool, "{why}");
        }
        assert_eq!(code(view.taken(&own, &[5, 6, 5])), ErrorCode::BadRequest, "one node twice");
    }
}
