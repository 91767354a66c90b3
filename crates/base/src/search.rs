//! Key search in private lines: which words equal a key, which are below it.
//!
//! Invariant: bit `8 * line + word` of the answer is set exactly if that word equals the key, or is below it.
//! Stamps are words too: the caller masks with the lines' occupancy, whose bits have the same places.

use crate::sync::{AtomicU64, Ordering};
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use crate::words::{LINE_BYTES, leave_avx};
use crate::words::{Line, WORDS_PER_LINE};

/// Lines searched at once: a leaf's key part.
pub const SEARCH_LINES: usize = 3;

/// The words of `lines` that equal `key`, one bit each, line 0's word 0 lowest.
#[inline(always)]
#[must_use]
pub fn equal_words(lines: &[Line; SEARCH_LINES], key: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: the 192 B of `lines` are readable and, because borrowed, unwritten; AVX-512F was detected.
        return unsafe { equal_words_avx512(lines.as_ptr().cast(), key) };
    } else if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the 192 B of `lines` are readable and, because borrowed, unwritten; AVX2 was detected.
        return unsafe { equal_words_avx2(lines.as_ptr().cast(), key) };
    }
    equal_words_portable(lines, key)
}

/// The words of shared memory that equal `key`, in place: no copy, no stamps, so the answer may mix two
/// moments of a line and proves nothing. What benchmarks measure the cost of proofs against.
#[inline(always)]
#[must_use]
pub fn equal_words_unchecked(words: &[AtomicU64; SEARCH_LINES * WORDS_PER_LINE], key: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: the 192 B of `words` are readable and written by atomics alone, each 8 B of which a vector
        // move loads whole; AVX-512F was detected.
        return unsafe { equal_words_avx512(words.as_ptr().cast(), key) };
    } else if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the 192 B of `words` are readable and written by atomics alone, each 8 B of which a vector
        // move loads whole; AVX2 was detected.
        return unsafe { equal_words_avx2(words.as_ptr().cast(), key) };
    }
    let equal = |(index, word): (usize, &AtomicU64)| u32::from(word.load(Ordering::Relaxed) == key) << index;
    words.iter().enumerate().map(equal).sum()
}

/// Words that [`first_above`] looks at.
pub const BOUNDED_WORDS_MAX: usize = 8;

/// The index of the first of `words`, at most [`BOUNDED_WORDS_MAX`] in ascending order, that is above
/// `bound`; their number if there is none. Of words in no order, or written meanwhile: some index up to their
/// number, never lower for a greater bound.
///
/// # Panics
/// If there are more words.
#[inline(always)]
#[must_use]
pub fn first_above(words: &[AtomicU64], bound: u64) -> u32 {
    assert!(words.len() <= BOUNDED_WORDS_MAX, "{} words to compare", words.len());
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: there are at most eight words, by the assertion; AVX-512F was detected.
        let above = unsafe { above_avx512(words, bound) };
        // A one behind the last word: all are at most the bound.
        return (above | 1 << words.len()).trailing_zeros();
    }
    first_above_portable(words, bound)
}

fn first_above_portable(words: &[AtomicU64], bound: u64) -> u32 {
    words.iter().take_while(|word| word.load(Ordering::Relaxed) <= bound).count() as u32
}

