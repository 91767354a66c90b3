//! Key search in lines: which words equal a key, which are below it.
//!
//! Invariant: bit `8 * line + word` of the answer is set exactly if that word equals the key, or is below it.
//! Stamps are words too: the caller masks with the lines' occupancy, whose bits have the same places.
//! [`lanes_at_most`] searches shared words, cut into lanes of sixteen bits.

use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use crate::words::{LINE_BYTES, leave_avx};
use crate::words::{Line, Moves, SharedLine, Stamp, WORDS_PER_LINE, Widest};
use std::mem::MaybeUninit;

/// The words of the three lines at a pointer to which the key compares so (key first), one bit each. What is
/// asked of the caller is what [`equal_words_avx512`] asks.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
macro_rules! compare_words_avx512 {
    ($compare:literal, $lines:ident, $key:ident) => {{
        let (low, high): (u32, u32);
        std::arch::asm!(
            "vpbroadcastq zmm16, {key}",
            concat!($compare, " k1, zmm16, [{lines}]"),
            concat!($compare, " k2, zmm16, [{lines} + 64]"),
            concat!($compare, " k3, zmm16, [{lines} + 128]"),
            "kunpckbw k1, k2, k1",
            "kmovw {low:e}, k1",
            "kmovw {high:e}, k3",
            key = in(reg) $key,
            lines = in(reg) $lines,
            low = out(reg) low,
            high = out(reg) high,
            out("zmm16") _, out("k1") _, out("k2") _, out("k3") _,
            options(nostack, preserves_flags, readonly),
        );
        low | high << 16
    }};
}

/// Lines searched at once: a leaf's key part.
pub const SEARCH_LINES: usize = 3;

/// The words of `lines` that equal `key`, one bit each, line 0's word 0 lowest.
#[inline(always)]
#[must_use]
pub fn equal_words(lines: &[Line; SEARCH_LINES], key: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if Moves::are_widest() {
        // SAFETY: the 192 B of `lines` are readable and, because borrowed, unwritten; AVX-512F was detected.
        return unsafe { equal_words_avx512(lines.as_ptr().cast(), key) };
    } else if Moves::are_wide() {
        // SAFETY: the 192 B of `lines` are readable and, because borrowed, unwritten; AVX2 was detected.
        return unsafe { equal_words_avx2(lines.as_ptr().cast(), key) };
    }
    equal_words_portable(lines, key)
}

/// The words of shared memory that equal `key`, in place, without copy or stamps. The answer may mix two
/// moments of a line, and proves nothing. A caller that wants a proof reads the words found between two looks
/// at a stamp.
#[inline(always)]
#[must_use]
pub fn equal_words_unchecked(
    words: &[AtomicU64; SEARCH_LINES * WORDS_PER_LINE],
    key: u64,
    widest: Widest,
) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        let Widest { .. } = widest;
        // SAFETY: the 192 B of `words` are readable and written by atomics alone, each 8 B of which a vector
        // move loads whole; `widest` proves AVX-512F.
        unsafe { equal_words_avx512(words.as_ptr().cast(), key) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    widest.never((words, key))
}

/// The words of shared memory that are below `key`; otherwise as [`equal_words_unchecked`].
#[inline(always)]
#[must_use]
pub fn words_below_unchecked(
    words: &[AtomicU64; SEARCH_LINES * WORDS_PER_LINE],
    key: u64,
    widest: Widest,
) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        let Widest { .. } = widest;
        let lines: *const u64 = words.as_ptr().cast();
        // SAFETY: as in `equal_words_unchecked`.
        unsafe { compare_words_avx512!("vpcmpnleuq", lines, key) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    widest.never((words, key))
}

/// What a search of stamped lines where they lie found. The lines' stamps are fields, not an array: an array
/// would go through memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StampedWords {
    /// The words that equal the key, one bit each; none if a line changed meanwhile or was being written.
    pub equal: u32,
    /// The first line's stamp.
    pub first: Stamp,
    /// The second line's stamp.
    pub second: Stamp,
    /// The third line's stamp.
    pub third: Stamp,
}

