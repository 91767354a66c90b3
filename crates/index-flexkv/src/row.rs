//! Writes of one key that wait together, of any kinds: one look, one decision after the other, one effect.
//!
//! Invariant: what each is told is what it would be told if they were executed one after the other, with
//! nobody between them. The effect is what the last of them leaves. It is one swap of the slot, at which all
//! of them take effect, in their order.
//!
//! A row ends before a write that has to see what another write of the row stored: one that compares a
//! version, which is not known yet, or that removes. For a removed pair's version has to stand in the
//! overflow, and nobody could say it of a pair that was in no slot. Such a write begins a row of its own,
//! behind the effect of the first.
//!
//! Each stored value has a version of its own: the last one its object's, those before it the next below. A
//! row looks at the value, so no other write counts as done right before it ([`crate::overtaken`]).

use farsight_index::{Decision, HeldPair, NewValue, decide_parts};
use farsight_protocol::{INTEGER_BYTES, Operand, WriteOperation, WriteOutcome};

#[cfg(injected)]
use crate::injected;
use crate::write::{Write, stores_its_value};

/// A write of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'w> {
    pub(crate) operation: WriteOperation,
    pub(crate) operand: Operand<'w>,
}

/// What a write is told: its outcome, and the value before if it returns that.
pub(crate) type Told = (WriteOutcome, Vec<u8>);

/// The first writes of a row, decided by what was found.
#[derive(Debug)]
pub(crate) struct Row<'w> {
    first: Decided,
    rest: Vec<Decided>,
    becomes: Becomes<'w>,
    /// Values that it stores, of which the last one stays.
    stores: u64,
}

/// What a row leaves of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes<'w> {
    /// What was found.
    Same,
    /// Nothing.
    Absent,
    /// This value.
    Value(NewValue<'w>),
}

/// A write that is decided, and the value before.
#[derive(Debug)]
struct Decided {
    outcome: Outcome,
    old: Vec<u8>,
}

/// An outcome. Versions of what the row stores follow from its object's.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Known(WriteOutcome),
    /// Of the value with this number, from 1 on.
    Of(u64, fn(u64) -> WriteOutcome),
}

/// What the key holds between two writes of a row.
struct State<'h, 'w> {
    found: Option<HeldPair<'h>>,
    becomes: Becomes<'w>,
    stores: u64,
}

impl<'w> Row<'w> {
    /// Decides a write, and those that wait behind it as far as one effect does them.
    pub(crate) fn decide(write: &Write<'w>, found: Option<HeldPair<'_>>) -> Self {
        let mut state = State { found, becomes: Becomes::Same, stores: 0 };
        let first = state.decide(Step { operation: write.operation, operand: write.operand });
        let mut rest = Vec::new();
        for step in write.then {
            if state.ends_before(*step) {
                break;
            }
            rest.push(state.decide(*step));
        }
        let State { becomes, stores, .. } = state;
        Self { first, rest, becomes, stores }
    }

    /// What it leaves of the key.
    pub(crate) fn becomes(&self) -> Becomes<'w> {
        self.becomes
    }

    /// Tells the writes what became of them, once the row took effect with this version; of a row that stores
    /// nothing it may be any. Of the first one what is returned, of the others what is appended.
    pub(crate) fn tell(self, version: u64, others: &mut Vec<Told>) -> Told {
        let stores = self.stores;
        let tell = |Decided { outcome, old }| match outcome {
            Outcome::Known(outcome) => (outcome, old),
            Outcome::Of(number, outcome) => (outcome(version - (stores - number)), old),
        };
        others.extend(self.rest.into_iter().map(tell));
        tell(self.first)
    }
}

