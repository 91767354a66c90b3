//! Threads that read pieces of snapshots, several frames at once.
//!
//! Invariant: who takes the frames sees them in the order of the calls for them, and an error in the
//! place of the frame that has it. So it sees what one thread would have read.
//!
//! Protocol:
//! 1. One thread walks along the pieces. It reads the header of each frame, which says where the next begins.
//! 2. Whichever reader is free reads the frame, checks its checksum, and says where in it records stand.
//! 3. The taker awaits the frames in their order. It checks that each one goes on with the one before:
//!    nobody knew that in step 2.
//!
//! Without readers, the thread that walks reads the frames, too.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};

use crate::disk::Disk;
use crate::error::disk_error;
use crate::snapshot::PieceFile;
use crate::{DurabilityError, Frame, RecordBatch};

/// A frame that was read. Whether it belongs where it stands is not known.
pub(crate) struct ReadFrame {
    pub head: Frame<'static>,
    /// What is wrong with its records counts only if the frame belongs there.
    pub records: Result<RecordBatch, DurabilityError>,
    /// The greatest version of its records.
    pub version_max: u64,
}

/// A frame that is read, or will be.
pub(crate) type FrameToCome = Receiver<Result<ReadFrame, DurabilityError>>;

/// A frame that is to be read.
struct WantedFrame {
    file: Arc<PieceFile>,
    at: u64,
    frame_bytes: u64,
    read: SyncSender<Result<ReadFrame, DurabilityError>>,
}

/// The readers. They end when this is dropped.
pub(crate) struct PieceReaders(Option<SyncSender<WantedFrame>>);

impl PieceReaders {
    /// None: the thread that asks for a frame reads it.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Starts as many threads as this disk wants, or none if that is one.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        disk: &dyn Disk,
    ) -> Result<Self, DurabilityError> {
        let readers = disk.readers();
        if readers < 2 {
            return Ok(Self(None));
        }
        let (sender, wanted) = sync_channel(readers);
        let wanted = Arc::new(Mutex::new(wanted));
        for _ in 0..readers {
            let wanted = Arc::clone(&wanted);
            let thread = thread::Builder::new().name("recovery reads".into());
            let started = thread.spawn_scoped(scope, move || read_wanted(&wanted));
            started.map_err(disk_error("starting a thread for", disk.place("")))?;
        }
        Ok(Self(Some(sender)))
    }

    /// Has the frame of so many bytes read that begins at `at`.
    ///
    /// # Errors
    /// [`DurabilityError`]: without readers it is read here, and that is what is wrong with it.
    pub(crate) fn read(
        &self,
        file: &Arc<PieceFile>,
        at: u64,
        frame_bytes: u64,
    ) -> Result<FrameToCome, DurabilityError> {
        let (read, to_come) = sync_channel(1);
        // A thread that has left has met an error, and tells it.
        match &self.0 {
            Some(sender) => {
                _ = sender.send(WantedFrame { file: Arc::clone(file), at, frame_bytes, read });
            }
            None => _ = read.send(Ok(read_frame(file, at, frame_bytes)?)),
        }
        Ok(to_come)
    }
}

/// Reads a frame and its records.
fn read_frame(file: &PieceFile, at: u64, frame_bytes: u64) -> Result<ReadFrame, DurabilityError> {
    let mut bytes = Vec::new();
    file.read_bytes(at, frame_bytes, &mut bytes)?;
    let bytes = Arc::new(bytes);
    let frame = file.parse_frame(at, &bytes)?;
    let (mut batch, mut version_max) = (RecordBatch::default(), 0);
    let visited = file.visit(at, &frame, |record| {
        version_max = record.version.max(version_max);
        batch.push(&bytes, record);
        Ok(())
    });
    Ok(ReadFrame { head: frame.head(), records: visited.map(|()| batch), version_max })
}

fn read_wanted(wanted: &Mutex<Receiver<WantedFrame>>) {
    loop {
        let next = wanted.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(WantedFrame { file, at, frame_bytes, read }) = next else { break };
        // As above.
        let _ = read.send(read_frame(&file, at, frame_bytes));
    }
}
