//! What one client may touch: regions, each under a token that nobody can guess.
//!
//! Invariant: verbs execute while the grants are held for reading, so once a grant has been taken away no
//! verb executes under it any more.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use farsight_base::RegionId;
use farsight_base::sync::AtomicU64;
use farsight_fabric::{Region, RegionRights};

use farsight_fabric_net::os;

/// A region's name on the wire, or a client's proof of who it is: 128 random bits.
pub(crate) type Token = [u8; TOKEN_BYTES];
/// Bytes of a token.
pub(crate) const TOKEN_BYTES: usize = 16;

/// A region as a host serves it.
#[derive(Clone)]
pub(crate) struct ServedRegion {
    pub(crate) region: Arc<dyn Region>,
    pub(crate) rights: RegionRights,
}

/// One client's grants.
#[derive(Default)]
pub(crate) struct Grants {
    by_token: RwLock<HashMap<Token, ServedRegion>>,
}

impl Grants {
    /// The token under which the client may touch the region; one a region.
    pub(crate) fn grant(&self, served: &ServedRegion) -> io::Result<Token> {
        let mut by_token = self.by_token.write().unwrap_or_else(PoisonError::into_inner);
        let id = served.region.id();
        if let Some((token, _)) = by_token.iter().find(|(_, granted)| granted.region.id() == id) {
            return Ok(*token);
        }
        let token = os::random()?;
        by_token.insert(token, served.clone());
        Ok(token)
    }

    /// Takes a region away. When this returns no verb of the client touches it any more.
    pub(crate) fn revoke(&self, region: RegionId) {
        let mut by_token = self.by_token.write().unwrap_or_else(PoisonError::into_inner);
        by_token.retain(|_, granted| granted.region.id() != region);
    }

    /// The grants while verbs execute.
    pub(crate) fn hold(&self) -> HeldGrants<'_> {
        HeldGrants(self.by_token.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Grants that cannot be taken away before this is dropped.
pub(crate) struct HeldGrants<'g>(RwLockReadGuard<'g, HashMap<Token, ServedRegion>>);

impl HeldGrants<'_> {
    /// The words behind a token, and what the client may do to them.
    pub(crate) fn find(&self, token: &Token) -> Option<(&[AtomicU64], RegionRights)> {
        let granted = self.0.get(token)?;
        Some((granted.region.words(), granted.rights))
    }
}
