//! Shared words: how bytes that another process may be writing are copied, stamped and written.
//!
//! Invariant: a [`Line`] whose stamp has an even version is a snapshot of that line; one with an odd version
//! is not, and says so. Lines are related to each other by equal incarnation only, never by address order or
//! by the moment at which they were copied.
//!
//! Protocol, a seqlock a line:
//! - a writer makes the version odd, `fence(Release)`, writes the body with relaxed stores, makes the version
//!   even with a Release store ([`begin_write`], [`end_write`]);
//! - a reader loads the stamp, copies the line, loads the stamp again; two different stamps or an odd one
//!   make the copy's stamp odd ([`copy_stamped`]).
//!
//! The copy is an `asm!` block of vector moves on x86-64 (whose loads are performed in program order) and
//! relaxed word loads elsewhere. Shared memory tears at 8 B inside a line, so the second look at the stamp is
//! not optional. Plain, volatile and `memcpy` reads of such memory would be data races.

use std::mem::MaybeUninit;

use crate::observe;
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use crate::sync::process::AtomicU8;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::vectors::Vectors;

#[cfg(all(test, any(loom, shuttle)))]
mod models;

/// Words in a line.
pub const WORDS_PER_LINE: usize = 8;
/// Bytes in a line: the unit in which memory travels.
pub const LINE_BYTES: usize = 64;

/// Bits of the stamp's version.
pub const STAMP_VERSION_BITS: u32 = 32;
/// Bits of the stamp's incarnation.
pub const STAMP_INCARNATION_BITS: u32 = 24;
/// Bits of the stamp's occupancy: bit `w` says that word `w` of the line holds something.
pub const STAMP_OCCUPANCY_BITS: u32 = 8;

const INCARNATION_MASK: u32 = (1 << STAMP_INCARNATION_BITS) - 1;

/// A line of shared memory.
pub type SharedLine = [AtomicU64; WORDS_PER_LINE];

/// A private copy of one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(64))]
pub struct Line(pub [u64; WORDS_PER_LINE]);

impl Line {
    /// All zeros.
    pub const ZERO: Self = Self([0; WORDS_PER_LINE]);

    /// The line's first word.
    #[inline]
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp(self.0[0])
    }
}

