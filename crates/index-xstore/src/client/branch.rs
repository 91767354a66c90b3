//! A branch as a client keeps it: where the keys of one number go on, below the top model.
//!
//! Invariant: whatever words a block holds, [`child`] gives some number, and a session that follows it bears
//! any. The words may be those of others, while the block is given to them. Then the key's leaf is wrong, and
//! its fences say so.
//!
//! Line 0 begins with the number of children. Then come seven *pivots*, which part the children into eight
//! groups. A line for each group has the seven boundaries within it. A boundary is the least key of the child
//! behind it, and the greatest key where there is no child. So a search looks at two lines, each of which one
//! vector compares. The children's numbers stand at the end, two to a word from the lowest bits on: those of
//! a group in half a line.

use farsight_base::WORDS_PER_LINE;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::{SharedLine, Widest, prefetch};
use farsight_layout::simd::words_at_most_in_line;
use farsight_protocol::{BRANCH_CHILDREN_MAX, SentBranch};

/// Children between whose groups a pivot stands; the boundaries of a group, and the pivots, are one less.
const GROUP_CHILDREN: usize = 8;
const COMPARED: usize = GROUP_CHILDREN - 1;
/// Where the children's numbers begin.
const CHILDREN_WORD: usize = WORDS_PER_LINE * (1 + GROUP_CHILDREN);
/// Words of a branch's block, and lines.
pub(super) const BRANCH_WORDS: usize = CHILDREN_WORD + BRANCH_CHILDREN_MAX / 2;
pub(super) const BRANCH_LINES: usize = BRANCH_WORDS / WORDS_PER_LINE;
/// The lines of a branch's block.
pub(super) type BranchLines = [SharedLine; BRANCH_LINES];

const _: () = assert!(GROUP_CHILDREN * GROUP_CHILDREN == BRANCH_CHILDREN_MAX && COMPARED < WORDS_PER_LINE);

/// Where boundary `index` stands: the pivots first, then group by group.
fn boundary_word(index: usize) -> usize {
    let (group, place) = (index / GROUP_CHILDREN, index % GROUP_CHILDREN);
    if place == COMPARED { 1 + group } else { group_word(group) + place }
}

fn group_word(group: usize) -> usize {
    WORDS_PER_LINE * (1 + group)
}

/// The words of a branch.
pub(super) fn words_of(sent: &SentBranch<'_>) -> [u64; BRANCH_WORDS] {
    let mut words = [0; BRANCH_WORDS];
    words[1..CHILDREN_WORD].fill(u64::MAX);
    words[0] = sent.boundaries.len() as u64 + 1;
    for (index, boundary) in sent.boundaries.iter().enumerate() {
        words[boundary_word(index)] = boundary;
    }
    // Where there is no child the last one stands: the greatest key is not below any boundary.
    let mut last = 0;
    let mut children = sent.children();
    for index in 0..BRANCH_CHILDREN_MAX {
        last = children.next().unwrap_or(last);
        words[CHILDREN_WORD + index / 2] |= u64::from(last) << (32 * (index % 2));
    }
    words
}

/// The number of the child that covers `key`, by the branch whose block begins with `words`.
pub(super) fn child(words: &[AtomicU64], key: u64) -> u32 {
    number_at(words, child_index(words, key))
}

/// Which child covers `key`.
pub(super) fn child_index(words: &[AtomicU64], key: u64) -> usize {
    // Relaxed, as all loads here: words of two branches do no harm.
    let count = words[0].load(Ordering::Relaxed).clamp(1, BRANCH_CHILDREN_MAX as u64) as usize;
    let group = count_to(&words[1..], key);
    let index = GROUP_CHILDREN * group + count_to(&words[group_word(group)..], key);
    // The greatest key is not below the words where there is no child.
    index.min(count - 1)
}

/// The group of the child that covers `key`. [`child_at_once`] needs it, and so does who prefetches what that
/// reads.
#[inline(always)]
pub(super) fn group_at_once(lines: &BranchLines, key: u64, widest: Option<Widest>) -> usize {
    // The first word is the count.
    passed_from::<1>(&lines[0], key, widest)
}

/// Asks for what [`child_at_once`] reads.
#[inline(always)]
pub(super) fn prefetch_group(lines: &BranchLines, group: usize) {
    prefetch(&lines[1 + group % GROUP_CHILDREN]);
    prefetch(children_of(lines, group));
}

/// [`child`], whose group is known.
#[inline(always)]
pub(super) fn child_at_once(lines: &BranchLines, group: usize, key: u64, widest: Option<Widest>) -> u32 {
    let place = passed_from::<0>(&lines[1 + group % GROUP_CHILDREN], key, widest);
    let word = GROUP_CHILDREN / 2 * (group % 2) + place / 2;
    let pair = children_of(lines, group)[word % WORDS_PER_LINE].load(Ordering::Relaxed);
    (pair >> (32 * (place % 2))) as u32
}

