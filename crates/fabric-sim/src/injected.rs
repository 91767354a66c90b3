//! Deliberate bugs of this crate: a card or a server that breaks a promise of the fabric.

farsight_base::bugs! {
    /// A server gives a region the number of one that it has withdrawn.
    NUMBER_REUSED = "NumberReused";
    /// A call is answered before what it stored can be seen.
    ANSWERED_BEFORE_VISIBLE = "AnsweredBeforeVisible";
    /// A fence is answered while verbs of the fenced client are still on their way.
    FENCE_ANSWERED_EARLY = "FenceAnsweredEarly";
    /// A simulated card that promises the order of WRITEs sends those behind one that it gave up.
    SENT_BEHIND_GIVEN_UP = "SentBehindGivenUp";
}
