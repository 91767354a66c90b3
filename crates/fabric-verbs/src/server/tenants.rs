//! Who shares a protection domain.
//!
//! Invariant: clients that show the same certificate are one *tenant*, and what a tenant's clients have
//! (queue pairs, receives, keys of regions) belongs to that tenant's protection domain. So a key opens
//! nothing through a queue pair of another tenant, however it was learned. Without certificates nobody can be
//! told apart: all clients are one tenant. A tenant is there as long as one of its clients.
//!
//! Protocol: a region is registered for a tenant when a client of it first attaches it. That takes as long as
//! the region is large. So a thread of its own does it, and the client that asked is answered when it is
//! done. Where there are no certificates the only tenant is known from the beginning, and regions are
//! *prepared* when they are made. A thread of its own takes their memory and registers it for that tenant.
//! With certificates they are registered once in vain, so that a want of memory shows. Who makes a region, in
//! a client's call, waits for that for [`PATIENCE`] alone; clients that attach wait for the rest.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SendError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use farsight_base::RegionId;
use farsight_base::report::report;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::{FabricError, Region, RegionRights};
use farsight_fabric_host::{DisconnectQueue, os};

use super::region::ServedRegion;
use crate::ibv::device::Device;
use crate::ibv::memory::{Holder, ProtectionDomain};

/// How long the maker of a region waits for its registration: a fifth of what a client waits for a call.
const PATIENCE: Duration = Duration::from_secs(1);

/// A region that clients may attach once it is prepared.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) region: Arc<dyn Region>,
    pub(super) rights: RegionRights,
    prepared: Arc<OnceLock<()>>,
    withdrawn: Arc<AtomicBool>,
}

/// A region's preparation under way.
pub(super) struct Preparing(Receiver<Result<(), FabricError>>);

impl Preparing {
    /// Waits for its end for a while; what takes longer goes on alone.
    ///
    /// # Errors
    /// Why the region cannot be registered, if that is known by then.
    pub(super) fn wait(self) -> Result<(), FabricError> {
        self.0.recv_timeout(PATIENCE).unwrap_or(Ok(()))
    }
}

impl Offer {
    pub(super) fn new(region: Arc<dyn Region>, rights: RegionRights) -> Self {
        Self { region, rights, prepared: Arc::default(), withdrawn: Arc::default() }
    }

    /// True once clients may attach it.
    pub(super) fn is_prepared(&self) -> bool {
        self.prepared.get().is_some()
    }
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.region.id(), self.rights)
    }
}

/// How far a region's registration is.
#[derive(Clone, Debug)]
enum Registration {
    UnderWay,
    Done(Arc<ServedRegion>),
    Failed(String),
}

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) domain: Arc<ProtectionDomain>,
    regions: Mutex<HashMap<RegionId, Registration>>,
}

impl Tenant {
    fn new(device: &Arc<Device>) -> Result<Arc<Self>, FabricError> {
        let domain = ProtectionDomain::new(Arc::clone(device))?;
        Ok(Arc::new(Self { domain, regions: Mutex::default() }))
    }

    fn regions(&self) -> MutexGuard<'_, HashMap<RegionId, Registration>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, offer: &Offer) -> Result<(), FabricError> {
        let served = ServedRegion::new(&self.domain, Arc::clone(&offer.region), offer.rights)?;
        self.note(offer, Registration::Done(Arc::new(served)));
        Ok(())
    }

    /// Notes how far a region is, unless it has been withdrawn meanwhile.
    fn note(&self, offer: &Offer, registration: Registration) {
        let mut regions = self.regions();
        // Relaxed: the mutex orders it. Partner: the store in `withdraw`.
        if offer.withdrawn.load(Ordering::Relaxed) {
            regions.remove(&offer.region.id());
        } else {
            regions.insert(offer.region.id(), registration);
        }
    }

    /// Takes a region's key away. A card refuses it from now on.
    fn withdraw(&self, offer: &Offer) {
        let mut regions = self.regions();
        // Relaxed: as in `note`: either that finds it set, or the region is removed here.
        offer.withdrawn.store(true, Ordering::Relaxed);
        let withdrawn = regions.remove(&offer.region.id());
        drop(regions);
        // The last reference deregisters it, which takes as long as it is large.
        drop(withdrawn);
    }

    /// The region as this tenant's clients name it, or why there can be no such thing; `None` while it is
    /// being registered, the end of which wakes the host.
    pub(super) fn attach(
        self: &Arc<Self>,
        offer: &Offer,
        disconnects: &Arc<DisconnectQueue>,
    ) -> Option<Result<Arc<ServedRegion>, String>> {
        let id = offer.region.id();
        let mut regions = self.regions();
        match regions.get(&id) {
            Some(Registration::Done(served)) => return Some(Ok(Arc::clone(served))),
            Some(Registration::UnderWay) => return None,
            Some(Registration::Failed(reason)) => {
                let reason = reason.clone();
                // The next client that asks has it tried again.
                regions.remove(&id);
                return Some(Err(reason));
            }
            None => {}
        }
        regions.insert(id, Registration::UnderWay);
        drop(regions);
        let (tenant, offer, disconnects) = (Arc::clone(self), offer.clone(), Arc::clone(disconnects));
        let registering = move || {
            if let Err(error) = tenant.register(&offer) {
                tenant.note(&offer, Registration::Failed(error.to_string()));
            }
            os::signal(&disconnects.wake);
        };
        let started = std::thread::Builder::new().name("farsight-register".to_owned()).spawn(registering);
        if let Err(error) = started {
            self.regions().remove(&id);
            return Some(Err(format!("registering {id}: {error}")));
        }
        None
    }
}

