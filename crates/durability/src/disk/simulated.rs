//! A disk in memory that forgets, at a crash, whatever was not synced, or any part of it.
//!
//! Invariant: what a crash leaves is a function of what was done and of the seed given to
//! [`SimulatedDisk::crash`]. Each unsynced sector is old, new or damaged, and each unsynced change of a name
//! took place or not; changes that meet the same name keep their order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::prng::SplitMix64;

use super::{Disk, DiskFile, SECTOR_BYTES};

/// One in so many unsynced sectors comes out of a crash damaged.
const DAMAGED_ONE_IN: u64 = 8;

/// What goes wrong, by the number of the operation, from zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The machine stops before this operation: it and all later ones fail.
    CrashAt(u64),
    /// This operation alone fails. A sync that fails has dropped what it should have written, as Linux does.
    FailAt(u64),
    /// The disk holds so many bytes.
    CapacityBytes(u64),
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

struct SimulatedFile {
    disk: SimulatedDisk,
    number: u64,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, Contents>,
    /// Which names lead where, as programs see it.
    names: BTreeMap<String, u64>,
    /// The same on the disk.
    durable_names: BTreeMap<String, u64>,
    /// Changes of names that are not on the disk.
    unsynced_changes: Vec<Change>,
    faults: Vec<Fault>,
    /// The last of them that has come true.
    struck: Option<Fault>,
    operations: u64,
    syncs: u64,
    /// Threads that read at once, but for one.
    more_readers: usize,
}

#[derive(Clone, Default)]
struct Contents {
    /// As programs see them.
    cached: Vec<u8>,
    /// As they are on the disk.
    durable: Vec<u8>,
    /// Sectors that may differ.
    unsynced: BTreeSet<usize>,
}

#[derive(Clone)]
enum Change {
    Create { name: String, number: u64 },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl SimulatedDisk {
    /// An empty disk on which these things go wrong.
    #[must_use]
    pub fn new(faults: &[Fault]) -> Self {
        Self(Arc::new(Mutex::new(State { faults: faults.to_vec(), ..State::default() })))
    }

    /// Operations so far: those that may fail.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Syncs of files so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Lets these things go wrong from now on, and none that was to before. Operations are counted anew.
    pub fn set_faults(&self, faults: &[Fault]) {
        let mut state = self.state();
        state.faults = faults.to_vec();
        state.operations = 0;
        state.struck = None;
    }

    /// What has gone wrong last, of what is to since the faults were set.
    #[must_use]
    pub fn struck(&self) -> Option<Fault> {
        self.state().struck
    }

    /// Bytes of its files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Lets so many threads read at once. With more than one, the order of operations is anybody's.
    pub fn set_readers(&self, readers: usize) {
        self.state().more_readers = readers.saturating_sub(1);
    }

    /// What a machine finds that starts again after a crash now.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let state = self.state();
        let mut random = SplitMix64::new(seed);
        let mut names = state.durable_names.clone();
        let mut lost = BTreeSet::new();
        for change in &state.unsynced_changes {
            // A change behind a lost one of the same name is lost, too.
            let is_lost = change.names().iter().any(|name| lost.contains(*name)) || random.below(2) == 0;
            if is_lost {
                lost.extend(change.names().into_iter().map(str::to_owned));
            } else {
                change.make(&mut names);
            }
        }
        let files = state.files.iter().map(|(number, contents)| (*number, contents.crash(&mut random)));
        let mut files: BTreeMap<u64, Contents> = files.collect();
        files.retain(|number, _| names.values().any(|named| named == number));
        Self(Arc::new(Mutex::new(State { files, durable_names: names.clone(), names, ..State::default() })))
    }

    /// Flips a bit of a file, as a disk does that rots.
    ///
    /// # Panics
    /// If there is no such file or bit.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut state = self.state();
        let number = state.names[name];
        let contents = state.files.get_mut(&number).expect("a file with a name");
        contents.cached[bit / 8] ^= 1 << (bit % 8);
        contents.durable[bit / 8] ^= 1 << (bit % 8);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_file<R>(&self, number: u64, work: impl FnOnce(&mut Contents) -> R) -> R {
        work(self.state().files.get_mut(&number).expect("files stay"))
    }
}

