//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A conditional write stores, or removes, whatever version it finds.
    VERSION_NOT_COMPARED = "VersionNotCompared";
    /// A compare-and-set by value stores if the value that is there has the expected one's length.
    VALUE_COMPARED_BY_LENGTH = "ValueComparedByLength";
    /// A reader returns pairs that have ended.
    ENDED_PAIR_RETURNED = "EndedPairReturned";
}
