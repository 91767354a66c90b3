//! Size classes: which lengths a block's memory has.

use crate::PAGE_LINES;

/// Lines of the longest block that stands in a slab.
pub(crate) const SLAB_BLOCK_LINES_MAX: u32 = 1024;
/// Lines up to which each length is a class of its own.
const EXACT_LINES_MAX: u32 = 16;
/// Classes from one power of two to the next, above.
const STEPS: u32 = 8;
/// The fewest and the most pages of a slab.
const SLAB_PAGES: std::ops::RangeInclusive<u64> = 8..=16;

/// Size classes of blocks in slabs.
pub(crate) const CLASSES: usize = class_of(SLAB_BLOCK_LINES_MAX) + 1;

/// The memory of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// A place in a slab of this class.
    Class(usize),
    /// So many pages.
    Pages(u64),
}

impl Size {
    /// The memory of a block of so many lines.
    pub(crate) fn of(lines: u32) -> Self {
        if lines <= SLAB_BLOCK_LINES_MAX {
            Self::Class(class_of(lines))
        } else {
            Self::Pages(u64::from(lines).div_ceil(PAGE_LINES))
        }
    }

    /// Its lines.
    pub(crate) fn lines(self) -> u64 {
        match self {
            Self::Class(class) => u64::from(lines_of(class)),
            Self::Pages(pages) => pages * PAGE_LINES,
        }
    }
}

/// The class of blocks of so many lines, from 1 to [`SLAB_BLOCK_LINES_MAX`].
const fn class_of(lines: u32) -> usize {
    if lines <= EXACT_LINES_MAX {
        return lines as usize - 1;
    }
    let power = (lines - 1).ilog2();
    let step = (lines - 1) >> (power - STEPS.ilog2());
    let powers = power - EXACT_LINES_MAX.ilog2();
    (EXACT_LINES_MAX + powers * STEPS + step - STEPS) as usize
}

/// Lines of the places of a class.
pub(crate) const fn lines_of(class: usize) -> u32 {
    let class = class as u32;
    if class < EXACT_LINES_MAX {
        return class + 1;
    }
    let above = class - EXACT_LINES_MAX;
    let power = EXACT_LINES_MAX.ilog2() + above / STEPS;
    (STEPS + above % STEPS + 1) << (power - STEPS.ilog2())
}

/// Pages of a class's slabs: so many that the least of them is lost.
pub(crate) fn slab_pages(class: usize) -> u64 {
    let rest = |pages: u64| pages * PAGE_LINES % u64::from(lines_of(class));
    // Rests in proportion to their slabs.
    SLAB_PAGES.min_by_key(|pages| (rest(*pages) * 1_000 / pages, *pages)).expect("some pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_and_lose_at_most_a_ninth_of_a_block() {
        let mut before = 0;
        for lines in 1..=SLAB_BLOCK_LINES_MAX {
            let class = class_of(lines);
            assert!(class == before || class == before + 1, "{lines} lines");
            before = class;
            let has = lines_of(class);
            assert!(has >= lines && (has - lines) * 9 <= has, "{lines} lines in {has}");
            assert_eq!(class_of(has), class);
        }
        assert_eq!(CLASSES, 64);
    }

    #[test]
    fn slabs_lose_at_most_a_sixteenth() {
        for class in 0..CLASSES {
            let slab = slab_pages(class) * PAGE_LINES;
            let rest = slab % u64::from(lines_of(class));
            assert!(rest * 16 <= slab, "{rest} of {slab} lines");
        }
    }

    /// The average over all lengths up to 1 MiB, each weighed by its bytes.
    #[test]
    fn an_eighth_is_lost_at_most_on_average() {
        let lengths = 1..=16_384_u32;
        let wanted: u64 = lengths.clone().map(u64::from).sum();
        let taken: f64 = lengths
            .map(|lines| match Size::of(lines) {
                Size::Class(class) => {
                    let slab = slab_pages(class) * PAGE_LINES;
                    slab as f64 / (slab / u64::from(lines_of(class))) as f64
                }
                size @ Size::Pages(_) => size.lines() as f64,
            })
            .sum();
        let lost = 1.0 - wanted as f64 / taken;
        assert!(lost <= 0.125, "{lost}");
        for lines in SLAB_BLOCK_LINES_MAX + 1..40_000 {
            let taken = Size::of(lines).lines();
            assert!((taken - u64::from(lines)) * 8 <= taken, "{lines} lines in {taken}");
        }
    }
}
