//! Scans over several parts: each begins at its key's part, and goes on at the next one on its way while its
//! limit is not reached.
//!
//! Invariant: the rest of a scan begins where the part that ended has its boundary. So pairs of a scan come
//! in the order of the parts on the way, none skipped and none twice.

use farsight_fabric::QueuePair;
use farsight_index::{Direction, Extent, Pairs, ScanRequest};

use super::super::XStoreError;
use super::{Part, XParts};
#[cfg(injected)]
use crate::injected;

impl XParts {
    /// The pairs of each of `scans`, in the order of the way, scan after scan.
    ///
    /// # Errors
    /// [`XStoreError`]; then `pairs` means nothing.
    pub fn scan_batch<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        self.scans += scans.len() as u64;
        if let [part] = &mut self.parts[..] {
            return part.client.scan_batch(&mut queues[0], direction, scans, pairs);
        }
        self.share_out_scans(scans, pairs.bytes_max());
        // A scan leaves a part but for the next one: so many rounds at most.
        for _ in 0..self.parts.len() {
            self.scan_shares(queues, direction)?;
            #[cfg(injected)]
            if injected::SCAN_ENDS_WITH_PART.is_injected() {
                break;
            }
            let goes_on = match direction {
                Direction::Ascending => self.go_on_above(),
                Direction::Descending => self.go_on_below(),
            };
            if !goes_on {
                break;
            }
        }
        self.gather_scans(direction, scans.len(), pairs);
        Ok(())
    }

    /// [`XParts::scan_batch`] of keys alone, of which leaves' key parts say all that there is to say.
    ///
    /// # Errors
    /// As there.
    pub fn scan_keys<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        self.scan_for(Extent::Keys);
        let done = self.scan_batch(queues, direction, scans, pairs);
        self.scan_for(Extent::Pairs);
        done
    }

    fn scan_for(&mut self, extent: Extent) {
        self.parts.iter_mut().for_each(|part| part.client.scan_for(extent));
    }

    fn share_out_scans(&mut self, scans: &[ScanRequest], bytes_max: Option<usize>) {
        self.found.clear();
        for part in &mut self.parts {
            part.forget_scans();
            part.pairs.bound_bytes(bytes_max);
            part.client.reset_pairs(&mut part.pairs);
        }
        for (place, scan) in scans.iter().enumerate() {
            let part = self.part_of(scan.from);
            self.parts[part].scans.push(*scan);
            self.parts[part].places.push(place);
        }
    }

    /// Scans each part's share, a group of every part at a time.
    fn scan_shares<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
    ) -> Result<(), XStoreError> {
        for (index, part) in self.parts.iter().enumerate() {
            let before = part.pairs.scans();
            let of_part = part.places.iter().enumerate();
            self.found.extend(of_part.map(|(number, place)| (*place, index, before + number)));
        }
        loop {
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues) {
                let left = &part.scans[part.scanned..];
                let begun = (!left.is_empty()).then(|| part.client.begin_scans(queue, direction, left));
                part.group = begun.transpose()?;
            }
            if self.parts.iter().all(|part| part.group.is_none()) {
                return Ok(());
            }
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues) {
                let Some(group) = part.group.take() else { continue };
                let scans = &part.scans[part.scanned..][..group.count];
                part.client.finish_scans(queue, (direction, scans), &group, &mut part.pairs)?;
                part.scanned += group.count;
            }
        }
    }

    /// Gives each part the scans that ended at the part below it. True if there are any.
    fn go_on_above(&mut self) -> bool {
        let mut is_any = false;
        // The last first: what a part is given replaces what it has done.
        for index in (0..self.parts.len()).rev() {
            let (below, from) = self.parts.split_at_mut(index);
            from[0].forget_scans();
            if let Some(below) = below.last() {
                is_any |= from[0].take_over(below, self.boundaries[index - 1]);
            }
        }
        is_any
    }

    /// Gives each part the scans that ended at the part above it. True if there are any.
    fn go_on_below(&mut self) -> bool {
        let mut is_any = false;
        for index in 0..self.parts.len() {
            let (to, above) = self.parts.split_at_mut(index + 1);
            to[index].forget_scans();
            if let Some(above) = above.first() {
                // A part above another begins above zero.
                is_any |= to[index].take_over(above, self.boundaries[index] - 1);
            }
        }
        is_any
    }

    /// Puts what the parts found together, scan after scan.
    fn gather_scans(&mut self, direction: Direction, count: usize, pairs: &mut Pairs) {
        self.parts[0].client.reset_pairs(pairs);
        if self.parts.iter().any(|part| part.pairs.is_cut()) {
            pairs.cut();
        }
        // Scan by scan, and of each scan part by part on the way.
        self.found.sort_unstable_by_key(|(scan, part, _)| match direction {
            Direction::Ascending => (*scan, *part),
            Direction::Descending => (*scan, usize::MAX - *part),
        });
        let mut found = self.found.iter().peekable();
        for scan in 0..count {
            while let Some((_, part, number)) = found.next_if(|(of, ..)| *of == scan) {
                for pair in self.parts[*part].pairs.scan(*number) {
                    pairs.push(pair);
                }
            }
            pairs.end_scan();
        }
    }
}

impl Part {
    fn forget_scans(&mut self) {
        self.scans.clear();
        self.places.clear();
        self.scanned = 0;
    }

    /// Takes over what is left from `from` on of the scans that `before` has just done. True if anything is.
    fn take_over(&mut self, before: &Self, from: u64) -> bool {
        // A scan that was cut goes on in another one.
        if before.pairs.is_cut() {
            return false;
        }
        for (place, scan) in before.unfinished(from) {
            self.places.push(place);
            self.scans.push(scan);
        }
        !self.scans.is_empty()
    }

    /// What is left from `from` on, behind this part, of the scans that it has just done.
    fn unfinished(&self, from: u64) -> impl Iterator<Item = (usize, ScanRequest)> {
        let first = self.pairs.scans() - self.scans.len();
        let of_scan = move |(number, (place, scan)): (usize, (&usize, &ScanRequest))| {
            let limit = scan.limit - self.pairs.scan(first + number).len();
            (limit > 0).then_some((*place, ScanRequest { from, limit }))
        };
        self.places.iter().zip(&self.scans).enumerate().filter_map(of_scan)
    }
}
