//! The fabrics and addresses at which one process listens.
//!
//! Invariant: there is at least one; the first has created every region, and the others serve each of them,
//! too, until all of them withdraw it.

use std::sync::Arc;

use farsight_base::{ClientId, RegionId, serving};
use farsight_fabric::{Departure, FabricError, Listener, Region, RegionRights, SetAside};
use farsight_protocol::ListenerStats;

use crate::{LISTENERS_MAX, StartError};

/// Where the number of a client's listener stands in the number by which the process knows it.
const LISTENER_SHIFT: u32 = 56;

/// All listeners of a process.
pub struct Listeners(Box<[Arc<dyn Listener>]>);

impl Listeners {
    /// These listeners, whose messages carry at least `message_bytes_min`.
    ///
    /// # Errors
    /// [`StartError::Listeners`], [`StartError::MessagesTooShort`].
    pub fn new(listeners: Vec<Arc<dyn Listener>>, message_bytes_min: usize) -> Result<Self, StartError> {
        if !(1..=LISTENERS_MAX).contains(&listeners.len()) {
            return Err(StartError::Listeners { got: listeners.len() });
        }
        for listener in &listeners {
            let got = listener.message_bytes_max();
            if got < message_bytes_min {
                let address = listener.address();
                return Err(StartError::MessagesTooShort { address, got, expected: message_bytes_min });
            }
        }
        serving::begin();
        Ok(Self(listeners.into_boxed_slice()))
    }

    /// The listener of this number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn get(&self, number: usize) -> &Arc<dyn Listener> {
        &self.0[number]
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number by which the process knows `client` of this listener: listeners count theirs each from one.
    #[must_use]
    pub fn client_of(listener: usize, client: ClientId) -> ClientId {
        ClientId((listener as u64) << LISTENER_SHIFT | client.0)
    }

    /// A region that all of them serve.
    ///
    /// # Errors
    /// As [`Listener::create_region`] and [`Listener::export_region`].
    pub fn create_region(
        &self,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<dyn Region>, FabricError> {
        let region = self.0[0].create_region(length_bytes, rights)?;
        self.export(region, rights)
    }

    /// A region that all of them serve, of which clients reach what has grown. At a listener that cannot
    /// follow that they reach all of it.
    ///
    /// # Errors
    /// As [`Listener::create_growing_region`] and [`Listener::export_region`].
    pub fn create_growing_region(&self, length_bytes: u64) -> Result<Arc<dyn Region>, FabricError> {
        let rights = RegionRights::ReadOnly;
        if !self.0[1..].iter().all(|other| other.serves_growing_regions()) {
            return self.create_region(length_bytes, rights);
        }
        let region = self.0[0].create_growing_region(length_bytes)?;
        self.export(region, rights)
    }

    /// The region of the first, at the others, too.
    fn export(&self, region: Arc<dyn Region>, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        let exported = self.0[1..].iter().try_for_each(|other| other.export_region(&region, rights));
        if let Err(error) = exported {
            // Those that serve it already forget it; the others have nothing to forget.
            let _ = self.withdraw_region(region.id());
            return Err(error);
        }
        Ok(region)
    }

    /// Bytes of a message that each of them carries.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        self.0.iter().map(|listener| listener.message_bytes_max()).min().expect("a listener")
    }

    /// Limits the memory of the queues of all of them.
    pub(crate) fn limit_queues(&self, set_aside: &SetAside) {
        self.0.iter().for_each(|listener| listener.limit_queues(Arc::clone(set_aside)));
    }

    /// Lets all of them accept clients.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn open(&self) -> Result<(), FabricError> {
        self.0.iter().try_for_each(|listener| listener.open())
    }

    /// Gives up a region at all of them, at each whatever the others say.
    ///
    /// # Errors
    /// As [`Listener::withdraw_region`]: the first.
    pub fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let outcomes: Vec<_> = self.0.iter().map(|listener| listener.withdraw_region(region)).collect();
        outcomes.into_iter().collect()
    }

    /// Tells the clients of all of them a number, as [`Listener::notify`] does.
    pub fn notify(&self, notice: u64) {
        self.0.iter().for_each(|listener| listener.notify(notice));
    }

    /// Ends a client, known by the number of [`Listeners::client_of`], if that costs it its connection at
    /// most, or tells it to leave.
    ///
    /// # Errors
    /// As [`Listener::dismiss`].
    pub fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError> {
        let (listener, client) = self.at_listener(client);
        listener.dismiss(client)
    }

    /// Kills the process of a client, known by that number, that lingers.
    ///
    /// # Errors
    /// As [`Listener::end_process`].
    pub fn end_process(&self, client: ClientId) -> Result<(), FabricError> {
        let (listener, client) = self.at_listener(client);
        listener.end_process(client)
    }

    /// True if a fence at any of them may end a client's process.
    #[must_use]
    pub fn end_processes(&self) -> bool {
        self.0.iter().any(|listener| listener.ends_processes())
    }

    fn at_listener(&self, client: ClientId) -> (&Arc<dyn Listener>, ClientId) {
        let listener = &self.0[(client.0 >> LISTENER_SHIFT) as usize];
        (listener, ClientId(client.0 & ((1 << LISTENER_SHIFT) - 1)))
    }

    /// What they say of themselves.
    #[must_use]
    pub fn stats(&self) -> Vec<ListenerStats> {
        let of = |listener: &Arc<dyn Listener>| ListenerStats {
            address: listener.address(),
            clients: listener.client_count() as u64,
        };
        self.0.iter().map(of).collect()
    }

    /// Wakes everything that sleeps in any of them.
    pub fn wake(&self) {
        self.0.iter().for_each(|listener| listener.wake());
    }
}
