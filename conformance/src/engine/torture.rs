//! Writers at full speed against readers that check every answer: who does what in the tests with processes.
//!
//! The identities of the table's keys are dense; a key belongs to one writer. A quarter, sixteen neighbours
//! of each 64, is *permanent*: stored at first and never removed. The gaps between are wide enough that
//! leaves become empty.
//! Writers put and remove runs of neighbouring keys, so leaves split, are compacted, become empty and are
//! reclaimed, and their slots and blocks come back for other keys. Readers judge by the ledger
//! ([`super::witness`]) and by what they saw before: no answer may be torn, another key's, outdated, lost or
//! older than one seen.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use farsight::{Access, Answers, Options, Pairs, Session, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_oracles::{EightBytes, Embedding as _, Identity};

use super::processes::argument;
use super::witness::{Bounds, Entry, Ledger, Witness};

/// The table's name.
pub const TABLE: &str = "tortured";
/// Keys in one batch of writes or reads at most.
const RUN_MAX: u64 = 64;

/// What the processes of one test agree on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's URL, or those of a pool's memory nodes.
    pub url: String,
    /// The ledger's file.
    pub ledger: PathBuf,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys.
    pub keys: u64,
    /// Between two keys.
    pub stride: u64,
    /// Writers, which share the keys out.
    pub writers: u64,
    /// Milliseconds for which a reader reads.
    pub reading_ms: u64,
    /// Where the randomness comes from.
    pub seed: u64,
}

impl Plan {
    /// The plan as a role's arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PLAN_URL", self.url.clone()),
            ("PLAN_LEDGER", self.ledger.display().to_string()),
            ("PLAN_VALUE_BYTES", self.value_bytes.to_string()),
            ("PLAN_KEYS", self.keys.to_string()),
            ("PLAN_STRIDE", self.stride.to_string()),
            ("PLAN_WRITERS", self.writers.to_string()),
            ("PLAN_READING_MS", self.reading_ms.to_string()),
            ("PLAN_SEED", self.seed.to_string()),
        ]
    }

    /// The plan of this role.
    #[must_use]
    pub fn of_role() -> Self {
        Self {
            url: argument("PLAN_URL"),
            ledger: argument("PLAN_LEDGER"),
            value_bytes: argument("PLAN_VALUE_BYTES"),
            keys: argument("PLAN_KEYS"),
            stride: argument("PLAN_STRIDE"),
            writers: argument("PLAN_WRITERS"),
            reading_ms: argument("PLAN_READING_MS"),
            seed: argument("PLAN_SEED"),
        }
    }

    /// Where the keys lie: away from zero, so that there are some before the first.
    #[must_use]
    pub fn embedding(stride: u64) -> EightBytes {
        EightBytes::Spread { first: stride, stride }
    }

    fn key(&self, identity: Identity) -> u64 {
        Self::embedding(self.stride).key(identity)
    }

    fn identity(&self, key: u64) -> Identity {
        let identity = Self::embedding(self.stride).identity(&key);
        identity.filter(|identity| identity.0 < self.keys).unwrap_or_else(|| panic!("nobody wrote key {key}"))
    }

    fn session(&self, access: Access) -> Session<u64> {
        let client = farsight::connect(&self.url).expect("a connection");
        let table = client.table(TABLE).expect("the table");
        table.session(Options { access }).expect("a session")
    }
}

fn is_permanent(key: Identity) -> bool {
    key.0 % 64 < 16
}

/// One of the writers.
pub struct Writer {
    plan: Plan,
    ledger: Ledger,
    session: Session<u64>,
    random: SplitMix64,
    /// This writer's keys.
    identities: Vec<Identity>,
    entries: Vec<Entry>,
    outcomes: Vec<WriteOutcome>,
    versions: Vec<u64>,
}

