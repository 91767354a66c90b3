//! Filtered READs: the first lines of a record say which of its other lines matter, and the provider brings
//! only those. What a record holds is its owner's business: a filter knows words, lines and stamps.
//!
//! Invariant: a filter leaves lines out and changes none. The lines that it leaves in are stamped as those of
//! any READ. A caller proves its answer by the lines themselves. So a filter that picked the wrong lines, or
//! none, costs the caller another READ and nothing else.
//!
//! Protocol:
//! 1. A READ begins with up to [`FILTERED_LINES_MAX`] stamped lines. The filter names some of the words in
//!    them; the line of the last named word is the last *filtered* line.
//! 2. The provider picks the first named word that equals the *wanted* one and is occupied by its line's
//!    stamp.
//! 3. It brings that word's line, and behind it the *part* that belongs to the word. If it picked none, it
//!    brings the filtered lines.
//!
//! A provider whose memory's side has no processor to look brings all lines. Any provider may do so at any
//! time.

use farsight_base::search::equal_words_in_line;
use farsight_base::words::SharedLine;
use farsight_base::{Line, WORDS_PER_LINE};

/// Lines that a filter looks through at most.
pub const FILTERED_LINES_MAX: usize = WORDS / WORDS_PER_LINE;
/// Words in them, a bit each in a filter.
const WORDS: usize = u32::BITS as usize;

/// Which words may be picked, and which lines belong to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The words that may be picked, a bit each, the first line's first word lowest; no line's stamp.
    pub words: u32,
    /// The line of the READ where the first word's part begins.
    pub parts_begin: u8,
    /// Lines of a part.
    pub part_lines: u8,
    /// Binary logarithm of the words, one behind the other, that share a part.
    pub sharing_log2: u8,
}

