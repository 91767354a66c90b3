//! What a head asks compute nodes for: that all replicas of its shard have what it has.
//!
//! Invariant: memory that is noted here nothing at the head names, nor ever will: no slot an object, no
//! directory units. What was noted before a compute node was asked nothing at any replica names when it has
//! answered.
//!
//! A head that took the place of a lost one asks every compute node before it gives out anything.
//!
//! Several compute nodes may settle one shard, one after the other did not answer. Any answer will do.

use std::collections::BTreeSet;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::ObjectMemory;

/// Time for a compute node to settle a shard before another one is asked.
const PATIENCE: Duration = Duration::from_millis(500);

/// Memory that nothing at the head names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Unnamed {
    /// Of objects.
    pub(super) objects: Vec<ObjectMemory>,
    /// Of the index: units of subtables that were split.
    pub(super) units: Vec<u32>,
}

/// What is to be freed once a shard is settled.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The head is new, and gives out nothing before the shard is settled under this number.
    taken_over: Option<u32>,
    /// The last number.
    number: u32,
    /// Noted before somebody was asked under that, and when somebody was asked last.
    asked: Option<(BTreeSet<ObjectMemory>, MonotonicNs)>,
    /// Noted since.
    noted: BTreeSet<ObjectMemory>,
    /// Units, noted before and since.
    units: [Vec<u32>; 2],
}

impl Settling {
    /// Of a head that took the place of another one.
    pub(super) fn of_successor() -> Self {
        Self { taken_over: Some(1), number: 1, ..Self::default() }
    }

    /// The number under which the shard has to be settled before the head gives anything out.
    pub(super) fn taken_over(&self) -> Option<u32> {
        self.taken_over
    }

    /// True if that was this number, and now it is settled.
    pub(super) fn end_taking_over(&mut self, number: u32) -> bool {
        let is_it = self.taken_over == Some(number);
        if is_it {
            self.taken_over = None;
        }
        is_it
    }

    /// Notes memory that no slot of the head names.
    pub(super) fn note(&mut self, unnamed: impl Iterator<Item = ObjectMemory>) {
        let asked = self.asked.as_ref().map(|(asked, _)| asked);
        self.noted.extend(unnamed.filter(|memory| !asked.is_some_and(|asked| asked.contains(memory))));
    }

    /// Notes units of subtables that were split, which no directory of the head leads to.
    pub(super) fn note_units(&mut self, units: Vec<u32>) {
        self.units[1].extend(units);
    }

    /// What is to be freed. A compute node that lives may have freed it already.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = &ObjectMemory> {
        self.asked.iter().flat_map(|(unnamed, _)| unnamed).chain(&self.noted)
    }

    /// The number under which a compute node is asked that calls now, if one is to be asked.
    pub(super) fn ask(&mut self, now: MonotonicNs) -> Option<u32> {
        match &mut self.asked {
            Some((_, at)) if now.since(*at) < PATIENCE => None,
            Some((_, at)) => {
                *at = now;
                Some(self.number)
            }
            None if self.noted.is_empty() && self.units[1].is_empty() => None,
            None => {
                self.number = self.number.wrapping_add(1);
                self.asked = Some((std::mem::take(&mut self.noted), now));
                self.units.swap(0, 1);
                Some(self.number)
            }
        }
    }

    /// What nothing names any more, once a compute node has settled the shard under this number.
    pub(super) fn end(&mut self, number: u32) -> Unnamed {
        match self.asked.take_if(|_| number == self.number) {
            Some((objects, _)) => {
                let objects = objects.into_iter().collect();
                Unnamed { objects, units: std::mem::take(&mut self.units[0]) }
            }
            None => Unnamed::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(offset_lines: u32) -> ObjectMemory {
        ObjectMemory { offset_lines, lines: 1, generation: 1 }
    }

    #[test]
    fn what_was_noted_before_somebody_was_asked_is_freed() {
        let (mut settling, now) = (Settling::default(), MonotonicNs(0));
        assert_eq!(settling.ask(now), None, "nothing is to be freed");
        settling.note([memory(1), memory(2)].into_iter());
        assert_eq!(settling.ask(now), Some(1));
        settling.note([memory(3)].into_iter());
        settling.note([memory(1), memory(3)].into_iter());
        assert_eq!(settling.unnamed().count(), 3, "each once");
        assert_eq!(settling.ask(now), None, "somebody does it");
        assert_eq!(settling.ask(now.plus(PATIENCE)), Some(1), "or has ended");
        assert_eq!(settling.end(0).objects, [], "another number");
        assert_eq!(settling.end(1).objects, [memory(1), memory(2)]);
        assert_eq!(settling.end(1).objects, [], "the other one");
        assert_eq!((settling.ask(now), settling.end(2).objects), (Some(2), vec![memory(3)]));
    }

    #[test]
    fn units_wait_as_objects_do() {
        let (mut settling, now) = (Settling::default(), MonotonicNs(0));
        settling.note_units(Vec::new());
        assert_eq!(settling.ask(now), None, "no units");
        settling.note_units(vec![4]);
        assert_eq!(settling.ask(now), Some(1));
        settling.note_units(vec![5, 6]);
        assert_eq!(settling.end(1), Unnamed { objects: Vec::new(), units: vec![4] });
        assert_eq!((settling.end(1), settling.ask(now)), (Unnamed::default(), Some(2)));
        assert_eq!(settling.end(2).units, [5, 6]);
    }
}