/// Lines as the bytes that a network carries: words in the machine's order.
#[inline]
#[must_use]
pub fn bytes_of(lines: &[Line]) -> &[u8] {
    // SAFETY: a line is eight words of eight bytes without padding (asserted below), each byte of which is
    // initialised; bytes need no alignment; the result borrows the lines.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// Lines as room for bytes from a network.
#[inline]
#[must_use]
pub fn bytes_of_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; any bytes make a valid line, and the result borrows the lines mutably.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

const _: () = assert!(size_of::<Line>() == LINE_BYTES && size_of::<[u64; WORDS_PER_LINE]>() == LINE_BYTES);

/// The first word of a stamped line: version 32 (low; odd while written), incarnation 24, occupancy 8 (high).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(pub u64);

impl Stamp {
    /// The stamp of these fields.
    #[inline]
    #[must_use]
    pub fn new(version: u32, incarnation: u32, occupancy: u8) -> Self {
        debug_assert!(incarnation <= INCARNATION_MASK, "incarnation {incarnation:#x} has more than 24 bits");
        Self(u64::from(version) | u64::from(incarnation) << 32 | u64::from(occupancy) << 56)
    }

    /// The line's version: it grows by two with each write of the line.
    #[inline]
    #[must_use]
    pub fn version(self) -> u32 {
        self.0 as u32
    }

    /// The incarnation of what the line belongs to.
    #[inline]
    #[must_use]
    pub fn incarnation(self) -> u32 {
        (self.0 >> 32) as u32 & INCARNATION_MASK
    }

    /// The words of the line that hold something, one bit each.
    #[inline]
    #[must_use]
    pub fn occupancy(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// True while the line is being written, or if it changed while it was copied.
    #[inline]
    #[must_use]
    pub fn is_changing(self) -> bool {
        self.0 & 1 == 1
    }

    /// This stamp with another occupancy.
    #[inline]
    #[must_use]
    pub fn with_occupancy(self, occupancy: u8) -> Self {
        Self(self.0 & !(0xff << 56) | u64::from(occupancy) << 56)
    }

    /// This stamp with another incarnation, cut to 24 bits.
    #[inline]
    #[must_use]
    pub fn with_incarnation(self, incarnation: u32) -> Self {
        let mask = u64::from(INCARNATION_MASK) << 32;
        Self(self.0 & !mask | u64::from(incarnation & INCARNATION_MASK) << 32)
    }

    /// The stamp while its line is written: the version made odd.
    #[inline]
    #[must_use]
    pub fn changing(self) -> Self {
        Self(self.0 | 1)
    }

    /// The stamp after a write of its line: the next even version (wrapping within its 32 bits).
    #[inline]
    #[must_use]
    pub fn written(self) -> Self {
        let version = ((self.0 as u32) | 1).wrapping_add(1);
        Self(self.0 & !0xffff_ffff | u64::from(version))
    }
}

/// The incarnation that follows `incarnation`, within its 24 bits.
#[inline]
#[must_use]
pub fn next_incarnation(incarnation: u32) -> u32 {
    incarnation.wrapping_add(1) & INCARNATION_MASK
}

/// Asks for the line at which `place` begins to be brought near.
///
/// Into the second cache, not the first. A processor waits for some two dozen lines at a time on behalf of
/// the first, for more on behalf of the second, and a staged batch prefetches hundreds. Measured on Zen 4,
/// three neighbouring lines at a random place, batches of 64: 323 M lines/s so, 137 into the first.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    let _ = place;
}

/// [`prefetch`] of `LINES` lines from the one of `place` on, whatever they hold.
#[inline(always)]
pub fn prefetch_lines<const LINES: usize>(place: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let line = std::ptr::from_ref(place).wrapping_add(line * WORDS_PER_LINE);
        // SAFETY: a prefetch reads nothing that the program can see and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    let _ = place;
}

/// [`prefetch`] of a line that is looked at once and then not for a long time. It comes into the first cache
/// alone, and drives nothing out of the others.
#[inline(always)]
pub fn prefetch_passing<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    {
        use std::arch::x86_64::{_MM_HINT_NTA, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_NTA>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    let _ = place;
}

/// What a copy looks at besides the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyMode {
    /// Nothing: eight-byte words arrive whole, no more is promised.
    Plain,
    /// The first word of each line is its stamp.
    Stamped,
}

/// The widest moves of this process: what the processor has, unless the operator chose narrower ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moves(Width);

/// Invariant: but for `Words`, the processor said that it has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Width {
    /// AVX-512 with compares of bytes and words (F and BW).
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    Avx512,
    /// AVX2.
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    Avx2,
    Words,
}

/// What [`Vectors`] said: nothing yet, `Words`, `Avx2`, `Avx512`. Of its own, because a look at it is three
/// instructions where one at the standard library's is six, and a GET takes several.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
static DETECTED: AtomicU8 = AtomicU8::new(0);

/// A proof that the processor has the widest moves: AVX-512 with compares of bytes and words (F and BW), and
/// POPCNT. What takes one needs not look again.
#[derive(Clone, Copy, Debug)]
pub struct Widest(Has);

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
type Has = ();
#[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
type Has = std::convert::Infallible;

impl Widest {
    /// The proof, if the processor was asked ([`Moves::detect`]) and has them. Asks nothing itself: a path
    /// without a call keeps what it has in registers.
    #[inline(always)]
    #[must_use]
    pub fn if_known() -> Option<Self> {
        // Relaxed: as in `Moves::detect`.
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        return (DETECTED.load(Ordering::Relaxed) == 3).then_some(Self(()));
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
        None
    }

    /// What to do where there is never a proof.
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    pub fn never<T, R>(self, _unused: T) -> R {
        match self.0 {}
    }
}

impl Moves {
    /// Asks the processor, the first time.
    #[inline(always)]
    #[must_use]
    pub fn detect() -> Self {
        // Relaxed: a thread that does not see the answer asks again.
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        return match DETECTED.load(Ordering::Relaxed) {
            3 => Self(Width::Avx512),
            2 => Self(Width::Avx2),
            1 => Self(Width::Words),
            _ => Self::ask(),
        };
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
        Self(Width::Words)
    }

    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    #[cold]
    #[inline(never)]
    fn ask() -> Self {
        let (code, width) = match Vectors::chosen_or_widest() {
            Vectors::Avx512 => (3, Width::Avx512),
            Vectors::Avx2 => (2, Width::Avx2),
            Vectors::Portable => (1, Width::Words),
        };
        DETECTED.store(code, Ordering::Relaxed);
        Self(width)
    }

