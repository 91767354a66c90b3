//! A scan of any length, fetched page by page.
//!
//! Invariant: `next_from` is the next key on the way, `None` once nothing is left to fetch.
//! So no pair is skipped and none returned twice, whatever is written between two pages; each page is as a
//! scan of its own. All pages come from one epoch of the server, for another one's pairs would not belong to
//! those that were returned. So a scan whose server was started again ends in an error. So does one whose
//! table's name has come to lead elsewhere. If only the connection was lost, it goes on where it was.

use farsight_index::{Direction, Pair, Pairs, ScanRequest};

use crate::ReadError;
use crate::session::{Origin, Session};

/// Pairs of the first page: a short scan fetches little more than it needs.
const FIRST_PAGE_PAIRS: usize = 64;
/// Pairs of the largest page: bounds the cursor's memory, at values of 256 B to about 1 MiB.
const PAGE_PAIRS_MAX: usize = 4096;
/// Bytes of values with which a page ends, where they have any length.
const PAGE_BYTES: usize = 1 << 20;

/// What is fetched of pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Those that have not ended, without deadlines.
    Pairs,
    /// Keys alone: values stay where they are.
    Keys,
    /// All that is stored: a value begins with its deadline, if pairs have one.
    Stored,
}

/// The place of a scan between two keys, both included.
#[derive(Clone, Debug)]
pub struct ScanCursor {
    direction: Direction,
    what: What,
    next_from: Option<u64>,
    last: u64,
    page_pairs: usize,
    pairs: Pairs,
    at: usize,
    /// Where the first page came from.
    origin: Option<Origin>,
}

impl ScanCursor {
    /// A scan of the keys from `first` to `last`, which is not before it on the way.
    #[must_use]
    pub fn new(direction: Direction, first: u64, last: u64) -> Self {
        Self {
            direction,
            what: What::Pairs,
            next_from: Some(first),
            last,
            page_pairs: FIRST_PAGE_PAIRS,
            pairs: Pairs::default(),
            at: 0,
            origin: None,
        }
    }

    /// A scan of keys without their values, which are empty then.
    #[must_use]
    pub fn of_keys(direction: Direction, first: u64, last: u64) -> Self {
        Self { what: What::Keys, ..Self::new(direction, first, last) }
    }

    /// A scan of what is stored of pairs, whether their deadlines have passed or not.
    pub(crate) fn of_stored(direction: Direction, first: u64, last: u64) -> Self {
        Self { what: What::Stored, ..Self::new(direction, first, last) }
    }

    fn is_beyond(&self, key: u64) -> bool {
        self.direction.is_behind(key, self.last)
    }

    /// The next pair, from the page at hand or from a new one; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`]; the cursor stays where it is, so that the call can be repeated, unless that is
    /// [`ReadError::ScanCut`] or [`ReadError::ScanMoved`], which stay.
    pub fn next(&mut self, session: &mut Session) -> Result<Option<Pair<'_>>, ReadError> {
        Ok(self.step(session)?.then(|| self.at_hand()))
    }

    /// Goes to the next pair; false at the end.
    pub(crate) fn step(&mut self, session: &mut Session) -> Result<bool, ReadError> {
        if self.at == self.pairs.len() {
            let Some(from) = self.next_from.filter(|from| !self.is_beyond(*from)) else { return Ok(false) };
            self.fetch(session, from)?;
        }
        let at = self.at;
        if at == self.pairs.len() || self.is_beyond(self.pairs.pair(at).key) {
            self.next_from = None;
            self.at = self.pairs.len();
            return Ok(false);
        }
        self.at += 1;
        Ok(true)
    }

    /// The pair to which the last step went.
    ///
    /// # Panics
    /// If there was none.
    pub(crate) fn at_hand(&self) -> Pair<'_> {
        self.pairs.pair(self.at - 1)
    }

    fn fetch(&mut self, session: &mut Session, from: u64) -> Result<(), ReadError> {
        let request = ScanRequest { from, limit: self.page_pairs };
        self.at = 0;
        self.pairs.bound_bytes(Some(PAGE_BYTES));
        let fetched = match self.what {
            What::Pairs => session.scan_batch(self.direction, &[request], &mut self.pairs),
            What::Keys => session.scan_keys(self.direction, &[request], &mut self.pairs),
            What::Stored => session.scan_stored(self.direction, &[request], &mut self.pairs),
        };
        let fetched = fetched.and_then(|()| self.stay_in_one_table(session));
        if fetched.is_err() {
            self.pairs.truncate(0);
        }
        fetched?;
        let full = self.pairs.len() == self.page_pairs || self.pairs.is_cut();
        let last = full.then(|| self.pairs.pair(self.pairs.len() - 1).key);
        self.next_from = last.and_then(|last| self.direction.next_key(last));
        let page_bytes = self.pairs.value_bytes_held();
        let fitting = PAGE_BYTES * self.pairs.len() / page_bytes.max(1);
        self.page_pairs = (2 * self.page_pairs).min(PAGE_PAIRS_MAX).min(fitting.max(1));
        Ok(())
    }

    fn stay_in_one_table(&mut self, session: &Session) -> Result<(), ReadError> {
        let origin = session.origin();
        self.origin.get_or_insert(origin).check_same(origin, session.table().name())
    }
}
