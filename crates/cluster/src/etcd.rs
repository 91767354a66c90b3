//! The keeper outside of the pool: etcd.
//!
//! Invariant: a map is written only if the one that it replaces is still there, and its number is greater, or
//! the same and addresses have changed. The map of another pool is replaced only while none of that pool's
//! nodes is registered, and if it has ended with them.
//!
//! Protocol: callers block, each call within a bound. One thread of its own runs the asynchronous half.

mod calls;
mod messages;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use farsight_base::sync::{AtomicBool, Ordering};
use prost::Message;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::known::{KEYS_MAX, Keys, Pair};
use crate::{ClusterError, ClusterUrl, Keeper, Known, MapRecord, Member, Offered};
use calls::{Calls, Failure, MEMBER_WAIT_MAX, WAIT_MAX, Way};
use messages::{
    Compare, Empty, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest,
    PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest,
    WatchRequest, WatchResponse,
};

/// How long the thread's end waits for what the system does for it, as looking up a name.
const END_WAIT_MAX: Duration = Duration::from_millis(200);

/// How an etcd is reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct EtcdOptions {
    /// Also on another host, where anyone on the way can lead clients elsewhere.
    pub allow_plaintext: bool,
}

/// What an etcd keeps under the name of one pool.
pub struct Etcd {
    url: ClusterUrl,
    keys: Keys,
    calls: Arc<Mutex<Calls>>,
    runtime: Handle,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The number of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease(pub(crate) i64);

/// Hears of changes under a pool's name, until one is lost; dropping it ends it.
pub struct Watch {
    is_over: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Watch {
    /// True once changes may have been missed: the connection has ended, or etcd has forgotten them.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // Acquire: partner is the Release store of the task that has ended.
        self.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Etcd {
    /// A way to what is kept at this address. Nothing is asked yet.
    ///
    /// # Errors
    /// [`ClusterError::Plaintext`], [`ClusterError::Thread`].
    pub fn open(url: &ClusterUrl, options: EtcdOptions) -> Result<Self, ClusterError> {
        if let Some(endpoint) = url.far_endpoint().filter(|_| !options.allow_plaintext) {
            return Err(ClusterError::Plaintext { endpoint: endpoint.to_owned() });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let body = move || {
            // An error is its sender's end, and that is what is waited for.
            let _ = runtime.block_on(ended);
            runtime.shutdown_timeout(END_WAIT_MAX);
        };
        let thread = std::thread::Builder::new().name("etcd".to_owned()).spawn(body)?;
        Ok(Self {
            keys: Keys::of(url.name()),
            calls: Arc::new(Mutex::new(Calls::to(url.clone()))),
            url: url.clone(),
            runtime: handle,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// The pool's name, and where it is kept.
    #[must_use]
    pub fn url(&self) -> &ClusterUrl {
        &self.url
    }

    /// All that is kept, as it was at one revision.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn read(&self) -> Result<Known, ClusterError> {
        let (key, range_end) = self.keys.range();
        let limit = KEYS_MAX as i64;
        let answer: RangeResponse =
            self.call(Way::Unary("/etcdserverpb.KV/Range"), RangeRequest { key, range_end, limit })?;
        if answer.more {
            let prefix = String::from_utf8_lossy(&self.keys.range().0).into_owned();
            return Err(ClusterError::Keys { prefix, max: KEYS_MAX });
        }
        let pair = |pair: KeyValue| {
            let KeyValue { key, value, create_revision: created, mod_revision: modified, lease } = pair;
            Pair { key, value, created, modified, lease }
        };
        let revision = answer.header.map_or(0, |header| header.revision);
        self.keys.known(revision, answer.kvs.into_iter().map(pair).collect())
    }

    /// A lease that ends if it is not renewed for so long.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn grant(&self, for_s: u32) -> Result<Lease, ClusterError> {
        let request = LeaseGrantRequest { ttl: for_s.into() };
        let granted: LeaseGrantResponse = self.call(Way::Unary("/etcdserverpb.Lease/LeaseGrant"), request)?;
        Ok(Lease(granted.id))
    }

    /// Renews a lease. False if it has ended.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn renew(&self, lease: Lease) -> Result<bool, ClusterError> {
        let way = Way::Stream("/etcdserverpb.Lease/LeaseKeepAlive");
        let renewed: LeaseKeepAliveResponse = self.call(way, LeaseRequest { id: lease.0 })?;
        Ok(renewed.ttl > 0)
    }

    /// Ends a lease, and what is under it.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn revoke(&self, lease: Lease) -> Result<(), ClusterError> {
        let way = Way::Unary("/etcdserverpb.Lease/LeaseRevoke");
        match self.call_of_lease::<_, Empty>(way, LeaseRequest { id: lease.0 }) {
            Ok(_) | Err(Failure::NoLease) => Ok(()),
            Err(Failure::Cluster(error)) => Err(error),
        }
    }

    /// Registers a node under its lease. False if that has ended.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn register(&self, member: &Member, lease: Lease) -> Result<bool, ClusterError> {
        let put = PutRequest { key: self.keys.node(member.epoch), value: member.encoded(), lease: lease.0 };
        match self.change(Vec::new(), put) {
            Ok(_) => Ok(true),
            Err(Failure::NoLease) => Ok(false),
            Err(Failure::Cluster(error)) => Err(error),
        }
    }

    /// Takes the coordinator's lease for the node of this epoch, if nobody has it.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn coordinate(&self, epoch: u64, lease: Lease) -> Result<(), ClusterError> {
        let key = self.keys.coordinator();
        let put = PutRequest { key: key.clone(), value: epoch.to_le_bytes().to_vec(), lease: lease.0 };
        match self.change(vec![Compare::absent(key)], put) {
            Ok(_) | Err(Failure::NoLease) => Ok(()),
            Err(Failure::Cluster(error)) => Err(error),
        }
    }