impl Writer {
    /// Writer `index`, whose keys are all stored once.
    ///
    /// # Panics
    /// If a write goes wrong.
    #[must_use]
    pub fn start(plan: &Plan, index: u64) -> Self {
        let own = (0..plan.keys).filter(|number| number % plan.writers == index);
        let identities: Vec<Identity> = own.map(Identity).collect();
        let mut writer = Self {
            plan: plan.clone(),
            ledger: Ledger::open(&plan.ledger),
            session: plan.session(Access::OneSided),
            random: SplitMix64::new(plan.seed + index),
            entries: vec![Entry { is_removed: true, ..Entry::default() }; identities.len()],
            versions: vec![0; identities.len()],
            identities,
            outcomes: Vec::new(),
        };
        let all: Vec<usize> = (0..writer.identities.len()).collect();
        for run in all.chunks(RUN_MAX as usize) {
            writer.put(run);
        }
        writer
    }

    /// Writes a run of keys. Returns how many writes that were.
    ///
    /// # Panics
    /// If an outcome is wrong.
    pub fn step(&mut self) -> usize {
        if self.random.below(100) == 0 {
            // Hints for the writes to come, true for some and outdated for others.
            self.session.prefill().expect("the model");
        }
        let length = 1 + self.random.below(RUN_MAX.min(self.identities.len() as u64)) as usize;
        let start = self.random.below((self.identities.len() - length + 1) as u64) as usize;
        let mut run: Vec<usize> = (start..start + length).collect();
        if self.random.below(5) < 3 {
            self.put(&run);
        } else {
            run.retain(|&index| !is_permanent(self.identities[index]));
            self.remove(&run);
        }
        run.len()
    }

    fn begin(&mut self, run: &[usize], is_removal: bool) {
        for &index in run {
            let entry = &mut self.entries[index];
            entry.begun += 1;
            if is_removal {
                entry.removal_begun = entry.begun;
            }
            self.ledger.set(self.identities[index], *entry);
        }
    }

    fn acknowledge(&mut self, run: &[usize], is_removal: bool) {
        for &index in run {
            let entry = &mut self.entries[index];
            entry.acknowledged = entry.begun;
            entry.is_removed = is_removal;
            self.ledger.set(self.identities[index], *entry);
        }
    }

    fn put(&mut self, run: &[usize]) {
        self.begin(run, false);
        let pairs: Vec<(u64, Vec<u8>)> = run.iter().map(|&index| self.pair(index)).collect();
        self.session.put_many(&pairs, &mut self.outcomes).expect("puts");
        for (&index, outcome) in run.iter().zip(&self.outcomes) {
            let was_removed = self.entries[index].is_removed;
            let version = match outcome {
                WriteOutcome::Inserted(version) if was_removed => *version,
                WriteOutcome::Replaced(version) if !was_removed => *version,
                other => {
                    panic!("put of key {}, {:?}: {other:?}", self.identities[index], self.entries[index])
                }
            };
            assert!(version > self.versions[index], "version {version} after {}", self.versions[index]);
            self.versions[index] = version;
        }
        self.acknowledge(run, false);
    }

    fn pair(&self, index: usize) -> (u64, Vec<u8>) {
        let key = self.identities[index];
        let witness = Witness { key, sequence: self.entries[index].begun };
        (self.plan.key(key), witness.value(self.plan.value_bytes))
    }

    fn remove(&mut self, run: &[usize]) {
        self.begin(run, true);
        let keys: Vec<u64> = run.iter().map(|&index| self.plan.key(self.identities[index])).collect();
        self.session.remove_many(&keys, &mut self.outcomes).expect("removes");
        for (&index, outcome) in run.iter().zip(&self.outcomes) {
            let expected = if self.entries[index].is_removed {
                WriteOutcome::Absent
            } else {
                WriteOutcome::Removed(self.versions[index])
            };
            assert_eq!(*outcome, expected, "removal of key {}", self.identities[index]);
        }
        self.acknowledge(run, true);
    }
}

/// What a reader last saw of a key.
#[derive(Clone, Copy, Default)]
struct Seen {
    sequence: u64,
    version: u64,
}

/// A reader, which checks all that it reads.
pub struct Reader {
    plan: Plan,
    ledger: Ledger,
    one_sided: Session<u64>,
    by_call: Session<u64>,
    random: SplitMix64,
    seen: Vec<Seen>,
    before: Vec<Option<Entry>>,
    after: Vec<Option<Entry>>,
    answers: Answers,
    pairs: Pairs<u64>,
    report: Report,
}

