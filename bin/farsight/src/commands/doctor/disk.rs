//! The disk of a directory of data: its file system, its room, and how long a write takes to be durable.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statfs, statvfs};

use super::Finding;
use crate::size;

/// Writes whose time is taken; a group of the log is about as long as one of them.
const SYNCS: usize = 64;
const WRITE_BYTES: usize = 4096;
/// Bytes of the file that is written, as a segment of the log is written from its begin to its end.
const FILE_BYTES: u64 = (SYNCS * WRITE_BYTES) as u64;
/// What a log and its snapshots want at least: some segments.
const ROOM_MIN_BYTES: u64 = 1 << 30;
/// A disk that is slower makes single writes slow; many in flight share a sync.
const SYNC_SLOW: Duration = Duration::from_millis(20);
/// File systems in memory, by the numbers of statfs(2): what they say is durable ends with the machine.
const IN_MEMORY: [(u32, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
/// Others that people have, for the report.
const KNOWN: [(u32, &str); 7] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
];

/// What is found of a directory that is there, or will be.
pub(super) fn disk(directory: &Path) -> Vec<Finding> {
    let Some(place) = existing(directory) else {
        let text = format!("{}: no part of this path is there", directory.display());
        return vec![Finding::warn("data", text, format!("mkdir -p {}", directory.display()))];
    };
    [file_system(&place), room(&place), syncs(&place)].into()
}

/// The directory, or the one in which it would be made.
fn existing(directory: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(directory).ok()?;
    absolute.ancestors().find(|place| place.is_dir()).map(Path::to_owned)
}

fn file_system(place: &Path) -> Finding {
    let what = "file system";
    let number = match statfs(place) {
        Ok(found) => found.f_type as u32,
        Err(error) => return Finding::warn(what, format!("{}: {error}", place.display()), ""),
    };
    let named = |names: &[(u32, &'static str)]| {
        names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
    };
    if let Some(name) = named(&IN_MEMORY) {
        let text = format!("{name}: what is written to {} ends with the machine", place.display());
        return Finding::warn(what, text, "name a directory on a disk");
    }
    Finding::ok(what, named(&KNOWN).map_or_else(|| format!("number {number:#x}"), str::to_owned))
}

fn room(place: &Path) -> Finding {
    let what = "disk room";
    match statvfs(place) {
        Ok(found) => {
            let bytes = found.f_bavail.saturating_mul(found.f_frsize);
            let text = format!("{} are free at {}", size::text(bytes), place.display());
            if bytes < ROOM_MIN_BYTES {
                let remedy = format!(
                    "make room for the log and two snapshots: {} at least",
                    size::text(ROOM_MIN_BYTES)
                );
                return Finding::warn(what, text, remedy);
            }
            Finding::ok(what, text)
        }
        Err(error) => Finding::warn(what, format!("{}: {error}", place.display()), ""),
    }
}

/// Writes and syncs a file as the log does.
fn syncs(place: &Path) -> Finding {
    let what = "fdatasync";
    let path = place.join(format!(".farsight-doctor-{}", std::process::id()));
    let written = time_syncs(&path);
    // One that is left is small, and its name says whose it is.
    let _ = std::fs::remove_file(&path);
    let mut times = match written {
        Ok(times) => times,
        Err(error) => {
            let remedy = format!("let the server's user write there: ls -ld {}", place.display());
            return Finding::warn(what, format!("{}: {error}", place.display()), remedy);
        }
    };
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let text = format!(
        "median {median:.3?}, longest {longest:.3?} of {SYNCS}: a single durable write takes as long"
    );
    if median > SYNC_SLOW {
        return Finding::warn(
            what,
            text,
            "use a faster disk, keep many writes in flight, or serve --ack memory",
        );
    }
    Finding::ok(what, text)
}

fn time_syncs(path: &Path) -> io::Result<Vec<Duration>> {
    let file = OpenOptions::new().create_new(true).write(true).open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES) {
        // As the log does where the file system cannot reserve.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(FILE_BYTES)?,
        reserved => reserved?,
    }
    file.sync_all()?;
    let bytes = [0x5a; WRITE_BYTES];
    (0..SYNCS)
        .map(|number| {
            let begin = Instant::now();
            file.write_all_at(&bytes, (number * WRITE_BYTES) as u64)?;
            file.sync_data()?;
            Ok(begin.elapsed())
        })
        .collect()
}