/// Searches stamped lines for `key` where they lie. As a search of copies says, but with vectors that hold a
/// line each the copies stay in registers.
#[inline(always)]
#[must_use]
pub fn equal_words_stamped(lines: &[SharedLine; SEARCH_LINES], key: u64) -> StampedWords {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if Moves::are_widest() {
        // SAFETY: AVX-512F was detected.
        let (equal, [first, second, third], changed) = unsafe { equal_words_stamped_avx512(lines, key) };
        let is_consistent = changed | (first | second | third) & 1 == 0;
        let equal = if is_consistent { equal } else { 0 };
        return StampedWords { equal, first: Stamp(first), second: Stamp(second), third: Stamp(third) };
    }
    equal_words_copied(lines, key)
}

#[inline(never)]
fn equal_words_copied(lines: &[SharedLine; SEARCH_LINES], key: u64) -> StampedWords {
    let mut copy = MaybeUninit::uninit();
    let copy = Moves::detect().copy_to(lines, &mut copy);
    let [first, second, third] = copy.each_ref().map(Line::stamp);
    let is_changing = [first, second, third].iter().any(|stamp| stamp.is_changing());
    StampedWords { equal: if is_changing { 0 } else { equal_words(copy, key) }, first, second, third }
}

/// The words that equal `key`, the stamps before the lines were loaded, and the bits in which they differ
/// from those after it.
///
/// # Safety
/// The processor has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn equal_words_stamped_avx512(
    lines: &[SharedLine; SEARCH_LINES],
    key: u64,
) -> (u32, [u64; SEARCH_LINES], u64) {
    const { assert!(LINE_BYTES == 64, "the lines' distance below") };
    let equal: u32;
    let (stamp0, stamp1, stamp2, changed, high): (u64, u64, u64, u64, u64);
    // SAFETY: the block reads 192 B of lines that are borrowed and that atomics alone write, each 8 B of
    // which a vector move loads whole. As x86-64 performs loads in program order, the order of the
    // instructions is that of a seqlock's reader: each stamp, its line, all stamps again. The compiler moves
    // no memory access across the block, because it is not `nomem`. The caller has AVX-512F. Registers and
    // flags are declared; the stack stays untouched.
    unsafe {
        std::arch::asm!(
            "vpbroadcastq zmm16, {key}",
            "mov {stamp0}, [{lines}]",
            "vmovdqu64 zmm17, [{lines}]",
            "mov {stamp1}, [{lines} + 64]",
            "vmovdqu64 zmm18, [{lines} + 64]",
            "mov {stamp2}, [{lines} + 128]",
            "vmovdqu64 zmm19, [{lines} + 128]",
            "mov {changed}, [{lines}]",
            "mov {high}, [{lines} + 64]",
            "xor {changed}, {stamp0}",
            "xor {high}, {stamp1}",
            "or {changed}, {high}",
            "mov {high}, [{lines} + 128]",
            "xor {high}, {stamp2}",
            "or {changed}, {high}",
            "vpcmpeqq k1, zmm16, zmm17",
            "vpcmpeqq k2, zmm16, zmm18",
            "vpcmpeqq k3, zmm16, zmm19",
            "kunpckbw k1, k2, k1",
            "kmovw {equal:e}, k1",
            "kmovw {high:e}, k3",
            key = in(reg) key,
            lines = in(reg) lines.as_ptr(),
            stamp0 = out(reg) stamp0,
            stamp1 = out(reg) stamp1,
            stamp2 = out(reg) stamp2,
            changed = out(reg) changed,
            equal = out(reg) equal,
            high = out(reg) high,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("k1") _, out("k2") _, out("k3") _,
            options(nostack, readonly),
        );
    }
    (equal | (high as u32) << 16, [stamp0, stamp1, stamp2], changed)
}

/// Lanes that [`lanes_at_most`] looks at together.
pub const LANES_MAX: usize = 32;
/// Lanes of sixteen bits in a word.
pub const LANES_PER_WORD: usize = 4;
/// Lanes of sixteen bits in a line.
pub const LANES_PER_LINE: usize = LANES_PER_WORD * WORDS_PER_LINE;

