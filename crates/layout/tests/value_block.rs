//! Blocks of any length: what is written comes back, and nothing else is believed.

use farsight_base::LINE_BYTES;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_layout::value_block::{
    BLOCK_KEY_BYTES_MAX, BLOCK_STATE_SHIFT, BLOCK_VALUE_BYTES_MAX, BlockFault, BlockIdentity, BlockPlace,
    BlockRef, BlockTooLong, DraftInPieces, SealedHeader, ValueBlock, block_bytes, block_lines,
    draft_checksum, seal, write_draft,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// What memory holds before a block is written there, so that nothing is right by being zero.
const GARBAGE: u64 = 0xa5a5_5a5a_c3c3_3c3c;

fn memory(lines: usize) -> Vec<AtomicU64> {
    (0..lines * 8).map(|_| AtomicU64::new(GARBAGE)).collect()
}

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
}

fn block(asked: BlockIdentity<'_>, value: &[u8]) -> Vec<u8> {
    let words = memory(block_lines(asked.key.len(), value.len()));
    write_draft(&words, asked.key, value).expect("lengths within bounds");
    assert!(matches!(ValueBlock::parse(&bytes(&words)), Err(BlockFault::Kind { got: 0 })), "a draft");
    seal(&words, asked.version, asked.table);
    let lines = block_lines(asked.key.len(), value.len());
    let header = SealedHeader { version: asked.version, table: asked.table, lines };
    assert_eq!(SealedHeader::read(&words), header);
    bytes(&words)
}

fn versions() -> impl Strategy<Value = u64> {
    1..1_u64 << 48
}

