//! The target with a planted bug: it proves that a driver sees.
//!
//! A frame is "FARS", a count, and so many words. Its reader believes the count, as none of ours may, so a
//! frame cut short leads it out of bounds.

use super::Target;

const MAGIC: &[u8; 4] = b"FARS";

/// The target that every driver must find broken.
pub const CANARY: Target = Target { name: "canary", run, seeds };

fn run(data: &[u8]) {
    let Some((head, body)) = data.split_at_checked(5) else { return };
    if head.starts_with(MAGIC) {
        let last = usize::from(head[4]).max(1) * 8;
        std::hint::black_box(body.first().map(|_| body[last - 1]));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![[MAGIC.as_slice(), &[2], &[7; 16]].concat()]
}
