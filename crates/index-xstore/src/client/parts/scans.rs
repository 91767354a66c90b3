//! Scans over several parts: each begins at its key's part, and goes on at the next one's boundary while its
//! limit is not reached.
//!
//! Invariant: the rest of a scan begins where the part that ended had its boundary. So pairs of a scan come
//! in the order of the parts, none skipped and none twice.

use farsight_fabric::QueuePair;
use farsight_index::{Pairs, ScanRequest};

use super::super::XStoreError;
use super::{Part, XParts};
#[cfg(injected)]
use crate::injected;

impl XParts {
    /// The pairs of each of `scans`, in key order, scan after scan.
    ///
    /// # Errors
    /// [`XStoreError`]; then `pairs` means nothing.
    pub fn scan_batch<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        self.scans += scans.len() as u64;
        if let [part] = &mut self.parts[..] {
            return part.client.scan_batch(&mut queues[0], scans, pairs);
        }
        self.share_out_scans(scans);
        // A scan leaves a part but for the next one: so many rounds at most.
        for _ in 0..self.parts.len() {
            self.scan_shares(queues)?;
            #[cfg(injected)]
            if injected::SCAN_ENDS_WITH_PART.is_injected() {
                break;
            }
            if !self.go_on_at_the_next() {
                break;
            }
        }
        self.gather_scans(scans.len(), pairs);
        Ok(())
    }

    fn share_out_scans(&mut self, scans: &[ScanRequest]) {
        self.found.clear();
        for part in &mut self.parts {
            part.forget_scans();
            part.pairs.reset(self.value_bytes);
        }
        for (place, scan) in scans.iter().enumerate() {
            let part = self.part_of(scan.from);
            self.parts[part].scans.push(*scan);
            self.parts[part].places.push(place);
        }
    }

    /// Scans each part's share, a group of every part at a time.
    fn scan_shares<Q: QueuePair>(&mut self, queues: &mut [Q]) -> Result<(), XStoreError> {
        for (index, part) in self.parts.iter().enumerate() {
            let before = part.pairs.scans();
            let of_part = part.places.iter().enumerate();
            self.found.extend(of_part.map(|(number, place)| (*place, index, before + number)));
        }
        loop {
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues) {
                let left = &part.scans[part.scanned..];
                part.group = if left.is_empty() { None } else { Some(part.client.begin_scans(queue, left)?) };
            }
            if self.parts.iter().all(|part| part.group.is_none()) {
                return Ok(());
            }
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues) {
                let Some(group) = part.group.take() else { continue };
                let scans = &part.scans[part.scanned..][..group.count];
                part.client.finish_scans(queue, scans, &group, &mut part.pairs)?;
                part.scanned += group.count;
            }
        }
    }

    /// Gives each part the scans that ended at the part before it. True if there are any.
    fn go_on_at_the_next(&mut self) -> bool {
        let mut is_any = false;
        // The last first: what a part is given replaces what it has done.
        for index in (0..self.parts.len()).rev() {
            let (before, from) = self.parts.split_at_mut(index);
            let part = &mut from[0];
            part.forget_scans();
            if let Some(before) = before.last() {
                for (place, scan) in before.unfinished(self.boundaries[index - 1]) {
                    part.places.push(place);
                    part.scans.push(scan);
                    is_any = true;
                }
            }
        }
        is_any
    }

    /// Puts what the parts found together, scan after scan.
    fn gather_scans(&mut self, count: usize, pairs: &mut Pairs) {
        pairs.reset(self.value_bytes);
        // Scan by scan, and of each scan part by part.
        self.found.sort_unstable();
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

    /// What is left behind `boundary`, where this part ends, of the scans that it has just done.
    fn unfinished(&self, boundary: u64) -> impl Iterator<Item = (usize, ScanRequest)> {
        let first = self.pairs.scans() - self.scans.len();
        let of_scan = move |(number, (place, scan)): (usize, (&usize, &ScanRequest))| {
            let limit = scan.limit - self.pairs.scan(first + number).len();
            (limit > 0).then_some((*place, ScanRequest { from: boundary, limit }))
        };
        self.places.iter().zip(&self.scans).enumerate().filter_map(of_scan)
    }
}
