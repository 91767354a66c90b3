//! Cost profiles: what a testbed's cards, links and processors take, each figure with its source.
//!
//! Invariant: a profile has every constant of [`CONSTANTS`], in its unit, within its own band, and with a
//! source; nothing else. What a result owes to a figure that nobody has published is then a question that
//! can be asked: vary it over its band.
//!
//! Form: TOML, a table for each constant, `[card.read_served]` with `value`, `unit`, `low`, `high`, `source`,
//! below the keys `name` and `testbed`. A constant that is known has a band of one point.

use std::fs;
use std::io;

use toml::{Table, Value};

use crate::prices::{LinkPrices, NicPrices, Prices, ThreadPrices};

/// The profiles that every program has: their names and texts.
const OWN: [(&str, &str); 3] = [
    ("cx3", include_str!("../../../profiles/cx3.toml")),
    ("cx4x2", include_str!("../../../profiles/cx4x2.toml")),
    ("cx5", include_str!("../../../profiles/cx5.toml")),
];

/// Every constant: its name, its unit, and whether it is a count.
const CONSTANTS: [(&str, &str, bool); 28] = [
    ("machine.cards", "cards", true),
    ("machine.server_cores", "cores", true),
    ("machine.memory_node_cores", "cores", true),
    ("machine.client_cores", "cores", true),
    ("card.read_issued", "M/s", false),
    ("card.read_served", "M/s", false),
    ("card.write_issued", "M/s", false),
    ("card.write_served", "M/s", false),
    ("card.atomic_served", "M/s", false),
    ("card.atomic_held", "ns", false),
    ("card.atomic_locks", "locks", true),
    ("card.message", "M/s", false),
    ("card.reads_in_flight", "READs", true),
    ("link.rate", "Gb/s", false),
    ("link.packet_overhead", "B", true),
    ("link.payload_max", "B", true),
    ("link.round_trip", "ns", false),
    ("thread.post", "ns", false),
    ("thread.doorbell", "ns", false),
    ("thread.completion", "ns", false),
    ("thread.get", "ns", false),
    ("thread.scan_pair", "ns", false),
    ("thread.write_entry", "ns", false),
    ("core.call", "ns", false),
    ("core.descent", "ns", false),
    ("core.pair", "ns", false),
    ("core.write_entry", "ns", false),
    ("core.reply_byte", "ns", false),
];

/// Values beyond which a figure is a slip of the pen, in whatever unit.
const VALUE_MAX: f64 = 1e9;
const COUNT_MAX: f64 = 65_536.0;

/// One figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// Its name, `card.read_served`.
    pub name: &'static str,
    /// What is reckoned with.
    pub value: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
    /// The unit of all three.
    pub unit: &'static str,
    /// Where it comes from, or why it is believed.
    pub source: String,
}

/// A testbed.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its short name.
    pub name: String,
    /// What it is.
    pub testbed: String,
    constants: Vec<Constant>,
}

/// What the engine's own work costs, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnginePrices {
    /// A client's thread: a key looked for one-sidedly, prediction to accepted value.
    pub thread_get_ps: u64,
    /// A client's thread: a pair of a scan.
    pub thread_scan_pair_ps: u64,
    /// A client's thread: an entry of a write, its hint predicted.
    pub thread_write_entry_ps: u64,
    /// A server's core: taking and answering a call.
    pub core_call_ps: u64,
    /// A server's core: a way down the tree.
    pub core_descent_ps: u64,
    /// A server's core: a pair found in its leaf.
    pub core_pair_ps: u64,
    /// A server's core: an entry of a write, once its leaf is found.
    pub core_write_entry_ps: u64,
    /// A server's core: a byte of a reply.
    pub core_reply_byte_ps: u64,
}

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The name is none, and no file either.
    #[error("no profile {name:?}: expected one of {}, or a file; {source}", names().join(", "))]
    Unknown {
        /// The name requested.
        name: String,
        /// Why it is no file.
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("profile {file}: expected TOML, got: {reason}")]
    Syntax {
        /// The file, or the name.
        file: String,
        /// What the parser says.
        reason: String,
    },
    /// A field is not as it must be.
    #[error("profile {file}: {field}: expected {expected}, got {got}")]
    Field {
        /// The file, or the name.
        file: String,
        /// The field.
        field: String,
        /// What belongs there.
        expected: String,
        /// What stands there.
        got: String,
    },
}

fn names() -> Vec<&'static str> {
    OWN.iter().map(|(name, _)| *name).collect()
}