proptest! {
    #[test]
    fn what_is_written_comes_back(
        key in vec(any::<u8>(), 0..40),
        value in vec(any::<u8>(), 0..700),
        version in versions(),
        table: u16,
    ) {
        let asked = BlockIdentity { table, version, key: &key };
        let bytes = block(asked, &value);
        prop_assert_eq!(ValueBlock::value_of(&bytes, asked), Ok(&value[..]));
        let parsed = ValueBlock::parse(&bytes).unwrap();
        prop_assert_eq!((parsed.key(), parsed.version(), parsed.table()), (&key[..], version, table));
        let first = &bytes[..LINE_BYTES];
        prop_assert_eq!(ValueBlock::lines_said(first, asked), Ok(block_lines(key.len(), value.len())));
        let of_another = BlockIdentity { table: !table, ..asked };
        for other in [of_another, BlockIdentity { version: version ^ 1, ..asked }] {
            prop_assert!(ValueBlock::lines_said(first, other).is_err());
        }
        let used = block_bytes(key.len(), value.len());
        let padding = &bytes[used..used.next_multiple_of(8)];
        prop_assert!(padding.iter().all(|byte| *byte == 0));
        for end in 0..used {
            prop_assert!(ValueBlock::parse(&bytes[..end]).is_err(), "{} bytes are believed", end);
        }
    }

    #[test]
    fn a_value_in_pieces_becomes_the_same_draft(
        key in vec(any::<u8>(), 0..20),
        pieces in vec(vec(any::<u8>(), 0..60), 0..8),
    ) {
        let value = pieces.concat();
        let [whole, in_pieces] = [0; 2].map(|_| memory(block_lines(key.len(), value.len())));
        write_draft(&whole, &key, &value).expect("lengths within bounds");
        let mut draft = DraftInPieces::begin(&in_pieces, &key, value.len()).expect("lengths within bounds");
        for piece in &pieces {
            let cut = bytes(&in_pieces);
            prop_assert_eq!(ValueBlock::parse(&cut), Err(BlockFault::Kind { got: 0 }));
            draft.append(&in_pieces, piece);
        }
        prop_assert_eq!((draft.written_bytes(), draft.value_bytes()), (value.len(), value.len()));
        prop_assert_eq!(draft.checksum(), draft_checksum(&key, &value));
        draft.end(&in_pieces);
        // Nobody reads a draft's second word, which the version takes.
        let [mut whole, mut in_pieces] = [whole, in_pieces].map(|words| bytes(&words));
        whole.drain(8..16);
        in_pieces.drain(8..16);
        prop_assert_eq!(in_pieces, whole);
    }

    #[test]
    fn one_bit_more_or_less_is_not_believed(
        key in vec(any::<u8>(), 0..20),
        value in vec(any::<u8>(), 0..300),
        version in versions(),
        bit: prop::sample::Index,
    ) {
        let asked = BlockIdentity { table: 7, version, key: &key };
        let mut bytes = block(asked, &value);
        let bit = bit.index(block_bytes(key.len(), value.len()) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let is_state = (BLOCK_STATE_SHIFT as usize..64).contains(&bit);
        prop_assert_eq!(ValueBlock::value_of(&bytes, asked).is_ok(), is_state, "bit {}", bit);
    }

    /// Any mixture, line by line, of a block and the one that followed it in the same memory.
    #[test]
    fn a_mixture_of_two_blocks_is_not_believed(
        first in vec(any::<u8>(), 0..300),
        second in vec(any::<u8>(), 0..300),
        version in 1..1_u64 << 47,
        taken: u64,
    ) {
        let key = 5_u64.to_le_bytes();
        let asked = BlockIdentity { table: 7, version, key: &key };
        let later = BlockIdentity { version: version + 1, ..asked };
        let (first_bytes, second_bytes) = (block(asked, &first), block(later, &second));
        let mut mixed = first_bytes.clone();
        for (number, (to, from)) in mixed.chunks_mut(64).zip(second_bytes.chunks(64)).enumerate() {
            if taken >> (number % 64) & 1 == 1 {
                to.copy_from_slice(from);
            }
        }
        let found = ValueBlock::value_of(&mixed, asked);
        prop_assert!(found.is_ok() || mixed != first_bytes);
        prop_assert_eq!(found.unwrap_or(&first), &first[..]);
    }

    #[test]
    fn no_bytes_panic(mut bytes in vec(any::<u8>(), 0..400), is_kind_right: bool) {
        if let (true, Some(kind)) = (is_kind_right, bytes.get_mut(6)) {
            *kind = 1;
        }
        let asked = BlockIdentity { table: 1, version: 1, key: &[] };
        let _ = ValueBlock::lines_said(&bytes, asked);
        prop_assert!(ValueBlock::parse(&bytes).is_err());
    }

    #[test]
    fn references_come_back(
        key in vec(any::<u8>(), 0..20),
        space in 0..128_u8,
        offset_lines in 0..1_u64 << 40,
        lines: u32,
    ) {
        let reference = BlockRef::new(&key, BlockPlace { space, offset_lines, lines });
        prop_assert!(reference.is_live());
        prop_assert_eq!((reference.space(), reference.offset_lines()), (space, offset_lines));
        prop_assert_eq!(reference.fingerprint(), BlockRef::fingerprint_of(&key));
        prop_assert_eq!(reference.lines(), (lines < 255).then_some(lines));
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let asked = BlockIdentity { table: 0x0201, version: 0x0605_0403_0201, key: b"key" };
    let bytes = block(asked, b"value");
    // The checksum, by hand: body first, then version, table, key length and kind.
    let body = crc32c_by_bits(0, &[5, 0, 0, 0, 0, 0, 0, 0]);
    let body = crc32c_by_bits(body, b"keyvalue");
    let checksum = crc32c_by_bits(body, &[1, 2, 3, 4, 5, 6, 1, 2, 3, 0, 1]);
    assert_eq!(bytes[..4], checksum.to_le_bytes());
    assert_eq!(bytes[4..8], [3, 0, 1, 0]);
    assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 1, 2]);
    assert_eq!(bytes[16..24], [5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&bytes[24..32], b"keyvalue");
    assert!(!BlockRef::default().is_live());
}

/// CRC-32C bit by bit, from the polynomial alone (RFC 3720, appendix B.4).
fn crc32c_by_bits(sum: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!sum, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0x82f6_3b78 & (sum & 1).wrapping_neg()))
    })
}

#[test]
fn each_part_of_the_identity_counts() {
    let asked = BlockIdentity { table: 1, version: 9, key: b"one" };
    let bytes = block(asked, b"");
    assert_eq!(ValueBlock::value_of(&bytes, asked), Ok(&b""[..]), "empty values exist");
    let other = |asked| ValueBlock::value_of(&bytes, asked).expect_err("another block").to_string();
    assert_eq!(other(BlockIdentity { version: 8, ..asked }), "version: expected 8, got 9");
    assert_eq!(other(BlockIdentity { table: 2, ..asked }), "table: expected 2, got 1");
    assert_eq!(other(BlockIdentity { key: b"two", ..asked }), "another key, of 3 B");
}

#[test]
fn the_longest_value_fits_and_a_byte_more_is_refused_by_name() {
    let value = vec![3; BLOCK_VALUE_BYTES_MAX];
    let asked = BlockIdentity { table: 1, version: 1, key: b"longest" };
    assert_eq!(ValueBlock::value_of(&block(asked, &value), asked), Ok(&value[..]));
    let error = BlockTooLong::check(8, BLOCK_VALUE_BYTES_MAX + 1).expect_err("too long").to_string();
    assert_eq!(error, "a value of 16777225 B is longer than a block holds: at most 16777224 B");
    assert!(BlockTooLong::check(BLOCK_KEY_BYTES_MAX + 1, 0).is_err());
}
