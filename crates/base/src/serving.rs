//! Whether this process serves memory to others: a server, or a memory node of a pool.
//!
//! Invariant: once it does, it says so for the rest of its life. A process that serves is a client, too, if
//! it trains a pool's tables. Who fences that client must know that its process is not its own alone.

use std::sync::OnceLock;

static SERVES: OnceLock<()> = OnceLock::new();

/// Notes that this process serves.
pub fn begin() {
    SERVES.get_or_init(|| ());
}

/// True if this process serves, or did.
#[must_use]
pub fn has_begun() -> bool {
    SERVES.get().is_some()
}
