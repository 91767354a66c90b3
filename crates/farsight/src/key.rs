//! Keys as users have them, and the 64-bit integers that the store orders.
//!
//! Invariant: of keys of eight bytes, `encode` is a bijection between the kind's values and all of `u64`, and
//! `encode(a) < encode(b)` exactly when `a` comes before `b` in the kind's order. So every kind has ordinary
//! keys at both ends, and what a scan returns is what was stored, bit for bit.

use farsight_client::{EngineKind, SessionKey};
use farsight_protocol::{KeyKind, ValueKind};

use crate::asynchronous::held_key::HeldKey;

mod sealed {
    pub trait Sealed {}
}

/// What the keys of a table are: a [`Key`] of eight bytes, or `[u8]`, bytes of any length.
///
/// Keys of bytes have no order: engines without order alone have such tables, as FlexKV. They have all
/// operations on single keys and their batches.
///
/// ```
/// # use farsight::{Options, Server};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("example.sock");
/// # let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
/// # let client = farsight::connect(&server.url().to_string())?;
/// let mut users = client.create_blocks_table::<[u8]>("users")?.session(Options::default())?;
/// users.put(b"ada@example.org", b"Ada Lovelace")?;
/// assert_eq!(users.get(b"ada@example.org")?.unwrap().value, b"Ada Lovelace");
/// assert!(users.get(b"ada@example.com")?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// The trait is sealed, as [`Key`] is.
pub trait KeyType: sealed::Sealed + 'static {
    /// The kind as the nodes record it.
    const KEY_KIND: KeyKind;

    /// A key as operations take it: itself, or borrowed bytes.
    type Ref<'k>: Copy;

    /// A key of its own.
    type Owned: Clone;

    /// As sessions have it.
    #[doc(hidden)]
    type Encoded<'k>: SessionKey;

    /// As a driver has it between a future and its session.
    #[doc(hidden)]
    type Held: HeldKey;

    /// Values of any length, up to the longest that a table with such keys has.
    #[must_use]
    fn longest_values() -> ValueKind;

    #[doc(hidden)]
    fn encoded(key: Self::Ref<'_>) -> Self::Encoded<'_>;

    #[doc(hidden)]
    fn held(key: Self::Ref<'_>) -> Self::Held;

    /// Many keys: in `scratch`, or `keys` itself where it has them so already.
    #[doc(hidden)]
    fn all_encoded<'a, 'k>(keys: &'a [Self::Ref<'k>], scratch: &'a mut Vec<u64>) -> &'a [Self::Encoded<'k>];

    /// The key whose bytes are stored so, if there is one.
    #[doc(hidden)]
    fn of_stored(bytes: &[u8]) -> Option<Self::Owned>;

    /// The integers of a sample of keys, where an engine has ranges of them.
    #[doc(hidden)]
    fn sample(keys: &[Self::Owned]) -> Vec<u64>;
}

impl<K: Key> KeyType for K {
    const KEY_KIND: KeyKind = K::KIND;
    type Ref<'k> = K;
    type Owned = K;
    type Encoded<'k> = u64;
    type Held = u64;

    fn longest_values() -> ValueKind {
        ValueKind::BLOCKS
    }

    #[inline]
    fn encoded(key: Self::Ref<'_>) -> Self::Encoded<'_> {
        key.encode()
    }

    #[inline]
    fn held(key: Self::Ref<'_>) -> u64 {
        key.encode()
    }

    #[inline]
    fn all_encoded<'a, 'k>(keys: &'a [Self::Ref<'k>], scratch: &'a mut Vec<u64>) -> &'a [Self::Encoded<'k>] {
        K::encode_all(keys, scratch)
    }

    fn of_stored(bytes: &[u8]) -> Option<K> {
        bytes.try_into().ok().map(|word| K::decode(u64::from_le_bytes(word)))
    }

    fn sample(keys: &[K]) -> Vec<u64> {
        keys.iter().map(|key| key.encode()).collect()
    }
}

impl sealed::Sealed for [u8] {}
impl KeyType for [u8] {
    const KEY_KIND: KeyKind = KeyKind::Bytes;
    type Ref<'k> = &'k [u8];
    type Owned = Vec<u8>;
    type Encoded<'k> = &'k [u8];
    type Held = Box<[u8]>;

    fn longest_values() -> ValueKind {
        let able = EngineKind::all().into_iter().find(|kind| kind.has_byte_keys());
        able.map_or(ValueKind::BLOCKS, EngineKind::longest_values)
    }

    fn encoded(key: Self::Ref<'_>) -> Self::Encoded<'_> {
        key
    }

    fn held(key: Self::Ref<'_>) -> Box<[u8]> {
        key.into()
    }

    fn all_encoded<'a, 'k>(keys: &'a [Self::Ref<'k>], _: &'a mut Vec<u64>) -> &'a [Self::Encoded<'k>] {
        keys
    }

    fn of_stored(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }

    fn sample(_: &[Vec<u8>]) -> Vec<u64> {
        Vec::new()
    }
}

/// A key of eight bytes: `u64`, `i64`, `f64` and `[u8; 8]`.
///
/// | type | order |
/// |---|---|
/// | `u64`, `i64` | numeric |
/// | `f64` | [`f64::total_cmp`]: −NaN < −∞ < … < −0.0 < +0.0 < … < +∞ < +NaN |
/// | `[u8; 8]` | lexicographic |
///
/// Floating-point keys are told apart by their bits. `-0.0` and `0.0` are therefore two keys, neighbours in
/// this order, and each NaN is a key that finds itself again. Where `-0.0` may turn up and means zero, store
/// `key + 0.0`, which turns it into `0.0` and leaves every other number alone.
///
/// The trait is sealed: a key's kind is part of a table's definition, which other programs must understand.
pub trait Key: Copy + sealed::Sealed + Send + Sync + 'static {
    /// The kind as the server records it.
    const KIND: KeyKind;

    /// The integer that stands for this key.
    fn encode(self) -> u64;

    /// The key that `encoded` stands for.
    fn decode(encoded: u64) -> Self;

    /// The integers of many keys: in `scratch`, or `keys` itself where it holds them already.
    fn encode_all<'a>(keys: &'a [Self], scratch: &'a mut Vec<u64>) -> &'a [u64] {
        scratch.clear();
        scratch.extend(keys.iter().map(|key| key.encode()));
        scratch
    }
}

/// The highest bit: set in negative `i64` and `f64`, and so to be flipped in an order from negative to
/// positive.
const SIGN_BIT: u64 = 1 << 63;

impl sealed::Sealed for u64 {}
impl Key for u64 {
    const KIND: KeyKind = KeyKind::U64;

    #[inline]
    fn encode(self) -> u64 {
        self
    }

    #[inline]
    fn decode(encoded: u64) -> Self {
        encoded
    }

    #[inline]
    fn encode_all<'a>(keys: &'a [Self], _scratch: &'a mut Vec<u64>) -> &'a [u64] {
        keys
    }
}

impl sealed::Sealed for i64 {}
impl Key for i64 {
    const KIND: KeyKind = KeyKind::I64;

    #[inline]
    fn encode(self) -> u64 {
        self.cast_unsigned() ^ SIGN_BIT
    }

    #[inline]
    fn decode(encoded: u64) -> Self {
        (encoded ^ SIGN_BIT).cast_signed()
    }
}

impl sealed::Sealed for f64 {}
impl Key for f64 {
    const KIND: KeyKind = KeyKind::F64;

    /// Positive numbers order as their bits do, above all negative ones; negative ones order against their
    /// bits.
    #[inline]
    fn encode(self) -> u64 {
        let bits = self.to_bits();
        if bits & SIGN_BIT == 0 { bits | SIGN_BIT } else { !bits }
    }

    #[inline]
    fn decode(encoded: u64) -> Self {
        Self::from_bits(if encoded & SIGN_BIT == 0 { !encoded } else { encoded & !SIGN_BIT })
    }
}

impl sealed::Sealed for [u8; 8] {}
impl Key for [u8; 8] {
    const KIND: KeyKind = KeyKind::Bytes8;

    #[inline]
    fn encode(self) -> u64 {
        u64::from_be_bytes(self)
    }

    #[inline]
    fn decode(encoded: u64) -> Self {
        encoded.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every bit pattern alike: proptest's own `f64` leaves most NaNs out.
    fn any_f64() -> impl Strategy<Value = f64> {
        prop_oneof![any::<u64>().prop_map(f64::from_bits), any::<f64>(), Just(0.0), Just(-0.0)]
    }

    proptest! {
        #[test]
        fn unsigned_order_is_kept(a: u64, b: u64) {
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
            prop_assert_eq!(u64::decode(a.encode()), a);
        }

        #[test]
        fn signed_order_is_kept(a: i64, b: i64) {
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
            prop_assert_eq!(i64::decode(a.encode()), a);
        }

        #[test]
        fn total_order_of_floats_is_kept(a in any_f64(), b in any_f64()) {
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.total_cmp(&b));
            prop_assert_eq!(f64::decode(a.encode()).to_bits(), a.to_bits());
        }

        #[test]
        fn lexicographic_order_is_kept(a: [u8; 8], b: [u8; 8]) {
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
            prop_assert_eq!(<[u8; 8]>::decode(a.encode()), a);
        }

        #[test]
        fn every_integer_stands_for_one_key(encoded: u64) {
            prop_assert_eq!(u64::decode(encoded).encode(), encoded);
            prop_assert_eq!(i64::decode(encoded).encode(), encoded);
            prop_assert_eq!(f64::decode(encoded).encode(), encoded);
            prop_assert_eq!(<[u8; 8]>::decode(encoded).encode(), encoded);
        }

        #[test]
        fn batches_encode_as_single_keys_do(keys: Vec<i64>) {
            let singly: Vec<u64> = keys.iter().map(|key| key.encode()).collect();
            let mut scratch = vec![7];
            prop_assert_eq!(i64::encode_all(&keys, &mut scratch), &singly[..]);
        }
    }

    #[test]
    fn the_ends_of_each_kind_are_the_ends_of_the_order() {
        assert_eq!((i64::MIN.encode(), i64::MAX.encode()), (0, u64::MAX));
        assert_eq!((i64::MIN.encode(), 0i64.encode()), (0, SIGN_BIT));
        assert_eq!(f64::from_bits(u64::MAX).encode(), 0);
        assert_eq!(f64::from_bits(u64::MAX >> 1).encode(), u64::MAX);
        assert_eq!((-0.0f64).encode() + 1, 0.0f64.encode());
    }
}
