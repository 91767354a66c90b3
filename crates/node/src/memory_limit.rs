//! The limit of a node's memory: what its process takes, all together.
//!
//! Invariant: what clients can make grow asks here first: regions of tables, queues, values on their way.
//! While the process has its limit each is refused by an error that names the limit. So the system never
//! ends the process for its memory.
//!
//! The system is asked what the process takes, instead of a count for each part. So everything is in it:
//! leaves and blocks, trees, models, rings. The system is asked once for each step of growth, which takes it
//! some ten microseconds. Over shared memory it does not count what clients alone have written. So the
//! process takes at least what was granted.
//!
//! Memory that a region may have for a part of a step counts when it is written. So the process exceeds its
//! limit by a step for each table that grows, at most.
//!
//! Tables would leave nothing to others, for they grow for ever. So a share of the limit is kept for queues,
//! and one for values on their way ([`MemoryUse::kept_bytes`]). Queues within their share are never refused:
//! who wants to drop tables must be able to connect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, RegionId};
use farsight_fabric::{FabricError, Region, Reserved};
use farsight_protocol::{ErrorCode, MemoryStats, ServerError};

use crate::process;

/// By so many bytes a region grows: some thousand leaves.
const STEP_BYTES: u64 = 1 << 20;
/// The share that is kept for queues, and that for values, is one part in so many of the limit.
const KEPT_PART: u64 = 16;
/// Bytes of such a share at least and at most.
const KEPT_BYTES_MIN: u64 = 4 << 20;
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// One client has one part in so many of the limit at most: in queues, and in values on their way.
const CLIENT_PART: u64 = 4;
/// Values of one client on their way at most, and their bytes.
const VALUES_MAX: u64 = 256;
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// What memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemoryUse {
    Regions,
    Queues,
    Values,
}

impl MemoryUse {
    const ALL: [Self; 3] = [Self::Regions, Self::Queues, Self::Values];

    /// Bytes of a limit that no other part may have.
    fn kept_bytes(self, limit_bytes: u64) -> u64 {
        match self {
            Self::Regions => 0,
            Self::Queues | Self::Values => (limit_bytes / KEPT_PART).clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX),
        }
    }
}

/// The limit, and who knows what the process takes.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    /// `None`: the process may take what it likes. Then nothing is refused, and all is counted.
    limit_bytes: Option<u64>,
    /// What the process takes, by the system's word.
    measure: fn() -> Option<u64>,
    /// Bytes that each part may have.
    granted_bytes: [AtomicU64; MemoryUse::ALL.len()],
    /// What each client has of values on their way.
    under_way: Mutex<BTreeMap<ClientId, ClientValues>>,
}

/// Values of one client, and their bytes.
#[derive(Clone, Copy, Default, Debug)]
struct ClientValues {
    values: u64,
    bytes: u64,
}

impl MemoryLimit {
    /// So many bytes for this process.
    pub(crate) fn of_process(limit_bytes: Option<u64>) -> Arc<Self> {
        Self::measured(limit_bytes, process::memory_bytes)
    }

    fn measured(limit_bytes: Option<u64>, measure: fn() -> Option<u64>) -> Arc<Self> {
        let (granted_bytes, under_way) = (Default::default(), Mutex::default());
        Arc::new(Self { limit_bytes, measure, granted_bytes, under_way })
    }

    /// The limit in bytes.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    /// `region`, as long as there is memory for what grows.
    pub(crate) fn of_region(self: &Arc<Self>, region: Arc<dyn Region>) -> Arc<dyn Region> {
        let (limit, granted_bytes, growing) = (Arc::clone(self), AtomicU64::new(0), Mutex::default());
        Arc::new(LimitedRegion { region, limit, granted_bytes, growing })
    }

    /// Memory of one more queue of a client that has `held_bytes` in queues.
    pub(crate) fn of_queue(self: &Arc<Self>, held_bytes: u64, wanted_bytes: u64) -> Result<Reserved, String> {
        let most =
            self.limit_bytes.map(|limit| (limit / CLIENT_PART).max(MemoryUse::Queues.kept_bytes(limit)));
        if most.is_some_and(|most| held_bytes + wanted_bytes > most) {
            let (limit, most) = (self.limit_bytes.unwrap_or_default(), most.unwrap_or_default());
            return Err(format!(
                "the memory limit of this node is {limit} B, of which one client's queues have {most} B at most: it has \
                 {held_bytes} B, and one more takes {wanted_bytes} B. Close sessions, or start the node with a higher \
                 limit"
            ));
        }
        let granted = self.reserve(MemoryUse::Queues, wanted_bytes);
        granted.map(|granted| Box::new(granted) as Reserved).map_err(|error| error.to_string())
    }