/// The line with the numbers of a group's children.
#[inline(always)]
fn children_of(lines: &BranchLines, group: usize) -> &SharedLine {
    &lines[1 + GROUP_CHILDREN + group % GROUP_CHILDREN / 2]
}

/// How many boundaries of a line a key has passed, of those from word `FIRST` on.
#[inline(always)]
fn passed_from<const FIRST: usize>(line: &SharedLine, key: u64, widest: Option<Widest>) -> usize {
    let Some(widest) = widest else { return count_to(&line[FIRST..], key) };
    // Boundaries ascend: those that are not above the key are the first ones.
    let at_most = words_at_most_in_line(line, key, widest) >> FIRST;
    (!at_most | 1 << COMPARED).trailing_zeros() as usize
}

/// How many of the first [`COMPARED`] words are not above `key`.
#[inline(always)]
fn count_to(words: &[AtomicU64], key: u64) -> usize {
    words[..COMPARED].iter().map(|word| usize::from(word.load(Ordering::Relaxed) <= key)).sum()
}

/// The number of the child at `index`; `None` behind the last.
pub(super) fn child_at(words: &[AtomicU64], index: usize) -> Option<u32> {
    let count = words[0].load(Ordering::Relaxed).min(BRANCH_CHILDREN_MAX as u64) as usize;
    (index < count).then(|| number_at(words, index))
}

#[inline(always)]
fn number_at(words: &[AtomicU64], index: usize) -> u32 {
    let pair = words[CHILDREN_WORD + index / 2].load(Ordering::Relaxed);
    (pair >> (32 * (index % 2))) as u32
}

#[cfg(test)]
mod tests {
    use farsight_protocol::{HEADER_BYTES, ModelReader, Reply, ReplyWriter, SentModel};

    use super::*;

    /// The words of a branch with these boundaries, whose children's numbers begin with 100.
    fn branch(boundaries: &[u64]) -> Vec<AtomicU64> {
        let children: Vec<u32> = (100..).take(boundaries.len() + 1).collect();
        let mut frame = vec![0; HEADER_BYTES];
        let mut writer = ReplyWriter::new(&mut frame);
        writer.push_branch(7, boundaries, &children);
        writer.set(1, 1);
        let reply = Reply::decode(&frame).expect("a frame").expect("no error");
        let Ok(Some(SentModel::Branch(sent))) = ModelReader::new(reply.words().expect("words")).read() else {
            panic!("a branch was written")
        };
        words_of(&sent).map(AtomicU64::new).into()
    }

    #[test]
    fn a_key_goes_to_the_child_that_covers_it() {
        const BOUNDARIES: u64 = BRANCH_CHILDREN_MAX as u64 - 1;
        let _ = farsight_base::words::Moves::detect();
        for last in [BOUNDARIES * 10, u64::MAX] {
            for count in 0..=BOUNDARIES {
                let boundaries: Vec<u64> = (0..count).map(|index| last - 10 * (count - 1 - index)).collect();
                let words = branch(&boundaries);
                let around = boundaries.iter().flat_map(|key| [key - 1, *key, key.saturating_add(1)]);
                for key in around.chain([0, 1, u64::MAX - 1, u64::MAX]) {
                    let index = boundaries.iter().filter(|boundary| **boundary <= key).count();
                    assert_eq!(child_index(&words, key), index, "{count} boundaries, key {key}");
                    assert_eq!(child(&words, key), 100 + index as u32);
                }
                for widest in [None, Widest::if_known()] {
                    let lines = words.as_chunks().0.first_chunk().expect("the lines of a branch");
                    for key in boundaries.iter().flat_map(|key| [key - 1, *key]).chain([0, u64::MAX]) {
                        let group = group_at_once(lines, key, widest);
                        let at_once = child_at_once(lines, group, key, widest);
                        assert_eq!(at_once, child(&words, key), "{count} boundaries, key {key}");
                    }
                }
                assert_eq!(child_at(&words, count as usize), Some(100 + count as u32));
                assert_eq!(child_at(&words, count as usize + 1), None);
            }
        }
    }

    /// A session may read a block that holds something else by now.
    #[test]
    fn any_words_lead_to_some_child() {
        for word in [0, 1, 65, u64::MAX] {
            let words: Vec<AtomicU64> = (0..BRANCH_WORDS).map(|_| AtomicU64::new(word)).collect();
            for key in [0, 1, u64::MAX] {
                assert!(child_index(&words, key) < BRANCH_CHILDREN_MAX);
                child(&words, key);
                for widest in [None, Widest::if_known()] {
                    let lines = words.as_chunks().0.first_chunk().expect("the lines of a branch");
                    child_at_once(lines, group_at_once(lines, key, widest), key, widest);
                }
            }
        }
    }
}
