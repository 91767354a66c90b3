//! Top models from foreign words: an error, or a function that is total, monotone and in bounds.

use crate::oracle::{edge, fences, telling_keys};
use farsight_model::{DecodeError, TopKind, TopModel, TrainOptions, train};
use proptest::prelude::*;
use proptest::sample::Index;

fn top(fences: &[u64], top: TopKind) -> TopModel {
    train(fences, TrainOptions { top, target_leaves_per_sub_model: 3 }).expect("trains").top
}

/// What any decoded model must be.
fn check_usable(top: &TopModel, mut keys: Vec<u64>) {
    keys.sort_unstable();
    let mut last = 0;
    for key in keys {
        let sub_model = top.dispatch(key);
        assert!(last <= sub_model && sub_model < top.sub_model_count(), "{key}: {sub_model} after {last}");
        last = sub_model;
    }
}

#[derive(Debug, Clone)]
enum Mutation {
    Flip(Index, u32),
    Set(Index, u64),
    Add(Index, i8),
    Swap(Index, Index),
    Cut(Index),
    Append(u64),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), 0_u32..64).prop_map(|(word, bit)| Mutation::Flip(word, bit)),
        (any::<Index>(), edge()).prop_map(|(word, value)| Mutation::Set(word, value)),
        (any::<Index>(), any::<i8>()).prop_map(|(word, delta)| Mutation::Add(word, delta)),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Mutation::Swap(a, b)),
        any::<Index>().prop_map(Mutation::Cut),
        any::<u64>().prop_map(Mutation::Append),
    ]
}

fn mutate(words: &mut Vec<u64>, mutation: &Mutation) {
    let count = words.len().max(1);
    words.resize(count, 0);
    match mutation {
        Mutation::Flip(word, bit) => words[word.index(count)] ^= 1 << bit,
        Mutation::Set(word, value) => words[word.index(count)] = *value,
        Mutation::Add(word, delta) => {
            let word = &mut words[word.index(count)];
            *word = word.wrapping_add_signed(i64::from(*delta));
        }
        Mutation::Swap(a, b) => words.swap(a.index(count), b.index(count)),
        Mutation::Cut(at) => words.truncate(at.index(count)),
        Mutation::Append(word) => words.push(*word),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn words_come_back(fences in fences(), linear in any::<bool>()) {
        let top = top(&fences, if linear { TopKind::Linear } else { TopKind::Radix });
        prop_assert_eq!(TopModel::from_words(&top.to_words()), Ok(top));
    }

    #[test]
    fn mutated_words_give_an_error_or_a_usable_model(
        fences in fences(),
        linear in any::<bool>(),
        mutations in proptest::collection::vec(mutation(), 1..4),
        keys in proptest::collection::vec(edge(), 50),
    ) {
        let mut words = top(&fences, if linear { TopKind::Linear } else { TopKind::Radix }).to_words();
        for mutation in &mutations {
            mutate(&mut words, mutation);
        }
        if let Ok(decoded) = TopModel::from_words(&words) {
            check_usable(&decoded, telling_keys(&fences).into_iter().chain(keys).chain(words).collect());
        }
    }

    #[test]
    fn any_words_give_an_error_or_a_usable_model(
        kind in 0_u64..4,
        sub_model_count in 1_u64..5,
        shape in (edge(), 0_u64..16, 0_u64..5),
        rest in proptest::collection::vec(prop_oneof![0_u64..4, Just(1 << 62), Just(1 << 63), edge()], 0..9),
    ) {
        let mut words = vec![kind, sub_model_count, shape.0, shape.1, shape.2];
        words.extend(&rest);
        if let Ok(decoded) = TopModel::from_words(&words) {
            check_usable(&decoded, (0..40).chain(words).chain([u64::MAX]).collect());
        }
    }
}

/// A radix tree of two buckets of 2^63 keys.
const TWO_BUCKETS: [u64; 7] = [2, 2, 0, u64::MAX, 63, 0, 1];

#[test]
fn errors_name_the_word() {
    check_usable(&TopModel::from_words(&TWO_BUCKETS).expect("is right"), vec![0, 1 << 63, u64::MAX]);
    let with = |word: usize, value: u64| {
        let mut words = TWO_BUCKETS;
        words[word] = value;
        TopModel::from_words(&words).expect_err("is wrong").to_string()
    };
    for (word, value, expected) in [
        (0, 9, "top model, word 0: kind: expected 1 (linear) or 2 (radix), got 0x9"),
        (1, 0, "top model, word 1: sub-model count: expected 1 to 2^32 - 1, got 0x0"),
        (
            1,
            3,
            "top model, word 1: sub-model count: expected one more than the last sub-model of the last bucket, got 0x3",
        ),
        (4, 64, "top model, word 4: bits of a root bucket: expected 0 to 63, got 0x40"),
        (4, 62, "top model: a node of the radix tree ends at word 9, but there are 7 words"),
        (5, 1, "top model, word 5: sub-model: expected 0 to 0, got 1"),
        (6, 2, "top model, word 6: sub-model: expected 0 to 1, got 2"),
        (6, 1 << 62 | 5, "top model, word 6: offset of a node or list in the array: expected 2, got 5"),
        (6, 1 << 62 | 1 << 32 | 2, "top model: a list ends at word 9, but there are 7 words"),
        (6, 1 << 63 | 2, "top model: a node's header ends at word 9, but there are 7 words"),
        (
            6,
            3 << 62,
            "top model, word 6: bucket: expected no other bits than its kind's, of a kind up to 2, got 0xc000000000000000",
        ),
    ] {
        assert_eq!(with(word, value), expected);
    }
    // Three pieces name sub-model 2 of two.
    assert_eq!(with(5, 3 << 32), "top model, word 5: sub-model: expected 0 to 1, got 2");
    let pieces_of_one_key = [2, 2, 0, 0, 0, 2 << 32];
    assert_eq!(
        TopModel::from_words(&pieces_of_one_key).expect_err("is wrong").to_string(),
        "top model, word 5: bucket: expected no more pieces than keys, got 0x200000000"
    );
    let list = |boundaries: [u64; 2]| [2, 3, 0, 9, 4, 1 << 62 | 2 << 32 | 1, 0, boundaries[0], boundaries[1]];
    check_usable(&TopModel::from_words(&list([4, 5])).expect("is right"), (0..12).collect());
    assert_eq!(
        TopModel::from_words(&list([5, 5])).expect_err("is wrong").to_string(),
        "top model, word 8: boundary: expected more than the boundary before, got 0x5"
    );
    assert_eq!(
        TopModel::from_words(&[1]),
        Err(DecodeError::Length { what: "the header", expected: 2, got: 1 })
    );
    let infinite = [1, 1, 0, f64::INFINITY.to_bits(), 0];
    assert!(matches!(
        TopModel::from_words(&infinite),
        Err(DecodeError::Field { what: "slope", word: 3, .. })
    ));
    let falling = [1, 1, 0, (-1.0_f64).to_bits(), 0];
    assert!(matches!(TopModel::from_words(&falling), Err(DecodeError::Field { what: "slope", word: 3, .. })));
}

#[test]
fn a_chain_of_nodes_that_never_ends_is_refused() {
    // Each node has one bucket, whose child is the next node.
    let mut words = vec![2, 1, 0, 0, 0];
    for node in 0..100_000_u64 {
        words.extend([1 << 63 | (node * 3 + 1), 0, 0]);
    }
    let error = TopModel::from_words(&words).expect_err("is too deep");
    assert!(error.to_string().contains("no child node below eight nodes"), "{error}");
}