/// What a reader did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Report {
    /// Keys looked up, present or absent.
    pub reads: u64,
    /// Of those, absent.
    pub absences: u64,
    /// Scans.
    pub scans: u64,
    /// Times that a key had changed since it was last seen.
    pub changes: u64,
    /// Steps to siblings, repeated READs and fallbacks: how often the writers were met at work.
    pub collisions: u64,
}

impl Report {
    /// As a role says it.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {} {} {} {}", self.reads, self.absences, self.scans, self.changes, self.collisions)
    }

    /// What a role said.
    ///
    /// # Panics
    /// If that was no report.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().expect("a number")).collect();
        let &[reads, absences, scans, changes, collisions] = &numbers[..] else {
            panic!("no report: {text:?}")
        };
        Self { reads, absences, scans, changes, collisions }
    }
}

impl Reader {
    /// A reader with caches of its own.
    #[must_use]
    pub fn start(plan: &Plan) -> Self {
        Self {
            ledger: Ledger::open(&plan.ledger),
            one_sided: plan.session(Access::OneSided),
            by_call: plan.session(Access::Rpc),
            random: SplitMix64::new(plan.seed ^ u64::from(std::process::id())),
            seen: vec![Seen::default(); plan.keys as usize],
            before: Vec::new(),
            after: Vec::new(),
            answers: Answers::default(),
            pairs: Pairs::default(),
            report: Report::default(),
            plan: plan.clone(),
        }
    }

    /// Reads until the plan's time is over.
    ///
    /// # Panics
    /// If anything read is wrong.
    #[must_use]
    pub fn run(mut self) -> Report {
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(self.plan.reading_ms) {
            match self.random.below(8) {
                0 => self.scan_whole(),
                1 | 2 => self.scan_some(),
                3 => self.get_one(),
                4 => self.scan_keys(),
                _ => self.get_many(),
            }
        }
        let counters = self.one_sided.counters();
        self.report.collisions = counters.sibling_steps + counters.retries + counters.fallbacks;
        self.report
    }

    /// One in eight answers comes from the server: a reader may change its way at any time.
    fn session(&mut self) -> &mut Session<u64> {
        if self.random.below(8) == 0 { &mut self.by_call } else { &mut self.one_sided }
    }

    fn look_before(&mut self, first: Identity, count: u64) {
        self.ledger.read(first, count as usize, &mut self.before);
    }

    fn look_after(&mut self, first: Identity, count: u64) {
        self.ledger.read(first, count as usize, &mut self.after);
    }

    fn get_one(&mut self) {
        let identity = Identity(self.random.below(self.plan.keys));
        self.look_before(identity, 1);
        let key = self.plan.key(identity);
        let found = self.session().get(key).expect("a get");
        self.look_after(identity, 1);
        self.judge(identity, 0, found.as_ref().map(|entry| (&entry.value[..], entry.version)));
    }

    fn get_many(&mut self) {
        let count = 1 + self.random.below(100.min(self.plan.keys));
        let first = Identity(self.random.below(self.plan.keys - count + 1));
        let keys: Vec<u64> = (0..count).map(|place| self.plan.key(first.behind(place))).collect();
        self.look_before(first, count);
        let mut answers = std::mem::take(&mut self.answers);
        self.session().multi_get(&keys, &mut answers).expect("a batch of gets");
        self.look_after(first, count);
        for (index, answer) in answers.iter().enumerate() {
            self.judge(first.behind(index as u64), index, answer);
        }
        self.answers = answers;
    }

    fn scan_some(&mut self) {
        let limit = self.random.below(120) as usize;
        let first = Identity(self.random.below(self.plan.keys));
        let count = self.plan.keys - first.0;
        let from = self.plan.key(first) - self.random.below(2) * (self.plan.stride / 2);
        self.look_before(first, count);
        let mut pairs = std::mem::take(&mut self.pairs);
        self.session().scan_batch(&[(from, limit)], &mut pairs).expect("a scan");
        self.look_after(first, count);
        let found: Vec<_> = pairs.scan(0).map(|pair| (pair.key, pair.value, pair.version)).collect();
        assert!(found.len() <= limit, "{} pairs in a scan of {limit}", found.len());
        self.judge_scan(first, &found, found.len() < limit);
        self.pairs = pairs;
    }

