//! Keys of a call, as Python has them and as sessions take them.
//!
//! Invariant: bytes and texts are lent, not copied. Nobody can change such an object, and its caller holds it
//! until the call ends. Keys of eight bytes come in arrays, which others may change, so those are copied.

use std::borrow::Cow;

use farsight::{Key, KeyType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString, PyTuple};

use crate::ordered::Ordered;
use crate::typed_table::TypedTable;

/// Keys, as their table has them.
#[derive(Clone, Copy)]
pub(crate) enum Keys<'k> {
    /// The bits of keys of eight bytes.
    Bits(&'k [u64]),
    /// Bytes of any length.
    Bytes(&'k [&'k [u8]]),
}

impl Keys<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Keys::Bits(bits) => bits.len(),
            Keys::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A type of keys that Python's tables have.
pub(crate) trait TableKey: KeyType {
    /// Keys as sessions take them; in `room` unless they are so already.
    fn keys<'a, 'k>(keys: Keys<'k>, room: &'a mut Vec<Self::Ref<'k>>) -> &'a [Self::Ref<'k>]
    where
        'k: 'a;

    /// The keys of a sample, by their bits; none of a type without an order.
    fn sample(bits: &[u64]) -> Vec<Self::Owned>;

    /// What an order of keys is needed for, if they have one.
    fn ordered(table: &TypedTable<Self>) -> Option<&dyn Ordered>;

    /// A key that was found.
    fn found(key: Self::Owned) -> FoundKey;
}

/// A key that was found, as its table has it.
#[derive(IntoPyObject)]
pub(crate) enum FoundKey {
    /// The bits of a key of eight bytes.
    Bits(u64),
    /// Bytes of any length.
    Bytes(Cow<'static, [u8]>),
}

impl<K: NumpyKey> TableKey for K {
    fn keys<'a, 'k>(keys: Keys<'k>, room: &'a mut Vec<K>) -> &'a [K]
    where
        'k: 'a,
    {
        match keys {
            Keys::Bits(bits) => K::of_bits(bits, room),
            Keys::Bytes(_) => unreachable!("a table with keys of {} is given bytes", K::KIND),
        }
    }

    fn sample(bits: &[u64]) -> Vec<K> {
        bits.iter().map(|bits| K::from_bits(*bits)).collect()
    }

    fn ordered(table: &TypedTable<K>) -> Option<&dyn Ordered> {
        Some(table)
    }

    fn found(key: K) -> FoundKey {
        FoundKey::Bits(key.to_bits())
    }
}

impl TableKey for [u8] {
    fn keys<'a, 'k>(keys: Keys<'k>, _room: &'a mut Vec<&'k [u8]>) -> &'a [&'k [u8]]
    where
        'k: 'a,
    {
        match keys {
            Keys::Bytes(bytes) => bytes,
            Keys::Bits(_) => unreachable!("a table with keys of bytes is given words"),
        }
    }

    fn sample(_: &[u64]) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn ordered(_: &TypedTable<[u8]>) -> Option<&dyn Ordered> {
        None
    }

    fn found(key: Vec<u8>) -> FoundKey {
        FoundKey::Bytes(key.into())
    }
}

/// Keys as numpy keeps them.
pub(crate) trait NumpyKey: Key {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;

    /// Many keys; in `room` unless their bits are what they are.
    fn of_bits<'a>(bits: &'a [u64], room: &'a mut Vec<Self>) -> &'a [Self] {
        room.extend(bits.iter().map(|bits| Self::from_bits(*bits)));
        room
    }
}

impl NumpyKey for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }

    fn to_bits(self) -> u64 {
        self
    }

    fn of_bits<'a>(bits: &'a [u64], _room: &'a mut Vec<u64>) -> &'a [u64] {
        bits
    }
}

impl NumpyKey for i64 {
    fn from_bits(bits: u64) -> Self {
        bits.cast_signed()
    }

    fn to_bits(self) -> u64 {
        self.cast_unsigned()
    }
}

impl NumpyKey for f64 {
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }

    fn to_bits(self) -> u64 {
        self.to_bits()
    }
}

impl NumpyKey for [u8; 8] {
    fn from_bits(bits: u64) -> Self {
        bits.to_ne_bytes()
    }

    fn to_bits(self) -> u64 {
        u64::from_ne_bytes(self)
    }
}

/// What Python's objects a table with keys of bytes takes for keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteKeys {
    /// `bytes`, and what else holds bytes.
    Bytes,
    /// `str`, stored as UTF-8.
    Texts,
    /// Both.
    Any,
}

impl ByteKeys {
    /// Those of tables that are opened with `str`, with `bytes`, or without saying.
    pub(crate) fn named(name: Option<&str>) -> PyResult<Self> {
        match name {
            None => Ok(Self::Any),
            Some("bytes") => Ok(Self::Bytes),
            Some("str") => Ok(Self::Texts),
            Some(name) => Err(PyValueError::new_err(format!("no such keys of any length: {name:?}"))),
        }
    }

    /// Calls `work` with one key.
    pub(crate) fn with_one<T>(
        self,
        table: &str,
        key: &Bound<'_, PyAny>,
        work: impl FnOnce(Keys<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        match self.lent(key)? {
            Some(bytes) => work(Keys::Bytes(&[bytes])),
            None => work(Keys::Bytes(&[self.made(table, key)?.as_bytes()])),
        }
    }

    /// Calls `work` with many keys.
    pub(crate) fn with_many<T>(
        self,
        table: &str,
        keys: &Bound<'_, PyTuple>,
        work: impl FnOnce(Keys<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let held: Vec<_> = keys.iter_borrowed().collect();
        let mut bytes = Vec::with_capacity(held.len());
        for key in &held {
            let Some(lent) = self.lent(key)? else { return self.with_made(table, keys, work) };
            bytes.push(lent);
        }
        work(Keys::Bytes(&bytes))
    }

    /// The same, where not every key lends its bytes: with those made for them, which do.
    fn with_made<T>(
        self,
        table: &str,
        keys: &Bound<'_, PyTuple>,
        work: impl FnOnce(Keys<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut lending = Vec::with_capacity(keys.len());
        for key in keys {
            lending.push(if self.lent(&key)?.is_some() { key } else { self.made(table, &key)?.into_any() });
        }
        self.with_many(table, &PyTuple::new(keys.py(), lending)?, work)
    }

    /// The bytes of a key that nobody can change.
    fn lent<'a>(self, key: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a [u8]>> {
        if self != Self::Texts
            && let Ok(bytes) = key.cast::<PyBytes>()
        {
            return Ok(Some(bytes.as_bytes()));
        }
        if self != Self::Bytes
            && let Ok(text) = key.cast::<PyString>()
        {
            return Ok(Some(text.to_str()?.as_bytes()));
        }
        Ok(None)
    }

    /// The bytes that another object holds now.
    fn made<'py>(self, table: &str, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let holds_bytes = key.is_instance_of::<PyByteArray>() || key.is_instance_of::<PyMemoryView>();
        if self != Self::Texts && holds_bytes {
            return Ok(key.py().get_type::<PyBytes>().call1((key,))?.cast_into()?);
        }
        let wanted = match self {
            Self::Bytes => "bytes",
            Self::Texts => "str",
            Self::Any => "bytes or str",
        };
        let given = key.get_type().name()?;
        Err(PyTypeError::new_err(format!("a key is {given}, table {table:?} is open for keys of {wanted}")))
    }
}