    /// True if they move a line at once; then many short numbers are compared at once, too.
    #[inline(always)]
    #[must_use]
    pub fn are_widest() -> bool {
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        return match DETECTED.load(Ordering::Relaxed) {
            3 => true,
            0 => Self::ask().0 == Width::Avx512,
            _ => false,
        };
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
        false
    }

    /// How wide they are.
    #[must_use]
    pub fn vectors(self) -> Vectors {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
            Width::Avx512 => Vectors::Avx512,
            #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
            Width::Avx2 => Vectors::Avx2,
            Width::Words => Vectors::Portable,
        }
    }

    /// True if they move half a line at once, or more.
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    #[inline(always)]
    #[must_use]
    pub fn are_wide() -> bool {
        Self::detect().0 != Width::Words
    }

    /// Copies `into.len()` lines from `from`. In [`CopyMode::Stamped`] a line that changed meanwhile, or was
    /// being written, comes back with an odd version.
    ///
    /// # Panics
    /// If `from` does not hold exactly as many words as `into`.
    #[inline(always)]
    pub fn copy_lines(self, from: &[AtomicU64], into: &mut [Line], mode: CopyMode) {
        // Plain copies look at the stamps too: it costs two loads a line, less than a second body for this
        // function.
        if self.copy_and_compare(from, into) != 0 && mode == CopyMode::Stamped {
            self.copy_again_line_by_line(from, into);
        }
    }

    /// Copies stamped lines to `into` and returns them there. One that changed meanwhile, or was being
    /// written, comes back with an odd version.
    #[inline(always)]
    pub fn copy_to<'a, const LINES: usize>(
        self,
        from: &[SharedLine; LINES],
        into: &'a mut MaybeUninit<[Line; LINES]>,
    ) -> &'a mut [Line; LINES] {
        let lines: *mut Line = into.as_mut_ptr().cast();
        let mut changed = 0;
        for (index, words) in from.iter().enumerate() {
            // SAFETY: `index < LINES`, the number of lines at `lines`.
            let line = unsafe { lines.add(index) };
            changed |= match self.0 {
                // SAFETY: the line is `into`'s, writable and aligned; AVX-512F was detected.
                #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
                Width::Avx512 => unsafe { copy_line_avx512(words, line) },
                // SAFETY: as above; AVX2 was detected.
                #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
                Width::Avx2 => unsafe { copy_line_avx(words, line) },
                // SAFETY: as above.
                Width::Words => unsafe { copy_line_by_words(words, line) },
            };
        }
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        if self.0 == Width::Avx2 {
            leave_avx();
        }
        // SAFETY: the loop wrote each line, and any bits are a line.
        let into = unsafe { into.assume_init_mut() };
        if changed != 0 {
            self.copy_again_line_by_line(from.as_flattened(), into);
        }
        into
    }

    /// After some line changed under the copy: copies once more and marks those that change again.
    #[cold]
    #[inline(never)]
    fn copy_again_line_by_line(self, from: &[AtomicU64], into: &mut [Line]) {
        for (line, words) in into.iter_mut().zip(from.chunks_exact(WORDS_PER_LINE)) {
            if self.copy_and_compare(words, std::slice::from_mut(line)) != 0 {
                line.0[0] |= 1;
            }
        }
    }

    /// Copies lines, looking at each stamp before and after its body: returns the bits in which any stamp
    /// changed, zero if none did. Between two equal stamps the copy holds that same stamp, because versions
    /// only grow.
    ///
    /// Nothing is stored into a copy but by vector moves. A word stored into it would make the vector loads
    /// of the search that follows wait for both stores (no store forwarding), which costs more than the copy.
    #[inline(always)]
    fn copy_and_compare(self, from: &[AtomicU64], into: &mut [Line]) -> u64 {
        assert_eq!(from.len(), into.len() * WORDS_PER_LINE, "words to copy, and room for them");
        let lines = into.iter_mut().zip(from.as_chunks().0);
        match self.0 {
            #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
            Width::Avx512 => lines.fold(0, |changed, (line, words)| {
                // SAFETY: a line of the caller's; AVX-512F was detected.
                changed | unsafe { copy_line_avx512(words, line) }
            }),
            #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
            Width::Avx2 => {
                let changed = lines.fold(0, |changed, (line, words)| {
                    // SAFETY: a line of the caller's; AVX2 was detected.
                    changed | unsafe { copy_line_avx(words, line) }
                });
                leave_avx();
                changed
            }
            Width::Words => lines.fold(0, |changed, (line, words)| {
                // SAFETY: a line of the caller's.
                changed | unsafe { copy_line_by_words(words, line) }
            }),
        }
    }
}

