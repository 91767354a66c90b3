//! A client process: threads that write keys of their own, read them back and judge what they find, whatever
//! becomes of the server.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farsight::{
    Access, Answers, Client, ConnectOptions, OpenError, Options, ReadError, ServerUrl, Session, Table,
    WriteError, WriteOutcome,
};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::harness::PATIENCE;
use farsight_conformance::engine::processes::{argument, say};
use farsight_conformance::engine::witness::Witness;
use farsight_oracles::{EightBytes, Embedding as _, Identity};

use crate::oracle::Oracle;
use crate::process::Footprint;

pub(crate) const TABLE: &str = "t";
pub(crate) const VALUE_BYTES: usize = 100;
/// Where the keys lie.
const EMBEDDING: EightBytes = EightBytes::Plain;
/// Threads of one client.
pub(crate) const THREADS: u64 = 2;
/// Keys of one thread.
const KEYS: u64 = 300;
/// Written to the client's file by the test, to end it.
pub(crate) const FINISH: u64 = 1;
/// Words of the client's file: whether to finish, then the steps that each thread has done.
pub(crate) const FILE_WORDS: u64 = 1 + THREADS;

pub(crate) fn read_word(file: &File, word: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, word * 8).expect("the client's file");
    u64::from_le_bytes(bytes)
}

pub(crate) fn write_word(file: &File, word: u64, value: u64) {
    file.write_all_at(&value.to_le_bytes(), word * 8).expect("the client's file");
}

