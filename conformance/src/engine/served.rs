//! A compute node that serves, beside the nodes of a store: all writes of its tables go through it.

use std::sync::Arc;

use farsight_base::clock::SystemClock;
use farsight_client::Client;
use farsight_compute_node::{OFFER_PAUSE, Serving, ServingOptions};
use farsight_layout::FORMAT_VERSION;
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_node::{Service as _, Signal, Threads};
use farsight_protocol::ServedWork;

use crate::fabric::{FabricUnderTest, HasUrl};

/// It, with threads of its own. It ends before `place`, where it listens.
pub(super) struct Served<F> {
    serving: Arc<Serving>,
    _threads: Threads,
    _place: F,
}

impl<F: FabricUnderTest + HasUrl> Served<F> {
    /// One that listens at `place`, and writes for clients of `pool`.
    pub(super) fn start(place: F, pool: &Client) -> Self {
        let clock = SystemClock::new();
        let options = ServingOptions {
            address: place.url(),
            listener: Arc::new(place.listen(FORMAT_VERSION)),
            partitions: HASH_PARTITIONS as u16,
            percent: Some(100),
            cache_bytes: None,
            clock: Arc::new(clock.clone()),
        };
        let serving = Arc::new(Serving::new(pool.clone(), options).expect("messages are long enough"));
        let news = Arc::new(Signal::default());
        let (woken, waking) = (Arc::clone(&serving), Arc::clone(&news));
        let wake = move || {
            woken.listeners().wake();
            waking.raise();
        };
        let mut threads = Threads::new(Arc::clone(serving.failure()), wake);
        serving.listeners().open().expect("a listener");
        threads.serve(&serving, 1, &clock).expect("workers");
        let offering = Arc::clone(&serving);
        let renew = move |stop: &farsight_node::Stop| {
            while !stop.is_raised() {
                news.wait(OFFER_PAUSE);
                // A table may be dropped while it is offered for: the next round leaves it out.
                let _ = offering.offer();
            }
        };
        threads.spawn("offers", renew).expect("a thread");
        Self { serving, _threads: threads, _place: place }
    }
}

impl<F> Served<F> {
    /// Offers for tables that were just made: their clients hear of it at their first write.
    pub(super) fn offer(&self) {
        self.serving.offer().expect("a pool that lives");
    }

    /// What it did for others.
    pub(super) fn work(&self) -> ServedWork {
        self.serving.work()
    }
}

impl<F> Drop for Served<F> {
    fn drop(&mut self) {
        let failure = self.serving.failure().text();
        if !std::thread::panicking() {
            assert!(failure.is_none(), "a compute node that serves met a bug: {failure:?}");
        }
    }
}
