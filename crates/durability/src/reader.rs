//! Reading a log: what recovery finds, and where it ends.
//!
//! Protocol, for each segment from the oldest that is needed:
//! 1. The header says its number, and with which frame the log before it ended.
//! 2. Frames follow, each by its number, its file's incarnation and the checksum of the one before.
//! 3. Where a frame is none, the segment ends. The next segment's header must agree with that.
//! 4. A file behind the last header, without a frame, is no segment yet: a crash came before its header was
//!    durable. So the one before it is the last.
//!
//! The last segment ends in a *torn tail*, or the log is damaged. Some later frame decides: if it was written
//! when the missing one was durable already, then the disk has lost what it had promised. That is refused.
//! Otherwise nobody was ever told of the missing frame, and the tail is cut.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::disk::{Disk, SECTOR_BYTES, read_all_into};
use crate::error::disk_error;
use crate::frame::{FrameFault, RecordFault};
use crate::segment::{HeaderFault, LogPosition, SegmentHeader, file_name, number_of};
use crate::{DurabilityError, Frame, Note, Record};

/// Where a log ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogEnd {
    /// The last segment.
    pub segment: u64,
    /// The last frame.
    pub number: u64,
    /// That frame's checksum.
    pub checksum: u32,
    /// Bytes of the last segment that count.
    pub offset: u64,
    /// What of the last segment does not count.
    pub cut: Option<Cut>,
    /// The file of a segment behind that one, which holds nothing: it was being made.
    pub unused: Option<String>,
}

impl LogEnd {
    /// Behind the last frame.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        LogPosition { segment: self.segment, offset: self.offset }
    }
}

/// The end of a segment that does not count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The segment's file.
    pub name: String,
    /// Where it begins.
    pub offset: u64,
    /// Why the frame that stands there is none; `None` if nothing stands there.
    pub fault: Option<FrameFault>,
}

/// Bytes of a segment's file, at most: places in it have 32 bits. No log makes one as long.
const SEGMENT_BYTES_MAX: u64 = u32::MAX as u64;

/// What takes in a log that is read.
pub(crate) trait LogVisitor {
    /// Room for the bytes of a segment, whatever stands in it.
    fn room(&mut self) -> Vec<u8>;

    /// A record, which stands in these bytes of its segment, with the position of its frame.
    ///
    /// # Errors
    /// Ends the reading.
    fn record(
        &mut self,
        position: LogPosition,
        bytes: &Arc<Vec<u8>>,
        record: Record<'_>,
    ) -> Result<(), DurabilityError>;

    /// Notes of a frame of this incarnation.
    fn notes(&mut self, incarnation: u64, notes: &[u8]);
}

/// Takes in records alone.
struct Records<F>(F);