impl<'w> State<'_, 'w> {
    /// The value that is there, and its version if it is not the row's.
    fn held(&self) -> Option<HeldPair<'_>> {
        match &self.becomes {
            Becomes::Same => self.found,
            #[cfg(injected)]
            Becomes::Absent if injected::REMOVED_IN_ROW_HELD.is_injected() => self.found,
            Becomes::Absent => None,
            // No write that compares versions comes here.
            Becomes::Value(value) => Some(HeldPair { version: 0, value: value.bytes() }),
        }
    }

    /// True if a write has to wait for the effect of those before it.
    fn ends_before(&self, step: Step<'_>) -> bool {
        let is_no_integer = self.held().is_some_and(|held| held.value.len() != INTEGER_BYTES);
        let is_stored = matches!(self.becomes, Becomes::Value(_));
        needs_effect(step.operation) && is_stored
            || step.operation == WriteOperation::FetchAdd && is_no_integer
    }

    fn decide(&mut self, Step { operation, operand }: Step<'w>) -> Decided {
        let held = self.held();
        let is_held = held.is_some();
        let decision = decide_parts(operation, operand, held);
        let is_told = operation.returns_value() && matches!(decision, Decision::Store(_));
        let old = held.filter(|_| is_told).map_or(Vec::new(), |held| held.value.to_vec());
        let is_own = matches!(self.becomes, Becomes::Value(_));
        let outcome = match decision {
            Decision::Leave(WriteOutcome::Exists(_)) if is_own => {
                Outcome::Of(self.stores, WriteOutcome::Exists)
            }
            Decision::Leave(WriteOutcome::Differs(_)) if is_own => {
                Outcome::Of(self.stores, WriteOutcome::Differs)
            }
            Decision::Leave(outcome) => Outcome::Known(outcome),
            Decision::Remove => {
                let version = held.map_or(0, |held| held.version);
                self.becomes = Becomes::Absent;
                Outcome::Known(WriteOutcome::Removed(version))
            }
            Decision::Store(value) => {
                self.stores += 1;
                self.becomes = Becomes::Value(value);
                Outcome::Of(
                    self.stores,
                    if is_held { WriteOutcome::Replaced } else { WriteOutcome::Inserted },
                )
            }
        };
        Decided { outcome, old }
    }
}

/// True of a write that cannot be decided by what another one of its row has stored.
fn needs_effect(operation: WriteOperation) -> bool {
    use WriteOperation::{CompareAndSet, Remove, RemoveIf};
    matches!(operation, CompareAndSet | Remove | RemoveIf)
}

impl<'w> Write<'w> {
    /// Itself, and what waits behind it.
    fn steps(&self) -> impl Iterator<Item = Step<'w>> + use<'w> {
        let first = Step { operation: self.operation, operand: self.operand };
        std::iter::once(first).chain(self.then.iter().copied())
    }

    /// True if all of them are so.
    pub(crate) fn are_all(&self, is_so: impl Fn(WriteOperation) -> bool) -> bool {
        self.steps().all(|step| is_so(step.operation))
    }

    /// The value that is mostly stored in the end, if it is known before the key is looked up.
    pub(crate) fn likely_value(&self) -> Option<&'w [u8]> {
        let mut likely = None;
        for Step { operation, operand } in self.steps() {
            let is_there = likely.is_some();
            if is_there && needs_effect(operation) {
                break;
            }
            if stores_its_value(operation) && !(is_there && operation == WriteOperation::Insert) {
                likely = Some(operand.value);
            }
        }
        likely
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    const FIRST_VERSION: u64 = 100;

    fn random_step(random: &mut SplitMix64, versions: &[u64]) -> (WriteOperation, Vec<u8>) {
        let value = random.below(4).to_le_bytes();
        let operation = WriteOperation::ALL[random.below(WriteOperation::ALL.len() as u64) as usize];
        let expected = versions[random.below(versions.len() as u64) as usize].to_le_bytes();
        let operand = match operation {
            WriteOperation::Remove => Vec::new(),
            WriteOperation::RemoveIf => expected.to_vec(),
            WriteOperation::CompareAndSet => [expected, value].concat(),
            WriteOperation::CompareAndSetValue => [random.below(4).to_le_bytes(), value].concat(),
            _ => value.to_vec(),
        };
        (operation, operand)
    }

