//! What stands under a pool's keys, to the byte.
//!
//! Invariant: these bytes are chosen by anyone who can write to the etcd. They become a record only if they
//! are exactly what the encoder writes, and if a pool can have it.
//!
//! A value is the byte [`FORMAT`], and then the record as the nodes' own replies have it (postcard).

use farsight_protocol::{POOL_NODES_MAX, PoolAddresses, PoolMap, PoolPlace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first byte of each value.
const FORMAT: u8 = 1;
/// Bytes of a value at most: all addresses of a pool, all epochs, and what stands around them.
const VALUE_BYTES_MAX: usize = 6144;

/// Why bytes are no record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Too many.
    #[error("{got} B, expected {VALUE_BYTES_MAX} at most")]
    Long {
        /// How many there are.
        got: usize,
    },
    /// Of another version of this program, or of none.
    #[error("they begin with {got:?}, expected {FORMAT}, the format of this version")]
    Format {
        /// The first byte, if there is any.
        got: Option<u8>,
    },
    /// Not what an encoder writes.
    #[error("they are not as the encoder writes them")]
    Bytes,
    /// What no pool can have.
    #[error("they say what no pool can have: {0}")]
    Unsound(&'static str),
}

/// A node that is registered under its lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its epoch, as in [`NodeHello`](farsight_protocol::NodeHello).
    pub epoch: u64,
    /// It keeps its tables in a directory, so that it is the same node when it is started again.
    pub is_durable: bool,
    /// How many nodes its pool is to have, from the first table on.
    pub pool_nodes: u8,
    /// How clients reach it, one address a fabric.
    pub addresses: Vec<String>,
}

/// The map of a pool that has a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MapRecord {
    /// Its nodes keep their tables in directories, so that the pool outlives them.
    is_durable: bool,
    /// The map, as its first node would tell it.
    map: PoolMap,
}

impl Member {
    /// The bytes of its value.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        encoded(self)
    }

    /// What a value says.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decoded(bytes: &[u8]) -> Result<Self, RecordError> {
        let member: Self = decoded(bytes)?;
        member.check()?;
        Ok(member)
    }

    /// Refuses what no node can be.
    ///
    /// # Errors
    /// [`RecordError::Unsound`].
    pub fn check(&self) -> Result<(), RecordError> {
        if !(1..=POOL_NODES_MAX).contains(&usize::from(self.pool_nodes)) {
            return Err(RecordError::Unsound("a pool of no nodes, or of more than 16"));
        }
        let addresses = PoolAddresses(vec![self.addresses.clone()]);
        addresses.check(1).map_err(|_| RecordError::Unsound("no addresses, too many, or ones of no length"))
    }
}

impl MapRecord {
    /// What a node's map is to others, perhaps without addresses yet; nothing before the first table.
    #[must_use]
    pub fn of(map: &PoolMap, is_durable: bool) -> Option<Self> {
        let epochs = map.place.as_ref()?.epochs.clone();
        map.pool?;
        let epoch = *epochs.first()?;
        let place = Some(PoolPlace { epochs, index: 0 });
        let record = Self { is_durable, map: PoolMap { epoch, place, ..map.clone() } };
        record.check().is_ok().then_some(record)
    }

    /// The bytes of its value.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        encoded(self)
    }

    /// What a value says.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decoded(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = decoded(bytes)?;
        record.check()?;
        if record.is_complete() { Ok(record) } else { Err(RecordError::Unsound("a map without addresses")) }
    }

    /// True if it has addresses: others can be told it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.map.addresses.are_known()
    }

    fn check(&self) -> Result<(), RecordError> {
        if !self.map.is_sound() {
            return Err(RecordError::Unsound("a map that no node would tell"));
        }
        let place = self.map.place.as_ref().ok_or(RecordError::Unsound("a map of no pool"))?;
        if place.index != 0 || self.map.epoch != place.epochs[0] {
            return Err(RecordError::Unsound("a map that another node than the first tells"));
        }
        let is_twin = |(at, epoch): (usize, &u64)| place.epochs[..at].contains(epoch);
        if place.epochs.iter().enumerate().any(is_twin) {
            return Err(RecordError::Unsound("one node twice"));
        }
        Ok(())
    }

    /// True if the pool outlives the processes of its nodes.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// What names the pool.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.map.pool.unwrap_or_default()
    }

    /// True if both are lists of the same nodes of one pool.
    #[must_use]
    pub fn is_same_list(&self, other: &Self) -> bool {
        self.pool() == other.pool() && self.term() == other.term() && self.epochs() == other.epochs()
    }

    /// The map's number.
    #[must_use]
    pub fn term(&self) -> u32 {
        self.map.term
    }

    /// The nodes' epochs, in their order.
    #[must_use]
    pub fn epochs(&self) -> &[u64] {
        self.map.place.as_ref().map_or(&[], |place| &place.epochs)
    }

    /// Their addresses.
    #[must_use]
    pub fn addresses(&self) -> &PoolAddresses {
        &self.map.addresses
    }

    /// The same with other addresses; the same, if a pool cannot have those.
    #[must_use]
    pub fn with_addresses(&self, addresses: PoolAddresses) -> Self {
        let map = PoolMap { addresses, ..self.map.clone() };
        let other = Self { map, ..self.clone() };
        if other.check().is_ok() { other } else { self.clone() }
    }
}

