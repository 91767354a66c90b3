//! Which words of a line, or of a search tree's node, compare so with a key.
//!
//! Invariant: bit `word` of the answer is set exactly if that word equals the key, or is below it.

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use crate::words::{Moves, Stamp, leave_avx};
use crate::words::{SharedLine, WORDS_PER_LINE, read_stamped_words};

/// The occupied words of a stamped line that equal `wanted`, where they lie, one bit each. None if the line
/// changed meanwhile or was being written.
#[inline(always)]
#[must_use]
pub fn equal_words_in_line(line: &SharedLine, wanted: u64) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if Moves::are_widest() {
        // SAFETY: AVX-512F was detected.
        return unsafe { equal_words_in_line_avx512(line, wanted) }.occupied();
    } else if Moves::are_wide() {
        // SAFETY: AVX2 was detected.
        return unsafe { equal_words_in_line_avx2(line, wanted) }.occupied();
    }
    equal_words_in_line_portable(line, wanted)
}

#[inline(never)]
fn equal_words_in_line_portable(line: &SharedLine, wanted: u64) -> u8 {
    let all: [usize; WORDS_PER_LINE] = std::array::from_fn(|word| word);
    let Some((stamp, words)) = read_stamped_words(line, all) else { return 0 };
    let equal = words.iter().enumerate();
    let equal = equal.fold(0, |found, (index, word)| found | u8::from(*word == wanted) << index);
    equal & stamp.occupancy()
}

/// What a look at a line gave.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
struct Looked {
    /// The words that are equal, one bit each.
    equal: u32,
    /// The line's stamp before the look.
    stamp: u64,
    /// The bits in which it differs from the one after.
    changed: u64,
}

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
impl Looked {
    #[inline(always)]
    fn occupied(self) -> u8 {
        let is_consistent = self.changed | self.stamp & 1 == 0;
        if is_consistent { self.equal as u8 & Stamp(self.stamp).occupancy() } else { 0 }
    }
}

/// An `asm!` block, inlined into callers compiled for any x86-64: a function with `#[target_feature]` would
/// be a call.
///
/// # Safety
/// The processor has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn equal_words_in_line_avx512(line: &SharedLine, wanted: u64) -> Looked {
    let (stamp, changed): (u64, u64);
    let equal: u32;
    // SAFETY: the block reads the 64 B of `line`, which is borrowed and which atomics alone write, each 8 B
    // of which a vector compare loads whole. As x86-64 performs loads in program order, the order of the
    // instructions is that of a seqlock's reader: the stamp, the line, the stamp again. The compiler moves
    // no memory access across the block, because it is not `nomem`. The caller has AVX-512F. Registers and
    // flags are declared; the stack stays untouched.
    unsafe {
        std::arch::asm!(
            "vpbroadcastq zmm16, {wanted}",
            "mov {stamp}, [{line}]",
            "vpcmpeqq k1, zmm16, [{line}]",
            "mov {changed}, [{line}]",
            "xor {changed}, {stamp}",
            "kmovw {equal:e}, k1",
            wanted = in(reg) wanted,
            line = in(reg) line.as_ptr(),
            stamp = out(reg) stamp,
            changed = out(reg) changed,
            equal = out(reg) equal,
            out("zmm16") _, out("k1") _,
            options(nostack, readonly),
        );
    }
    Looked { equal, stamp, changed }
}

/// [`equal_words_in_line_avx512`] with one compare half a line.
///
/// # Safety
/// The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
unsafe fn equal_words_in_line_avx2(line: &SharedLine, wanted: u64) -> Looked {
    let (stamp, changed): (u64, u64);
    let (low, high): (u32, u32);
    // SAFETY: as in `equal_words_in_line_avx512`; the caller has AVX2.
    unsafe {
        std::arch::asm!(
            "vmovq xmm0, {wanted}",
            "vpbroadcastq ymm0, xmm0",
            "mov {stamp}, [{line}]",
            "vpcmpeqq ymm1, ymm0, [{line}]",
            "vpcmpeqq ymm2, ymm0, [{line} + 32]",
            "mov {changed}, [{line}]",
            "xor {changed}, {stamp}",
            "vmovmskpd {low:e}, ymm1",
            "vmovmskpd {high:e}, ymm2",
            wanted = in(reg) wanted,
            line = in(reg) line.as_ptr(),
            stamp = out(reg) stamp,
            changed = out(reg) changed,
            low = out(reg) low,
            high = out(reg) high,
            out("xmm0") _, out("xmm1") _, out("xmm2") _,
            options(nostack, readonly),
        );
    }
    leave_avx();
    Looked { equal: low | high << 4, stamp, changed }
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

/// An `asm!` block for the reason of [`equal_words_in_line_avx512`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::SplitMix64;
    use crate::sync::AtomicU64;

    type Way = fn(&SharedLine, u64) -> u8;

    /// Each way of searching a line that this processor has.
    fn ways() -> Vec<Way> {
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        let vectors = {
            use crate::vectors::Vectors;
            let avx2 = |line: &SharedLine, wanted| {
                // SAFETY: only taken where AVX2 is.
                unsafe { equal_words_in_line_avx2(line, wanted) }.occupied()
            };
            let avx512 = |line: &SharedLine, wanted| {
                // SAFETY: only taken where AVX-512 is.
                unsafe { equal_words_in_line_avx512(line, wanted) }.occupied()
            };
            let (avx2, avx512): (Way, Way) = (avx2, avx512);
            let widest = Vectors::widest();
            [(widest >= Vectors::Avx2).then_some(avx2), (widest >= Vectors::Avx512).then_some(avx512)]
        };
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
        let vectors: [Option<Way>; 0] = [];
        let all: [Way; 2] = [equal_words_in_line, equal_words_in_line_portable];
        all.into_iter().chain(vectors.into_iter().flatten()).collect()
    }

    #[test]
    fn a_consistent_lines_occupied_words_are_found() {
        let mut random = SplitMix64::new(12);
        let mut changing = 0;
        for _ in 0..4_000 {
            // Odd stamps now and then.
            let is_odd = random.below(8) == 0;
            let words: [u64; WORDS_PER_LINE] = std::array::from_fn(|word| match word {
                0 => random.next_u64() << 1 | u64::from(is_odd),
                _ => random.below(4),
            });
            changing += usize::from(is_odd);
            let wanted = random.below(4);
            let is_found = |word: usize| !is_odd && words[0] >> (56 + word) & 1 == 1 && words[word] == wanted;
            let expected = (0..WORDS_PER_LINE).map(|word| u8::from(is_found(word)) << word).sum();
            let line = words.map(AtomicU64::new);
            for way in ways() {
                assert_eq!(way(&line, wanted), expected, "{words:?} {wanted}");
            }
        }
        assert!((300..700).contains(&changing), "{changing} of 4,000 were changing");
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
}