/// The whole life of a client.
pub(crate) fn run() {
    let url: ServerUrl = argument("URL");
    let file = File::options().read(true).write(true).open(argument::<PathBuf>("FILE")).expect("its file");
    let (number, seed): (u64, u64) = (argument("NUMBER"), argument("SEED"));
    let options = ConnectOptions { reconnect_timeout: PATIENCE, ..ConnectOptions::default() };
    // The server may be dead at this moment.
    let begun = Instant::now();
    let client = loop {
        match Client::connect_with(url.clone(), &options) {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "no server: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let table = make_table(&client, begun);
    let workers: Vec<Worker> = (0..THREADS)
        .map(|thread| Worker {
            oracle: Oracle::new(first_of(number, thread), KEYS as usize, client.epoch()),
            session: None,
            access: if thread == 0 { Access::OneSided } else { Access::Rpc },
            client: client.clone(),
            table: table.clone(),
            random: SplitMix64::new(seed ^ thread),
            first: first_of(number, thread),
            sequence: 0,
            answers: Answers::default(),
            lives: 1,
        })
        .collect();
    let before = Footprint::of_this_process();
    let lives = std::thread::scope(|scope| {
        let threads = workers.into_iter().zip(1..).map(|(worker, word)| {
            let file = &file;
            scope.spawn(move || worker.run(file, word))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread of the client")).max()
    });
    // The last connection is as large as the first, however many there were in between.
    client.tables().expect("the server lives at the end");
    drop(table);
    before.await_return("the client", Footprint::of_this_process);
    say(&format!("{} lives", lives.unwrap_or(0)));
}

/// The table, made if it is not there, in whatever life of the server.
fn make_table(client: &Client, begun: Instant) -> Table<u64> {
    loop {
        match client.create_table::<u64>(TABLE, VALUE_BYTES) {
            Ok(table) => return table,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "no table: {error}"),
        }
    }
}

struct Worker {
    client: Client,
    table: Table<u64>,
    access: Access,
    session: Option<Session<u64>>,
    oracle: Oracle,
    random: SplitMix64,
    first: Identity,
    sequence: u64,
    answers: Answers,
    lives: u64,
}

/// Whether a call was answered; otherwise the server was lost.
type Answered = bool;

impl Worker {
    fn run(mut self, file: &File, word: u64) -> u64 {
        let mut steps = 0;
        while read_word(file, 0) != FINISH {
            if self.step() {
                steps += 1;
                write_word(file, word, steps);
            }
        }
        self.lives
    }

    fn session(&mut self) -> Option<&mut Session<u64>> {
        if self.session.is_none() {
            match self.table.session(Options { access: self.access }) {
                Ok(session) => self.session = Some(session),
                Err(error) => self.repair(&error),
            }
        }
        self.session.as_mut()
    }

    fn step(&mut self) -> Answered {
        let count = 1 + self.random.below(80);
        let start = self.first.behind(self.random.below(KEYS - count + 1));
        let keys: Vec<Identity> = (0..count).map(|place| start.behind(place)).collect();
        self.sequence += 1;
        let written = match self.random.below(6) {
            0 => self.write(&keys, None),
            1 | 2 => self.write(&keys, Some(self.sequence)),
            3 => self.put_one(start),
            4 => self.scan(),
            _ => true,
        };
        self.get(&keys) && written
    }

    /// Puts or removes keys, and notes what became of each.
    fn write(&mut self, keys: &[Identity], sequence: Option<u64>) -> Answered {
        let mut outcomes: Vec<WriteOutcome> = Vec::new();
        let Some(session) = self.session() else { return false };
        let done = match sequence {
            None => session.remove_many(&table_keys(keys), &mut outcomes),
            Some(sequence) => {
                let values = keys.iter().map(|key| witness(*key, sequence));
                let pairs: Vec<_> = table_keys(keys).into_iter().zip(values).collect();
                session.put_many(&pairs, &mut outcomes)
            }
        };
        self.enter();
        for (key, outcome) in keys.iter().zip(&outcomes) {
            assert!(!matches!(outcome, WriteOutcome::Failed(_)), "key {key}: {outcome:?}");
            self.oracle.acknowledge(*key, sequence);
        }
        self.note_outcome(done, &keys[outcomes.len()..], sequence)
    }

    fn put_one(&mut self, key: Identity) -> Answered {
        let sequence = self.sequence;
        let Some(session) = self.session() else { return false };
        let done = session.put(EMBEDDING.key(key), &witness(key, sequence));
        self.enter();
        if done.is_ok() {
            self.oracle.acknowledge(key, Some(sequence));
        }
        self.note_outcome(done.map(drop), &[key], Some(sequence))
    }

    /// Deals with the end of a write that left `rest` unanswered.
    fn note_outcome(
        &mut self,
        done: Result<(), WriteError>,
        rest: &[Identity],
        sequence: Option<u64>,
    ) -> Answered {
        match done {
            Ok(()) => return true,
            Err(WriteError::Indeterminate { .. }) => {
                for key in rest {
                    self.oracle.suspect(*key, sequence);
                }
            }
            Err(WriteError::Reopen { source, .. }) => self.repair(&source),
            // Nothing was sent: the server was lost again and again.
            Err(WriteError::Engine { source, .. }) => assert!(is_lost(&source.to_string()), "{source}"),
            Err(other) => panic!("a write failed: {other}"),
        }
        false
    }

    fn get(&mut self, keys: &[Identity]) -> Answered {
        let mut answers = std::mem::take(&mut self.answers);
        let done = self.session().map(|session| session.multi_get(&table_keys(keys), &mut answers));
        self.enter();
        let answered = self.read(done);
        if answered {
            for (key, answer) in keys.iter().zip(answers.iter()) {
                self.oracle.judge(*key, answer.map(|found| found.0));
            }
        }
        self.answers = answers;
        answered
    }

    /// Scans the keys of this writer.
    fn scan(&mut self) -> Answered {
        let keys: Vec<Identity> = (0..KEYS).map(|place| self.first.behind(place)).collect();
        let range = EMBEDDING.key(keys[0])..=EMBEDDING.key(keys[keys.len() - 1]);
        let found: Option<Result<Vec<_>, _>> = self.session().map(|session| session.scan(range).collect());
        self.enter();
        let mut pairs = Vec::new();
        let done = found.map(|found| found.map(|found| pairs = found));
        if !self.read(done) {
            return false;
        }
        assert!(pairs.is_sorted_by(|a, b| a.0 < b.0), "a scan in order");
        let mut pairs = pairs.into_iter().peekable();
        for key in keys {
            let pair = pairs.next_if(|(found, _)| EMBEDDING.identity(found) == Some(key));
            self.oracle.judge(key, pair.as_ref().map(|(_, entry)| &entry.value[..]));
        }
        assert!(pairs.next().is_none(), "foreign keys in a scan");
        true
    }

    fn read(&mut self, done: Option<Result<(), ReadError>>) -> Answered {
        match done {
            None | Some(Err(ReadError::ScanCut { .. })) => false,
            Some(Ok(())) => true,
            Some(Err(ReadError::Reopen { source, .. })) => {
                self.repair(&source);
                false
            }
            Some(Err(ReadError::Engine { source, .. })) => {
                assert!(is_lost(&source.to_string()), "{source}");
                false
            }
            Some(Err(other)) => panic!("a read failed: {other}"),
        }
    }

    /// Notes in which life the last call was executed.
    fn enter(&mut self) {
        if let Some(session) = &self.session
            && self.oracle.enter(session.epoch())
        {
            self.lives += 1;
        }
    }

    /// Makes the table again if a new life of the server does not have it.
    fn repair(&self, error: &OpenError) {
        match error {
            OpenError::TableGone { .. } => {
                make_table(&self.client, Instant::now());
            }
            other => assert!(is_lost(&other.to_string()), "{other}"),
        }
    }
}

/// Whether an error says that the server was lost, as it may be several times in one call, or is very slow.
fn is_lost(error: &str) -> bool {
    error.contains("is lost")
        || error.contains("did not answer")
        || error.contains("failed: Connection refused")
}

fn witness(key: Identity, sequence: u64) -> Vec<u8> {
    Witness { key, sequence }.value(VALUE_BYTES)
}

/// The first key of a client's thread.
fn first_of(client: u64, thread: u64) -> Identity {
    Identity((client * THREADS + thread) * KEYS)
}

fn table_keys(keys: &[Identity]) -> Vec<u64> {
    keys.iter().map(|key| EMBEDDING.key(*key)).collect()
}
