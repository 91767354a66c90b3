//! Key search in private lines: which words equal a key.
//!
//! Invariant: bit `8 * line + word` of the answer is set exactly if that word equals the key. Stamps are words
//! too: the caller masks with the lines' occupancy, whose bits have the same places.

use crate::words::Line;

/// The words of `lines` that equal `key`, one bit each, line 0's word 0 lowest.
#[inline(always)]
#[must_use]
pub fn equal_words<const LINES: usize>(lines: &[Line; LINES], key: u64) -> u32 {
    const { assert!(LINES <= 4, "the answer has 32 bits") };
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::is_x86_feature_detected!("avx2") {
        return equal_words_avx2(lines, key);
    }
    equal_words_portable(lines, key)
}

fn equal_words_portable<const LINES: usize>(lines: &[Line; LINES], key: u64) -> u32 {
    let words = lines.iter().flat_map(|line| line.0);
    words.enumerate().fold(0, |found, (index, word)| found | u32::from(word == key) << index)
}

/// Inlined into callers compiled for any x86-64, which is why it is an `asm!` block: a function with
/// `#[target_feature]` would be a call, and a call a line costs more than the search.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn equal_words_avx2<const LINES: usize>(lines: &[Line; LINES], key: u64) -> u32 {
    let mut found = 0;
    for (index, line) in lines.iter().enumerate() {
        let low: u32;
        let high: u32;
        // SAFETY: the block reads the 64 B of `line`, which the borrow keeps alive and unwritten, and the key's
        // register; AVX2 was detected by the caller. Registers are declared; stack and flags stay untouched.
        unsafe {
            std::arch::asm!(
                "vmovq xmm0, {key}",
                "vpbroadcastq ymm0, xmm0",
                "vpcmpeqq ymm1, ymm0, [{line}]",
                "vpcmpeqq ymm2, ymm0, [{line} + 32]",
                "vmovmskpd {low:e}, ymm1",
                "vmovmskpd {high:e}, ymm2",
                "vzeroupper",
                key = in(reg) key,
                line = in(reg) line.0.as_ptr(),
                low = lateout(reg) low,
                high = lateout(reg) high,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack, preserves_flags, readonly, pure),
            );
        }
        found |= (low | high << 4) << (8 * index);
    }
    found
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