/// [`Moves::copy_lines`] by the widest moves there are.
///
/// # Panics
/// As [`Moves::copy_lines`].
#[inline(always)]
pub fn copy_lines(from: &[AtomicU64], into: &mut [Line], mode: CopyMode) {
    Moves::detect().copy_lines(from, into, mode);
}

/// [`copy_lines`] of stamped lines.
///
/// # Panics
/// As [`copy_lines`].
#[inline(always)]
pub fn copy_stamped(from: &[AtomicU64], into: &mut [Line]) {
    copy_lines(from, into, CopyMode::Stamped);
}

/// Where there are no vector moves to use; its own function, so that it does not stand in every hot loop.
///
/// # Safety
/// A line may be written at `line`.
#[inline(never)]
unsafe fn copy_line_by_words(words: &SharedLine, line: *mut Line) -> u64 {
    // Relaxed, then a fence, because an Acquire load is not promised to work on a read-only mapping.
    let before = words[0].load(Ordering::Relaxed);
    // Acquire: the body's loads come after the stamp's. Partner: the Release store in `end_write`.
    fence(Ordering::Acquire);
    let body = Line(std::array::from_fn(|word| words[word].load(Ordering::Relaxed)));
    // Acquire: the second load of the stamp comes after the body's loads. Partner: the Release fence in
    // `begin_write`: a reader that saw a word of the new body sees the odd stamp, or a later one.
    fence(Ordering::Acquire);
    // SAFETY: the caller's line.
    unsafe { line.write(body) };
    #[cfg(any(loom, shuttle))]
    if crate::injected::NO_SECOND_LOOK.is_injected() {
        return 0;
    }
    before ^ words[0].load(Ordering::Relaxed)
}

/// [`copy_line_by_words`] with vector moves. x86-64 performs loads in program order, so the order of the
/// block's instructions is the fences. The compiler moves no memory access across the block, because it is
/// not `nomem`.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
///
/// # Safety
/// A line may be written at `line`; the processor has AVX.
#[inline(always)]
unsafe fn copy_line_avx(words: &SharedLine, line: *mut Line) -> u64 {
    let changed: u64;
    // SAFETY: `from` points at a line's 64 readable bytes that only atomics and this block touch, each 8 B of
    // which a vector move loads whole. `into` points at 64 writable private bytes, by the caller. The moves
    // need no alignment. The caller has AVX. The registers are declared; the stack stays untouched.
    unsafe {
        std::arch::asm!(
            "mov {changed}, [{from}]",
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovdqu [{into}], ymm0",
            "vmovdqu [{into} + 32], ymm1",
            "xor {changed}, [{from}]",
            from = in(reg) words.as_ptr(),
            into = in(reg) line,
            changed = out(reg) changed,
            out("xmm0") _, out("xmm1") _,
            options(nostack),
        );
    }
    changed
}

/// [`copy_line_avx`] with one move a line, through a register of the upper sixteen: those cost SSE code
/// nothing, so there is nothing to clear afterwards.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
///
/// # Safety
/// A line may be written at `line`; the processor has AVX-512F.
#[inline(always)]
unsafe fn copy_line_avx512(words: &SharedLine, line: *mut Line) -> u64 {
    let changed: u64;
    // SAFETY: as in `copy_line_avx`; the caller has AVX-512F.
    unsafe {
        std::arch::asm!(
            "mov {changed}, [{from}]",
            "vmovdqu64 zmm16, [{from}]",
            "vmovdqu64 [{into}], zmm16",
            "xor {changed}, [{from}]",
            from = in(reg) words.as_ptr(),
            into = in(reg) line,
            changed = out(reg) changed,
            out("zmm16") _,
            options(nostack),
        );
    }
    changed
}

