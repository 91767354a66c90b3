//! All pairs of a table as an iterator.

use std::sync::Arc;

use farsight_client::{EngineError, PairsCursor, ReadError};

use crate::{Entry, KeyType, Session};

/// All pairs of a table, fetched page by page. Made by [`Session::pairs`].
#[must_use = "an iterator over pairs reads nothing until it is used"]
pub struct AllPairs<'s, K: ?Sized> {
    session: &'s mut Session<K>,
    /// `None` when it is over: at its end, or after an error.
    cursor: Option<PairsCursor>,
}

impl<'s, K: KeyType + ?Sized> AllPairs<'s, K> {
    pub(crate) fn new(session: &'s mut Session<K>) -> Self {
        let cursor = Some(PairsCursor::new(&session.inner));
        Self { session, cursor }
    }
}

impl<K: KeyType + ?Sized> Iterator for AllPairs<'_, K> {
    type Item = Result<(K::Owned, Entry), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_pair(self.session, &mut self.cursor)
    }
}

/// The same with a session of its own. Made by [`Session::into_pairs`].
#[must_use = "an iterator over pairs reads nothing until it is used"]
pub struct IntoPairs<K: ?Sized> {
    session: Session<K>,
    /// `None` when it is over.
    cursor: Option<PairsCursor>,
}

impl<K: KeyType + ?Sized> IntoPairs<K> {
    pub(crate) fn new(session: Session<K>) -> Self {
        let cursor = Some(PairsCursor::new(&session.inner));
        Self { session, cursor }
    }
}

impl<K: KeyType + ?Sized> Iterator for IntoPairs<K> {
    type Item = Result<(K::Owned, Entry), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_pair(&mut self.session, &mut self.cursor)
    }
}

/// The pair behind the last one. Nothing is left of the cursor at the end, or after an error.
fn next_pair<K: KeyType + ?Sized>(
    session: &mut Session<K>,
    cursor: &mut Option<PairsCursor>,
) -> Option<Result<(K::Owned, Entry), ReadError>> {
    let session = &mut session.inner;
    let next = match cursor.as_mut()?.next(session) {
        Ok(None) => None,
        Err(error) => Some(Err(error)),
        Ok(Some(pair)) => {
            let key = K::of_stored(pair.key).ok_or_else(|| other_key(pair.key, session.table().name()));
            let entry = || Entry { value: pair.value.into(), version: pair.version };
            Some(key.map(|key| (key, entry())))
        }
    };
    if !matches!(next, Some(Ok(_))) {
        *cursor = None;
    }
    next
}

/// A key of a table whose keys have 8 B has others.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a key has {got_bytes} B, expected 8 B")]
struct OtherKey {
    got_bytes: usize,
}

/// The integer that stands for a key, of a pair of this table.
pub(crate) fn integer_of(bytes: &[u8], table: &str) -> Result<u64, ReadError> {
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| other_key(bytes, table))
}

fn other_key(bytes: &[u8], table: &str) -> ReadError {
    let source = EngineError::Engine(Arc::new(OtherKey { got_bytes: bytes.len() }));
    ReadError::Engine { table: table.to_owned(), source: Box::new(source) }
}

impl<K: KeyType + ?Sized> std::iter::FusedIterator for AllPairs<'_, K> {}
impl<K: KeyType + ?Sized> std::iter::FusedIterator for IntoPairs<K> {}
