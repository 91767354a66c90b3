//! A fabric inside one process: regions on the heap, calls through queues. Verbs other than calls are not
//! needed by a server's tests: they look into the regions themselves.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farsight_base::sync::{AtomicU64, AtomicUsize, Ordering};
use farsight_base::{ClientId, Epoch, LINE_BYTES, RegionId};
use farsight_fabric::{
    Answer, CallHandler, FabricError, Host, Parked, Region, RegionRights, ServerPort, Ticket,
};

/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The longest that a test waits for a reply.
const REPLY_MAX: Duration = Duration::from_secs(60);

/// A line-aligned piece of the heap.
pub struct HeapRegion {
    id: RegionId,
    words: Vec<AtomicU64>,
    first: usize,
    length: usize,
    collapsed_bytes: AtomicU64,
}

impl HeapRegion {
    fn new(id: RegionId, length_bytes: u64) -> Self {
        let length = usize::try_from(length_bytes.next_multiple_of(LINE_BYTES as u64) / 8).unwrap();
        let words: Vec<AtomicU64> = (0..length + LINE_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let first = (words.as_ptr() as usize).next_multiple_of(LINE_BYTES) - words.as_ptr() as usize;
        Self { id, words, first: first / 8, length, collapsed_bytes: AtomicU64::new(0) }
    }
}

impl Region for HeapRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words[self.first..self.first + self.length]
    }

    fn huge_page_bytes(&self) -> u64 {
        self.collapsed_bytes.load(Ordering::Relaxed)
    }

    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
        assert!(used_bytes <= self.length as u64 * 8, "{used_bytes} B of {} words", self.length);
        self.collapsed_bytes.fetch_max(used_bytes, Ordering::Relaxed);
        used_bytes
    }
}

struct WaitingCall {
    client: ClientId,
    request: Vec<u8>,
    answer: Sender<Vec<u8>>,
}

/// Something to sleep on that remembers one wake.
#[derive(Default)]
struct Doorbell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self, timeout: Duration) {
        let rung = self.rung.lock().unwrap();
        let (mut rung, _) = self.changed.wait_timeout_while(rung, timeout, |rung| !*rung).unwrap();
        *rung = false;
    }
}

#[derive(Default)]
struct Queue {
    calls: Mutex<VecDeque<WaitingCall>>,
    doorbell: Doorbell,
}

/// One worker's queue.
pub struct LocalPort {
    queue: Arc<Queue>,
    parked: Parked<Sender<Vec<u8>>>,
}

impl ServerPort for LocalPort {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        for served in 0..budget_calls {
            let Some(call) = self.queue.calls.lock().unwrap().pop_front() else { return served };
            let mut reply = Vec::new();
            let ticket = self.parked.give_ticket();
            match handler.handle(call.client, ticket, &call.request, &mut reply) {
                // A client that went away needs no answer.
                Answer::Now => drop(call.answer.send(reply)),
                Answer::Later { .. } => self.parked.park(ticket, call.answer),
            }
        }
        budget_calls
    }

    fn finish(&mut self, ticket: Ticket, reply: &[u8]) -> bool {
        self.parked.take(ticket).is_some_and(|answer| answer.send(reply.to_vec()).is_ok())
    }

    fn wait(&mut self, timeout: Duration) {
        self.queue.doorbell.wait(timeout);
    }
}

/// The host.
#[derive(Default)]
pub struct LocalHost {
    regions: Mutex<Vec<Arc<HeapRegion>>>,
    ports: Mutex<Vec<Arc<Queue>>>,
    clients_ever: AtomicU64,
    clients: Arc<AtomicUsize>,
    control: Arc<Doorbell>,
    departed: Arc<Mutex<Vec<ClientId>>>,
    exported: Mutex<Vec<RegionId>>,
    /// Regions that may still be made; beyond them the host panics, as a host with a bug might.
    regions_max: Option<usize>,
    /// Its epoch; zero is the usual one.
    epoch: u64,
}

impl LocalHost {
    /// A host of this epoch.
    pub fn of_epoch(epoch: u64) -> Arc<Self> {
        Arc::new(Self { epoch, ..Self::default() })
    }

    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A host with a bug: it panics at the first region beyond `regions_max`.
    pub fn that_panics_beyond(regions_max: usize) -> Arc<Self> {
        Arc::new(Self { regions_max: Some(regions_max), ..Self::default() })
    }

