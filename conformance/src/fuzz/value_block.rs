//! Blocks of values: bytes from anyone, and written ones on their way.

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_layout::value_block::{
    BLOCK_HEADER_BYTES, BlockIdentity, BlockPlace, BlockRef, ValueBlock, block_bytes, block_lines, seal,
    write_draft,
};

use super::source::Source;

/// Bytes that are a block are those that its parts are written as; and whatever pair is written comes back,
/// until a bit of it changes.
pub(super) fn run(data: &[u8]) {
    any_bytes(data);
    for word in data.as_chunks().0 {
        reference(BlockRef(u64::from_le_bytes(*word)));
    }
    written(&mut Source::new(data));
}

fn any_bytes(data: &[u8]) {
    let Ok(block) = ValueBlock::parse(data) else {
        let anyone = BlockIdentity { table: 0, version: 0, key: &[] };
        let _ = ValueBlock::lines_said(data, anyone);
        return;
    };
    let (key, value) = (block.key(), block.value());
    let asked = BlockIdentity { table: block.table(), version: block.version(), key };
    assert_eq!(ValueBlock::lines_said(data, asked), Ok(block_lines(key.len(), value.len())));
    let used = block_bytes(key.len(), value.len());
    assert_eq!(data[BLOCK_HEADER_BYTES..used], [key, value].concat());
    if block.version() != 0 {
        let mut again = block_of(key, value, block.version(), block.table());
        // The state is not the writer's.
        again[7] = data[7];
        assert_eq!(again[..used], data[..used]);
    }
}

fn reference(reference: BlockRef) {
    let (space, offset_lines) = (reference.space(), reference.offset_lines());
    let place = BlockPlace { space, offset_lines, lines: reference.lines().unwrap_or(u32::MAX) };
    let again = BlockRef::new(b"any", place).0 & !0xff | u64::from(reference.fingerprint());
    assert!(BlockRef(again).is_live());
    assert_eq!(again & (u64::MAX >> 1), reference.0 & (u64::MAX >> 1));
}

fn written(source: &mut Source<'_>) {
    let (table, version) = (source.half() as u16, (source.word() >> 16).max(1));
    let (key_bytes, value_bytes) = (source.below(64), source.below(600));
    let (key, value) = (source.value(key_bytes), source.value(value_bytes));
    let asked = BlockIdentity { table, version, key: &key };
    let mut bytes = block_of(&key, &value, version, table);
    assert_eq!(ValueBlock::value_of(&bytes, asked), Ok(&value[..]));
    let bit = source.below(block_bytes(key_bytes, value_bytes) * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    let is_state = bit / 8 == 7;
    assert_eq!(ValueBlock::value_of(&bytes, asked).is_ok(), is_state, "bit {bit} is believed");
}

fn block_of(key: &[u8], value: &[u8], version: u64, table: u16) -> Vec<u8> {
    let words: Vec<_> = (0..block_lines(key.len(), value.len()) * 8).map(|_| AtomicU64::new(!0)).collect();
    write_draft(&words, key, value).expect("lengths of a block");
    seal(&words, version, table);
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let place = BlockPlace { space: 3, offset_lines: 1 << 30, lines: 300 };
    vec![
        block_of(&7_u64.to_le_bytes(), b"a value", 1, 1),
        block_of(b"", b"", (1 << 48) - 1, u16::MAX),
        block_of(&[9; 70], &[5; 500], 77, 2),
        BlockRef::new(b"key", place).0.to_le_bytes().to_vec(),
        (0..100).map(|byte: u8| byte.wrapping_mul(29)).collect(),
    ]
}
