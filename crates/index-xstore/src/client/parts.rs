//! XStore over several servers, each with an ordered range of the keys (docs/protocol/xstore-d.md): a client
//! for each of them, and what it takes to work with all at once.
//!
//! Invariant: a key is at one part, which the boundaries name, for as long as the table lives. So every
//! answer is a part's own, and the parts' answers in the order of their ranges are the whole.
//!
//! Protocol: a batch is shared out to the parts. Where they are other machines its steps go side by side.
//! Each step is done at every part, with a doorbell there, before the next one waits for anything. Each file
//! holds one operation.

mod gets;
mod scans;
mod writes;

use std::sync::Arc;

use farsight_fabric::QueuePair;
use farsight_fabric::chained::UnderWay;
use farsight_index::{Access, Answers, Counters, Pairs, ScanRequest, Unfinished};

use super::scan::Group;
use super::{XCache, XClient, XStoreError};
use writes::Share;

/// One session's engine for a table of several parts, with a queue pair to each of them.
pub struct XParts {
    /// The least key of each part but the first.
    boundaries: Arc<[u64]>,
    parts: Vec<Part>,
    /// Scans answered; a part counts what it did of them.
    scans: u64,
    /// What each part found of each scan: scan, part, and the number that it has there.
    found: Vec<(usize, usize, usize)>,
    /// What the last batch of writes left when its connection was lost.
    unfinished: Option<Unfinished>,
    /// What another engine left, which the next batch goes on with.
    resumed: Option<Unfinished>,
}

/// One part, and its share of a batch.
struct Part {
    client: XClient,
    keys: Vec<u64>,
    /// Where in the batch each of its keys or scans stands.
    places: Vec<usize>,
    answers: Answers,
    /// The chains of a step.
    chains: Option<UnderWay>,
    scans: Vec<ScanRequest>,
    /// Scans done, the first ones.
    scanned: usize,
    group: Option<Group>,
    pairs: Pairs,
    /// Its share of a batch of writes.
    share: Share,
}

impl Part {
    fn new(client: XClient) -> Self {
        Self {
            client,
            keys: Vec::new(),
            places: Vec::new(),
            answers: Answers::default(),
            chains: None,
            scans: Vec::new(),
            scanned: 0,
            group: None,
            pairs: Pairs::default(),
            share: Share::default(),
        }
    }
}

impl XParts {
    /// An engine over the caches of a table's parts, which other sessions may share, in the order of their
    /// ranges.
    ///
    /// # Panics
    /// Unless there is one boundary less than there are parts, of which there is one at least.
    #[must_use]
    pub fn new(boundaries: Arc<[u64]>, caches: &[Arc<XCache>], access: Access) -> Self {
        Self::of(boundaries, caches, |cache| XClient::new(cache, access))
    }

    /// The same whose servers search a table of values of any length, and send them.
    ///
    /// # Panics
    /// As [`XParts::new`].
    #[must_use]
    pub fn of_values(boundaries: Arc<[u64]>, caches: &[Arc<XCache>]) -> Self {
        Self::of(boundaries, caches, XClient::of_values)
    }

    fn of(boundaries: Arc<[u64]>, caches: &[Arc<XCache>], client: impl Fn(Arc<XCache>) -> XClient) -> Self {
        assert_eq!(caches.len(), boundaries.len() + 1, "a boundary between two parts");
        let parts = caches.iter().map(|cache| Part::new(client(Arc::clone(cache)))).collect();
        Self { boundaries, parts, scans: 0, found: Vec::new(), unfinished: None, resumed: None }
    }

    /// What this session did besides the fabric's verbs.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for part in &self.parts {
            sum += part.client.counters();
        }
        Counters { scans: self.scans, ..sum }
    }

    /// The value of `key` into `value`; returns its version, or `None` if the key is absent.
    ///
    /// # Errors
    /// [`XStoreError`].
    ///
    /// # Panics
    /// If `value` is not of the table's value size.
    #[inline(always)]
    pub fn get<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        if let ([part], [queue]) = (&mut self.parts[..], &mut *queues) {
            return part.client.get(queue, key, value);
        }
        self.get_of_many(queues, key, value)
    }

    /// [`XParts::get`] where there is more than one part.
    #[inline(never)]
    fn get_of_many<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        let part = self.part_of(key);
        self.parts[part].client.get(&mut queues[part], key, value)
    }

    /// Fetches the whole models of all parts.
    ///
    /// # Errors
    /// [`XStoreError`].
    pub fn prefill<Q: QueuePair>(&mut self, queues: &mut [Q]) -> Result<(), XStoreError> {
        self.parts.iter_mut().zip(queues).try_for_each(|(part, queue)| part.client.prefill(queue))
    }

    /// The part with this key: so many boundaries are not above it. All are looked at, which is faster than
    /// to choose.
    #[inline]
    pub(super) fn part_of(&self, key: u64) -> usize {
        self.boundaries.iter().map(|boundary| usize::from(*boundary <= key)).sum()
    }
}
