//! The pairs next to a key: at it or below, at it or above, and the ends of a table.
//!
//! Each is a scan for one pair. Eight of them share a doorbell, over TCP up to 64. A key whose
//! neighbour stands in another leaf takes another round trip. Below the least key that there may be, and
//! above the greatest, the scan is for no pair at all.

use farsight_client::{Direction, ReadError, ScanRequest};

use crate::{Entry, Key, Pairs, Session};

/// Which neighbour of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbour {
    /// The greatest key below it.
    Lower,
    /// The greatest key that is not above it.
    Floor,
    /// The least key that is not below it.
    Ceiling,
    /// The least key above it.
    Higher,
}

impl Neighbour {
    /// All, from the least key to the greatest.
    pub const ALL: [Self; 4] = [Self::Lower, Self::Floor, Self::Ceiling, Self::Higher];

    pub(crate) fn direction(self) -> Direction {
        match self {
            Self::Lower | Self::Floor => Direction::Descending,
            Self::Ceiling | Self::Higher => Direction::Ascending,
        }
    }

    /// The scan for this neighbour of `key`.
    pub(crate) fn request(self, key: u64) -> ScanRequest {
        let from = match self {
            Self::Floor | Self::Ceiling => Some(key),
            Self::Lower | Self::Higher => self.direction().next_key(key),
        };
        from.map_or(ScanRequest { from: key, limit: 0 }, |from| ScanRequest { from, limit: 1 })
    }
}

impl<K: Key> Session<K> {
    /// The pair with the greatest key that is not above `key`.
    ///
    /// ```
    /// # use farsight::{Options, Server};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("example.sock");
    /// # let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
    /// # let client = farsight::connect(&server.url().to_string())?;
    /// let mut prices = client.create_table::<i64>("prices", 8)?.session(Options::default())?;
    /// prices.put(-50, b"cheaper.")?;
    /// prices.put(100, b"dearer..")?;
    /// let (day, price) = prices.floor(99)?.unwrap(); // the price that holds on day 99
    /// assert_eq!((day, &*price.value), (-50, &b"cheaper."[..]));
    /// assert_eq!(prices.floor(-51)?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn floor(&mut self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Floor, key)
    }

    /// The pair with the least key that is not below `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn ceiling(&mut self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Ceiling, key)
    }

    /// The pair with the greatest key below `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn lower(&mut self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Lower, key)
    }

    /// The pair with the least key above `key`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn higher(&mut self, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.neighbour(Neighbour::Higher, key)
    }

    /// The pair with the least key of the table.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn first(&mut self) -> Result<Option<(K, Entry)>, ReadError> {
        self.one_pair(Direction::Ascending, Neighbour::Ceiling.request(u64::MIN))
    }

    /// The pair with the greatest key of the table.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn last(&mut self) -> Result<Option<(K, Entry)>, ReadError> {
        self.one_pair(Direction::Descending, Neighbour::Floor.request(u64::MAX))
    }

    /// The neighbours of many keys at once. Scan `index` of `pairs` is the neighbour of `keys[index]`: one
    /// pair, or none. Allocates nothing once `pairs` has held a batch of this size.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn neighbours(
        &mut self,
        which: Neighbour,
        keys: &[K],
        pairs: &mut Pairs<K>,
    ) -> Result<(), ReadError> {
        self.scan_each(which.direction(), keys.iter().map(|key| which.request(key.encode())), pairs)
    }

    fn neighbour(&mut self, which: Neighbour, key: K) -> Result<Option<(K, Entry)>, ReadError> {
        self.one_pair(which.direction(), which.request(key.encode()))
    }

    fn one_pair(&mut self, direction: Direction, scan: ScanRequest) -> Result<Option<(K, Entry)>, ReadError> {
        let mut found = std::mem::take(&mut self.one_pair);
        let scanned = self.scan_each(direction, std::iter::once(scan), &mut found);
        let entry = |pair: crate::Pair<'_, K>| Entry { value: pair.value.into(), version: pair.version };
        let pair = scanned.map(|()| found.iter().next().map(|pair| (pair.key, entry(pair))));
        self.one_pair = found;
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_the_first_pair_on_its_way() {
        let scan = |from, limit| ScanRequest { from, limit };
        assert_eq!(Neighbour::ALL.map(|which| which.request(7)), [6, 7, 7, 8].map(|from| scan(from, 1)));
        assert_eq!(Neighbour::Lower.request(0), scan(0, 0), "nothing is below zero");
        assert_eq!(Neighbour::Higher.request(u64::MAX), scan(u64::MAX, 0));
    }
}
