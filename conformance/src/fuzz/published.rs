//! Published sub-models of anyone, and a region of them for a client that is sent wrong.

use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};
use farsight_layout::TableEntry;
use farsight_layout::published::{
    PUBLISHED_EXTENTS_MAX, PUBLISHED_LINES_MAX, PUBLISHED_SLOT_LINES, PublishedRecord, PublishedRoot,
    elsewhere_record, part_record, published_record,
};

use super::leaf::lines;
use super::source::Source;

/// Numbers that have slots.
const NUMBERS: u32 = 12;
/// Lines of the region behind the slots.
const REST_LINES: u32 = 40;

/// Lines that are a root or a record are those that it encodes to.
pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let (generation, number) = (u64::from(source.byte() % 3), u32::from(source.byte() % 4));
    let body: Vec<u64> = (0..source.below(60)).map(|_| source.word()).collect();
    let part = [vec![u64::from(number) | source.word() << 32], body].concat();
    let words = part_record(generation, &part).expect("a short record");
    let mut record = of_words(&words);
    let bytes: Vec<u8> = part.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(published_record(&record, generation, number), Ok(PublishedRecord::Part(&bytes)));
    assert!(published_record(&record, generation + 1, number).is_err(), "another generation");
    assert!(published_record(&record, generation, number + 1).is_err(), "another number");
    if let Some(line) = PublishedRoot::from_line(&record[0]) {
        assert_eq!(line.to_line(), record[0]);
    }
    // A record that is cut, or partly of other bytes, is that record or none.
    let cut = source.below(record.len() + 1);
    let others = source.take(64 * cut).to_vec();
    for (line, other) in record.iter_mut().zip(lines(&others, cut)) {
        *line = other;
    }
    if let Ok(PublishedRecord::Part(found)) = published_record(&record, generation, number) {
        assert_eq!((cut, found), (0, &bytes[..]), "a mixture is believed");
    }
    let _ = published_record(&record[cut..], generation, number);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let seed = |shape: u8| (0..240_u8).map(|byte| byte.wrapping_mul(2 * shape + 1)).collect();
    (0..6).map(seed).collect()
}

fn of_words(words: &[u64]) -> Vec<Line> {
    let line = |words: &[u64]| Line(std::array::from_fn(|index| words.get(index).copied().unwrap_or(0)));
    words.chunks(WORDS_PER_LINE).map(line).collect()
}

/// A region of models: a root that may name any lines, and whole records that say anything. Of no lines, now
/// and then.
pub(super) fn region(source: &mut Source<'_>, leaves: usize) -> Vec<Line> {
    if source.below(3) == 0 {
        return Vec::new();
    }
    let end = 1 + NUMBERS * PUBLISHED_SLOT_LINES as u32 + REST_LINES;
    let mut region = vec![Line::ZERO; end as usize];
    let any =
        |source: &mut Source<'_>| if source.below(6) == 0 { source.half() } else { source.below(80) as u32 };
    let mut root = PublishedRoot {
        generation: u64::from(source.byte() % 3),
        first_numbers: if source.below(4) == 0 { any(source) } else { NUMBERS },
        further_numbers: any(source),
        extents: [0; PUBLISHED_EXTENTS_MAX],
    };
    root.extents[0] = 1;
    for _ in 0..source.below(3) {
        root.extents[source.below(PUBLISHED_EXTENTS_MAX)] = any(source);
    }
    region[0] = root.to_line();
    for number in 0..NUMBERS {
        let generation = if source.below(6) == 0 { u64::from(source.byte() % 3) } else { root.generation };
        let slot = 1 + number * PUBLISHED_SLOT_LINES as u32;
        let named = if source.below(8) == 0 { any(source) } else { number };
        let record = if source.below(4) == 0 {
            let (first_line, lines) = (any(source), any(source));
            put(&mut region, first_line, &part(source, generation, named, leaves));
            elsewhere_record(generation, named, first_line, lines)
        } else {
            part(source, generation, named, leaves)
        };
        put(&mut region, slot, &record);
    }
    region
}

/// The budget of a client beside such a region, if it has one.
pub(super) fn budget_bytes(region: &[Line]) -> Option<u64> {
    let shape = region.first()?.0[0];
    [None, Some(0), Some(0), Some(64 << 10)][shape as usize % 4]
}

fn put(region: &mut [Line], first: u32, words: &[u64]) {
    for (line, words) in region.iter_mut().skip(first as usize).zip(of_words(words)) {
        *line = words;
    }
}

/// A record of a sub-model or a branch of any content.
fn part(source: &mut Source<'_>, generation: u64, number: u32, leaves: usize) -> Vec<u64> {
    let mut words = Vec::new();
    if source.below(3) == 0 {
        let children = 1 + source.below(5);
        words.push(u64::from(number) | (children as u64) << 32);
        words.extend((1..children).map(|_| source.key()));
        words.extend(
            (0..children.div_ceil(2)).map(|_| source.below(14) as u64 | (source.below(14) as u64) << 32),
        );
    } else {
        let count = source.below(9) as u64;
        words.push(u64::from(number));
        words.extend([source.key(), source.word(), source.word() & !(0xff_ffff << 32) | count << 32]);
        let beyond = usize::from(source.below(9) == 0);
        for _ in 0..count {
            let leaf = LeafNumber(source.below(leaves + beyond) as u32);
            words.push(TableEntry::new(leaf, source.half() as u16).0);
        }
        // A length that is not the count's, now and then.
        words.truncate(words.len() - usize::from(source.below(12) == 0).min(words.len() - 1));
    }
    assert!(words.len() < PUBLISHED_LINES_MAX, "a short part");
    part_record(generation, &words).expect("a short part")
}