/// All tenants of a host.
#[derive(Debug)]
pub(super) struct Tenants {
    device: Arc<Device>,
    /// The only one, where there are no certificates.
    unnamed: Option<Arc<Tenant>>,
    by_certificate: Mutex<HashMap<Vec<u8>, Weak<Tenant>>>,
}

impl Tenants {
    /// Of a host whose clients show certificates, or do not.
    pub(super) fn new(device: Arc<Device>, are_named: bool) -> Result<Self, FabricError> {
        let unnamed = if are_named { None } else { Some(Tenant::new(&device)?) };
        Ok(Self { device, unnamed, by_certificate: Mutex::default() })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The tenant of a client that has shown this certificate, or none.
    pub(super) fn of(&self, certificate: Option<&[u8]>) -> Result<Arc<Tenant>, FabricError> {
        if let Some(unnamed) = &self.unnamed {
            return Ok(Arc::clone(unnamed));
        }
        let certificate = certificate.unwrap_or_default();
        let mut known = self.by_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = known.get(certificate).and_then(Weak::upgrade) {
            return Ok(tenant);
        }
        known.retain(|_, tenant| tenant.strong_count() > 0);
        let tenant = Tenant::new(&self.device)?;
        known.insert(certificate.to_vec(), Arc::downgrade(&tenant));
        Ok(tenant)
    }

    /// Takes a region's keys away from all tenants: in a thread of its own, for that takes as long as the
    /// region is large.
    pub(super) fn withdraw(&self, offer: Offer) {
        let mut tenants: Vec<Arc<Tenant>> = self.unnamed.iter().cloned().collect();
        let known = self.by_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.extend(known.values().filter_map(Weak::upgrade));
        drop(known);
        let withdrawing = move || tenants.iter().for_each(|tenant| tenant.withdraw(&offer));
        let started = std::thread::Builder::new().name("farsight-withdraw".to_owned());
        if let Err(error) = started.spawn(withdrawing) {
            // What was to be taken away went with the closure; the keys go with their tenants.
            report(format!("a withdrawn region stays registered for want of a thread: {error}"));
        }
    }

    /// Begins to prepare a region, whose memory `take_memory` takes.
    ///
    /// # Errors
    /// [`FabricError::System`] if so much may not be locked, or there is no thread for it.
    pub(super) fn prepare(
        &self,
        offer: &Offer,
        take_memory: impl FnOnce() + Send + 'static,
        disconnects: &Arc<DisconnectQueue>,
    ) -> Result<Preparing, FabricError> {
        Holder::Region(Arc::clone(&offer.region)).check_lockable()?;
        let tenant =
            self.unnamed.as_ref().map_or_else(|| Tenant::new(&self.device), |own| Ok(Arc::clone(own)))?;
        let (offer, disconnects) = (offer.clone(), Arc::clone(disconnects));
        let (sender, outcome) = mpsc::channel();
        let preparing = move || {
            take_memory();
            let registered = tenant.register(&offer);
            drop(tenant);
            // Attaching tries again, and tells the client what comes of that.
            let _ = offer.prepared.set(());
            os::signal(&disconnects.wake);
            if let Err(SendError(Err(error))) = sender.send(registered) {
                report(format!("{} cannot be read by RDMA: {error}", offer.region.id()));
            }
        };
        let started = std::thread::Builder::new().name("farsight-prepare".to_owned()).spawn(preparing);
        started.map_err(|error| {
            os::system_error("preparing a region", &error, "Are threads left (ulimit -u)?")
        })?;
        Ok(Preparing(outcome))
    }
}
