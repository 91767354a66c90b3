//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A parked call's ticket answers the call that stands in its place by now.
    TICKET_OUTLIVES_CLIENT = "TicketOutlivesClient";
    /// The ticket of a call that was not parked is given to the next one.
    TICKET_GIVEN_AGAIN = "TicketGivenAgain";
    /// An atomic executes though the WRITE that it publishes was refused.
    ATOMIC_BEHIND_REFUSED = "AtomicBehindRefused";
}