/// What came of a filtered READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filtered<'a> {
    /// All lines of the READ.
    Whole(&'a [Line]),
    /// The filtered lines: the wanted word was not among them.
    Missed(&'a [Line]),
    /// The wanted word.
    Picked {
        /// Which of the filtered lines' words it is; one that the filter names.
        word: usize,
        /// The line that holds it.
        line: &'a Line,
        /// Its part.
        part: &'a [Line],
    },
}

impl Filter {
    /// The words that a filter may name: all but stamps.
    const NAMEABLE: u32 = 0xfefe_fefe;

    /// Its bits in a word.
    #[must_use]
    pub fn encode(self) -> u64 {
        let [begin, lines, sharing] = [self.parts_begin, self.part_lines, self.sharing_log2].map(u64::from);
        u64::from(self.words) | begin << 32 | lines << 40 | sharing << 48
    }

    /// The filter in a word, if it is one that [`Filter::encode`] writes and that a READ of `line_count`
    /// lines can go through.
    #[must_use]
    pub fn decode(word: u64, line_count: usize) -> Option<Self> {
        let filter = Self::from_word(word);
        (filter.encode() == word && filter.is_within(line_count)).then_some(filter)
    }

    /// The filter in a word that was found to be one.
    #[inline]
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        let byte = |at: u32| (word >> at) as u8;
        let [parts_begin, part_lines, sharing_log2] = [byte(32), byte(40), byte(48)];
        Self { words: word as u32, parts_begin, part_lines, sharing_log2 }
    }

    /// True if every word has its part within a READ of so many lines.
    #[must_use]
    pub fn is_within(self, line_count: usize) -> bool {
        let names_words = self.words != 0 && self.words & !Self::NAMEABLE == 0;
        let parts = || ((self.words.count_ones() as usize - 1) >> self.sharing_log2) + 1;
        names_words
            && usize::from(self.sharing_log2) < WORDS
            && line_count >= self.filtered_lines()
            && usize::from(self.parts_begin) + parts() * usize::from(self.part_lines) <= line_count
    }

    /// Lines in which it names words, and those before them.
    #[inline]
    #[must_use]
    pub fn filtered_lines(self) -> usize {
        (u32::BITS - self.words.leading_zeros()).div_ceil(WORDS_PER_LINE as u32) as usize
    }

    /// The word to be picked among a READ's lines where they lie.
    #[inline(always)]
    #[must_use]
    pub fn pick(self, lines: &[SharedLine], wanted: u64) -> Option<usize> {
        // No line ends the search: lines are on their way side by side, and a wrong guess costs more.
        let found = lines.iter().take(self.filtered_lines()).enumerate().fold(0, |found, (index, line)| {
            found | u32::from(equal_words_in_line(line, wanted)) << (index * WORDS_PER_LINE)
        });
        let found = found & self.words;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    /// True if `word` is one that may be picked.
    #[inline]
    #[must_use]
    pub fn names(self, word: usize) -> bool {
        word < WORDS && self.words >> word & 1 == 1
    }

    /// The line of a word.
    #[inline]
    #[must_use]
    pub fn line_of(word: usize) -> usize {
        word / WORDS_PER_LINE
    }

    /// The line where the part of a word begins that the filter names.
    #[inline]
    #[must_use]
    pub fn part_of(self, word: usize) -> usize {
        let before = (self.words & ((1 << word) - 1)).count_ones() as usize;
        usize::from(self.parts_begin) + (before >> self.sharing_log2) * usize::from(self.part_lines)
    }

    /// Lines that come back with a word that was picked, and without one.
    #[inline]
    #[must_use]
    pub fn lines_back(self, is_picked: bool) -> usize {
        if is_picked { 1 + usize::from(self.part_lines) } else { self.filtered_lines() }
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::sync::AtomicU64;

    use super::*;

    const FILTER: Filter = Filter { words: 0b0110_0000_0110, parts_begin: 3, part_lines: 2, sharing_log2: 1 };

    #[test]
    fn a_word_has_its_line_and_part() {
        assert!(FILTER.is_within(7) && !FILTER.is_within(6));
        let places = [1, 2, 9, 10].map(|word| (Filter::line_of(word), FILTER.part_of(word)));
        assert_eq!(places, [(0, 3), (0, 3), (1, 5), (1, 5)]);
        assert!([1, 2, 9, 10].iter().all(|word| FILTER.names(*word)));
        assert!(![0, 3, 8, 11, 23, 24, 255].iter().any(|word| FILTER.names(*word)));
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        assert_eq!(Filter::decode(FILTER.encode(), 7), Some(FILTER));
        assert_eq!(Filter::decode(FILTER.encode(), 6), None, "a part ends beyond the READ");
        let without = |change: fn(&mut Filter)| {
            let mut filter = FILTER;
            change(&mut filter);
            Filter::decode(filter.encode(), 7)
        };
        assert_eq!(without(|filter| filter.words = 0), None);
        assert_eq!(without(|filter| filter.words |= 1 << 8), None, "a stamp");
        assert_eq!(without(|filter| filter.words |= 1 << 24), None, "a stamp of the fourth line");
        assert_eq!(without(|filter| filter.words |= 1 << 31), None, "a part ends beyond the READ");
        assert_eq!(without(|filter| filter.sharing_log2 = 64), None);
        assert_eq!(Filter::decode(FILTER.encode() | 1 << 56, 7), None, "a bit that means nothing");
    }

    #[test]
    fn the_first_occupied_word_is_picked() {
        let lines: [SharedLine; 3] = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        let set = |word: usize, value: u64| {
            lines[word / 8][word % 8].store(value, farsight_base::sync::Ordering::Relaxed);
        };
        set(3, 77);
        set(9, 77);
        set(10, 77);
        assert_eq!(FILTER.pick(&lines, 77), None, "nothing is occupied, and word 3 is not named");
        set(8, 0b100 << 56);
        assert_eq!(FILTER.pick(&lines, 77), Some(10));
        set(8, 0b110 << 56);
        assert_eq!(FILTER.pick(&lines, 77), Some(9));
        assert_eq!(FILTER.pick(&lines, 78), None);
        set(8, 0b110 << 56 | 1);
        assert_eq!(FILTER.pick(&lines, 77), None, "the line is being written");
        set(8, 0b110 << 56);
        set(0, 1);
        assert_eq!(FILTER.pick(&lines, 77), Some(9), "another line is being written");
    }

    #[test]
    fn the_last_named_word_is_in_the_last_filtered_line() {
        let filtered_lines = |words: u32| Filter { words, ..FILTER }.filtered_lines();
        let words = [1 << 1, 1 << 7, 1 << 9, 0b0110_0000_0110, 0x007e_fee0, 1 << 23, 1 << 25, 1 << 31];
        assert_eq!(words.map(filtered_lines), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(filtered_lines(u32::MAX), FILTERED_LINES_MAX);
    }
}
