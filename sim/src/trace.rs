//! A scenario told: what clients asked and were told, among what happened on the fabric, by time.
//!
//! Invariant: without a key, everything that was kept. With one, what clients did about that key, every event
//! of theirs while they did it, and whatever was stored into the leaves that they looked at.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use farsight_base::RegionId;
use farsight_fabric_sim::{Place, Told};
use farsight_oracles::Identity;

use crate::Scenario;
use crate::journal::{Action, Conditional, Entry, Moments, Seen};

/// Keys of one batch that are named.
const KEYS_NAMED: usize = 8;

/// What was kept of a scenario; empty if nothing was to be.
#[derive(Clone, Default, Debug)]
pub struct Trace {
    events: Vec<Told>,
    entries: Vec<Entry>,
    moments: Moments,
    leaf_lines: usize,
    processes: usize,
}

/// One line of the text, before it is aligned.
struct Row {
    at_ns: u64,
    /// Events before it; asking comes first, being told last.
    number: u64,
    who: String,
    what: String,
    place: Option<Place>,
}

/// A leaf of a region.
type Leaf = (RegionId, usize);

impl Trace {
    pub(crate) fn new(events: Vec<Told>, entries: Vec<Entry>, moments: Moments, scenario: &Scenario) -> Self {
        let leaf_lines = scenario.leaf_lines();
        Self { events, entries, moments, leaf_lines, processes: scenario.processes }
    }

    /// True if nothing was kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The text: of everything, or of one key.
    #[must_use]
    pub fn text(&self, key: Option<Identity>) -> String {
        let entries: Vec<&Entry> =
            self.entries.iter().filter(|entry| key.is_none_or(|key| entry.key == key)).collect();
        let mut rows = self.asked_and_told(&entries);
        rows.extend(if key.is_some() {
            self.concerning(&entries)
        } else {
            self.events.iter().map(row).collect()
        });
        rows.sort_by_key(|row| (row.at_ns, row.number));
        self.aligned(&rows)
    }

    /// Events of the clients that were busy with one of `entries`, and stores into the leaves that they
    /// looked at.
    fn concerning(&self, entries: &[&Entry]) -> Vec<Row> {
        let spans = self.spans(entries);
        let is_theirs = |event: &&Told| {
            let of_process = spans.get(event.who.as_str());
            of_process.is_some_and(|spans| spans.iter().any(|span| span.contains(&event.number)))
        };
        let theirs = self.events.iter().filter(is_theirs);
        let looked_at: BTreeSet<Leaf> = theirs.flat_map(|event| self.leaves(event)).collect();
        let changes = |event: &&Told| {
            event.what.starts_with("stores") && self.leaves(event).any(|leaf| looked_at.contains(&leaf))
        };
        self.events.iter().filter(|event| is_theirs(event) || changes(event)).map(row).collect()
    }

    /// By process: from which event to which it was busy with one of `entries`.
    fn spans(&self, entries: &[&Entry]) -> HashMap<String, Vec<RangeInclusive<u64>>> {
        let mut spans: HashMap<String, Vec<RangeInclusive<u64>>> = HashMap::new();
        for entry in entries {
            let Some((first, _)) = self.moments.at(entry.begin) else { continue };
            let last = self.moments.at(entry.end).map_or(first, |(last, _)| last);
            spans.entry(self.name(entry)).or_default().push(first..=last);
        }
        spans
    }

    /// The name of who asked, as the fabric has it: nobody's, outside the processes.
    fn name(&self, entry: &Entry) -> String {
        match entry.process.checked_sub(self.processes) {
            None => format!("process {}", entry.process),
            Some(1) => "operator".to_owned(),
            Some(_) => "-".to_owned(),
        }
    }

    fn leaves(&self, event: &Told) -> impl Iterator<Item = Leaf> + use<> {
        let leaf_lines = self.leaf_lines.max(1);
        event.place.into_iter().flat_map(move |place| {
            let last = place.first_line + place.lines.max(1) - 1;
            (place.first_line / leaf_lines..=last / leaf_lines).map(move |leaf| (place.region, leaf))
        })
    }

    /// A row for what a client asked of several keys at once, and one for what it was told of each.
    fn asked_and_told(&self, entries: &[&Entry]) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut batches: HashMap<(usize, u64), Vec<&Entry>> = HashMap::new();
        for entry in entries {
            batches.entry((entry.process, entry.begin)).or_default().push(entry);
            if let Some((number, at_ns)) = self.moments.at(entry.end) {
                let what = format!("told  key {}: {}", entry.key, told(&entry.action));
                rows.push(Row { at_ns, number, who: self.name(entry), what, place: None });
            }
        }
        for batch in batches.values() {
            if let Some((number, at_ns)) = self.moments.at(batch[0].begin) {
                rows.push(Row { at_ns, number, who: self.name(batch[0]), what: asked(batch), place: None });
            }
        }
        rows.sort_by(|one, other| {
            (one.at_ns, &one.who, &one.what).cmp(&(other.at_ns, &other.who, &other.what))
        });
        rows
    }

    fn aligned(&self, rows: &[Row]) -> String {
        let width = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0).min(60);
        let (who, what) = (width(|row| row.who.len()), width(|row| row.what.len()));
        let mut text = String::new();
        for row in rows {
            let (us, ns) = (row.at_ns / 1000, row.at_ns % 1000);
            let place = row.place.map(|place| self.place(&place)).unwrap_or_default();
            let line = format!("{us:>9}.{ns:03} us  {:<who$}  {:<what$}  {place}", row.who, row.what);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    fn place(&self, place: &Place) -> String {
        let leaf_lines = self.leaf_lines.max(1);
        let (leaf, line) = (place.first_line / leaf_lines, place.first_line % leaf_lines);
        match place.lines {
            0 | 1 => format!("{} leaf {leaf} line {line}", place.region),
            lines => format!("{} leaf {leaf} lines {line} to {}", place.region, line + lines - 1),
        }
    }
}

fn row(event: &Told) -> Row {
    let Told { number, at_ns, who, what, place } = event.clone();
    Row { at_ns, number, who, what, place }
}

fn asked(batch: &[&Entry]) -> String {
    let mut keys: Vec<Identity> = batch.iter().map(|entry| entry.key).collect();
    keys.sort_unstable();
    let named: Vec<String> = keys.iter().take(KEYS_NAMED).map(Identity::to_string).collect();
    let more = keys.len().saturating_sub(KEYS_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let verb = match batch[0].action {
        Action::Read(_) => "reads".to_owned(),
        Action::Write { operation, .. } | Action::Conditional(Conditional { operation, .. }) => {
            format!("{operation:?}").to_lowercase()
        }
    };
    format!("asks  {verb} key {}{rest}", named.join(", "))
}

fn told(action: &Action) -> String {
    match action {
        Action::Read(None) => "absent".to_owned(),
        Action::Read(Some(Seen { number, version })) => format!("value of write {number}, version {version}"),
        Action::Write { number, outcome: Some(outcome), .. } => format!("write {number}: {outcome:?}"),
        Action::Write { number, outcome: None, .. } => format!("write {number}: nobody knows"),
        Action::Conditional(Conditional { number, argument, old, outcome, .. }) => {
            format!("write {number}, argument {argument}: {outcome:?}, before it {old:?}")
        }
    }
}
