//! Calls that are answered later: what a port keeps of each until its worker finishes it.
//!
//! Invariant: a [`Ticket`] answers the call that it was given for, or nothing. A place is used again, a
//! serial number never: so the owner of a place does not get an answer that an earlier owner waited for. That
//! includes calls that were never parked. Their handler may have let a reply go before it failed.
//!
//! Protocol:
//!
//! 1. The port gives a new ticket to the handler, with the request. Nothing is kept yet.
//! 2. If the handler answers later, the port parks the call under that ticket. It keeps the call's place in
//!    the protocol and room for its reply ([`Parking`]), and not the request.
//! 3. The worker finishes the call by its ticket. Its place is vacant then.
//! 4. A queue that ends takes its calls with it: their places are vacant, and their tickets dead.
//!
//! Bounds: a queue has at most [`PARKED_MAX`] calls parked, hence a port that many for each of its queues.

#[cfg(any(loom, shuttle, injected))]
use crate::injected;

/// Calls of one queue that are parked at most. A fabric with fewer calls of a queue under way parks as many
/// as those. While a queue has its most, its port takes no further call of it.
pub const PARKED_MAX: usize = 64;

/// Names one call at the port that took it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    place: u32,
    /// Counts the calls that the port ever took.
    serial: u64,
}

/// The parked calls of one port, each as what its fabric needs to answer it.
#[derive(Debug)]
pub struct Parked<C> {
    places: Vec<Option<(Ticket, C)>>,
    vacant: Vec<u32>,
    serials: u64,
}

impl<C> Default for Parked<C> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new(), serials: 0 }
    }
}

impl<C> Parked<C> {
    /// A ticket for the next call, which no call had before.
    #[inline]
    #[must_use]
    pub fn give_ticket(&mut self) -> Ticket {
        #[cfg(any(loom, shuttle, injected))]
        let is_last_unused = injected::TICKET_GIVEN_AGAIN.is_injected() && !self.has_parked(self.serials);
        #[cfg(not(any(loom, shuttle, injected)))]
        let is_last_unused = false;
        self.serials += u64::from(!is_last_unused);
        let place = self.vacant.last().copied().unwrap_or(self.places.len() as u32);
        Ticket { place, serial: self.serials }
    }

    /// Parks a call under the ticket that was given last.
    ///
    /// # Panics
    /// If another one was given since, or a call was parked.
    pub fn park(&mut self, ticket: Ticket, call: C) {
        assert_eq!(ticket.serial, self.serials, "a call is parked before the next one is taken");
        let place = self.vacant.pop().unwrap_or(self.places.len() as u32);
        assert_eq!(ticket.place, place, "a call is parked once, before another one is");
        if place as usize == self.places.len() {
            self.places.push(None);
        }
        self.places[place as usize] = Some((ticket, call));
    }

    /// True if a call is parked under this serial number.
    #[cfg(any(loom, shuttle, injected))]
    fn has_parked(&self, serial: u64) -> bool {
        self.places.iter().flatten().any(|(ticket, _)| ticket.serial == serial)
    }

    /// Takes the call that the ticket was given for; `None` if that is gone.
    #[must_use]
    pub fn take(&mut self, ticket: Ticket) -> Option<C> {
        let place = self.places.get_mut(ticket.place as usize)?;
        let is_it = place.as_ref().is_some_and(|(own, _)| *own == ticket);
        #[cfg(any(loom, shuttle, injected))]
        let is_it = is_it || injected::TICKET_OUTLIVES_CLIENT.is_injected();
        let (_, call) = place.take_if(|_| is_it)?;
        self.vacant.push(ticket.place);
        Some(call)
    }

    /// Drops the calls of a queue that has ended: those that `is_gone` names.
    pub fn forget(&mut self, mut is_gone: impl FnMut(&C) -> bool) {
        if self.is_empty() {
            return;
        }
        for (number, place) in self.places.iter_mut().enumerate() {
            if place.take_if(|(_, call)| is_gone(call)).is_some() {
                self.vacant.push(number as u32);
            }
        }
    }

