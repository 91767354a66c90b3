//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A parked call's ticket answers the call that stands in its place by now.
    TICKET_OUTLIVES_CLIENT = "TicketOutlivesClient";
}
