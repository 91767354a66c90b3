//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A queue's gate is looked at before it is entered.
    GATE_CHECKED_BEFORE = "GateCheckedBefore";
    /// A port is marked before it has what it shall notice.
    MARKED_BEFORE_GIVEN = "MarkedBeforeGiven";
}