    /// Random writes of a key in rows, beside the same one after the other.
    fn rows_tell_what_writes_in_turn_would() {
        let mut random = SplitMix64::fresh();
        for _ in 0..2_000 {
            // What the key holds: in rows, and in turn.
            let mut held: Option<(u64, Vec<u8>)> =
                (random.below(2) == 0).then(|| (FIRST_VERSION, random.below(4).to_le_bytes().to_vec()));
            let mut model = held.clone();
            let mut newest = FIRST_VERSION;
            let steps: Vec<_> = (0..=random.below(7))
                .map(|_| random_step(&mut random, &[0, FIRST_VERSION, FIRST_VERSION + 1]))
                .collect();
            let steps: Vec<Step<'_>> = steps
                .iter()
                .map(|(operation, operand)| Step {
                    operation: *operation,
                    operand: Operand::of_one_size(*operation, operand),
                })
                .collect();
            let mut done = 0;
            while done < steps.len() {
                let Step { operation, operand } = steps[done];
                let (then, absorbed) = (&steps[done + 1..], 0);
                let write = Write { operation, key: 1.into(), operand, absorbed, then, is_ending: false };
                let found =
                    held.as_ref().map(|(version, value)| HeldPair { version: *version, value: &value[..] });
                let row = Row::decide(&write, found);
                let version = newest + steps.len() as u64;
                let becomes = row.becomes();
                let stores = row.stores;
                let mut others = Vec::new();
                let first = row.tell(version, &mut others);
                match becomes {
                    Becomes::Same => {}
                    Becomes::Absent => held = None,
                    Becomes::Value(value) => held = Some((version, value.bytes().to_vec())),
                }
                for (told, step) in std::iter::once(first).chain(others).zip(&steps[done..]) {
                    check_in_turn(&mut model, *step, &told);
                    done += 1;
                }
                assert_eq!(held, model, "{steps:?}");
                newest = if stores > 0 { version } else { newest };
            }
        }
    }

    /// Executes a write by the one table of decisions; it must be told what the row told.
    fn check_in_turn(model: &mut Option<(u64, Vec<u8>)>, step: Step<'_>, told: &Told) {
        let held = model.as_ref().map(|(version, value)| HeldPair { version: *version, value });
        let before = model.clone();
        match decide_parts(step.operation, step.operand, held) {
            Decision::Leave(outcome) => assert_eq!(told.0, outcome, "{step:?}"),
            Decision::Remove => {
                let (version, _) = model.take().expect("it is there");
                assert_eq!(told.0, WriteOutcome::Removed(version), "{step:?}");
            }
            Decision::Store(value) => {
                let version = match told.0 {
                    WriteOutcome::Inserted(version) if before.is_none() => version,
                    WriteOutcome::Replaced(version) if before.is_some() => version,
                    other => panic!("{step:?} is told {other:?}"),
                };
                let bytes = value.bytes().to_vec();
                assert!(before.as_ref().is_none_or(|(before, _)| version > *before), "versions grow");
                *model = Some((version, bytes));
                let old = before.filter(|_| step.operation.returns_value());
                assert_eq!(told.1, old.map_or(Vec::new(), |(_, value)| value), "{step:?}");
            }
        }
    }

    #[test]
    fn each_write_is_told_what_it_would_be_in_turn() {
        rows_tell_what_writes_in_turn_would();
    }

    #[test]
    fn a_row_has_one_effect() {
        let step = |operation, operand: &'static [u8]| Step {
            operation,
            operand: Operand::of_one_size(operation, operand),
        };
        let then = [
            step(WriteOperation::Insert, b"8 bytes."),
            step(WriteOperation::Swap, b"another."),
            step(WriteOperation::Remove, b""),
        ];
        let operand = Operand { argument: &[], value: &[] };
        let (operation, key) = (WriteOperation::Remove, 1.into());
        let write = Write { operation, key, operand, absorbed: 3, then: &then, is_ending: false };
        assert_eq!(write.likely_value(), Some(&b"another."[..]));
        let row = Row::decide(&write, Some(HeldPair { version: 5, value: b"a value." }));
        assert!(matches!(row.becomes(), Becomes::Value(NewValue::Given(b"another."))), "{row:?}");
        let mut others = Vec::new();
        assert_eq!(row.tell(9, &mut others), (WriteOutcome::Removed(5), Vec::new()));
        let expected =
            [(WriteOutcome::Inserted(8), Vec::new()), (WriteOutcome::Replaced(9), b"8 bytes.".to_vec())];
        assert_eq!(others, expected, "the second removal waits for the effect");
    }

    #[cfg(injected)]
    #[test]
    fn a_removed_pair_that_a_row_still_has_is_found() {
        farsight_base::injection::assert_found(
            &injected::REMOVED_IN_ROW_HELD,
            rows_tell_what_writes_in_turn_would,
        );
    }
}