    /// Hears of what changes behind `known`: `news` is called at each change, and when no more will be heard.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn watch(
        &self,
        known: &Known,
        news: impl Fn() + Send + Sync + 'static,
    ) -> Result<Watch, ClusterError> {
        let (key, range_end) = self.keys.range();
        let created = WatchCreateRequest { key, range_end, start_revision: known.revision + 1 };
        let calls = Arc::clone(&self.calls);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let task = self.runtime.spawn(async move {
            watch(&calls, created, &news).await;
            // Release: partner is the Acquire load in `Watch::is_over`.
            over.store(true, Ordering::Release);
            news();
        });
        Ok(Watch { is_over, task: task.abort_handle() })
    }

    /// One put, if all conditions hold. False if one does not.
    fn change(&self, compare: Vec<Compare>, put: PutRequest) -> Result<bool, Failure> {
        let success = vec![RequestOp { request_put: Some(put) }];
        let way = Way::Unary("/etcdserverpb.KV/Txn");
        let done: TxnResponse = self.call_of_lease(way, TxnRequest { compare, success })?;
        Ok(done.succeeded)
    }

    /// Asks what has nothing to do with a lease.
    fn call<Q, A>(&self, way: Way, request: Q) -> Result<A, ClusterError>
    where
        Q: Message + Clone + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.call_of_lease(way, request).map_err(|failure| match failure {
            Failure::Cluster(error) => error,
            Failure::NoLease => self.silent("it knows nothing of what was asked"),
        })
    }

    fn call_of_lease<Q, A>(&self, way: Way, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let calls = Arc::clone(&self.calls);
        let answer = self.run(async move { calls.lock().await.call(way, request).await });
        answer.unwrap_or_else(|| Err(Failure::Cluster(self.silent("its thread does not answer"))))
    }

    /// What comes of it in the thread; nothing, if that is not heard of in time.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (tell, told) = sync_channel(1);
        self.runtime.spawn(async move {
            // Nobody may wait any more.
            let _ = tell.send(work.await);
        });
        told.recv_timeout(2 * WAIT_MAX).ok()
    }

    fn silent(&self, why: &str) -> ClusterError {
        let (endpoints, why) = (self.url.endpoints().join(", "), why.to_owned());
        ClusterError::Unreachable { endpoints, why, waited: 2 * WAIT_MAX }
    }
}

/// Until a change may be missed.
async fn watch(calls: &Mutex<Calls>, created: WatchCreateRequest, news: &(impl Fn() + Sync)) {
    // Within a bound, for calls wait for this one.
    let connecting = timeout(MEMBER_WAIT_MAX, async { calls.lock().await.connected().await });
    let Ok(Ok(connected)) = connecting.await else { return };
    // A stream of requests that ended would end the watch.
    let (_open, more) = tokio::sync::mpsc::channel::<WatchRequest>(1);
    let requests = [WatchRequest { create_request: Some(created) }];
    let more = tokio_stream::wrappers::ReceiverStream::new(more);
    let requests = tokio_stream::StreamExt::chain(tokio_stream::iter(requests), more);
    let Ok(mut answers) = connected.streaming("/etcdserverpb.Watch/Watch", requests).await else { return };
    while let Ok(Some(WatchResponse { canceled: false, events })) = answers.message().await {
        if !events.is_empty() {
            news();
        }
    }
}

impl Keeper for Etcd {
    fn map(&mut self) -> Result<Option<MapRecord>, ClusterError> {
        Ok(self.read()?.pool().cloned())
    }

    fn offer(&mut self, map: &MapRecord, known: &Known) -> Result<Offered, ClusterError> {
        let (desired, mut compare) = match &known.map {
            None => (map.with_addresses(known.addresses(map)), vec![Compare::absent(self.keys.map())]),
            Some((current, revision)) => {
                let desired = match current {
                    current if current.is_same_list(map) => current.with_addresses(known.addresses(current)),
                    current if current.pool() == map.pool() && current.term() >= map.term() => {
                        return Ok(Offered::KeepsIts);
                    }
                    current if current.pool() != map.pool() && known.pool().is_some() => {
                        return Ok(Offered::KeepsIts);
                    }
                    _ => map.with_addresses(known.addresses(map)),
                };
                if desired == *current {
                    return Ok(Offered::Has);
                }
                (desired, vec![Compare::unchanged(self.keys.map(), *revision)])
            }
        };
        if !desired.is_complete() {
            return Ok(Offered::KeepsIts);
        }
        let former = known.map.iter().filter(|(current, _)| current.pool() != map.pool());
        let former = former.flat_map(|(current, _)| current.epochs());
        compare.extend(former.map(|epoch| Compare::absent(self.keys.node(*epoch))));
        let put = PutRequest { key: self.keys.map(), value: desired.encoded(), lease: 0 };
        match self.change(compare, put) {
            Ok(true) => Ok(Offered::Has),
            Ok(false) => Ok(Offered::Changed),
            Err(Failure::NoLease) => Err(self.silent("it speaks of a lease that the map does not have")),
            Err(Failure::Cluster(error)) => Err(error),
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            drop(thread.join());
        }
    }
}