impl<F: FnMut(LogPosition, Record<'_>) -> Result<(), DurabilityError>> LogVisitor for Records<F> {
    fn room(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn record(
        &mut self,
        position: LogPosition,
        _: &Arc<Vec<u8>>,
        record: Record<'_>,
    ) -> Result<(), DurabilityError> {
        (self.0)(position, record)
    }

    fn notes(&mut self, _: u64, _: &[u8]) {}
}

/// Reads the segments from number `first` on, and hands each record to `visit`, with the position of its
/// frame. Nothing is changed.
///
/// # Errors
/// [`DurabilityError`]: something durable is damaged or missing, or of another format; what `visit` refuses.
pub fn read_log(
    disk: &dyn Disk,
    first: u64,
    visit: impl FnMut(LogPosition, Record<'_>) -> Result<(), DurabilityError>,
) -> Result<LogEnd, DurabilityError> {
    read_log_into(disk, first, &mut Records(visit))
}

/// [`read_log`] that hands on all that stands there.
///
/// # Errors
/// As there.
pub(crate) fn read_log_into(
    disk: &dyn Disk,
    first: u64,
    visitor: &mut impl LogVisitor,
) -> Result<LogEnd, DurabilityError> {
    match read_segments(disk, first, visitor)? {
        (end, None) => Ok(end),
        (_, Some(damage)) => Err(damage),
    }
}

/// Where the log from segment `first` on ends at some instant of the call. A server may append to it
/// meanwhile. A frame may come when its place was read already, and the one behind it was not. So a frame
/// that is missing is damage only if it is missing when one looks again.
///
/// # Errors
/// As [`read_log`].
pub(crate) fn end_of_open_log(disk: &dyn Disk, first: u64) -> Result<LogEnd, DurabilityError> {
    let look = || read_records(disk, first, |_, _| Ok(()));
    let (end, damage) = look()?;
    match damage {
        Some(damage) if look()?.0.number == end.number => Err(damage),
        _ => Ok(end),
    }
}

/// Where a log ends, and what says that a frame is missing there.
type EndOrDamage = (LogEnd, Option<DurabilityError>);

/// Reads the records of the segments; besides where they end, what says that a frame is missing there.
pub(crate) fn read_records(
    disk: &dyn Disk,
    first: u64,
    visit: impl FnMut(LogPosition, Record<'_>) -> Result<(), DurabilityError>,
) -> Result<EndOrDamage, DurabilityError> {
    read_segments(disk, first, &mut Records(visit))
}

fn read_segments(
    disk: &dyn Disk,
    first: u64,
    visitor: &mut impl LogVisitor,
) -> Result<EndOrDamage, DurabilityError> {
    let names = disk.list().map_err(disk_error("listing", disk.place("")))?;
    let numbers = names.iter().filter_map(|name| number_of(name)).filter(|number| *number >= first);
    let segments: BTreeSet<u64> = numbers.collect();
    let mut last = segments.last().copied().unwrap_or(first.saturating_sub(1));
    let mut end = LogEnd { segment: first.saturating_sub(1), ..LogEnd::default() };
    if segments.contains(&last) && is_unused(disk, last)? {
        end.unused = Some(file_name(last));
        last = last.saturating_sub(1);
    }
    let (mut suspect, mut room) = (None, Vec::new());
    for number in first..=last {
        if !segments.contains(&number) {
            let why = "the log goes on behind it, or begins with it";
            return Err(DurabilityError::Missing { file: disk.place(&file_name(number)), why });
        }
        let reader = Reader::open(disk, number, number == last, room)?;
        suspect = reader.read(&mut end, suspect, number == first, visitor)?;
        room = Arc::into_inner(reader.bytes).unwrap_or_else(|| visitor.room());
    }
    Ok((end, suspect))
}

/// True if the file of the last segment is none yet: it has no header, which is durable before the first
/// frame, and no frame. So a crash came earlier.
fn is_unused(disk: &dyn Disk, number: u64) -> Result<bool, DurabilityError> {
    let name = file_name(number);
    let failed = || disk_error("reading", disk.place(&name));
    let file = disk.open(&name).map_err(failed())?;
    let mut header = vec![0; file.length_bytes().map_err(failed())?.min(SECTOR_BYTES as u64) as usize];
    file.read_at(0, &mut header).map_err(failed())?;
    if SegmentHeader::parse(&header).is_ok() {
        return Ok(false);
    }
    let reader = Reader::open(disk, number, true, Vec::new())?;
    Ok(!reader.has_frames())
}

struct Reader {
    name: String,
    place: String,
    number: u64,
    is_last: bool,
    bytes: Arc<Vec<u8>>,
}

impl Reader {
    /// Reads the segment's file into this room.
    fn open(disk: &dyn Disk, number: u64, is_last: bool, mut room: Vec<u8>) -> Result<Self, DurabilityError> {
        let name = file_name(number);
        let place = disk.place(&name);
        let failed = || disk_error("reading", place.clone());
        let file = disk.open(&name).map_err(failed())?;
        let got = file.length_bytes().map_err(failed())?;
        if got > SEGMENT_BYTES_MAX {
            let (what, expected) = ("bytes of a segment, at most", SEGMENT_BYTES_MAX);
            let fault = FrameFault::Field { what, expected, got };
            return Err(DurabilityError::Damaged { file: place, offset: 0, table: None, fault });
        }
        read_all_into(&*file, &mut room).map_err(failed())?;
        Ok(Self { name, place, number, is_last, bytes: Arc::new(room) })
    }

    /// Reads the segment. Returns what is wrong where it ends, if a frame is missing there; `suspect` is that
    /// of the segment before.
    fn read(
        &self,
        end: &mut LogEnd,
        suspect: Option<DurabilityError>,
        is_first: bool,
        visitor: &mut impl LogVisitor,
    ) -> Result<Option<DurabilityError>, DurabilityError> {
        let header = match SegmentHeader::parse(&self.bytes) {
            Ok(header) => header,
            Err(HeaderFault::Fault(fault)) => return Err(self.damaged(0, None, fault)),
            Err(HeaderFault::OtherFormat(got)) => {
                return Err(DurabilityError::OtherFormat { file: self.place.clone(), got });
            }
        };
        self.check_header(header, end, suspect, is_first)?;
        end.segment = self.number;
        (end.number, end.checksum) = (header.last_number, header.last_checksum);
        let mut at = SECTOR_BYTES;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            let frame = Frame::parse(rest).and_then(|frame| {
                frame.check(end.number + 1, header.incarnation, end.checksum).map(|()| frame)
            });
            #[cfg(injected)]
            let frame = self.trusted_tail(frame, rest, header, end);
            let frame = match frame {
                Ok(frame) => frame,
                Err(fault) => return Ok(self.end(at, fault, header, end)),
            };
            let position = LogPosition { segment: self.number, offset: at as u64 };
            let visited = frame.visit(|record| visitor.record(position, &self.bytes, record));
            let notes = visited.map_err(|fault| match fault {
                RecordFault::Fault { table, fault } => self.damaged(at, table, fault),
                RecordFault::Refused(error) => error,
            })?;
            if !notes.is_empty() {
                Note::check_all(notes).map_err(|fault| self.damaged(at, None, fault))?;
                visitor.notes(frame.incarnation, notes);
            }
            (end.number, end.checksum) = (frame.number, frame.checksum);
            at += (frame.bytes() as usize).next_multiple_of(SECTOR_BYTES);
        }
    }

    /// A header of this segment that follows on the log before it.
    fn check_header(
        &self,
        header: SegmentHeader,
        end: &LogEnd,
        suspect: Option<DurabilityError>,
        is_first: bool,
    ) -> Result<(), DurabilityError> {
        let mut fields = vec![("number of the segment", self.number, header.number)];
        if !is_first {
            fields.push(("number of the last frame before", end.number, header.last_number));
            fields.push((
                "checksum of the last frame before",
                end.checksum.into(),
                header.last_checksum.into(),
            ));
        }
        match fields.into_iter().find(|(_, expected, got)| expected != got) {
            Some((what, expected, got)) => {
                let own = || self.damaged(0, None, FrameFault::Field { what, expected, got });
                Err(suspect.unwrap_or_else(own))
            }
            None => Ok(()),
        }
    }

    /// The segment ends at `at`, where no frame stands. Returns what is wrong, if one is missing.
    fn end(
        &self,
        at: usize,
        fault: FrameFault,
        header: SegmentHeader,
        end: &mut LogEnd,
    ) -> Option<DurabilityError> {
        end.offset = at as u64;
        let rest = self.bytes.get(at..).unwrap_or_default();
        let damaged = || self.damaged(at, Frame::table_said(rest), fault);
        if !self.is_last {
            // The next header says whether a frame is missing here.
            return Some(damaged());
        }
        let missing = end.number + 1;
        #[cfg(injected)]
        let missing = if crate::injected::MIDDLE_CUT.is_injected() { u64::MAX } else { missing };
        let was_durable = self.was_durable(at, missing, header.incarnation);
        if was_durable {
            return Some(damaged());
        }
        let is_clean = rest.iter().all(|byte| *byte == 0);
        let fault = (!is_clean).then_some(fault);
        end.cut = Some(Cut { name: self.name.clone(), offset: at as u64, fault });
        None
    }

    /// True if a frame stands behind `at` that was written when the missing one was durable.
    ///
    /// Values are anybody's bytes, and may look like a frame. So a frame has to suit its place: between it
    /// and `at` each frame has a sector, and what was durable came before it.
    fn was_durable(&self, at: usize, missing: u64, incarnation: u64) -> bool {
        let mut places = (at..self.bytes.len()).step_by(SECTOR_BYTES).zip(0..).skip(1);
        places.any(|(place, sectors)| {
            let is_later = |number: u64, durable: u64, of: u64| {
                let is_behind = number.checked_sub(missing).is_some_and(|n| (1..=sectors).contains(&n));
                is_behind && (missing..number).contains(&durable) && of == incarnation
            };
            Frame::parse_if(&self.bytes[place..], is_later).is_some()
        })
    }

    /// True if a frame stands at some sector.
    fn has_frames(&self) -> bool {
        let mut sectors = (SECTOR_BYTES..self.bytes.len()).step_by(SECTOR_BYTES);
        sectors.any(|at| Frame::parse(&self.bytes[at..]).is_ok())
    }

    fn damaged(&self, at: usize, table: Option<u32>, fault: FrameFault) -> DurabilityError {
        DurabilityError::Damaged { file: self.place.clone(), offset: at as u64, table, fault }
    }

    #[cfg(injected)]
    fn trusted_tail<'a>(
        &self,
        frame: Result<Frame<'a>, FrameFault>,
        rest: &'a [u8],
        header: SegmentHeader,
        end: &LogEnd,
    ) -> Result<Frame<'a>, FrameFault> {
        let fault = match frame {
            Err(fault @ FrameFault::Checksum { .. })
                if self.is_last && crate::injected::TAIL_TRUSTED.is_injected() =>
            {
                fault
            }
            frame => return frame,
        };
        Frame::believe(rest)
            .filter(|frame| frame.check(end.number + 1, header.incarnation, end.checksum).is_ok())
            .ok_or(fault)
    }
}
