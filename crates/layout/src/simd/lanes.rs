//! The order of hints: how many of a sub-model's hints a key's has passed. Hints are *lanes* of sixteen bits,
//! four to a word.
//!
//! Invariant: of lanes in ascending order the answer is how many stand before the first above a bound. Of
//! lanes in no order, or written meanwhile, it is some number up to theirs.

use std::ops::Range;

use farsight_base::WORDS_PER_LINE;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::{SharedLine, Widest};

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
    let bounds = u64::from(bound) * LANES_OF_ONE;
    let first = lanes.start / LANES_PER_WORD;
    // Lanes of the first word that are not looked at are not above.
    let mut looked_at = u64::MAX << (16 * (lanes.start % LANES_PER_WORD));
    for (word, index) in words[first..lanes.end.div_ceil(LANES_PER_WORD)].iter().zip(first..) {
        // Relaxed: as in `lane`.
        let above = lanes_above(word.load(Ordering::Relaxed), bounds) & looked_at;
        if above != 0 {
            let index = LANES_PER_WORD * index + above.trailing_zeros() as usize / 16;
            return (index.min(lanes.end) - lanes.start) as u32;
        }
        looked_at = u64::MAX;
    }
    lanes.len() as u32
}

/// A one in each lane of a word.
const LANES_OF_ONE: u64 = u64::MAX / u16::MAX as u64;

/// The lanes of `word` that are above those of `bounds`: the highest bit of each.
#[inline(always)]
const fn lanes_above(word: u64, bounds: u64) -> u64 {
    const HIGHEST: u64 = LANES_OF_ONE << 15;
    // No lane borrows of the next: each of the minuend's has its highest bit, none of the subtrahend's.
    let differences = (bounds | HIGHEST) - (word & !HIGHEST);
    let at_most = (bounds & !word) | (!(bounds ^ word) & differences);
    !at_most & HIGHEST
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

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;
    use farsight_base::words::Moves;

    use super::*;

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
}
