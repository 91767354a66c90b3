//! Key search in private lines: which words equal a key, which are below it.
//!
//! Invariant: bit `8 * line + word` of the answer is set exactly if that word equals the key, or is below it.
//! Stamps are words too: the caller masks with the lines' occupancy, whose bits have the same places.

use crate::sync::{AtomicU64, Ordering};
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use crate::words::leave_avx;
use crate::words::{Line, WORDS_PER_LINE};

/// Lines searched at once: a leaf's key part.
pub const SEARCH_LINES: usize = 3;

/// The words of `lines` that equal `key`, one bit each, line 0's word 0 lowest.
#[inline(always)]
#[must_use]
pub fn equal_words(lines: &[Line; SEARCH_LINES], key: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if std::is_x86_feature_detected!("avx2") {
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
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the 192 B of `words` are readable and written by atomics alone, each 8 B of which a vector
        // move loads whole; AVX2 was detected.
        return unsafe { equal_words_avx2(words.as_ptr().cast(), key) };
    }
    let equal = |(index, word): (usize, &AtomicU64)| u32::from(word.load(Ordering::Relaxed) == key) << index;
    words.iter().enumerate().map(equal).sum()
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