/// Clears the upper halves of the vector registers, which would slow down the SSE code around.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline(always)]
pub fn leave_avx() {
    // SAFETY: the instruction writes the vector registers alone, all of which are declared; callers detected
    // AVX.
    unsafe {
        std::arch::asm!(
            "vzeroupper",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, nomem, preserves_flags),
        );
    }
}

/// The stamp of a line and its words `at`, or `None` if the line was being written or changed meanwhile. For
/// a few words of a line that is not searched, cheaper than a copy.
#[inline(always)]
pub fn read_stamped_words<const COUNT: usize>(
    line: &[AtomicU64; WORDS_PER_LINE],
    at: [usize; COUNT],
) -> Option<(Stamp, [u64; COUNT])> {
    let before = line[0].load(Ordering::Relaxed);
    // Acquire, twice: as in `copy_line_by_words`, with the same partners.
    fence(Ordering::Acquire);
    // A loop, because `map` is not inlined for sure.
    let mut words = [0; COUNT];
    for (word, at) in words.iter_mut().zip(at) {
        *word = line[at].load(Ordering::Relaxed);
    }
    fence(Ordering::Acquire);
    let after = line[0].load(Ordering::Relaxed);
    (before == after && !Stamp(before).is_changing()).then_some((Stamp(before), words))
}

/// Opens a line for writing: its version becomes odd. Only the holder of the line's latch may call it.
/// Returns the stamp as it stood, for [`end_write`].
#[inline]
pub fn begin_write(line: &[AtomicU64]) -> Stamp {
    // Relaxed: the latch's holder is the only writer of the stamp.
    let stamp = Stamp(line[0].load(Ordering::Relaxed));
    line[0].store(stamp.changing().0, Ordering::Relaxed);
    // Release: no store of the body is seen before the odd version. Partner: the second Acquire fence in
    // `copy_line_by_words`.
    fence(Ordering::Release);
    if observe::is_watched() {
        observe::tell_opened(line, stamp);
    }
    stamp
}

/// Closes a line opened by [`begin_write`]: `stamp` (occupancy and incarnation as they shall be) with the
/// next even version.
#[inline]
pub fn end_write(line: &[AtomicU64], stamp: Stamp) {
    if observe::is_watched() {
        observe::tell_closing(line, stamp);
    }
    // Release: the body's stores are seen before the even version. Partner: the first Acquire fence in
    // `copy_line_by_words`.
    line[0].store(stamp.written().0, Ordering::Release);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    type Copy = unsafe fn(&SharedLine, *mut Line) -> u64;

    /// Each way of copying a line that this processor has.
    fn ways() -> Vec<Copy> {
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        let vector_moves = [
            (Vectors::widest() >= Vectors::Avx2).then_some(copy_line_avx as Copy),
            (Vectors::widest() >= Vectors::Avx512).then_some(copy_line_avx512 as Copy),
        ];
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
        let vector_moves = [None::<Copy>];
        std::iter::once(copy_line_by_words as Copy).chain(vector_moves.into_iter().flatten()).collect()
    }

    #[test]
    fn lines_and_their_bytes_are_one_memory() {
        let mut lines = [Line(std::array::from_fn(|word| word as u64)), Line::ZERO];
        bytes_of_mut(&mut lines)[64..72].copy_from_slice(&77_u64.to_ne_bytes());
        assert_eq!(lines[1].0[0], 77);
        let words = bytes_of(&lines).chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        assert!(words.eq(lines.iter().flat_map(|line| line.0)));
    }

    #[test]
    fn every_way_of_copying_copies_every_word() {
        // At places of any alignment: a line of a heap region need not begin at a line of the cache.
        let shared: Vec<AtomicU64> =
            (0..32).map(|word| AtomicU64::new(word * 0x0101_0101_0101_0102)).collect();
        for (way, copy) in ways().into_iter().enumerate() {
            for words in shared.windows(WORDS_PER_LINE) {
                let mut line = Line::ZERO;
                // SAFETY: the line is the test's own; `ways` detected what each needs.
                let changed = unsafe { copy(words.try_into().unwrap(), &raw mut line) };
                assert_eq!(changed, 0, "nobody writes");
                let expected = std::array::from_fn(|word| words[word].load(Ordering::Relaxed));
                assert_eq!(line.0, expected, "way {way}");
            }
        }
    }
}
