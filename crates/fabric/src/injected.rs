//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A queue's gate is looked at before it is entered.
    GATE_CHECKED_BEFORE = "GateCheckedBefore";
    /// A parked call's ticket answers the call that stands in its place by now.
    TICKET_OUTLIVES_CLIENT = "TicketOutlivesClient";
}