impl Profile {
    /// The names of the profiles that need no file.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        names()
    }

    /// The profile of this name, or in this file.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some((_, text)) = OWN.iter().find(|(own, _)| *own == name) {
            return Self::parse(name, text);
        }
        let text = fs::read_to_string(name)
            .map_err(|source| ProfileError::Unknown { name: name.to_owned(), source })?;
        Self::parse(name, &text)
    }

    /// The profile in `text`, which errors call `file`.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`], [`ProfileError::Field`].
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            ProfileError::Syntax {
                file: file.to_owned(),
                reason: format!("line {line}: {}", error.message()),
            }
        })?;
        let reader = Reader { file };
        let constants: Result<Vec<Constant>, _> =
            CONSTANTS.into_iter().map(|known| reader.constant(&table, known)).collect();
        reader.check_no_others(&table)?;
        Ok(Self {
            name: reader.text(&table, "", "name")?,
            testbed: reader.text(&table, "", "testbed")?,
            constants: constants?,
        })
    }

    /// Every figure.
    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// The same testbed with another value of one constant.
    ///
    /// # Panics
    /// If there is no constant of this name.
    #[must_use]
    pub fn with(&self, name: &str, value: f64) -> Self {
        let mut other = self.clone();
        let constant = other.constants.iter_mut().find(|constant| constant.name == name);
        constant.unwrap_or_else(|| panic!("no constant {name:?}")).value = value;
        other
    }

    /// The value of a constant.
    ///
    /// # Panics
    /// If there is no constant of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        let constant = self.constants.iter().find(|constant| constant.name == name);
        constant.unwrap_or_else(|| panic!("no constant {name:?}")).value
    }

    fn count(&self, name: &str) -> usize {
        self.value(name) as usize
    }

    fn ps(&self, name: &str) -> u64 {
        (self.value(name) * 1e3).round() as u64
    }

    /// Picoseconds of each, where so many million are done in a second.
    fn each_ps(&self, name: &str) -> u64 {
        (1e6 / self.value(name)).round().max(1.0) as u64
    }

    /// What verbs cost.
    #[must_use]
    pub fn prices(&self) -> Prices {
        Prices {
            nics: self.count("machine.cards"),
            server_cores: self.count("machine.server_cores"),
            nic: NicPrices {
                read_issued_ps: self.each_ps("card.read_issued"),
                read_served_ps: self.each_ps("card.read_served"),
                write_issued_ps: self.each_ps("card.write_issued"),
                write_served_ps: self.each_ps("card.write_served"),
                atomic_served_ps: self.each_ps("card.atomic_served"),
                atomic_held_ps: self.ps("card.atomic_held"),
                atomic_locks: self.count("card.atomic_locks"),
                message_ps: self.each_ps("card.message"),
            },
            link: LinkPrices {
                byte_ps: (8e3 / self.value("link.rate")).round().max(1.0) as u64,
                packet_overhead_bytes: self.value("link.packet_overhead") as u64,
                payload_bytes_max: self.value("link.payload_max") as u64,
                way_ps: self.ps("link.round_trip") / 2,
            },
            thread: ThreadPrices {
                post_ps: self.ps("thread.post"),
                doorbell_ps: self.ps("thread.doorbell"),
                completion_ps: self.ps("thread.completion"),
            },
            reads_in_flight_max: self.count("card.reads_in_flight"),
        }
    }

    /// What the engine's work costs.
    #[must_use]
    pub fn engine_prices(&self) -> EnginePrices {
        EnginePrices {
            thread_get_ps: self.ps("thread.get"),
            thread_scan_pair_ps: self.ps("thread.scan_pair"),
            thread_write_entry_ps: self.ps("thread.write_entry"),
            core_call_ps: self.ps("core.call"),
            core_descent_ps: self.ps("core.descent"),
            core_pair_ps: self.ps("core.pair"),
            core_write_entry_ps: self.ps("core.write_entry"),
            core_reply_byte_ps: self.ps("core.reply_byte"),
        }
    }
}

/// A value as it may stand in a file, or what kind of value it is.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        other => format!("a value of type {}", other.type_str()),
    }
}

