//! READs that name READs: whole batches of them, and parts of one.

use farsight_base::sync::Ordering;
use farsight_base::words::{SharedLine, Widest, begin_write, end_write};
use farsight_base::{LINE_BYTES, Line, RegionId, WORDS_PER_LINE};
use farsight_fabric::chained::{CHAINS_MAX, Chains, line_address, read_chained};
use farsight_fabric::mapped::{read_part, take_part};
use farsight_fabric::{FabricError, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Bench, read};

/// Lines of the first and the second READs.
const FIRST: usize = 3;
const SECOND: usize = 2;

/// Chains whose second line stands in the first one's lines; what each step saw.
struct Followed {
    /// Where the first READ begins, if there is one.
    firsts: Vec<Option<u64>>,
    seconds: Vec<Option<[Line; FIRST]>>,
    ends: Vec<Option<[Line; SECOND]>>,
    /// Whether chains of even numbers take what is plain where it lies.
    is_in_place: bool,
}

impl Followed {
    fn new(firsts: Vec<Option<u64>>) -> Self {
        let count = firsts.len();
        Self { firsts, seconds: vec![None; count], ends: vec![None; count], is_in_place: false }
    }

    /// Whether chain `index` takes lines where they lie.
    fn takes(&self, index: usize) -> bool {
        self.is_in_place && index.is_multiple_of(2)
    }
}

/// The line that a chain's first lines name: none if that is zero.
fn named(lines: &[Line; FIRST]) -> Option<u64> {
    Some(lines[1].0[3]).filter(|line| *line > 0)
}

impl Chains<FIRST, SECOND> for Followed {
    fn first(&mut self, index: usize) -> Option<u64> {
        self.firsts[index]
    }

    fn second(&mut self, index: usize, lines: &[Line; FIRST]) -> Option<u64> {
        assert!(self.seconds[index].replace(*lines).is_none(), "chain {index} is searched once");
        named(lines)
    }

    fn end(&mut self, index: usize, lines: &[Line; SECOND]) {
        assert!(self.seconds[index].is_some(), "chain {index} has had its first READ");
        assert!(self.ends[index].replace(*lines).is_none(), "chain {index} ends once");
    }

    fn second_in_place(&mut self, index: usize, lines: &[SharedLine; FIRST], _: Widest) -> Option<u64> {
        let lines = loaded(lines);
        // A chain that ends here is for the copy to tell.
        let named = named(&lines).filter(|_| self.takes(index))?;
        self.seconds[index] = Some(lines);
        Some(named)
    }

    fn end_in_place(&mut self, index: usize, lines: &[SharedLine; SECOND]) -> bool {
        let takes = self.takes(index);
        if takes {
            self.end(index, &loaded(lines));
        }
        takes
    }
}

/// Lines of a region that nobody writes.
fn loaded<const COUNT: usize>(lines: &[SharedLine; COUNT]) -> [Line; COUNT] {
    lines.each_ref().map(|line| Line(line.each_ref().map(|word| word.load(Ordering::Relaxed))))
}

fn fill<F: FabricUnderTest>(bench: &Bench<F>) {
    let lines = bench.region.words().len() / WORDS_PER_LINE;
    for (index, word) in bench.region.words().iter().enumerate() {
        word.store(index as u64 * 2, Ordering::Relaxed);
    }
    for (index, line) in bench.region.words().chunks(WORDS_PER_LINE).enumerate() {
        let is_end = index % 11 == 5;
        line[3].store(if is_end { 0 } else { (index * 17 % (lines - 2)) as u64 }, Ordering::Relaxed);
    }
}

/// `COUNT` lines as one READ brings them.
fn lines_at<const COUNT: usize, F: FabricUnderTest>(bench: &mut Bench<F>, line: u64) -> [Line; COUNT] {
    let mut lines = [Line::ZERO; COUNT];
    let from = bench.word(line as usize * WORDS_PER_LINE);
    read(&mut bench.queue, from, ReadMode::Stamped, &mut lines).expect("a READ");
    lines
}

/// Chains fetch what READs one by one would, and count as they do, two doorbells a batch.
pub fn chains_fetch_what_their_reads_would<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    fill(&bench);
    let batches = [0, 1, 7, CHAINS_MAX].into_iter().flat_map(|count| [(count, false), (count, true)]);
    for (count, is_in_place) in batches {
        let firsts = (0..count as u64).map(|index| (index % 7 != 3).then_some(index * 5)).collect();
        let mut chains = Followed { is_in_place, ..Followed::new(firsts) };
        let before = bench.queue.meters();
        read_chained(&mut bench.queue, bench.region.id(), count, &mut chains).expect("chains");
        let used = (bench.queue.meters() - before).without_checks();
        let mut ended = 0;
        for index in 0..count {
            let Some(line) = chains.firsts[index] else {
                assert!(chains.seconds[index].is_none() && chains.ends[index].is_none(), "chain {index}");
                continue;
            };
            let first = lines_at::<FIRST, F>(&mut bench, line);
            assert_eq!(chains.seconds[index], Some(first), "chain {index}");
            let second = named(&first).map(|line| lines_at::<SECOND, F>(&mut bench, line));
            assert_eq!(chains.ends[index], second, "chain {index}");
            ended += u64::from(second.is_some());
        }
        let begun = chains.firsts.iter().flatten().count() as u64;
        assert_eq!(used.reads, begun + ended);
        assert_eq!(used.read_bytes, (begun * FIRST as u64 + ended * SECOND as u64) * LINE_BYTES as u64);
        assert_eq!(used.doorbells, u64::from(begun > 0) + u64::from(ended > 0), "{count} chains");
    }
}

