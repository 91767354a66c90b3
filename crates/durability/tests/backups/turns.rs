//! A disk that two threads use in turns, which a seed decides.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use farsight_base::prng::SplitMix64;
use farsight_durability::disk::{Disk, DiskFile, SimulatedDisk};

#[derive(Default)]
struct State {
    /// Operations that the writing thread may begin, and those that it has ended.
    granted: u64,
    done: u64,
    has_ended: bool,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

/// The writing thread's operations wait until they are granted.
pub(crate) struct Turns {
    disk: SimulatedDisk,
    shared: Shared,
}

/// Which thread's disk it is.
#[derive(Clone)]
enum Side {
    /// Waits before each operation.
    Written(Shared),
    /// Grants a few operations of the other side before each of its own.
    Read(Shared, Arc<Mutex<SplitMix64>>),
}

struct DiskInTurns {
    disk: SimulatedDisk,
    side: Side,
}

struct FileInTurns {
    file: Box<dyn DiskFile>,
    side: Side,
}

fn state(shared: &Shared) -> MutexGuard<'_, State> {
    shared.0.lock().expect("no panic")
}

/// Lets the writing thread do so many more operations, and waits until it has, or has ended.
fn grant(shared: &Shared, operations: u64) {
    let mut at = state(shared);
    at.granted = at.done.saturating_add(operations);
    shared.1.notify_all();
    while operations < u64::MAX && at.done < at.granted && !at.has_ended {
        at = shared.1.wait(at).expect("no panic");
    }
}

impl Turns {
    pub(crate) fn new(disk: &SimulatedDisk) -> Self {
        Self { disk: disk.clone(), shared: Arc::default() }
    }

    pub(crate) fn written(&self) -> Arc<dyn Disk> {
        Arc::new(DiskInTurns { disk: self.disk.clone(), side: Side::Written(Arc::clone(&self.shared)) })
    }

    pub(crate) fn read(&self, seed: u64) -> Arc<dyn Disk> {
        let random = Arc::new(Mutex::new(SplitMix64::new(seed)));
        Arc::new(DiskInTurns { disk: self.disk.clone(), side: Side::Read(Arc::clone(&self.shared), random) })
    }

    /// Lets the writing thread do so many operations.
    pub(crate) fn grant(&self, operations: u64) {
        grant(&self.shared, operations);
    }

    /// The writing thread does nothing any more.
    pub(crate) fn end(&self) {
        state(&self.shared).has_ended = true;
        self.shared.1.notify_all();
    }
}

impl Side {
    fn run<T>(&self, operation: impl FnOnce() -> T) -> T {
        match self {
            Self::Written(shared) => {
                let mut at = state(shared);
                while at.done >= at.granted {
                    at = shared.1.wait(at).expect("no panic");
                }
                drop(at);
                let result = operation();
                state(shared).done += 1;
                shared.1.notify_all();
                result
            }
            Self::Read(shared, random) => {
                let operations = random.lock().expect("no panic").below(4);
                grant(shared, operations);
                operation()
            }
        }
    }

    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FileInTurns { file, side: self.clone() })
    }
}

impl Disk for DiskInTurns {
    fn place(&self, name: &str) -> String {
        self.disk.place(name)
    }

    fn lock(&self) -> io::Result<()> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.side.run(|| self.disk.list())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.side.run(|| self.disk.open(name)).map(|file| self.side.file(file))
    }

    fn create(&self, name: &str, length_bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        self.side.run(|| self.disk.create(name, length_bytes)).map(|file| self.side.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.side.run(|| self.disk.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.side.run(|| self.disk.remove(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.side.run(|| self.disk.sync_directory())
    }
}

impl DiskFile for FileInTurns {
    fn length_bytes(&self) -> io::Result<u64> {
        self.side.run(|| self.file.length_bytes())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.side.run(|| self.file.read_at(offset, into))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.side.run(|| self.file.write_at(offset, bytes))
    }

    fn truncate(&self, length_bytes: u64) -> io::Result<()> {
        self.side.run(|| self.file.truncate(length_bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.side.run(|| self.file.sync())
    }
}
