//! Keys as the driver has them, between a future and its session.
//!
//! Invariant: such a key is nobody else's. A future's own may be borrowed, and the future may end at any
//! time.

use farsight_client::SessionKey;

/// A key that waits for its session.
pub trait HeldKey: Clone + Send + std::fmt::Debug + 'static {
    /// As sessions have it.
    type Encoded<'k>: SessionKey;

    /// The same for a session.
    fn encoded(&self) -> Self::Encoded<'_>;

    /// Calls `work` with many.
    fn with_all<T>(keys: &[Self], work: impl FnOnce(&[Self::Encoded<'_>]) -> T) -> T;
}

impl HeldKey for u64 {
    type Encoded<'k> = Self;

    #[inline]
    fn encoded(&self) -> Self {
        *self
    }

    #[inline]
    fn with_all<T>(keys: &[Self], work: impl FnOnce(&[Self]) -> T) -> T {
        work(keys)
    }
}

impl HeldKey for Box<[u8]> {
    type Encoded<'k> = &'k [u8];

    fn encoded(&self) -> &[u8] {
        self
    }

    fn with_all<T>(keys: &[Self], work: impl FnOnce(&[&[u8]]) -> T) -> T {
        let lent: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        work(&lent)
    }
}