impl State {
    /// Counts an operation, and fails if it is to.
    fn begin(&mut self) -> io::Result<()> {
        let number = self.operations;
        self.operations += 1;
        let is_struck = |fault: &&Fault| match **fault {
            Fault::CrashAt(at) => number >= at,
            Fault::FailAt(at) => number == at,
            Fault::CapacityBytes(_) => false,
        };
        let Some(fault) = self.faults.iter().find(is_struck) else { return Ok(()) };
        self.struck = Some(*fault);
        let text =
            if let Fault::CrashAt(_) = fault { "the machine has stopped" } else { "an injected fault" };
        Err(io::Error::other(text))
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|number| self.files[number].cached.len() as u64).sum()
    }

    fn check_room(&mut self, more_bytes: u64) -> io::Result<()> {
        let wanted_bytes = self.used_bytes() + more_bytes;
        let is_full = |fault: &&Fault| matches!(**fault, Fault::CapacityBytes(most) if wanted_bytes > most);
        let Some(fault) = self.faults.iter().find(is_full) else { return Ok(()) };
        self.struck = Some(*fault);
        Err(io::ErrorKind::StorageFull.into())
    }

    fn change(&mut self, change: Change) {
        change.make(&mut self.names);
        self.unsynced_changes.push(change);
    }
}

impl Change {
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { name, .. } | Self::Remove { name } => vec![name],
            Self::Rename { from, to } => vec![from, to],
        }
    }

    fn make(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create { name, number } => _ = names.insert(name.clone(), *number),
            Self::Remove { name } => _ = names.remove(name),
            Self::Rename { from, to } => {
                if let Some(number) = names.remove(from) {
                    names.insert(to.clone(), number);
                }
            }
        }
    }
}

