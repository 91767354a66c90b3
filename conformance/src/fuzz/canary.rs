//! The target with an injected bug: it proves that a driver sees.
//!
//! A frame is "FARS", a count, and so many words. Its reader believes the count, as none of ours may, so a
//! frame cut short leads it out of bounds.

use super::Target;

/// Compared as a number: a comparison of slices is a call that not every build lets a fuzzer see through.
const MAGIC: u32 = u32::from_le_bytes(*b"FARS");

/// The target that every driver must find broken.
pub const CANARY: Target = Target { name: "canary", run, seeds };

fn run(data: &[u8]) {
    let Some((magic, rest)) = data.split_first_chunk() else { return };
    let Some((count, body)) = rest.split_first() else { return };
    if u32::from_le_bytes(*magic) == MAGIC {
        let last = usize::from(*count).max(1) * 8;
        std::hint::black_box(body.first().map(|_| body[last - 1]));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![[MAGIC.to_le_bytes().as_slice(), &[2], &[7; 16]].concat()]
}
