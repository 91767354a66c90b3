//! Every embedding keeps the order, is injective and comes back, at the numbers that are easily got wrong and
//! at any others.

use std::fmt::Debug;

use farsight_base::prng::SplitMix64;
use farsight_oracles::{EightBytes, Embedding, Identity, Strings, sets};
use proptest::prelude::*;

/// The adversarial identities that `embedding` has keys for, and neighbours of `at`, ascending.
fn identities(embedding: &impl Embedding, at: u64) -> Vec<Identity> {
    let last = embedding.last();
    let near = (0..6).flat_map(|step| [Identity(at).before(step), Identity(at).behind(step)]);
    let ends = (0..6).map(|step| last.before(step));
    let all = sets::extremes().into_iter().chain(sets::exponential()).chain(near).chain(ends);
    sets::tidied(all.filter(|identity| *identity <= last).collect())
}

/// `bytes` are those of a key, in whose order they must be.
fn check<E: Embedding<Key: Debug> + Debug>(embedding: &E, at: u64, bytes: impl Fn(&E::Key) -> Vec<u8>) {
    let identities = identities(embedding, at);
    let keys: Vec<E::Key> = identities.iter().map(|identity| embedding.key(*identity)).collect();
    for (pair, of) in keys.windows(2).zip(identities.windows(2)) {
        assert!(
            bytes(&pair[0]) < bytes(&pair[1]) && pair[0] < pair[1],
            "{of:?} are {pair:?} in {embedding:?}"
        );
    }
    for (key, identity) in keys.iter().zip(&identities) {
        assert_eq!(embedding.identity(key), Some(*identity), "{key:?} in {embedding:?}");
    }
}

fn check_eight_bytes(embedding: EightBytes, at: u64) {
    check(&embedding, at, |key| key.to_be_bytes().to_vec());
    // What comes back from any eight bytes has them as its key.
    for identity in sets::extremes() {
        let key = identity.0 ^ at;
        assert!(embedding.identity(&key).is_none_or(|identity| embedding.key(identity) == key));
    }
}

proptest! {
    #[test]
    fn eight_bytes(at: u64, seed: u64, bits in 0..64_u32) {
        let last = Identity(u64::MAX >> bits);
        let drawn = EightBytes::draw(&mut SplitMix64::new(seed), last);
        prop_assert!(drawn.last() >= last, "{drawn:?}");
        check_eight_bytes(drawn, at >> bits);
    }

    #[test]
    fn strings(at: u64, prefix: Vec<u8>, filler_bytes_max in 0..3_000_usize) {
        let embedding = Strings { prefix, filler_bytes_max: if at % 4 == 0 { filler_bytes_max } else { 20 } };
        check(&embedding, at, Clone::clone);
    }

    #[test]
    fn strings_of_nobody(prefix: Vec<u8>, filler_bytes_max in 0..20_usize, key: Vec<u8>, whole: bool) {
        let embedding = Strings { prefix: prefix.clone(), filler_bytes_max };
        let key = if whole { [prefix, key].concat() } else { key };
        if let Some(identity) = embedding.identity(&key) {
            prop_assert_eq!(embedding.key(identity), key);
        }
    }
}

#[test]
fn each_kind_is_drawn() {
    let mut random = SplitMix64::new(1);
    let drawn: Vec<EightBytes> = (0..100).map(|_| EightBytes::draw(&mut random, Identity(900))).collect();
    assert!(drawn.contains(&EightBytes::Plain) && drawn.contains(&EightBytes::Ends { last: Identity(900) }));
    assert!(drawn.iter().any(|drawn| matches!(drawn, EightBytes::Spread { stride: 2.., .. })));
    assert!(
        drawn.iter().any(|drawn| matches!(drawn, EightBytes::Clustered { place_bits: 1.., gap_bits: 54 }))
    );
}

/// A string's lengths differ, each key of a family begins the next one, and some are a few KiB long.
#[test]
fn strings_have_common_prefixes_and_many_lengths() {
    let embedding = Strings { prefix: b"user:".to_vec(), filler_bytes_max: 4_000 };
    let keys: Vec<Vec<u8>> = (0..400).map(|number| embedding.key(Identity(number))).collect();
    assert!(keys.iter().all(|key| key.starts_with(b"user:")));
    assert_eq!(keys.windows(2).filter(|pair| pair[1].starts_with(&pair[0])).count(), 300);
    let (shortest, longest) = (keys.iter().map(Vec::len).min(), keys.iter().map(Vec::len).max());
    assert!(shortest < Some(200) && longest > Some(3_500), "{shortest:?} to {longest:?}");
}

/// An identity beyond the last is refused, and a key that no identity has is nobody's.
#[test]
fn what_has_no_key_is_refused() {
    let spread = EightBytes::Spread { first: 100, stride: 10 };
    assert_eq!(
        [99, 100, 105, 110].map(|key| spread.identity(&key)),
        [None, Some(Identity(0)), None, Some(Identity(1))]
    );
    let clustered = EightBytes::Clustered { place_bits: 2, gap_bits: 8 };
    assert_eq!(
        [3, 4, 0x400].map(|key| clustered.identity(&key)),
        [Some(Identity(3)), None, Some(Identity(4))]
    );
    let ends = EightBytes::Ends { last: Identity(5) };
    assert_eq!(
        [2, 3, u64::MAX - 2].map(|key| ends.identity(&key)),
        [Some(Identity(2)), None, Some(Identity(3))]
    );
    for embedding in [spread, clustered, ends] {
        let beyond = embedding.last().behind(1);
        assert!(
            std::panic::catch_unwind(|| embedding.key(beyond)).is_err(),
            "{embedding:?} has a key of {beyond}"
        );
    }
}
