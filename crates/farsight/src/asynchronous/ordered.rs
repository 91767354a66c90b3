//! Reads by key order as futures: scans either way, and the pairs next to a key.
//!
//! Each is a scan, of which the driver fetches piece by piece. Pieces of several tasks share doorbells.

use std::ops::RangeBounds;

use farsight_client::{Direction, ReadError};

use super::AsyncTable;
use super::queue::{Completion, Request};
use crate::scan::encoded_range;
use crate::{Entry, Key, Neighbour, Pairs};

impl<K: Key> AsyncTable<K> {
    /// The first pairs, at most `limit`, whose keys lie in `range`, in key order. Every pair was there at an
    /// instant during the scan, none is skipped and none comes twice. A longer scan goes on behind the last
    /// key that this one returned.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn scan(&self, range: impl RangeBounds<K>, limit: usize) -> Result<Pairs<K>, ReadError> {
        self.scan_range(Direction::Ascending, range, limit).await
    }

    /// [`AsyncTable::scan`] from the greatest key down: the last pairs of `range`, at most `limit`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn scan_descending(
        &self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Pairs<K>, ReadError> {
        self.scan_range(Direction::Descending, range, limit).await
    }

    /// The pair with the greatest key that is not above `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn floor(&self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Floor, key).await
    }

    /// The pair with the least key that is not below `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn ceiling(&self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Ceiling, key).await
    }

    /// The pair with the greatest key below `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn lower(&self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Lower, key).await
    }

    /// The pair with the least key above `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn higher(&self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Higher, key).await
    }

    /// The pair with the least key of the table.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn first(&self) -> Result<Option<(K, Entry)>, ReadError> {
        self.scan(.., 1).await.map(|pairs| first_of(&pairs))
    }

    /// The pair with the greatest key of the table.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn last(&self) -> Result<Option<(K, Entry)>, ReadError> {
        self.scan_descending(.., 1).await.map(|pairs| first_of(&pairs))
    }

    async fn scan_range(
        &self,
        direction: Direction,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Pairs<K>, ReadError> {
        // A range without keys becomes a scan without pairs.
        let (ends, limit) = encoded_range(range).map_or(((0, 0), 0), |ends| (ends, limit));
        let (first, last) = match direction {
            Direction::Ascending => ends,
            Direction::Descending => (ends.1, ends.0),
        };
        self.scan_between(Request::Scan { direction, first, last, limit }).await
    }

    async fn neighbour(&self, which: Neighbour, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        let (direction, scan) = (which.direction(), which.request(key.encode()));
        let last = match direction {
            Direction::Ascending => u64::MAX,
            Direction::Descending => u64::MIN,
        };
        let request = Request::Scan { direction, first: scan.from, last, limit: scan.limit };
        self.scan_between(request).await.map(|pairs| first_of(&pairs))
    }

    async fn scan_between(&self, scan: Request<u64>) -> Result<Pairs<K>, ReadError> {
        match self.ask(scan, &[]).await {
            Ok((Completion::Scan(pairs), _)) => pairs.map(Pairs::from_encoded),
            Ok((other, _)) => unreachable!("a scan was answered with {other:?}"),
            Err(error) => Err(self.read_error(error)),
        }
    }
}

fn first_of<K: Key>(pairs: &Pairs<K>) -> Option<(K, Entry)> {
    let pair = pairs.iter().next()?;
    Some((pair.key, Entry { value: pair.value.into(), version: pair.version }))
}