/// A line of a chain that is being written is odd, in the first READ and in the second.
pub fn chains_see_lines_being_written<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    fill(&bench);
    let second = (9 * 17) as u64;
    for line in [8, second as usize] {
        let words = &bench.region.words()[line * WORDS_PER_LINE..][..WORDS_PER_LINE];
        let stamp = begin_write(words);
        let mut chains = Followed::new(vec![Some(8)]);
        read_chained(&mut bench.queue, bench.region.id(), 1, &mut chains).expect("a chain");
        end_write(words, stamp);
        let odd = [
            chains.seconds[0].expect("a first READ")[0].stamp().is_changing(),
            chains.ends[0].expect("a second READ")[0].stamp().is_changing(),
        ];
        assert_eq!(odd, [line == 8, line != 8]);
    }
}

/// A READ of a chain is refused as any other.
pub fn chains_are_refused_as_reads_are<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    fill(&bench);
    let (region, lines) = (bench.region.id(), bench.region.words().len() / WORDS_PER_LINE);
    let elsewhere = RegionId(region.0 + 100);
    let error = read_chained(&mut bench.queue, elsewhere, 1, &mut Followed::new(vec![Some(0)]));
    let error = error.expect_err("no such region");
    assert!(matches!(error, FabricError::UnknownRegion { .. }), "{error}");
    // The first READ of one, the second of another ends behind the region.
    bench.region.words()[WORDS_PER_LINE + 3].store(lines as u64 - 1, Ordering::Relaxed);
    for (begin, outside) in [(lines - 2, lines - 2), (0, lines - 1)] {
        let mut queue = bench.another_queue();
        let mut chains = Followed::new(vec![Some(20), Some(begin as u64)]);
        let error = read_chained(&mut queue, region, 2, &mut chains).expect_err("it ends before");
        let expected = bench.word(outside * WORDS_PER_LINE);
        assert!(
            matches!(&error, FabricError::AccessDenied { address, .. } if *address == expected),
            "{error}"
        );
        let again = read_chained(&mut queue, region, 1, &mut Followed::new(vec![Some(0)]));
        again.expect_err("an access error kills the queue");
    }
}

/// A part of a READ is what the whole has there, and costs what the whole costs.
pub fn a_part_of_a_read_is_the_wholes<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    fill(&bench);
    let region = bench.region.id();
    for begin in [0, 2, 5] {
        let begun = bench.queue.meters();
        let whole = lines_at::<7, F>(&mut bench, 13);
        let between = bench.queue.meters();
        let choose = |first: &[Line; 3]| {
            assert_eq!(first[..], whole[..3]);
            Some((begin, "chosen"))
        };
        let keep = |chosen, part: &[Line; 2]| (chosen, *part);
        let kept = read_part::<7, 3, 2, _, _>(&mut bench.queue, region, 13, choose, keep).expect("a READ");
        assert_eq!(kept, Some(("chosen", [whole[begin], whole[begin + 1]])));
        let cost = between - begun;
        assert_eq!(bench.queue.meters() - between, cost);
        // The same of a READ in a slot.
        let between = bench.queue.meters();
        let mut room = [Line::ZERO; 7];
        bench.queue.post_read(5, line_address(region, 13), room.len(), ReadMode::Stamped);
        bench.queue.doorbell().expect("a living connection");
        bench.queue.drain().expect("an end");
        let kept = take_part::<3, 2, _, _>(&mut bench.queue, 5, &mut room, choose, keep).expect("a READ");
        assert_eq!(kept, Some(("chosen", [whole[begin], whole[begin + 1]])));
        assert_eq!(bench.queue.meters() - between, cost);
    }
    let nothing = |_: &[Line; 3]| None::<(usize, ())>;
    let keep = |(), _: &[Line; 1]| panic!("nothing was chosen");
    let kept = read_part::<7, 3, 1, _, ()>(&mut bench.queue, region, 13, nothing, keep).expect("a READ");
    assert_eq!(kept, None);
    let past_the_end = (bench.region.words().len() / WORDS_PER_LINE - 6) as u64;
    let mut queue = bench.another_queue();
    let error = read_part::<7, 3, 1, _, ()>(&mut queue, region, past_the_end, nothing, keep);
    let error = error.expect_err("it ends before");
    assert!(matches!(error, FabricError::AccessDenied { .. }), "{error}");
}