    /// Calls that are parked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    /// True if none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What one queue has parked: its calls, and the room that is kept for their replies.
#[derive(Clone, Copy, Default, Debug)]
pub struct Parking {
    calls: usize,
    reply_bytes: usize,
}

impl Parking {
    /// True if the queue has its most: no further call of it may be taken.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.calls == PARKED_MAX
    }

    /// Bytes that the replies will have at most, all of them together.
    #[inline]
    #[must_use]
    pub fn reply_bytes(&self) -> usize {
        self.reply_bytes
    }

    /// Adds a call whose reply has so many bytes at most.
    ///
    /// # Panics
    /// If the queue had its most: its port should not have taken the call.
    pub fn add(&mut self, reply_bytes_max: usize) {
        assert!(!self.is_full(), "a queue parks {PARKED_MAX} calls at most");
        self.calls += 1;
        self.reply_bytes += reply_bytes_max;
    }

    /// Takes out a call that was added with so many bytes.
    pub fn remove(&mut self, reply_bytes_max: usize) {
        self.calls -= 1;
        self.reply_bytes -= reply_bytes_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn park(parked: &mut Parked<&'static str>, call: &'static str) -> Ticket {
        let ticket = parked.give_ticket();
        parked.park(ticket, call);
        ticket
    }

    #[test]
    fn calls_are_finished_in_any_order_and_once() {
        let mut parked = Parked::default();
        let tickets = ["a", "b", "c"].map(|call| park(&mut parked, call));
        assert_eq!(parked.len(), 3);
        for (index, call) in [(1, "b"), (2, "c"), (0, "a")] {
            assert_eq!(parked.take(tickets[index]), Some(call));
            assert_eq!(parked.take(tickets[index]), None, "{call} is answered once");
        }
        assert!(parked.is_empty());
    }

    #[test]
    fn the_next_owner_of_a_place_has_another_ticket() {
        let mut parked = Parked::default();
        let [gone, other] = ["gone", "other"].map(|call| park(&mut parked, call));
        parked.forget(|call| *call == "gone");
        let newcomer = park(&mut parked, "newcomer");
        assert_eq!(newcomer.place, gone.place, "the place is used again");
        assert_eq!(parked.take(gone), None, "the newcomer got an answer of the call before");
        assert_eq!(parked.take(newcomer), Some("newcomer"));
        assert_eq!(parked.take(other), Some("other"));
    }

    /// A call is put off, and fails then. It is answered at once, and its late reply is on its way still.
    #[test]
    fn a_ticket_that_was_not_used_answers_no_later_call() {
        let mut parked = Parked::default();
        let unused = parked.give_ticket();
        assert_eq!(parked.take(unused), None, "nothing is parked");
        let next = park(&mut parked, "next");
        assert_eq!(next.place, unused.place);
        assert_eq!(parked.take(unused), None, "the next call got an answer of one that was not parked");
        assert_eq!(parked.take(next), Some("next"));
    }

    #[test]
    #[should_panic(expected = "before the next one is taken")]
    fn a_call_is_parked_under_its_own_ticket_alone() {
        let mut parked = Parked::default();
        let ticket = parked.give_ticket();
        let _ = parked.give_ticket();
        parked.park(ticket, "late");
    }

    #[test]
    fn a_queue_parks_no_more_than_its_most() {
        let mut parking = Parking::default();
        (0..PARKED_MAX).for_each(|_| parking.add(3));
        assert!(parking.is_full());
        assert_eq!(parking.reply_bytes(), 3 * PARKED_MAX);
        parking.remove(3);
        assert!(!parking.is_full());
        assert_eq!(parking.reply_bytes(), 3 * (PARKED_MAX - 1));
    }
}
