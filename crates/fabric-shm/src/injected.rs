//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// Who is about to sleep does not look once more.
    NO_LAST_LOOK = "NoLastLook";
    /// A consumer believes the peer's counter.
    COUNTER_BELIEVED = "CounterBelieved";
}
