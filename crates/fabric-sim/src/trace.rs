//! What happened, in order: as a number always, as text if wanted.
//!
//! Two runs of one seed have the same number: every event's time, its numbers and the bytes that it moved go
//! into it. Nothing that differs between processes does (addresses, process numbers, the machine's time).

use farsight_base::Line;
use farsight_base::prng::mix;

/// Lines of text kept; the first ones go first, because a failure is at the end.
const TEXT_LINES_MAX: usize = 200_000;

/// The trace of one simulation.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    text: Option<std::collections::VecDeque<String>>,
}

impl Trace {
    pub(crate) fn keep_text(&mut self) {
        self.text.get_or_insert_default();
    }

    /// Notes an event by its numbers, the first of which tells its kind.
    pub(crate) fn note<const COUNT: usize>(
        &mut self,
        now_ns: u64,
        numbers: [u64; COUNT],
        text: impl FnOnce() -> String,
    ) {
        self.events += 1;
        self.hash = mix(self.hash ^ now_ns);
        for number in numbers {
            self.hash = mix(self.hash.rotate_left(17) ^ number);
        }
        if let Some(lines) = &mut self.text {
            if lines.len() == TEXT_LINES_MAX {
                lines.pop_front();
            }
            let (us, ns) = (now_ns / 1000, now_ns % 1000);
            lines.push_back(format!("{us:>9}.{ns:03} us  {}", text()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn text(&self) -> String {
        self.text.iter().flatten().fold(String::new(), |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        })
    }
}

/// One number for some bytes.
pub(crate) fn digest_bytes(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        stir(hash, u64::from_le_bytes(word))
    })
}

/// One number for some lines.
pub(crate) fn digest_lines(lines: &[Line]) -> u64 {
    lines.iter().flat_map(|line| line.0).fold(0, stir)
}

/// Cheap, because every byte that moves goes through it; [`Trace::note`] scatters the result.
fn stir(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
