//! A host behind an object, so that one server can listen on several fabrics.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::{ClientId, Epoch, RegionId};

use crate::{Departure, FabricError, Host, Region, RegionRights, ServerPort, SetAside};

/// What a server asks of each fabric on which it listens: [`Host`], whatever its ports are. A server's first
/// listener creates its regions, the others export them.
pub trait Listener: Send + Sync {
    /// As [`Host::address`].
    fn address(&self) -> String;

    /// As [`Host::epoch`].
    fn epoch(&self) -> Epoch;

    /// As [`Host::message_bytes_max`].
    fn message_bytes_max(&self) -> usize;

    /// As [`Host::create_region`].
    ///
    /// # Errors
    /// As there.
    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError>;

    /// As [`Host::create_growing_region`].
    ///
    /// # Errors
    /// As there.
    fn create_growing_region(&self, length_bytes: u64) -> Result<Arc<dyn Region>, FabricError>;

    /// As [`Host::serves_growing_regions`].
    fn serves_growing_regions(&self) -> bool;

    /// As [`Host::export_region`].
    ///
    /// # Errors
    /// As there.
    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError>;

    /// As [`Host::withdraw_region`].
    ///
    /// # Errors
    /// As there.
    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError>;

    /// As [`Host::notify`].
    fn notify(&self, notice: u64);

    /// As [`Host::limit_queues`].
    fn limit_queues(&self, set_aside: SetAside);

    /// As [`Host::open`].
    ///
    /// # Errors
    /// As there.
    fn open(&self) -> Result<(), FabricError>;

    /// As [`Host::open_port`].
    ///
    /// # Errors
    /// As there.
    fn open_port(&self) -> Result<Box<dyn ServerPort>, FabricError>;

    /// As [`Host::step`].
    ///
    /// # Errors
    /// As there.
    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError>;

    /// As [`Host::client_count`].
    fn client_count(&self) -> usize;

    /// As [`Host::fence`].
    ///
    /// # Errors
    /// As there.
    fn fence(&self, client: ClientId) -> Result<(), FabricError>;

    /// As [`Host::ends_processes`].
    fn ends_processes(&self) -> bool;

    /// As [`Host::dismiss`].
    ///
    /// # Errors
    /// As there.
    fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError>;

    /// As [`Host::end_process`].
    ///
    /// # Errors
    /// As [`Host::end_process`].
    fn end_process(&self, client: ClientId) -> Result<(), FabricError>;

    /// As [`Host::wake`].
    fn wake(&self);

    /// As [`Host::wake_ports`].
    fn wake_ports(&self);
}

impl<H: Host> Listener for H {
    fn address(&self) -> String {
        Host::address(self)
    }

    fn epoch(&self) -> Epoch {
        Host::epoch(self)
    }

    fn message_bytes_max(&self) -> usize {
        Host::message_bytes_max(self)
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        Host::create_region(self, length_bytes, rights)
    }

    fn create_growing_region(&self, length_bytes: u64) -> Result<Arc<dyn Region>, FabricError> {
        Host::create_growing_region(self, length_bytes)
    }

    fn serves_growing_regions(&self) -> bool {
        Host::serves_growing_regions(self)
    }

    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        Host::export_region(self, region, rights)
    }

    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        Host::withdraw_region(self, region)
    }

    fn notify(&self, notice: u64) {
        Host::notify(self, notice);
    }

    fn limit_queues(&self, set_aside: SetAside) {
        Host::limit_queues(self, set_aside);
    }

    fn open(&self) -> Result<(), FabricError> {
        Host::open(self)
    }

    fn open_port(&self) -> Result<Box<dyn ServerPort>, FabricError> {
        Host::open_port(self).map(|port| Box::new(port) as Box<dyn ServerPort>)
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        Host::step(self, timeout)
    }

    fn client_count(&self) -> usize {
        Host::client_count(self)
    }

    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        Host::fence(self, client)
    }

    fn ends_processes(&self) -> bool {
        Host::ends_processes(self)
    }

    fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError> {
        Host::dismiss(self, client)
    }

    fn end_process(&self, client: ClientId) -> Result<(), FabricError> {
        Host::end_process(self, client)
    }

    fn wake_ports(&self) {
        Host::wake_ports(self);
    }

    fn wake(&self) {
        Host::wake(self);
    }
}
