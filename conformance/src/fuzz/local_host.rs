//! A host without clients: its owner puts requests before its one worker and takes the replies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight_base::sync::AtomicU64;
use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{
    Answer, CallHandler, FabricError, Host, Parked, Region, RegionRights, ServerPort, Ticket,
};

/// Bytes of the longest message.
/// Bytes of a message at most.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 << 10;

struct HeapRegion {
    id: RegionId,
    words: Box<[AtomicU64]>,
}

impl Region for HeapRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn huge_page_bytes(&self) -> u64 {
        0
    }

    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}

#[derive(Default)]
struct LocalCalls {
    requests: VecDeque<(ClientId, Vec<u8>)>,
    replies: VecDeque<Vec<u8>>,
}

/// The host. It runs no thread and never sleeps.
#[derive(Default)]
pub(super) struct LocalHost {
    regions: Mutex<u32>,
    calls: Arc<Mutex<LocalCalls>>,
}

impl LocalHost {
    pub(super) fn send(&self, client: ClientId, request: &[u8]) {
        lock(&self.calls).requests.push_back((client, request.to_vec()));
    }

    /// The reply to the oldest request that has none yet.
    pub(super) fn receive(&self) -> Vec<u8> {
        lock(&self.calls).replies.pop_front().expect("every request is answered")
    }
}

/// The worker's end.
pub(super) struct LocalPort {
    calls: Arc<Mutex<LocalCalls>>,
}

impl ServerPort for LocalPort {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        for served in 0..budget_calls {
            let Some((client, request)) = lock(&self.calls).requests.pop_front() else { return served };
            let mut reply = Vec::new();
            let answer = handler.handle(client, Parked::<()>::default().give_ticket(), &request, &mut reply);
            assert_eq!(answer, Answer::Now, "replies are taken in the order of their requests");
            assert!(reply.len() <= MESSAGE_BYTES_MAX, "a reply of {} B", reply.len());
            lock(&self.calls).replies.push_back(reply);
        }
        budget_calls
    }

    fn finish(&mut self, _: Ticket, _reply: &[u8]) -> bool {
        false
    }

    fn wait(&mut self, _timeout: Duration) {}
}

impl Host for LocalHost {
    type Port = LocalPort;

    fn address(&self) -> String {
        "local://".to_owned()
    }

    fn epoch(&self) -> Epoch {
        Epoch(1)
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn create_region(
        &self,
        length_bytes: u64,
        _rights: RegionRights,
    ) -> Result<Arc<dyn Region>, FabricError> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        *regions += 1;
        let words = (0..length_bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Ok(Arc::new(HeapRegion { id: RegionId(*regions), words }))
    }

    fn withdraw_region(&self, _region: RegionId) -> Result<(), FabricError> {
        Ok(())
    }

    fn notify(&self, _notice: u64) {}

    fn open_port(&self) -> Result<LocalPort, FabricError> {
        Ok(LocalPort { calls: Arc::clone(&self.calls) })
    }

    fn step(&self, _timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        Ok(Vec::new())
    }

    fn client_count(&self) -> usize {
        0
    }

    fn fence(&self, _client: ClientId) -> Result<(), FabricError> {
        Ok(())
    }

    fn wake(&self) {}
}

fn lock(calls: &Mutex<LocalCalls>) -> std::sync::MutexGuard<'_, LocalCalls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