/// How many of these lanes of sixteen bits, at most [`LANES_MAX`] in ascending order, stand before the first
/// that is above `bound`. It is all of them if none is above. Lanes are counted from the lowest bits of the
/// first word on. Of lanes in no order, or written meanwhile: some number up to theirs.
///
/// # Panics
/// If there are more lanes, or some behind the last word.
#[inline(always)]
#[must_use]
pub fn lanes_at_most(words: &[AtomicU64], lanes: Range<usize>, bound: u16) -> u32 {
    if let Some(widest) = Widest::if_known() {
        return lanes_at_most_widest(words, lanes, bound, widest);
    }
    assert_lanes(words, &lanes);
    lanes_at_most_portable(words, lanes, bound)
}

#[inline(always)]
fn assert_lanes(words: &[AtomicU64], lanes: &Range<usize>) {
    assert!(lanes.len() <= LANES_MAX && lanes.end <= words.len() * LANES_PER_WORD, "lanes to compare");
}

/// [`lanes_at_most`] for one who knows the processor.
///
/// # Panics
/// As that.
#[inline(always)]
#[must_use]
pub fn lanes_at_most_widest(words: &[AtomicU64], lanes: Range<usize>, bound: u16, widest: Widest) -> u32 {
    assert_lanes(words, &lanes);
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        let Widest { .. } = widest;
        // SAFETY: at most 32 lanes, all of them in the words, by the assertion; `widest` proves AVX-512BW.
        let at_most = unsafe { lanes_at_most_avx512(words, lanes, bound) };
        // In 64 bits there is always one behind the last lane that is not.
        (!u64::from(at_most)).trailing_zeros()
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    widest.never(bound)
}

/// Lane `lane`.
#[inline(always)]
#[must_use]
pub fn lane(words: &[AtomicU64], lane: usize) -> u16 {
    // Relaxed: a caller that searches words which are written meanwhile proves what it finds by other means.
    (words[lane / LANES_PER_WORD].load(Ordering::Relaxed) >> (16 * (lane % LANES_PER_WORD))) as u16
}

/// The lanes of a line above `bound`, a bit each, from lane `FIRST` on. The line is loaded whole, at its
/// place: a vector move that reaches into the next one waits for that, too.
#[inline(always)]
#[must_use]
pub fn lanes_above_in_line<const FIRST: usize>(line: &SharedLine, bound: u16, widest: Widest) -> u32 {
    const { assert!(FIRST < LANES_PER_LINE) };
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        let Widest { .. } = widest;
        // SAFETY: `widest` proves AVX-512BW.
        unsafe { lanes_above_in_line_avx512(line, bound) >> FIRST }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    widest.never((line, bound))
}

fn lanes_at_most_portable(words: &[AtomicU64], lanes: Range<usize>, bound: u16) -> u32 {
    lanes.take_while(|index| lane(words, *index) <= bound).count() as u32
}

