//! The search of a key part: which words of its lines equal a key, which are below it.
//!
//! Invariant: bit `8 * line + word` of the answer is set exactly if that word equals the key, or is below it.
//! Stamps are words too: the caller masks with the lines' occupancy, whose bits have the same places.

use farsight_base::sync::AtomicU64;
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use farsight_base::words::Moves;
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use farsight_base::words::leave_avx;
use farsight_base::words::{SharedLine, Widest};
use farsight_base::{Line, WORDS_PER_LINE};

use crate::KEY_LINES;

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

/// The words of `lines` that equal `key`, one bit each, line 0's word 0 lowest.
#[inline(always)]
#[must_use]
pub(crate) fn equal_words(lines: &[Line; KEY_LINES], key: u64) -> u32 {
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
    words: &[AtomicU64; KEY_LINES * WORDS_PER_LINE],
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
pub(crate) fn words_below_unchecked(
    words: &[AtomicU64; KEY_LINES * WORDS_PER_LINE],
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

/// The words of a line of shared memory that are not above `key`, one bit each, the first word lowest;
/// otherwise as [`equal_words_unchecked`].
#[inline(always)]
#[must_use]
pub fn words_at_most_in_line(line: &SharedLine, key: u64, widest: Widest) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        let Widest { .. } = widest;
        let line: *const u64 = line.as_ptr().cast();
        let at_most: u32;
        // SAFETY: the block reads 64 B at `line`, which are readable and written by atomics alone, and the
        // key's register; `widest` proves AVX-512F. Registers are declared; stack and flags stay untouched.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                "vpcmpnltuq k1, zmm16, [{line}]",
                "kmovw {at_most:e}, k1",
                key = in(reg) key,
                line = in(reg) line,
                at_most = out(reg) at_most,
                out("zmm16") _, out("k1") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        at_most
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    widest.never((line, key))
}

#[inline(never)]
fn equal_words_portable(lines: &[Line; KEY_LINES], key: u64) -> u32 {
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
    use farsight_base::prng::SplitMix64;
    use farsight_base::words::Moves;

    use super::*;

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
    fn keys_that_differ_in_one_bit_differ() {
        for bit in 0..64 {
            let mut lines = [Line([u64::MAX; 8]); 3];
            lines[1].0[3] ^= 1 << bit;
            assert_eq!(equal_words(&lines, u64::MAX), 0x00ff_ffff & !(1 << 11));
        }
    }
}