    /// Memory of a value of `bytes` that a client has on its way, in copies of this process.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`]: the client has too many. [`ErrorCode::NoMemory`]: the node has.
    pub(crate) fn of_copy(self: &Arc<Self>, client: ClientId, bytes: u64) -> Result<ValueShare, ServerError> {
        let mut share = self.of_value(client, bytes)?;
        share.copy = Some(self.of_load(bytes)?);
        Ok(share)
    }

    /// A client's share of values on their way, for one of `bytes` that lies in a region.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`]: the client has too many.
    pub(crate) fn of_value(
        self: &Arc<Self>,
        client: ClientId,
        bytes: u64,
    ) -> Result<ValueShare, ServerError> {
        let most = self.limit_bytes.map_or(VALUE_BYTES_MAX, |limit| VALUE_BYTES_MAX.min(limit / CLIENT_PART));
        let mut under_way = self.lock();
        let ClientValues { values, bytes: has_bytes } = under_way.get(&client).copied().unwrap_or_default();
        // One value at a time always: its own memory is what counts then.
        if values > 0 && (values >= VALUES_MAX || has_bytes + bytes > most) {
            let text = format!(
                "{client} has {values} values of {has_bytes} B under way in pieces: one of {bytes} B more is over \
                 {VALUES_MAX} values or {most} B, what one client may have of this node"
            );
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        }
        under_way.insert(client, ClientValues { values: values + 1, bytes: has_bytes + bytes });
        Ok(ValueShare { limit: Arc::clone(self), client, bytes, copy: None })
    }

    /// Memory of a value of `bytes` that a bulk load gathers.
    ///
    /// # Errors
    /// [`ErrorCode::NoMemory`].
    pub(crate) fn of_load(self: &Arc<Self>, bytes: u64) -> Result<Granted, ServerError> {
        let granted = self.reserve(MemoryUse::Values, bytes);
        granted.map_err(|error| ServerError::new(ErrorCode::NoMemory, error.to_string()))
    }

    /// Bytes that may be kept for calls which may be repeated, and as many that may wait for the log. Both
    /// have bounds of their own, so they ask nobody.
    pub(crate) fn bounded_bytes(&self) -> u64 {
        self.limit_bytes.map_or(u64::MAX, |limit| limit / KEPT_PART)
    }

    fn reserve(self: &Arc<Self>, part: MemoryUse, bytes: u64) -> Result<Granted, FabricError> {
        self.grant(part, bytes)?;
        Ok(Granted { limit: Arc::clone(self), part, bytes })
    }

    /// Bytes that the process takes; what it was granted where the system does not say it.
    pub(crate) fn used_bytes(&self) -> u64 {
        let granted_bytes = MemoryUse::ALL.iter().map(|part| self.granted_bytes(*part)).sum::<u64>();
        granted_bytes.max((self.measure)().unwrap_or(0))
    }

    /// What is counted by parts; `replies_bytes` is what is kept for calls that may be repeated.
    pub(crate) fn stats(&self, replies_bytes: u64) -> MemoryStats {
        MemoryStats {
            regions_bytes: self.granted_bytes(MemoryUse::Regions),
            queues_bytes: self.granted_bytes(MemoryUse::Queues),
            values_bytes: self.granted_bytes(MemoryUse::Values),
            replies_bytes,
        }
    }

    fn granted_bytes(&self, part: MemoryUse) -> u64 {
        // Relaxed: what grows at this moment may count or not.
        self.granted_bytes[part as usize].load(Ordering::Relaxed)
    }

