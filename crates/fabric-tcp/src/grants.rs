//! What one client may touch: regions, each under a token that nobody can guess.
//!
//! Invariant: verbs execute while the grants are held for reading, so once a grant has been taken away no
//! verb executes under it any more.
//!
//! Protocol: a token begins with its region's number. So of a token that grants nothing, the server can tell
//! whether its region is withdrawn, and keeps nothing of that.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use farsight_base::RegionId;
use farsight_base::sync::AtomicU64;
use farsight_fabric::{Region, RegionRights};

use farsight_fabric_host::os;

use crate::served_regions::{ServedRegion, ServedRegions};

/// A region's name on the wire, or a client's proof of who it is: 128 random bits. Of a region's, the first
/// 32 are its number.
pub(crate) type Token = [u8; TOKEN_BYTES];
/// Bytes of a token.
pub(crate) const TOKEN_BYTES: usize = 16;

/// The number of the region that a token names, or claims to.
fn region_of(token: &Token) -> RegionId {
    RegionId(u32::from_le_bytes(*token.first_chunk().expect("a token has 16 bytes")))
}

/// One client's grants.
#[derive(Default)]
pub(crate) struct Grants {
    by_region: RwLock<HashMap<RegionId, (Token, ServedRegion)>>,
    served: Arc<ServedRegions>,
}

/// What a token grants.
#[derive(Clone, Copy)]
pub(crate) enum Granted<'g> {
    /// These words, with these rights.
    Words(&'g [AtomicU64], RegionRights),
    /// Nothing: the server has withdrawn the region.
    Withdrawn,
    Nothing,
}

impl Grants {
    /// No grants yet, of a host that serves `served`.
    pub(crate) fn new(served: Arc<ServedRegions>) -> Self {
        Self { by_region: RwLock::default(), served }
    }

    /// The token under which the client may touch the region; one a region.
    pub(crate) fn grant(&self, served: &ServedRegion) -> io::Result<Token> {
        let mut by_region = self.by_region.write().unwrap_or_else(PoisonError::into_inner);
        let id = served.region.id();
        if let Some((token, _)) = by_region.get(&id) {
            return Ok(*token);
        }
        let mut token: Token = os::random()?;
        token[..4].copy_from_slice(&id.0.to_le_bytes());
        by_region.insert(id, (token, served.clone()));
        Ok(token)
    }

    /// Takes a region away. When this returns no verb of the client touches it any more.
    pub(crate) fn revoke(&self, region: RegionId) {
        let mut by_region = self.by_region.write().unwrap_or_else(PoisonError::into_inner);
        by_region.remove(&region);
    }

    /// The newest number that clients are told.
    pub(crate) fn notice(&self) -> u64 {
        self.served.notice()
    }

    /// The grants while verbs execute.
    pub(crate) fn hold(&self) -> HeldGrants<'_> {
        let by_region = self.by_region.read().unwrap_or_else(PoisonError::into_inner);
        HeldGrants { by_region, served: &self.served }
    }
}

/// Grants that cannot be taken away before this is dropped.
pub(crate) struct HeldGrants<'g> {
    by_region: RwLockReadGuard<'g, HashMap<RegionId, (Token, ServedRegion)>>,
    served: &'g ServedRegions,
}

impl HeldGrants<'_> {
    /// What a token grants.
    pub(crate) fn find(&self, token: &Token) -> Granted<'_> {
        let region = region_of(token);
        match self.by_region.get(&region).filter(|(granted, _)| granted == token) {
            Some((_, granted)) => Granted::Words(granted.region.words(), granted.rights),
            None if self.served.lock().is_withdrawn(region) => Granted::Withdrawn,
            None => Granted::Nothing,
        }
    }
}
