//! Hidden tears: a flipped bit hides from the reader that a value's lines are of two writes.
//!
//! Invariant: an answer counts as one only if a READ of that very operation brought its lines. Without the
//! flipped bit the reader refuses these lines, and each line is of some write of that key.
//!
//! Protocol: the writer gives all lines of a value one version. A reader that got the lines of two writes
//! sees two versions, and READs again. If these differ in one bit, and this bit flips on its way, the reader
//! sees one version. Lines carry no checksum (docs/faults.md), so nothing else shows the tear.

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric_sim::FlippedRead;
use farsight_layout::{Geometry, ValueFault, ValuePlace};
use farsight_oracles::values;

/// Whether an answer, `value` of `version`, is a hidden tear. `flipped` are the READs with a flipped bit that
/// the operation had, `writes` the numbers of the key's writes.
pub(crate) fn is_hidden_tear(value: &[u8], version: u64, flipped: &[FlippedRead], writes: &[u64]) -> bool {
    let Ok(geometry) = Geometry::new(value.len()) else { return false };
    let lines = geometry.lines_per_value();
    (0..lines).all(|line| writes.iter().any(|number| is_line_of(value, line, *number)))
        && flipped.iter().any(|read| {
            let (brought, taken) = (read.lines.windows(lines), read.taken());
            let mut both = brought.zip(taken.windows(lines));
            both.any(|(brought, taken)| {
                let mut got = vec![0; value.len()];
                accept(&geometry, brought, &mut got) == Ok(version)
                    && got == value
                    && accept(&geometry, taken, &mut got) == Err(ValueFault::Changing)
            })
        })
}

/// What the reader says of a value's lines.
fn accept(geometry: &Geometry, lines: &[Line], into: &mut [u8]) -> Result<u64, ValueFault> {
    let incarnation = lines[0].stamp().incarnation();
    geometry.read_value(lines, ValuePlace { line: 0, index: 0 }, incarnation, into)
}

/// Whether the words of `value` that stand in its line `line` are those of write `number`. Behind the stamps
/// stands the version, then the value.
fn is_line_of(value: &[u8], line: usize, number: u64) -> bool {
    let own = value.chunks(8).enumerate().filter(|(word, _)| (1 + word) / (WORDS_PER_LINE - 1) == line);
    own.into_iter().all(|(word, piece)| *piece == values::word(number, word).to_le_bytes()[..piece.len()])
}

#[cfg(test)]
mod tests {
    use farsight_base::Stamp;

    use super::*;

    const VALUE_BYTES: usize = 100;
    /// The pair's version under which both writes are told.
    const VERSION: u64 = 7;

    /// The two lines of the value of a write, under a stamp.
    fn lines_of(number: u64, stamp: Stamp) -> [Line; 2] {
        let mut value = [0; VALUE_BYTES];
        values::write(number, &mut value);
        let mut words = [0; 16];
        (words[0], words[1], words[8]) = (stamp.0, VERSION, stamp.0);
        for (index, piece) in value.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            // Six words of the value stand in the first line, the others behind the second one's stamp.
            words[2 + index + usize::from(index >= 6)] = u64::from_le_bytes(word);
        }
        [0, 8].map(|first| Line(words[first..first + 8].try_into().expect("a line has eight words")))
    }

    /// A READ that begins with another line; then come the first line of write 2, which is the later one, and
    /// the second line of write 1. `bit` of the first one's stamp is flipped.
    fn read(versions: [u32; 2], bit: u64) -> FlippedRead {
        let [_, second] = lines_of(1, Stamp::new(versions[0], 3, 0));
        let [mut first, _] = lines_of(2, Stamp::new(versions[1], 3, 0));
        first.0[0] ^= bit;
        FlippedRead { lines: vec![Line::ZERO, first, second], line: 1, word: 0, bit }
    }

    fn value(first: u64, second: u64) -> [u8; VALUE_BYTES] {
        let (mut value, mut rest) = ([0; VALUE_BYTES], [0; VALUE_BYTES]);
        values::write(first, &mut value);
        values::write(second, &mut rest);
        value[48..].copy_from_slice(&rest[48..]);
        value
    }

    #[test]
    fn a_bit_that_makes_two_versions_one_hides_a_tear() {
        let hidden = |value: &[u8], reads: &[FlippedRead]| is_hidden_tear(value, VERSION, reads, &[1, 2]);
        let mixed = value(2, 1);
        assert!(hidden(&mixed, &[read([16, 16], 1 << 5), read([16, 18], 2)]));
        // The lines the other way round, or whole.
        assert!(!hidden(&value(1, 2), &[read([16, 18], 2)]));
        assert!(!hidden(&value(2, 2), &[read([16, 18], 2)]));
        // No flip, one that leaves two versions, one without which there is but one, one of another word.
        assert!(!hidden(&mixed, &[]));
        assert!(!hidden(&mixed, &[read([16, 18], 4)]));
        assert!(!hidden(&mixed, &[read([16, 16], 1 << 40)]));
        assert!(!hidden(&mixed, &[FlippedRead { word: 3, ..read([16, 18], 2) }]));
    }

    #[test]
    fn what_no_write_of_the_key_stored_is_no_hidden_tear() {
        let reads = [read([16, 18], 2)];
        let mixed = value(2, 1);
        assert!(is_hidden_tear(&mixed, VERSION, &reads, &[5, 2, 1]));
        assert!(!is_hidden_tear(&mixed, VERSION + 1, &reads, &[1, 2]), "another version");
        assert!(!is_hidden_tear(&mixed, VERSION, &reads, &[2, 3]), "a line of another key's write");
        // A line that is itself torn.
        let mut torn = mixed;
        torn[9] ^= 1;
        let mut read = read([16, 18], 2);
        read.lines[1].0[3] ^= 1 << 8;
        assert!(!is_hidden_tear(&torn, VERSION, &[read], &[1, 2]));
        assert!(!is_hidden_tear(&[0; 4], VERSION, &reads, &[1, 2]), "no value of the format");
    }
}