    fn scan_whole(&mut self) {
        self.look_before(Identity::MIN, self.plan.keys);
        let session = &mut self.one_sided;
        let found: Vec<_> = session.scan(..).map(|pair| pair.expect("a scan")).collect();
        self.look_after(Identity::MIN, self.plan.keys);
        let found: Vec<_> =
            found.iter().map(|(key, entry)| (*key, &entry.value[..], entry.version)).collect();
        self.judge_scan(Identity::MIN, &found, true);
    }

    fn scan_keys(&mut self) {
        let limit = self.random.below(120) as usize;
        let first = Identity(self.random.below(self.plan.keys));
        let (count, from) = (self.plan.keys - first.0, self.plan.key(first));
        self.look_before(first, count);
        let keys = self.session().keys(from..).take(limit);
        let found: Vec<u64> = keys.map(|key| key.expect("a scan of keys")).collect();
        self.look_after(first, count);
        self.report.scans += 1;
        let mut next = first;
        for key in &found {
            let key = self.plan.identity(*key);
            assert!(key >= next, "key {key} in a scan of keys that expected {next} or more");
            (next.0..key.0).for_each(|passed| self.judge_key(first, Identity(passed), false));
            self.judge_key(first, key, true);
            next = key.behind(1);
        }
        if found.len() < limit {
            (next.0..self.plan.keys).for_each(|passed| self.judge_key(first, Identity(passed), false));
        }
    }

    /// Judges whether a scan of keys may have found this one, or not. The last looks at the ledger begin at
    /// `first`.
    fn judge_key(&mut self, first: Identity, key: Identity, is_found: bool) {
        self.report.reads += 1;
        let index = (key.0 - first.0) as usize;
        if let (Some(before), Some(after)) = (self.before[index], self.after[index]) {
            let verdict = Bounds { before, after }.judge_presence(is_found);
            verdict.unwrap_or_else(|fault| panic!("key {key}: {fault}"));
        }
        assert!(is_found || !is_permanent(key), "key {key} is never removed and was not found");
    }

    /// Judges the pairs of a scan, and the keys that it passed over. `is_whole`: it went to the table's end.
    fn judge_scan(&mut self, first: Identity, found: &[(u64, &[u8], u64)], is_whole: bool) {
        self.report.scans += 1;
        let place = |key: Identity| (key.0 - first.0) as usize;
        let mut next = first;
        for (key, value, version) in found {
            let key = self.plan.identity(*key);
            assert!(key >= next, "key {key} in a scan that expected {next} or more");
            for passed in (next.0..key.0).map(Identity) {
                self.judge(passed, place(passed), None);
            }
            self.judge(key, place(key), Some((value, *version)));
            next = key.behind(1);
        }
        if is_whole {
            for passed in (next.0..self.plan.keys).map(Identity) {
                self.judge(passed, place(passed), None);
            }
        }
    }

    /// Judges one answer; `index` is the key's place in the last looks at the ledger.
    fn judge(&mut self, key: Identity, index: usize, answer: Option<(&[u8], u64)>) {
        self.report.reads += 1;
        let found = answer.map(|(value, version)| (Witness::sequence_of(key, value), version));
        if let (Some(before), Some(after)) = (self.before[index], self.after[index]) {
            let verdict = Bounds { before, after }.judge(found.map(|found| found.0));
            verdict.unwrap_or_else(|fault| panic!("key {key}: {fault}"));
        }
        let Some((sequence, version)) = found else {
            assert!(!is_permanent(key), "key {key} is never removed and was not found");
            self.report.absences += 1;
            return;
        };
        let seen = &mut self.seen[key.0 as usize];
        assert!(
            (sequence, version) == (seen.sequence, seen.version)
                || sequence > seen.sequence && version > seen.version,
            "key {key}: sequence {sequence}, version {version} after {}, {}",
            seen.sequence,
            seen.version
        );
        self.report.changes += u64::from(sequence > seen.sequence);
        *seen = Seen { sequence, version };
    }
}
