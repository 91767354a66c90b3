//! A compute node that serves: it writes for others, and finds keys for them, in the partitions of FlexKV
//! tables that it was given.
//!
//! Invariant: it is a client of the pool, like those for which it writes, and keeps nothing of theirs. So it
//! may end, or stop, at any time. What it was executing then is indeterminate to its callers, and they write
//! one-sided from then on.
//!
//! Protocol: who runs it offers the coordinator to write, for each table of FlexKV, and renews that
//! ([`Serving::offer`]). Clients ask the coordinator who writes, and send calls here. A worker gathers the
//! calls that are waiting, and executes those of one table as one batch ([`calls`]).

#![forbid(unsafe_code)]

mod calls;
mod looks;
mod serving;

pub use calls::ProxyCalls;
pub use serving::{OFFER_PAUSE, OfferError, Serving, ServingOptions};