/// Reads fields, and says what is wrong with them.
struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    fn error(&self, field: &str, expected: &str, got: impl Into<String>) -> ProfileError {
        let (file, field) = (self.file.to_owned(), field.to_owned());
        ProfileError::Field { file, field, expected: expected.to_owned(), got: got.into() }
    }

    fn constant(
        &self,
        table: &Table,
        (name, unit, is_count): (&'static str, &'static str, bool),
    ) -> Result<Constant, ProfileError> {
        let (section, key) = name.split_once('.').expect("a constant's name has two parts");
        let form = "a table of value, unit, low, high, source";
        let section = table.get(section).and_then(Value::as_table);
        let fields = match section.and_then(|section| section.get(key)) {
            None => return Err(self.error(name, form, "nothing")),
            Some(Value::Table(fields)) => fields,
            Some(other) => return Err(self.error(name, form, text_of(other))),
        };
        let known = ["value", "unit", "low", "high", "source"];
        if let Some(other) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(self.error(&format!("{name}.{other}"), "a known field", "another"));
        }
        let got_unit = self.text(fields, name, "unit")?;
        if got_unit != unit {
            return Err(self.error(&format!("{name}.unit"), &format!("{unit:?}"), format!("{got_unit:?}")));
        }
        let [value, low, high] =
            ["value", "low", "high"].map(|field| self.number(fields, name, field, is_count));
        let (value, low, high) = (value?, low?, high?);
        if !(low..=high).contains(&value) {
            let got = format!("{value} between {low} and {high}");
            return Err(self.error(&format!("{name}.value"), "a value within its band", got));
        }
        Ok(Constant { name, value, low, high, unit, source: self.text(fields, name, "source")? })
    }

    fn number(&self, fields: &Table, name: &str, key: &str, is_count: bool) -> Result<f64, ProfileError> {
        let field = format!("{name}.{key}");
        let expected =
            if is_count { "a whole number from 1 to 65536" } else { "a number above 0, up to 1e9" };
        let number = match fields.get(key) {
            None => return Err(self.error(&field, expected, "nothing")),
            Some(Value::Integer(number)) => *number as f64,
            Some(Value::Float(number)) if !is_count => *number,
            Some(other) => return Err(self.error(&field, expected, text_of(other))),
        };
        let is_in_range = number > 0.0 && number <= if is_count { COUNT_MAX } else { VALUE_MAX };
        if is_in_range { Ok(number) } else { Err(self.error(&field, expected, number.to_string())) }
    }

    fn text(&self, fields: &Table, name: &str, key: &str) -> Result<String, ProfileError> {
        let field = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
        match fields.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
            None => Err(self.error(&field, "a text", "nothing")),
            Some(other) => Err(self.error(&field, "a text that is not empty", text_of(other))),
        }
    }

    /// A misspelt name would otherwise be a constant that has no effect.
    fn check_no_others(&self, table: &Table) -> Result<(), ProfileError> {
        for (section, value) in table {
            if ["name", "testbed"].contains(&section.as_str()) {
                continue;
            }
            let Some(fields) = value.as_table() else {
                return Err(self.error(section, "a known field", "another"));
            };
            for key in fields.keys() {
                let name = format!("{section}.{key}");
                if CONSTANTS.iter().all(|known| known.0 != name) {
                    return Err(self.error(&name, "a known constant", "another"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(from: &str, to: &str) -> String {
        let text = OWN[1].1;
        assert!(text.contains(from), "{from:?} stands in the profile");
        Profile::parse("bed.toml", &text.replacen(from, to, 1)).expect_err("refused").to_string()
    }

    #[test]
    fn own_profiles_are_whole() {
        for name in Profile::names() {
            let profile = Profile::load(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((profile.name.as_str(), profile.constants().len()), (name, CONSTANTS.len()));
        }
    }

    #[test]
    fn errors_name_file_field_expected_and_got() {
        assert_eq!(
            error_of("[link.rate]\nvalue = 100", "[link.rate]\nvalue = \"fast\""),
            "profile bed.toml: link.rate.value: expected a number above 0, up to 1e9, got \"fast\""
        );
        assert_eq!(
            error_of("[link.rate]\nvalue = 100", "[link.rate]\nvalue = 101"),
            "profile bed.toml: link.rate.value: expected a value within its band, got 101 between 100 and 100"
        );
        assert_eq!(
            error_of("unit = \"Gb/s\"", "unit = \"MB/s\""),
            "profile bed.toml: link.rate.unit: expected \"Gb/s\", got \"MB/s\""
        );
        assert_eq!(
            error_of("[machine.cards]\nvalue = 2", "[machine.cards]\nvalue = 0"),
            "profile bed.toml: machine.cards.value: expected a whole number from 1 to 65536, got 0"
        );
        assert_eq!(
            error_of("[machine.cards]\nvalue = 2", "[machine.cards]\nvalue = 2.5"),
            "profile bed.toml: machine.cards.value: expected a whole number from 1 to 65536, got 2.5"
        );
        assert_eq!(
            error_of("[link.rate]", "[link.rates]"),
            "profile bed.toml: link.rates: expected a known constant, got another"
        );
        assert_eq!(
            error_of("[link.rate]\nvalue = 100", "[link]\nrate = 100\n[thread.post.of]"),
            "profile bed.toml: link.rate: expected a table of value, unit, low, high, source, got 100"
        );
        assert_eq!(
            error_of("[link.rate]", "[link.wires]\n[link.rate]"),
            "profile bed.toml: link.wires: expected a known constant, got another"
        );
        assert_eq!(
            error_of("testbed =", "textbed ="),
            "profile bed.toml: textbed: expected a known field, got another"
        );
        assert_eq!(
            error_of("unit = \"cards\"", "unit = \" \""),
            "profile bed.toml: machine.cards.unit: expected a text that is not empty, got \" \""
        );
        assert!(
            error_of("[link.rate]", "[link.rate").starts_with("profile bed.toml: expected TOML, got: line ")
        );
        let missing = Profile::load("nowhere.toml").expect_err("no file").to_string();
        assert!(
            missing.starts_with("no profile \"nowhere.toml\": expected one of cx3, cx4x2, cx5, or a file; ")
        );
    }

    #[test]
    fn rates_become_times() {
        let profile = Profile::load("cx4x2").expect("an own profile").with("card.read_served", 50.0);
        assert_eq!(profile.prices().nic.read_served_ps, 20_000);
        assert_eq!(profile.prices().link.byte_ps, 80);
        assert_eq!(profile.prices().link.message_ps(192), (192 + 30) * 80);
        assert_eq!(profile.prices().link.message_ps(5_000), (5_000 + 2 * 30) * 80);
    }
}
