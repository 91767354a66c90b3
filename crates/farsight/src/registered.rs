//! A server that is registered under its pool's name, by a thread of this process.
//!
//! Invariant: the server answers rightly whatever becomes of etcd. So the thread goes on for as long as the
//! server runs, and says once that etcd is away, and once that it is back.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::report::{report, with_causes};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_cluster::{
    ClusterError, ClusterUrl, Etcd, EtcdOptions, Keeper, Known, MapRecord, Member, Offered, Registration,
};
use farsight_node::{OwnMap, Signal};

use crate::{ServerUrl, StartError};

/// From one step to the next, when nothing is heard: well within the time of a lease.
const STEP_PAUSE: Duration = Duration::from_secs(1);
/// How long a server that starts waits for an etcd that does not answer.
const START_MAX: Duration = Duration::from_secs(10);
/// The longest that the end of the thread is awaited.
const STOP_MAX: Duration = Duration::from_secs(15);

/// A server that is registered; dropping it ends that.
pub(crate) struct Registered {
    stop: Arc<AtomicBool>,
    news: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// What is to be registered, and where.
pub(crate) struct Registering<'u> {
    pub(crate) name: ClusterUrl,
    pub(crate) etcd: EtcdOptions,
    pub(crate) urls: &'u [ServerUrl],
    pub(crate) pool_nodes: u8,
    pub(crate) is_durable: bool,
}

/// A node's memory, as one of the keepers of its pool's map.
struct NodesMap {
    own: OwnMap,
    is_durable: bool,
}

impl Keeper for NodesMap {
    fn map(&mut self) -> Result<Option<MapRecord>, ClusterError> {
        Ok(MapRecord::of(&self.own.map(), self.is_durable))
    }

    fn offer(&mut self, map: &MapRecord, _known: &Known) -> Result<Offered, ClusterError> {
        let list = (map.term(), map.epochs());
        let is_taken = self.own.learn_addresses(map.pool(), list, map.addresses().clone());
        Ok(if is_taken { Offered::Has } else { Offered::KeepsIts })
    }
}

impl Registering<'_> {
    /// Registers the node, and keeps it so.
    pub(crate) fn start(self, own: OwnMap) -> Result<Registered, StartError> {
        let is_everywhere = |url: &&ServerUrl| match url {
            ServerUrl::Shm(_) => false,
            ServerUrl::Tcp(at) | ServerUrl::Rdma(at) => {
                at.host.parse().is_ok_and(|host: IpAddr| host.is_unspecified())
            }
        };
        if let Some(url) = self.urls.iter().find(is_everywhere) {
            return Err(StartError::Everywhere { url: url.clone() });
        }
        let member = Member {
            epoch: own.map().epoch,
            is_durable: self.is_durable,
            pool_nodes: self.pool_nodes,
            addresses: self.urls.iter().map(ServerUrl::to_string).collect(),
        };
        let news = Arc::new(Signal::default());
        let heard = Arc::clone(&news);
        let etcd = Etcd::open(&self.name, self.etcd)?;
        let mut registration = Registration::new(etcd, member, move || heard.raise())?;
        let mut node = NodesMap { own, is_durable: self.is_durable };
        let begun = Instant::now();
        while let Err(error) = registration.step(&mut node, false) {
            if !error.is_transient() || begun.elapsed() > START_MAX {
                return Err(error.into());
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, heard) = (Arc::clone(&stop), Arc::clone(&news));
        let builder = std::thread::Builder::new().name("registration".to_owned());
        let body = move || keep(registration, &mut node, &heard, &stopped);
        let thread = builder.spawn(body).map_err(ClusterError::Thread)?;
        Ok(Registered { stop, news, thread: Some(thread) })
    }
}

/// Steps until the end, and says what changes.
fn keep(mut registration: Registration, node: &mut NodesMap, news: &Signal, stop: &AtomicBool) {
    let name = registration.etcd().url().to_string();
    let mut told: Option<String> = None;
    // Relaxed: partner is the store in `drop`, and nothing comes with it.
    while !stop.load(Ordering::Relaxed) {
        news.wait(STEP_PAUSE);
        let is_coordinator = node.own.is_coordinator();
        match registration.step(node, is_coordinator) {
            Ok(_) => {
                if told.take().is_some() {
                    report(format_args!("this node is registered as one of {name} again"));
                }
            }
            // The same trouble differs in how long it was waited for.
            Err(error) if told.is_some() && error.is_transient() => {}
            Err(error) => {
                let why = with_causes(&error);
                if told.as_ref() != Some(&why) {
                    report(format_args!("{name}: the pool goes on with the map that its nodes have: {why}"));
                }
                told = Some(why);
            }
        }
    }
    // Else the lease ends by itself.
    if told.is_none() {
        drop(registration.end());
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Relaxed: nothing is handed over, and the signal orders it before the wait's end.
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() > STOP_MAX {
                return report(format_args!("the thread \"registration\" did not end within {STOP_MAX:?}"));
            }
            self.news.raise();
            std::thread::sleep(Duration::from_millis(1));
        }
        // A panic was printed by the thread itself.
        drop(thread.join());
    }
}
