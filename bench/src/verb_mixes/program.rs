//! What an operation posts: stages, one behind the other, each with verbs that leave together.
//!
//! Invariant: a stage begins when every verb of the one before has been answered. So the stages of the
//! longest way through an operation are its round trips.

/// A machine of the testbed, by its number.
pub(super) type Machine = usize;

/// A thread of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ThreadPlace {
    pub(super) machine: Machine,
    pub(super) number: usize,
}

/// What is posted to one machine.
#[derive(Debug)]
pub(super) enum Verb {
    Read {
        bytes: u64,
    },
    Write {
        bytes: u64,
    },
    /// A compare-and-swap of the word whose lock is this one.
    Swap {
        lock: usize,
    },
    Call(Call),
}

/// A call, and what the called thread does before it answers.
#[derive(Debug)]
pub(super) struct Call {
    /// The called thread of its machine.
    pub(super) thread: usize,
    pub(super) request_bytes: u64,
    pub(super) reply_bytes: u64,
    /// The called thread's work, besides what the fabric's library does.
    pub(super) work_ps: u64,
    pub(super) stages: Vec<Stage>,
}

#[derive(Debug)]
pub(super) struct Posted {
    pub(super) to: Machine,
    pub(super) verb: Verb,
}

/// The thread's work, and the verbs that leave behind it.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) work_ps: u64,
    pub(super) verbs: Vec<Posted>,
}

impl Stage {
    pub(super) fn new(work_ps: u64) -> Self {
        Self { work_ps, verbs: Vec::new() }
    }

    pub(super) fn post(mut self, to: Machine, verb: Verb) -> Self {
        self.verbs.push(Posted { to, verb });
        self
    }

    /// A WRITE of `bytes` to each of these machines.
    pub(super) fn write(mut self, to: &[Machine], bytes: u64) -> Self {
        self.verbs.extend(to.iter().map(|to| Posted { to: *to, verb: Verb::Write { bytes } }));
        self
    }

    pub(super) fn read(self, to: Machine, bytes: u64) -> Self {
        self.post(to, Verb::Read { bytes })
    }

    /// The machines that it rings for.
    pub(super) fn rings(&self) -> usize {
        let mut machines: Vec<Machine> = self.verbs.iter().map(|posted| posted.to).collect();
        machines.sort_unstable();
        machines.dedup();
        machines.len()
    }
}

/// Round trips of an operation's longest way. A call takes one, and what it waits for.
#[cfg(test)]
pub(super) fn round_trips(stages: &[Stage]) -> usize {
    let of_verb = |posted: &Posted| match &posted.verb {
        Verb::Call(call) => 1 + round_trips(&call.stages),
        _ => 1,
    };
    stages.iter().map(|stage| stage.verbs.iter().map(of_verb).max().unwrap_or(0)).sum()
}
