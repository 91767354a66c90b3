//! What a program may yield, and what it did.

use std::collections::BTreeMap;

use farsight_fabric::{AtomicUnit, Guarantees};

use super::Program;

/// A register whose line was made of two values.
pub const TORN: u64 = u64::MAX;
/// A register whose line was marked as changing.
pub const CHANGING: u64 = u64::MAX - 1;

/// A promise that a fabric may make beyond the contract.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// In words.
    pub name: &'static str,
    /// Whether these guarantees make it.
    pub holds: fn(&Guarantees) -> bool,
}

/// READ and WRITE move lines whole.
pub const LINES_WHOLE: Promise =
    Promise { name: "lines whole", holds: |guarantees| guarantees.atomic_unit == AtomicUnit::Line };
/// The lines of a READ are taken in order.
pub const LINES_IN_ORDER: Promise =
    Promise { name: "lines in order", holds: |guarantees| guarantees.read_lines_in_order };
/// WRITEs of a queue pair are in order.
pub const WRITES_IN_ORDER: Promise =
    Promise { name: "WRITEs in order", holds: |guarantees| guarantees.writes_in_order };
/// An atomic behind a WRITE executes after it.
pub const ATOMIC_AFTER_WRITE: Promise =
    Promise { name: "atomic after WRITE", holds: |guarantees| guarantees.atomic_after_write };
/// A READ behind an atomic sees it.
pub const READ_AFTER_ATOMIC: Promise =
    Promise { name: "READ after atomic", holds: |guarantees| guarantees.read_after_atomic };
/// A WRITE behind a READ is not seen by it.
pub const WRITE_AFTER_READ: Promise =
    Promise { name: "WRITE after READ", holds: |guarantees| guarantees.write_after_read };
/// A READ executes before it is complete.
pub const READ_BEFORE_COMPLETION: Promise =
    Promise { name: "READ before completion", holds: |guarantees| guarantees.read_before_completion };

/// One outcome that a program may have.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Its registers.
    pub registers: &'static [u64],
    /// The promise that rules it out.
    pub unless: Option<Promise>,
}

/// An outcome that the contract allows and no promise rules out.
#[must_use]
pub const fn always(registers: &'static [u64]) -> Outcome {
    Outcome { registers, unless: None }
}

/// An outcome that a promise rules out.
#[must_use]
pub const fn unless(promise: Promise, registers: &'static [u64]) -> Outcome {
    Outcome { registers, unless: Some(promise) }
}

impl Outcome {
    /// Whether a fabric of these guarantees may show it.
    #[must_use]
    pub fn is_possible(&self, guarantees: &Guarantees) -> bool {
        self.unless.is_none_or(|promise| !(promise.holds)(guarantees))
    }
}

/// Outcomes that were seen, and how often.
pub type Seen = BTreeMap<Vec<u64>, u64>;

impl Program {
    /// Nothing was seen that the contract or these guarantees rule out.
    ///
    /// # Errors
    /// The first outcome that was.
    pub fn check_promises(&self, guarantees: &Guarantees, seen: &Seen) -> Result<(), String> {
        let is_possible = |registers: &[u64]| {
            let listed = self.outcomes.iter().find(|outcome| outcome.registers == registers);
            listed.is_some_and(|outcome| outcome.is_possible(guarantees))
        };
        match seen.keys().find(|registers| !is_possible(registers)) {
            Some(wrong) => {
                Err(format!("{} must never happen with {}'s guarantees", self.text(wrong), guarantees.name))
            }
            None if seen.is_empty() => Err("the program never ran".to_owned()),
            None => Ok(()),
        }
    }

    /// The simulator showed everything that it may show with these guarantees, and nothing else.
    ///
    /// # Errors
    /// The first outcome that it shows against them, or cannot show.
    pub fn check_simulator(&self, guarantees: &Guarantees, seen: &Seen) -> Result<(), String> {
        self.check_promises(guarantees, seen)?;
        let missing = self
            .outcomes
            .iter()
            .find(|outcome| outcome.is_possible(guarantees) && !seen.contains_key(outcome.registers));
        missing.map_or(Ok(()), |missing| {
            Err(format!(
                "the simulator is too strong: {} may happen with {}'s guarantees, and never did",
                self.text(missing.registers),
                guarantees.name
            ))
        })
    }

    /// What was seen on a real fabric was seen on the simulated one.
    ///
    /// # Errors
    /// The first outcome that was not.
    pub fn check_within(&self, real: &Seen, simulated: &Seen) -> Result<(), String> {
        match real.keys().find(|registers| !simulated.contains_key(*registers)) {
            Some(missing) => Err(format!(
                "the simulator is too strong: {} was seen, and it never shows that",
                self.text(missing)
            )),
            None => Ok(()),
        }
    }

    /// An outcome in words.
    #[must_use]
    pub fn text(&self, registers: &[u64]) -> String {
        assert_eq!(registers.len(), self.registers.len(), "{}: as many registers as names", self.name);
        let named = self.registers.iter().zip(registers);
        named.map(|(name, register)| format!("{name}={}", value(*register))).collect::<Vec<_>>().join(" ")
    }

    /// An outcome's values alone.
    #[must_use]
    pub fn values(&self, registers: &[u64]) -> String {
        registers.iter().map(|register| value(*register)).collect::<Vec<_>>().join(" ")
    }

    /// What was seen, in words.
    #[must_use]
    pub fn text_of(&self, seen: &Seen) -> String {
        let each = seen.iter().map(|(registers, count)| format!("[{}] {count} times", self.text(registers)));
        each.collect::<Vec<_>>().join(", ")
    }
}

fn value(register: u64) -> String {
    match register {
        TORN => "torn".to_owned(),
        CHANGING => "odd".to_owned(),
        value => value.to_string(),
    }
}