fn encoded<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_extend(record, vec![FORMAT]).expect("a record of strings and numbers is encoded into memory")
}

fn decoded<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(RecordError::Long { got: bytes.len() });
    }
    let Some((&FORMAT, body)) = bytes.split_first() else {
        return Err(RecordError::Format { got: bytes.first().copied() });
    };
    let record: T = postcard::from_bytes(body).map_err(|_| RecordError::Bytes)?;
    // A number has one encoding here, and postcard takes others, too.
    if encoded(&record) == bytes { Ok(record) } else { Err(RecordError::Bytes) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pool of these nodes at one address each.
    pub(crate) fn map(pool: u64, term: u32, epochs: &[u64]) -> PoolMap {
        let addresses = PoolAddresses::of_one_fabric(epochs.iter().map(|epoch| format!("tcp://h:{epoch}")));
        let place = Some(PoolPlace { epochs: epochs.to_vec(), index: epochs.len() as u8 - 1 });
        PoolMap { epoch: *epochs.last().expect("a node"), pool: Some(pool), place, term, addresses }
    }

    pub(crate) fn record(pool: u64, term: u32, epochs: &[u64]) -> MapRecord {
        MapRecord::of(&map(pool, term, epochs), false).expect("a map that others can be told")
    }

    pub(crate) fn member(epoch: u64, pool_nodes: u8) -> Member {
        let addresses = vec![format!("tcp://h:{epoch}")];
        Member { epoch, is_durable: false, pool_nodes, addresses }
    }

    #[test]
    fn records_come_back_and_say_the_same_whoever_tells_them() {
        let record = record(5, 3, &[5, 6, 7]);
        assert_eq!(MapRecord::decoded(&record.encoded()), Ok(record.clone()));
        let mut told = map(5, 3, &[5, 6, 7]);
        told.epoch = 6;
        told.place.as_mut().expect("a place").index = 1;
        assert_eq!(MapRecord::of(&told, false), Some(record));
        let member = member(9, 3);
        assert_eq!(Member::decoded(&member.encoded()), Ok(member));
    }

    #[test]
    fn a_map_of_no_pool_is_none() {
        let whole = map(5, 0, &[5, 6]);
        assert_eq!(MapRecord::of(&PoolMap { pool: None, place: None, ..whole.clone() }, false), None);
        let untold = PoolMap { addresses: PoolAddresses::default(), ..whole };
        let untold = MapRecord::of(&untold, false).expect("a list");
        assert!(!untold.is_complete());
        assert!(MapRecord::decoded(&untold.encoded()).is_err(), "nobody is told it");
        assert_eq!(MapRecord::of(&map(5, 0, &[5, 5]), false), None, "one node twice");
    }

    #[test]
    fn bytes_that_no_encoder_writes_are_refused() {
        let whole = record(5, 3, &[5, 6, 7]).encoded();
        assert_eq!(MapRecord::decoded(&[]), Err(RecordError::Format { got: None }));
        assert_eq!(MapRecord::decoded(&[9, 1]), Err(RecordError::Format { got: Some(9) }));
        let long = VALUE_BYTES_MAX + 1;
        assert_eq!(MapRecord::decoded(&vec![FORMAT; long]), Err(RecordError::Long { got: long }));
        for cut in 1..whole.len() {
            assert!(MapRecord::decoded(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(
            MapRecord::decoded(&[&whole[..], &[0]].concat()),
            Err(RecordError::Bytes),
            "a byte too many"
        );
        for (wrong, why) in [
            (member(9, 0), "of no pool"),
            (member(9, 17), "of too many nodes"),
            (Member { addresses: Vec::new(), ..member(9, 3) }, "without an address"),
            (Member { addresses: vec![String::new()], ..member(9, 3) }, "with an empty one"),
        ] {
            assert!(matches!(Member::decoded(&wrong.encoded()), Err(RecordError::Unsound(_))), "{why}");
        }
        let mut twin = record(5, 3, &[5, 6]);
        twin.map.place.as_mut().expect("a place").epochs[1] = 5;
        assert_eq!(MapRecord::decoded(&twin.encoded()), Err(RecordError::Unsound("one node twice")));
    }
}