/// The lanes that are at most `bound`, one bit each, without a branch for their number.
///
/// # Safety
/// There are at most 32 lanes, and a word for each; the processor has AVX-512BW.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn lanes_at_most_avx512(words: &[AtomicU64], lanes: Range<usize>, bound: u16) -> u32 {
    let chosen = ((1_u64 << lanes.len()) - 1) as u32;
    let first = words.as_ptr().cast::<u16>().wrapping_add(lanes.start);
    let at_most: u32;
    // SAFETY: the block reads the chosen lanes, which lie in the slice by the caller, and no lane beside
    // them. The mask keeps those from being loaded and from faulting. Atomics alone write the words, and a
    // vector compare loads each lane whole. The caller has AVX-512BW. Registers are declared, stack and flags
    // stay untouched. It is not `pure`: shared memory may differ the next time.
    unsafe {
        std::arch::asm!(
            "kmovd k1, {chosen:e}",
            "vpbroadcastw zmm16, {bound:e}",
            "vpcmpnltuw k1 {{k1}}, zmm16, [{first}]",
            "kmovd {at_most:e}, k1",
            chosen = in(reg) chosen,
            bound = in(reg) u32::from(bound),
            first = in(reg) first,
            at_most = out(reg) at_most,
            out("zmm16") _, out("k1") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    at_most
}

/// The lanes of a line that are above `bound`, one bit each.
///
/// # Safety
/// The processor has AVX-512BW.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn lanes_above_in_line_avx512(line: &SharedLine, bound: u16) -> u32 {
    let above: u32;
    // SAFETY: the block reads the 64 B of `line`, which is borrowed, and which atomics alone write; a vector
    // compare loads each lane whole. The caller has AVX-512BW. Registers are declared, stack and flags stay
    // untouched. It is not `pure`: shared memory may differ the next time.
    unsafe {
        std::arch::asm!(
            "vpbroadcastw zmm16, {bound:e}",
            "vpcmpltuw k1, zmm16, [{line}]",
            "kmovd {above:e}, k1",
            bound = in(reg) u32::from(bound),
            line = in(reg) line.as_ptr(),
            above = out(reg) above,
            out("zmm16") _, out("k1") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    above
}

/// Words of a search tree's node.
pub const NODE_WORDS: usize = 16;

/// The words of `node` that are below `key`, one bit each, word 0 lowest.
#[inline(always)]
#[must_use]
pub fn words_below(node: &[i64; NODE_WORDS], key: i64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if Moves::are_wide() {
        // SAFETY: AVX2 was detected.
        return unsafe { words_below_avx2(node, key) };
    }
    words_below_portable(node, key)
}

fn words_below_portable(node: &[i64; NODE_WORDS], key: i64) -> u32 {
    node.iter().enumerate().fold(0, |found, (index, word)| found | u32::from(*word < key) << index)
}

/// An `asm!` block for the reason of [`equal_words_avx2`].
///
/// # Safety
/// The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn words_below_avx2(node: &[i64; NODE_WORDS], key: i64) -> u32 {
    let (part0, part1, part2, part3): (u32, u32, u32, u32);
    // SAFETY: the block reads the 128 B of `node`, which is borrowed, and the key's register; the caller has
    // AVX2. Registers are declared; stack, flags and memory stay untouched.
    unsafe {
        std::arch::asm!(
            "vmovq xmm0, {key}",
            "vpbroadcastq ymm0, xmm0",
            "vpcmpgtq ymm1, ymm0, [{node}]",
            "vpcmpgtq ymm2, ymm0, [{node} + 32]",
            "vpcmpgtq ymm3, ymm0, [{node} + 64]",
            "vpcmpgtq ymm4, ymm0, [{node} + 96]",
            "vmovmskpd {part0:e}, ymm1",
            "vmovmskpd {part1:e}, ymm2",
            "vmovmskpd {part2:e}, ymm3",
            "vmovmskpd {part3:e}, ymm4",
            key = in(reg) key,
            node = in(reg) node.as_ptr(),
            part0 = out(reg) part0,
            part1 = out(reg) part1,
            part2 = out(reg) part2,
            part3 = out(reg) part3,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            options(nostack, preserves_flags, pure, readonly),
        );
    }
    leave_avx();
    part0 | part1 << 4 | part2 << 8 | part3 << 12
}

#[inline(never)]
fn equal_words_portable(lines: &[Line; SEARCH_LINES], key: u64) -> u32 {
    let words = lines.iter().flat_map(|line| line.0);
    words.enumerate().fold(0, |found, (index, word)| found | u32::from(word == key) << index)
}

/// Inlined into callers compiled for any x86-64, which is why it is an `asm!` block: a function with
/// `#[target_feature]` would be a call.
///
/// # Safety
/// 192 B at `lines` are readable, and nothing but atomics writes them meanwhile; the processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn equal_words_avx2(lines: *const u64, key: u64) -> u32 {
    let (part0, part1, part2, part3, part4, part5): (u32, u32, u32, u32, u32, u32);
    // SAFETY: the block reads 192 B at `lines` and the key's register, as the caller allows. Registers are
    // declared; stack and flags stay untouched. It is not `pure`: shared memory may differ the next time.
    unsafe {
        std::arch::asm!(
            "vmovq xmm0, {key}",
            "vpbroadcastq ymm0, xmm0",
            "vpcmpeqq ymm1, ymm0, [{lines}]",
            "vpcmpeqq ymm2, ymm0, [{lines} + 32]",
            "vpcmpeqq ymm3, ymm0, [{lines} + 64]",
            "vpcmpeqq ymm4, ymm0, [{lines} + 96]",
            "vpcmpeqq ymm5, ymm0, [{lines} + 128]",
            "vpcmpeqq ymm6, ymm0, [{lines} + 160]",
            "vmovmskpd {part0:e}, ymm1",
            "vmovmskpd {part1:e}, ymm2",
            "vmovmskpd {part2:e}, ymm3",
            "vmovmskpd {part3:e}, ymm4",
            "vmovmskpd {part4:e}, ymm5",
            "vmovmskpd {part5:e}, ymm6",
            key = in(reg) key,
            lines = in(reg) lines,
            part0 = out(reg) part0,
            part1 = out(reg) part1,
            part2 = out(reg) part2,
            part3 = out(reg) part3,
            part4 = out(reg) part4,
            part5 = out(reg) part5,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    leave_avx();
    part0 | part1 << 4 | part2 << 8 | part3 << 12 | part4 << 16 | part5 << 20
}

/// [`equal_words_avx2`] with one compare a line.
///
/// # Safety
/// 192 B at `lines` are readable, and nothing but atomics writes them meanwhile; the processor has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn equal_words_avx512(lines: *const u64, key: u64) -> u32 {
    // SAFETY: as in `equal_words_avx2`; the caller has AVX-512F.
    unsafe { compare_words_avx512!("vpcmpeqq", lines, key) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::SplitMix64;

    #[test]
    fn every_word_alone_and_many_at_once() {
        let _ = Moves::detect();
        let mut random = SplitMix64::new(7);
        for _ in 0..2_000 {
            let mut lines = [Line::ZERO; 3];
            for line in &mut lines {
                for word in &mut line.0 {
                    *word = random.below(4);
                }
            }
            let key = random.below(4);
            let expected = equal_words_portable(&lines, key);
            assert_eq!(equal_words(&lines, key), expected, "{lines:?} {key}");
            let shared = std::array::from_fn(|word| AtomicU64::new(lines[word / 8].0[word % 8]));
            if let Some(widest) = Widest::if_known() {
                let found = equal_words_unchecked(&shared, key, widest);
                assert_eq!(found, expected, "{lines:?} {key}, in place");
                let below = words_below_unchecked(&shared, key, widest);
                let words = lines.iter().flat_map(|line| line.0).enumerate();
                let expected = words.fold(0, |below, (index, word)| below | u32::from(word < key) << index);
                assert_eq!(below, expected, "{lines:?} {key}, below");
            }
            #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
            if Moves::are_wide() {
                // SAFETY: the lines are borrowed; AVX2 was detected.
                let found = unsafe { equal_words_avx2(lines.as_ptr().cast(), key) };
                assert_eq!(found, expected, "{lines:?} {key}, by AVX2 where there may be more");
            }
        }
    }

    #[test]
    fn consistent_lines_are_searched_where_they_lie() {
        let mut random = SplitMix64::new(12);
        let mut changing = 0;
        for _ in 0..4_000 {
            let lines: [[u64; WORDS_PER_LINE]; SEARCH_LINES] =
                std::array::from_fn(|_| std::array::from_fn(|_| random.below(4)));
            // Odd stamps now and then.
            let lines = lines.map(|mut line| {
                line[0] = random.next_u64() << 1 | u64::from(random.below(8) == 0);
                line
            });
            let key = random.below(4);
            let shared = lines.map(|line| line.map(AtomicU64::new));
            let consistent = lines.iter().all(|line| line[0] & 1 == 0);
            changing += usize::from(!consistent);
            let copies = lines.map(Line);
            let expected = if consistent { equal_words_portable(&copies, key) } else { 0 };
            for found in [equal_words_stamped(&shared, key), equal_words_copied(&shared, key)] {
                assert_eq!(found.equal, expected, "{lines:?} {key}");
                let stamps = [found.first.0, found.second.0, found.third.0];
                assert!(!consistent || stamps == lines.map(|line| line[0]));
            }
        }
        assert!((500..3_500).contains(&changing), "{changing} of 4,000 were changing");
    }

    /// Words that hold these lanes from lane `skipped` on, others around them.
    fn words_of(lanes: &[u16], skipped: usize, random: &mut SplitMix64) -> Vec<AtomicU64> {
        let count = (skipped + lanes.len()).div_ceil(LANES_PER_WORD) + 1;
        let mut words: Vec<u64> = (0..count).map(|_| random.next_u64()).collect();
        for (index, lane) in lanes.iter().enumerate() {
            let (word, shift) =
                ((skipped + index) / LANES_PER_WORD, 16 * ((skipped + index) % LANES_PER_WORD));
            words[word] = words[word] & !(0xffff << shift) | u64::from(*lane) << shift;
        }
        words.into_iter().map(AtomicU64::new).collect()
    }

    #[test]
    fn the_lanes_at_most_a_bound_are_those_that_a_walk_finds() {
        let mut random = SplitMix64::new(9);
        for _ in 0..20_000 {
            let mut sorted: Vec<u16> = (0..random.below(LANES_MAX as u64 + 1))
                .map(|_| random.next_u64() as u16 >> random.below(16))
                .collect();
            sorted.sort_unstable();
            let bound = match random.below(4) {
                0 => u16::MAX,
                1 => 0,
                _ if sorted.is_empty() => 1,
                _ => sorted[random.below(sorted.len() as u64) as usize],
            };
            let expected = sorted.partition_point(|lane| *lane <= bound) as u32;
            let skipped = random.below(9) as usize;
            let words = words_of(&sorted, skipped, &mut random);
            let lanes = skipped..skipped + sorted.len();
            assert_eq!(lanes_at_most(&words, lanes.clone(), bound), expected, "{sorted:?} {bound}");
            assert_eq!(lanes_at_most_portable(&words, lanes.clone(), bound), expected, "{sorted:?} {bound}");
            assert!(lanes.map(|index| lane(&words, index)).eq(sorted));
        }
    }

    #[test]
    fn lanes_of_a_line_are_those_that_a_walk_finds() {
        let mut random = SplitMix64::new(13);
        let _ = Moves::detect();
        let Some(widest) = Widest::if_known() else {
            println!("NOT RUN: this needs AVX-512");
            return;
        };
        for _ in 0..20_000 {
            let line: SharedLine =
                std::array::from_fn(|_| AtomicU64::new(random.next_u64() & 0x0007_0007_0007_0007));
            let bound = random.below(9) as u16;
            let expected =
                (8..LANES_PER_LINE).map(|index| u32::from(lane(&line, index) > bound) << (index - 8));
            assert_eq!(lanes_above_in_line::<8>(&line, bound, widest), expected.sum(), "{line:?} {bound}");
        }
    }

    #[test]
    fn lanes_in_no_order_give_some_number_of_them() {
        let mut random = SplitMix64::new(10);
        for _ in 0..5_000 {
            let lanes: Vec<u16> = (0..random.below(33)).map(|_| random.below(5) as u16).collect();
            let words = words_of(&lanes, 1, &mut random);
            for lanes_at_most in [lanes_at_most, lanes_at_most_portable] {
                let found = [0, 2, 5].map(|bound| lanes_at_most(&words, 1..1 + lanes.len(), bound));
                assert!(found.is_sorted() && found[2] as usize == lanes.len(), "{found:?} {lanes:?}");
            }
        }
    }

    #[test]
    fn words_below_a_key_are_those_below_it() {
        let mut random = SplitMix64::new(8);
        for _ in 0..2_000 {
            let node: [i64; NODE_WORDS] =
                std::array::from_fn(|_| random.next_u64() as i64 >> random.below(64));
            for key in [node[3], node[9].wrapping_add(1), i64::MIN, i64::MAX, 0, random.next_u64() as i64] {
                assert_eq!(words_below(&node, key), words_below_portable(&node, key), "{node:?} {key}");
            }
        }
        let ascending = std::array::from_fn(|index| index as i64 * 10);
        assert_eq!(words_below(&ascending, 30), 0b111);
        assert_eq!(words_below(&ascending, 151), 0xffff);
    }

    #[test]
    fn keys_that_differ_in_one_bit_differ() {
        for bit in 0..64 {
            let mut lines = [Line([u64::MAX; 8]); 3];
            lines[1].0[3] ^= 1 << bit;
            assert_eq!(equal_words(&lines, u64::MAX), 0x00ff_ffff & !(1 << 11));
        }
    }
}
