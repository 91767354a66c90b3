//! All pairs of a table, whatever its engine, page by page: by a scan where keys have an order, else by an
//! enumeration.
//!
//! Invariant: a pair whose key is in the table from begin to end comes exactly once, with a value that it had
//! meanwhile. No key comes twice. Each pair that comes was there at some moment between. All of them come
//! from one epoch of the server and one table, as those of a scan do.

use farsight_index::{Direction, EnumeratedPage, Enumeration, FoundPair};
use farsight_layout::Deadline;

use crate::session::{Origin, Session};
use crate::{ReadError, ScanCursor};

/// The place of a walk over all pairs of a table.
#[derive(Clone, Debug)]
pub struct PairsCursor {
    way: Way,
    /// The key of the pair at hand, where a scan has found it.
    key: [u8; 8],
}

/// A pair of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablePair<'a> {
    /// The key's bytes: of a key of 64 bits those of the integer that stands for it, the lowest first.
    pub key: &'a [u8],
    /// The version, which grows with each write of the key.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
    /// When the pair ends.
    pub deadline: Deadline,
}

#[derive(Clone, Debug)]
enum Way {
    Scan(Box<ScanCursor>),
    Enumeration(Box<Enumerating>),
}

#[derive(Clone, Debug, Default)]
struct Enumerating {
    enumeration: Enumeration,
    page: EnumeratedPage,
    at: usize,
    /// Where the first page came from.
    origin: Option<Origin>,
}

impl PairsCursor {
    /// A walk over the table of this session. The cursor is used with sessions of this table alone.
    #[must_use]
    pub fn new(session: &Session) -> Self {
        let way = if session.table().engine().is_ordered {
            Way::Scan(Box::new(ScanCursor::of_stored(Direction::Ascending, 0, u64::MAX)))
        } else {
            Way::Enumeration(Box::default())
        };
        Self { way, key: [0; 8] }
    }

    /// True if pairs come in the order of their keys.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        matches!(self.way, Way::Scan(_))
    }

    /// The next pair; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`]; the cursor stays where it is, so that the call can be repeated, unless that is
    /// [`ReadError::ScanCut`] or [`ReadError::ScanMoved`], which stay.
    pub fn next(&mut self, session: &mut Session) -> Result<Option<TablePair<'_>>, ReadError> {
        match &mut self.way {
            Way::Enumeration(enumerating) => {
                while enumerating.step(session)? {
                    let deadline = session.lasting(enumerating.at_hand().value)?;
                    if let Some((deadline, deadline_bytes)) = deadline {
                        let FoundPair { key, version, value } = enumerating.at_hand();
                        return Ok(Some(TablePair {
                            key,
                            version,
                            value: &value[deadline_bytes..],
                            deadline,
                        }));
                    }
                }
                Ok(None)
            }
            Way::Scan(cursor) => {
                while cursor.step(session)? {
                    let deadline = session.lasting(cursor.at_hand().value)?;
                    if let Some((deadline, deadline_bytes)) = deadline {
                        let pair = cursor.at_hand();
                        self.key = pair.key.to_le_bytes();
                        let value = &pair.value[deadline_bytes..];
                        return Ok(Some(TablePair {
                            key: &self.key,
                            version: pair.version,
                            value,
                            deadline,
                        }));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl Enumerating {
    /// Goes to the next pair; false at the end.
    fn step(&mut self, session: &mut Session) -> Result<bool, ReadError> {
        while self.at == self.page.pairs.len() {
            let Some(at) = self.enumeration.next() else { return Ok(false) };
            let fetched = session.enumerate(at, &mut self.page);
            let origin = session.origin();
            let fetched = fetched
                .and_then(|()| self.origin.get_or_insert(origin).check_same(origin, session.table().name()));
            self.at = 0;
            if let Err(error) = fetched {
                self.page.clear();
                return Err(error);
            }
            self.enumeration.take(&mut self.page);
        }
        self.at += 1;
        Ok(true)
    }

    /// The pair to which the last step went.
    fn at_hand(&self) -> FoundPair<'_> {
        self.page.pairs.pair(self.at - 1)
    }
}

impl Session {
    /// A page of an enumeration ([`farsight_index::Engine::enumerate`]).
    fn enumerate(&mut self, at: &[u64], page: &mut EnumeratedPage) -> Result<(), ReadError> {
        self.read(|engine, knows| engine.enumerate(knows, at, page))
    }

    /// The deadline of a pair of which this is stored, and how many bytes of that it has; `None` if the pair
    /// has ended.
    fn lasting(&mut self, stored: &[u8]) -> Result<Option<(Deadline, usize)>, ReadError> {
        if self.expiring.is_none() {
            return Ok(Some((Deadline::NEVER, 0)));
        }
        let (deadline, value) = Deadline::split(stored).ok_or_else(|| self.too_short(stored.len()))?;
        let is_past = deadline.is_past(self.time_for_read()?);
        Ok((!is_past).then_some((deadline, stored.len() - value.len())))
    }
}
