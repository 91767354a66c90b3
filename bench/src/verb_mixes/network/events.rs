//! What is to happen, in the order of time, and of those at one moment in the order in which they came up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::verb_mixes::program::ThreadPlace;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A coroutine begins an operation.
    Begin(ThreadPlace),
    /// A thread has done its job.
    Worked { thread: ThreadPlace },
    /// A verb reaches the other machine's link.
    Arrive(usize),
    /// An atomic has done with its lock.
    Unlock(usize),
    /// The other machine's card has taken a call's message.
    Taken(usize),
    /// An answer reaches the link of the machine that waits for it.
    Back(usize),
    /// That machine's card has taken it.
    Answered(usize),
}

#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
}

impl Events {
    pub(super) fn push(&mut self, at_ps: u64, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse((at_ps, self.pushed, event)));
    }

    /// The next one, if it happens before `end_ps`.
    pub(super) fn pop_before(&mut self, end_ps: u64) -> Option<(u64, Event)> {
        let Reverse((at_ps, _, _)) = self.heap.peek()?;
        if *at_ps >= end_ps {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ps, _, event))| (at_ps, event))
    }
}