    /// Lets a part have `wanted_bytes` more, unless the process would have more than its limit, or the other
    /// parts less than what is kept for them.
    fn grant(&self, part: MemoryUse, wanted_bytes: u64) -> Result<(), FabricError> {
        if let Some(limit_bytes) = self.limit_bytes {
            let left_bytes =
                |part: MemoryUse| part.kept_bytes(limit_bytes).saturating_sub(self.granted_bytes(part));
            let is_kept = part == MemoryUse::Queues && wanted_bytes <= left_bytes(part);
            let others = MemoryUse::ALL.into_iter().filter(|other| *other != part);
            let kept_bytes: u64 = others.map(left_bytes).sum();
            let used_bytes = self.used_bytes();
            if !is_kept && used_bytes.saturating_add(wanted_bytes).saturating_add(kept_bytes) > limit_bytes {
                return Err(FabricError::MemoryLimit { limit_bytes, used_bytes, kept_bytes, wanted_bytes });
            }
        }
        // Relaxed: see `granted_bytes`.
        self.granted_bytes[part as usize].fetch_add(wanted_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, part: MemoryUse, bytes: u64) {
        // Relaxed: see `granted_bytes`.
        self.granted_bytes[part as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClientId, ClientValues>> {
        // Each change is complete.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that was granted. Dropped, it is free.
#[derive(Debug)]
pub(crate) struct Granted {
    limit: Arc<MemoryLimit>,
    part: MemoryUse,
    bytes: u64,
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.limit.release(self.part, self.bytes);
    }
}

/// What a client has of one value on its way. Dropped, it has it no more.
#[derive(Debug)]
pub(crate) struct ValueShare {
    limit: Arc<MemoryLimit>,
    client: ClientId,
    bytes: u64,
    /// That of a copy, beside regions.
    copy: Option<Granted>,
}

impl Drop for ValueShare {
    fn drop(&mut self) {
        let mut under_way = self.limit.lock();
        if let Some(has) = under_way.get_mut(&self.client) {
            has.values -= 1;
            has.bytes -= self.bytes;
            if has.values == 0 {
                under_way.remove(&self.client);
            }
        }
    }
}

/// A region that grows within its node's limit.
struct LimitedRegion {
    region: Arc<dyn Region>,
    limit: Arc<MemoryLimit>,
    /// Bytes from its start that it may have.
    granted_bytes: AtomicU64,
    /// Held by the thread that asks for more.
    growing: Mutex<()>,
}

impl LimitedRegion {
    #[cold]
    fn grow(&self, used_bytes: u64) -> Result<(), FabricError> {
        // Nothing is half done under it.
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: it changes under the lock alone.
        let granted_bytes = self.granted_bytes.load(Ordering::Relaxed);
        if used_bytes <= granted_bytes {
            return Ok(());
        }
        let length_bytes = self.region.words().len() as u64 * 8;
        let end_bytes = used_bytes.next_multiple_of(STEP_BYTES).min(length_bytes).max(used_bytes);
        self.limit.grant(MemoryUse::Regions, end_bytes - granted_bytes)?;
        self.granted_bytes.store(end_bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for LimitedRegion {
    fn drop(&mut self) {
        // Relaxed: nobody else has the region.
        let granted_bytes = self.granted_bytes.load(Ordering::Relaxed);
        self.limit.release(MemoryUse::Regions, granted_bytes);
    }
}

impl Region for LimitedRegion {
    fn id(&self) -> RegionId {
        self.region.id()
    }

    fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
        // Relaxed: a number that lags takes the lock, and meets the newest one there.
        if used_bytes > self.granted_bytes.load(Ordering::Relaxed) {
            self.grow(used_bytes)?;
        }
        self.region.grow_to(used_bytes)
    }

    fn huge_page_bytes(&self) -> u64 {
        self.region.huge_page_bytes()
    }

    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
        self.region.collapse_to_huge_pages(used_bytes)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    struct Words(Vec<AtomicU64>);

    impl Region for Words {
        fn id(&self) -> RegionId {
            RegionId(4)
        }
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
        fn huge_page_bytes(&self) -> u64 {
            0
        }
        fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
            0
        }
    }

    /// What is kept for queues and for values, each of these limits.
    const KEPT_BYTES: u64 = KEPT_BYTES_MIN;
    const CLIENT: ClientId = ClientId(7);

    /// A limit of so many bytes besides what is kept.
    fn limit(limit_bytes: u64, measure: fn() -> Option<u64>) -> Arc<MemoryLimit> {
        let limit = MemoryLimit::measured(Some(limit_bytes + 2 * KEPT_BYTES), measure);
        assert_eq!(MemoryUse::Queues.kept_bytes(limit_bytes + 2 * KEPT_BYTES), KEPT_BYTES);
        limit
    }

    /// A region of 5 MiB.
    fn region(limit: &Arc<MemoryLimit>) -> Arc<dyn Region> {
        limit.of_region(Arc::new(Words((0..5 << 17).map(|_| AtomicU64::new(0)).collect())))
    }

    fn limited(measure: fn() -> Option<u64>) -> Arc<dyn Region> {
        region(&limit(50 << 20, measure))
    }

    #[test]
    fn a_region_grows_by_steps_within_the_limit() {
        let region = limited(|| Some(47 << 20));
        assert!(region.grow_to(1).is_ok() && region.grow_to(3 << 20).is_ok());
        let error = region.grow_to((3 << 20) + 1 + (4 << 20)).expect_err("beyond the limit").to_string();
        assert!(error.contains("60817408 B") && error.contains("has 49283072 B"), "{error}");
        assert!(region.grow_to(3 << 20).is_ok(), "what it has stays");
    }

    #[test]
    fn what_was_granted_is_not_asked_for_again() {
        static USED_BYTES: AtomicU64 = AtomicU64::new(0);
        let region = limited(|| Some(USED_BYTES.load(Ordering::Relaxed)));
        assert!(region.grow_to(1).is_ok());
        USED_BYTES.store(u64::MAX, Ordering::Relaxed);
        assert!(region.grow_to(STEP_BYTES).is_ok());
        assert!(region.grow_to(STEP_BYTES + 1).is_err());
        USED_BYTES.store(0, Ordering::Relaxed);
        assert!(region.grow_to(STEP_BYTES + 1).is_ok(), "there is memory again");
    }

    #[test]
    fn what_regions_may_have_counts_until_they_are_dropped() {
        let limit = limit(6 << 20, || Some(1));
        let (first, second) = (region(&limit), region(&limit));
        assert!(first.grow_to(5 << 20).is_ok() && second.grow_to(1 << 20).is_ok());
        assert!(second.grow_to(2 << 20).is_err());
        assert_eq!(limit.used_bytes(), 6 << 20);
        drop(first);
        assert!(second.grow_to(5 << 20).is_ok());
        assert_eq!(limit.used_bytes(), 5 << 20);
    }

    #[test]
    fn queues_have_their_share_when_tables_have_all_else() {
        let limit = limit(1 << 20, || None);
        let tables = region(&limit);
        assert!(tables.grow_to(1 << 20).is_ok() && tables.grow_to((1 << 20) + 1).is_err());
        let queues: Vec<_> = (0..4).map(|_| limit.of_queue(0, 1 << 20).expect("its share")).collect();
        let refused = limit.of_queue(0, 1).expect_err("the process has its limit");
        assert!(refused.contains("memory limit of this node is 9437184 B"), "{refused}");
        assert_eq!(limit.stats(3).queues_bytes, 4 << 20);
        drop(queues);
        assert!(limit.of_queue(0, 1 << 20).is_ok());
        drop(tables);
        let beyond: Vec<_> = (0..5).map(|_| limit.of_queue(0, 1 << 20).expect("what tables left")).collect();
        assert!(region(&limit).grow_to(1).is_err(), "and tables are refused what queues have");
        drop(beyond);
    }

    #[test]
    fn queues_are_not_refused_where_the_process_alone_is_over_the_limit() {
        let limit = limit(1 << 20, || Some(1 << 40));
        assert!(limit.of_queue(0, KEPT_BYTES).is_ok());
        assert!(limit.of_queue(0, KEPT_BYTES + 1).is_err());
        assert!(limit.of_copy(CLIENT, 1).is_err_and(|error| error.code == ErrorCode::NoMemory));
    }

    #[test]
    fn one_client_has_a_part_of_the_limit() {
        let limit = limit(56 << 20, || Some(1));
        let refused = limit.of_queue(15 << 20, (1 << 20) + 1).expect_err("over a quarter");
        assert!(refused.contains("16777216 B at most") && refused.contains("15728640 B"), "{refused}");
        assert!(limit.of_queue(15 << 20, 1 << 20).is_ok());
        let first = limit.of_copy(CLIENT, 10 << 20).expect("the first");
        let refused = limit.of_copy(CLIENT, 7 << 20).expect_err("over a quarter");
        assert_eq!(refused.code, ErrorCode::OutOfResources);
        assert!(refused.text.contains("16777216 B") && refused.text.contains("10485760 B"), "{refused}");
        let other = limit.of_copy(ClientId(8), 7 << 20).expect("another client's");
        assert_eq!(limit.stats(0).values_bytes, 17 << 20);
        drop((first, other));
        assert_eq!((limit.stats(0).values_bytes, limit.lock().len()), (0, 0));
        let all: Vec<_> = (0..VALUES_MAX).map(|_| limit.of_value(CLIENT, 1).expect("a value")).collect();
        assert!(limit.of_value(CLIENT, 1).is_err());
        drop(all);
        assert!(limit.of_value(CLIENT, 40 << 20).is_ok(), "one always: the region has the memory, or not");
    }

    #[test]
    fn without_a_limit_all_is_counted_and_nothing_refused() {
        let limit = MemoryLimit::measured(None, || Some(1 << 60));
        let tables = region(&limit);
        assert!(tables.grow_to(2 << 20).is_ok());
        let queue = limit.of_queue(1 << 50, 5).expect("no limit");
        let stats = limit.stats(9);
        assert_eq!((stats.regions_bytes, stats.queues_bytes, stats.replies_bytes), (2 << 20, 5, 9));
        drop(queue);
        assert!(limit.of_value(CLIENT, VALUE_BYTES_MAX).is_ok());
    }
}
