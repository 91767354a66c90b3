//! What a head asks compute nodes for: that all replicas of its shard have what it has.
//!
//! Invariant: memory that is noted here no slot of the head names, nor ever will. What was noted before a
//! compute node was asked no slot of any replica names when it has answered.
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
            None if self.noted.is_empty() => None,
            None => {
                self.number = self.number.wrapping_add(1);
                self.asked = Some((std::mem::take(&mut self.noted), now));
                Some(self.number)
            }
        }
    }

    /// What no slot names any more, once a compute node has settled the shard under this number.
    pub(super) fn end(&mut self, number: u32) -> Vec<ObjectMemory> {
        if number != self.number {
            return Vec::new();
        }
        self.asked.take().into_iter().flat_map(|(unnamed, _)| unnamed).collect()
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
        assert_eq!(settling.end(0), [], "another number");
        assert_eq!(settling.end(1), [memory(1), memory(2)]);
        assert_eq!(settling.end(1), [], "the other one");
        assert_eq!((settling.ask(now), settling.end(2)), (Some(2), vec![memory(3)]));
    }
}