    /// A client of one of the ports, round-robin.
    pub fn connect(&self) -> LocalClient {
        let id = self.clients_ever.fetch_add(1, Ordering::Relaxed);
        self.clients.fetch_add(1, Ordering::Relaxed);
        let ports = self.ports.lock().unwrap();
        let queue = Arc::clone(&ports[id as usize % ports.len()]);
        let (answer, answers) = channel();
        LocalClient {
            id: ClientId(id),
            queue,
            answer,
            answers,
            clients: Arc::clone(&self.clients),
            control: Arc::clone(&self.control),
            departed: Arc::clone(&self.departed),
        }
    }

    /// Another queue of a client, at the port behind its own.
    pub fn open_another(&self, client: &LocalClient) -> LocalClient {
        self.clients.fetch_add(1, Ordering::Relaxed);
        let ports = self.ports.lock().unwrap();
        let own = ports.iter().position(|port| Arc::ptr_eq(port, &client.queue)).expect("a port");
        let queue = Arc::clone(&ports[(own + 1) % ports.len()]);
        let (answer, answers) = channel();
        LocalClient {
            id: client.id,
            queue,
            answer,
            answers,
            clients: Arc::clone(&client.clients),
            control: Arc::clone(&client.control),
            departed: Arc::clone(&client.departed),
        }
    }

    /// The regions of other hosts that this one serves.
    pub fn exported(&self) -> Vec<RegionId> {
        self.exported.lock().unwrap().clone()
    }

    /// The region of this number.
    pub fn region(&self, id: RegionId) -> Arc<HeapRegion> {
        Arc::clone(&self.regions.lock().unwrap()[id.0 as usize])
    }
}

impl Host for LocalHost {
    type Port = LocalPort;

    fn address(&self) -> String {
        "local://".to_owned()
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.max(1))
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        assert_eq!(rights, RegionRights::ReadOnly, "clients never write leaves");
        let mut regions = self.regions.lock().unwrap();
        assert!(self.regions_max.is_none_or(|most| regions.len() < most), "this host has a bug");
        let region = Arc::new(HeapRegion::new(RegionId(regions.len() as u32), length_bytes));
        regions.push(Arc::clone(&region));
        Ok(region)
    }

    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        assert_eq!(rights, RegionRights::ReadOnly, "clients never write leaves");
        self.exported.lock().unwrap().push(region.id());
        Ok(())
    }

    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        self.exported.lock().unwrap().retain(|exported| *exported != region);
        Ok(())
    }

    fn notify(&self, _notice: u64) {}

    fn open_port(&self) -> Result<LocalPort, FabricError> {
        let queue = Arc::new(Queue::default());
        self.ports.lock().unwrap().push(Arc::clone(&queue));
        Ok(LocalPort { queue, parked: Parked::default() })
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        self.control.wait(timeout);
        Ok(std::mem::take(&mut self.departed.lock().unwrap()))
    }

    fn client_count(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    fn fence(&self, _client: ClientId) -> Result<(), FabricError> {
        Ok(())
    }

    fn wake(&self) {
        self.control.ring();
        for queue in self.ports.lock().unwrap().iter() {
            queue.doorbell.ring();
        }
    }
}

/// One client.
pub struct LocalClient {
    id: ClientId,
    queue: Arc<Queue>,
    answer: Sender<Vec<u8>>,
    answers: Receiver<Vec<u8>>,
    clients: Arc<AtomicUsize>,
    control: Arc<Doorbell>,
    departed: Arc<Mutex<Vec<ClientId>>>,
}

impl LocalClient {
    /// Sends one request and waits for its reply.
    pub fn call(&self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        self.receive()
    }

    /// Sends one request.
    pub fn send(&self, request: &[u8]) {
        let call = WaitingCall { client: self.id, request: request.to_vec(), answer: self.answer.clone() };
        self.queue.calls.lock().unwrap().push_back(call);
        self.queue.doorbell.ring();
    }

    /// The reply to the oldest request that has none yet.
    pub fn receive(&self) -> Vec<u8> {
        self.answers.recv_timeout(REPLY_MAX).expect("every request is answered")
    }

    /// The same, if there is one already.
    pub fn try_receive(&self) -> Option<Vec<u8>> {
        self.answers.try_recv().ok()
    }
}

impl Drop for LocalClient {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
        self.departed.lock().unwrap().push(self.id);
        self.control.ring();
    }
}