/// The words above the bound, one bit each. Without a branch for the number of words, which is different
/// from search to search.
///
/// By whole lines, at their places: a move of 64 B from anywhere else reaches into the next line and waits
/// for that, too, though the mask leaves out all of its words.
///
/// # Safety
/// There are at most eight words; the processor has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn above_avx512(words: &[AtomicU64], bound: u64) -> u32 {
    let address = words.as_ptr() as usize;
    let skipped_words = (address % LINE_BYTES) / 8;
    let first_line = address - address % LINE_BYTES;
    let lanes = ((1_u32 << words.len()) - 1) << skipped_words;
    // Words that reach into no second line look at the first twice, with no lane.
    let second_line = first_line + if lanes >> WORDS_PER_LINE == 0 { 0 } else { LINE_BYTES };
    let (above, above_second): (u32, u32);
    // SAFETY: the block reads the words of the slice, which atomics alone write and of which a vector compare
    // loads each whole, and no lane beside them: the masks keep those from being loaded and from faulting.
    // Sixteen lanes from the first line's start on hold all words, of which there are at most eight, by the
    // caller. The caller has AVX-512F. Registers are declared, stack and flags stay untouched. It is not
    // `pure`: shared memory may differ the next time.
    unsafe {
        std::arch::asm!(
            "kmovw k1, {lanes:e}",
            "kshiftrw k2, k1, 8",
            "vpbroadcastq zmm16, {bound}",
            "vpcmpltuq k1 {{k1}}, zmm16, [{first_line}]",
            "vpcmpltuq k2 {{k2}}, zmm16, [{second_line}]",
            "kmovw {above:e}, k1",
            "kmovw {above_second:e}, k2",
            lanes = in(reg) lanes,
            bound = in(reg) bound,
            first_line = in(reg) first_line,
            second_line = in(reg) second_line,
            above = out(reg) above,
            above_second = out(reg) above_second,
            out("zmm16") _, out("k1") _, out("k2") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    (above | above_second << WORDS_PER_LINE) >> skipped_words
}

/// Words of a search tree's node.
pub const NODE_WORDS: usize = 16;

/// The words of `node` that are below `key`, one bit each, word 0 lowest.
#[inline(always)]
#[must_use]
pub fn words_below(node: &[i64; NODE_WORDS], key: i64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if std::is_x86_feature_detected!("avx2") {
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
    let (low, high): (u32, u32);
    // SAFETY: as in `equal_words_avx2`; the caller has AVX-512F.
    unsafe {
        std::arch::asm!(
            "vpbroadcastq zmm16, {key}",
            "vpcmpeqq k1, zmm16, [{lines}]",
            "vpcmpeqq k2, zmm16, [{lines} + 64]",
            "vpcmpeqq k3, zmm16, [{lines} + 128]",
            "kunpckbw k1, k2, k1",
            "kmovw {low:e}, k1",
            "kmovw {high:e}, k3",
            key = in(reg) key,
            lines = in(reg) lines,
            low = out(reg) low,
            high = out(reg) high,
            out("zmm16") _, out("k1") _, out("k2") _, out("k3") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    low | high << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::SplitMix64;

    #[test]
    fn every_word_alone_and_many_at_once() {
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
            assert_eq!(equal_words_unchecked(&shared, key), expected, "{lines:?} {key}, in place");
            #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the lines are borrowed; AVX2 was detected.
                let found = unsafe { equal_words_avx2(lines.as_ptr().cast(), key) };
                assert_eq!(found, expected, "{lines:?} {key}, by AVX2 where there may be more");
            }
        }
    }

    #[test]
    fn the_first_above_is_the_one_that_a_walk_finds() {
        let mut random = SplitMix64::new(9);
        for _ in 0..10_000 {
            let mut sorted: Vec<u64> =
                (0..random.below(9)).map(|_| random.next_u64() >> random.below(64)).collect();
            sorted.sort_unstable();
            let bound = match random.below(4) {
                0 => u64::MAX,
                1 => 0,
                _ if sorted.is_empty() => 1,
                _ => sorted[random.below(sorted.len() as u64) as usize],
            };
            let expected = sorted.partition_point(|word| *word <= bound) as u32;
            // Wherever they begin in a line.
            let place = random.below(8) as usize;
            let around = (0..place).map(|_| random.next_u64()).collect::<Vec<_>>().into_iter();
            let words: Vec<AtomicU64> =
                around.chain(sorted.clone()).chain([0, bound]).map(AtomicU64::new).collect();
            let words = &words[place..][..sorted.len()];
            assert_eq!(first_above(words, bound), expected, "{sorted:?} {bound}");
            assert_eq!(first_above_portable(words, bound), expected, "{sorted:?} {bound}");
        }
    }

    #[test]
    fn the_first_above_is_in_bounds_whatever_the_words() {
        let mut random = SplitMix64::new(10);
        for _ in 0..5_000 {
            let words: Vec<AtomicU64> =
                (0..random.below(9)).map(|_| AtomicU64::new(random.below(5))).collect();
            let bounds = [0, 1, 2, 3, 4, 5];
            for first_above in [first_above, first_above_portable] {
                let found = bounds.map(|bound| first_above(&words, bound));
                assert!(found.is_sorted() && found[5] as usize == words.len(), "{found:?} {words:?}");
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