impl Contents {
    fn touch(&mut self, begin: usize, end: usize) {
        self.unsynced.extend(begin / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    fn sync(&mut self) {
        // What a failed sync has dropped is not written by this one.
        self.durable.resize(self.cached.len(), 0);
        for sector in std::mem::take(&mut self.unsynced) {
            let begin = (sector * SECTOR_BYTES).min(self.cached.len());
            let end = (begin + SECTOR_BYTES).min(self.cached.len());
            self.durable[begin..end].copy_from_slice(&self.cached[begin..end]);
        }
    }

    /// A sync that failed: nothing counts as unsynced any more, and nothing was written.
    fn fail_sync(&mut self) {
        self.unsynced.clear();
    }

    fn crash(&self, random: &mut SplitMix64) -> Self {
        let mut durable = self.durable.clone();
        if durable.len() != self.cached.len() && !self.unsynced.is_empty() && random.below(2) == 0 {
            durable.resize(self.cached.len(), 0);
        }
        for sector in &self.unsynced {
            let begin = sector * SECTOR_BYTES;
            let end = (begin + SECTOR_BYTES).min(durable.len()).min(self.cached.len());
            if begin >= end || random.below(2) == 0 {
                continue;
            }
            durable[begin..end].copy_from_slice(&self.cached[begin..end]);
            if random.below(DAMAGED_ONE_IN) == 0 {
                let bit = random.below(8 * (end - begin) as u64) as usize;
                durable[begin + bit / 8] ^= 1 << (bit % 8);
            }
        }
        Self { cached: durable.clone(), durable, unsynced: BTreeSet::new() }
    }
}

impl Disk for SimulatedDisk {
    fn place(&self, name: &str) -> String {
        format!("simulated/{name}")
    }

    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn readers(&self) -> usize {
        1 + self.state().more_readers
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.begin()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.begin()?;
        let number = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn create(&self, name: &str, length_bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.begin()?;
        // One without room is there all the same, empty: that is what a file system leaves.
        let room = state.check_room(length_bytes);
        let length_bytes = if room.is_ok() { length_bytes } else { 0 };
        let number = state.files.keys().next_back().map_or(0, |last| last + 1);
        let mut contents = Contents { cached: vec![0; length_bytes as usize], ..Contents::default() };
        contents.touch(0, length_bytes as usize);
        state.files.insert(number, contents);
        state.change(Change::Create { name: name.to_owned(), number });
        room.map(|()| Box::new(SimulatedFile { disk: self.clone(), number }) as Box<dyn DiskFile>)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(Change::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(Change::Remove { name: name.to_owned() });
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        state.durable_names = state.names.clone();
        state.unsynced_changes.clear();
        Ok(())
    }
}

impl DiskFile for SimulatedFile {
    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.with_file(self.number, |contents| contents.cached.len() as u64))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.state().begin()?;
        self.disk.with_file(self.number, |contents| {
            let begin = offset as usize;
            let bytes = contents.cached.get(begin..begin + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        let length = self.disk.with_file(self.number, |contents| contents.cached.len());
        let failed = {
            let mut state = self.disk.state();
            state.check_room(end.saturating_sub(length) as u64)?;
            state.begin()
        };
        self.disk.with_file(self.number, |contents| {
            // A machine that stops here may have written any part of it: unsynced all the same.
            contents.cached.resize(length.max(end), 0);
            contents.cached[begin..end].copy_from_slice(bytes);
            contents.touch(begin, end);
        });
        failed
    }

    fn truncate(&self, length_bytes: u64) -> io::Result<()> {
        self.disk.state().begin()?;
        self.disk.with_file(self.number, |contents| {
            let (length, end) = (contents.cached.len(), length_bytes as usize);
            contents.touch(end.min(length), end.max(length));
            contents.cached.resize(end, 0);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let begun = {
            let mut state = self.disk.state();
            state.syncs += 1;
            let is_crash = state.faults.iter().any(|fault| matches!(fault, Fault::CrashAt(_)));
            state.begin().map_err(|error| (error, is_crash))
        };
        self.disk.with_file(self.number, |contents| match begun {
            Ok(()) => {
                contents.sync();
                Ok(())
            }
            // What a stopped machine had not synced may be there or not.
            Err((error, true)) => Err(error),
            Err((error, false)) => {
                contents.fail_sync();
                Err(error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_what_was_not_may_go() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..64 {
            let disk = SimulatedDisk::default();
            let file = disk.create("a", 1024).expect("room");
            file.write_at(0, &[1; 600]).expect("written");
            file.sync().expect("synced");
            disk.sync_directory().expect("synced");
            file.write_at(0, &[2; 1024]).expect("written");
            disk.create("b", 0).expect("room");
            let after = disk.crash(seed);
            let mut bytes = vec![0; 1024];
            after.open("a").expect("synced").read_at(0, &mut bytes).expect("all of it");
            let sector = |bytes: &[u8]| bytes.iter().map(|byte| usize::from(*byte == 2)).sum::<usize>();
            outcomes.insert((sector(&bytes[..512]), sector(&bytes[512..]), after.open("b").is_ok()));
        }
        assert!(outcomes.contains(&(0, 512, true)) && outcomes.contains(&(512, 0, false)), "{outcomes:?}");
        assert!(outcomes.contains(&(511, 512, true)) || outcomes.contains(&(511, 0, true)), "{outcomes:?}");
    }

    #[test]
    fn a_failed_sync_has_lost_what_it_should_write() {
        let disk = SimulatedDisk::default();
        let file = disk.create("a", 512).expect("room");
        disk.sync_directory().expect("synced");
        file.sync().expect("synced");
        file.write_at(0, &[7; 512]).expect("written");
        disk.set_faults(&[Fault::FailAt(0)]);
        assert!(file.sync().is_err());
        file.sync().expect("the next one has nothing to do");
        let mut bytes = [1; 512];
        disk.crash(1).open("a").expect("synced").read_at(0, &mut bytes).expect("all of it");
        assert_eq!(bytes, [0; 512], "no sync writes what a failed one has dropped");
    }

    #[test]
    fn a_full_disk_says_so() {
        let disk = SimulatedDisk::new(&[Fault::CapacityBytes(1000)]);
        let file = disk.create("a", 900).expect("room");
        let error = file.write_at(900, &[0; 101]).expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.write_at(0, &[0; 900]).expect("room");
    }
}
