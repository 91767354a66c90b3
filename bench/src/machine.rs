//! The machine that a result was measured on, and what the kernel says of a process: processor time, huge
//! pages.
//!
//! All figures come from `/proc` and `/sys`. What the machine does not state is reported as unknown, not
//! guessed. What must be known for a result (processor time, pinning) is an error instead.

use std::{fs, io, path::PathBuf, time::Duration};

use rustix::{
    param::clock_ticks_per_second,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde::{Deserialize, Serialize};

/// Description of a machine, part of every result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of its processor.
    pub cpu: String,
    /// Cores on which this process may run.
    pub cores: usize,
    /// Setting of transparent huge pages for ordinary memory: `always`, `madvise` or `never`.
    pub transparent_huge_pages: String,
    /// Setting of transparent huge pages for shared memory.
    pub shared_huge_pages: String,
    /// Bytes that the measured processes have mapped with huge pages; filled in by the driver.
    pub huge_page_bytes_mapped: u64,
}

/// Why the kernel could not be asked or obeyed.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file of `/proc` could not be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of `/proc` has another form than documented.
    #[error("{} has an unexpected form: {evidence}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What was found.
        evidence: String,
    },
    /// The cores of this process could not be asked or set.
    #[error("{action}: {source}")]
    Affinity {
        /// What was tried.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// There are fewer cores than the one asked.
    #[error("no core of index {index}: this process may run on {available}")]
    NoSuchCore {
        /// Position among the allowed cores, from 0.
        index: usize,
        /// Allowed cores.
        available: usize,
    },
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn detect() -> Self {
        Self {
            cpu: cpu_model().unwrap_or_else(unknown),
            cores: allowed_cores().map_or(0, |cores| cores.len()),
            transparent_huge_pages: huge_page_setting("enabled").unwrap_or_else(unknown),
            shared_huge_pages: huge_page_setting("shmem_enabled").unwrap_or_else(unknown),
            huge_page_bytes_mapped: 0,
        }
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(model.trim().to_owned())
}

/// The chosen word of a setting such as `always [madvise] never`.
fn huge_page_setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}")).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Numbers of the cores on which this thread may run, ascending.
///
/// # Errors
/// [`MachineError::Affinity`].
pub fn allowed_cores() -> Result<Vec<usize>, MachineError> {
    let set = sched_getaffinity(None).map_err(|source| MachineError::Affinity {
        action: "asking for the cores of this thread".into(),
        source: source.into(),
    })?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Keeps this thread on one core: the one at `index` of `cores` (as [`allowed_cores`] gave them before any
/// thread was pinned). Returns the core's number.
///
/// # Errors
/// [`MachineError::NoSuchCore`], [`MachineError::Affinity`].
pub fn pin_to(cores: &[usize], index: usize) -> Result<usize, MachineError> {
    let &core = cores.get(index).ok_or(MachineError::NoSuchCore { index, available: cores.len() })?;
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|source| MachineError::Affinity {
        action: format!("keeping a thread on core {core}"),
        source: source.into(),
    })?;
    Ok(core)
}

/// Processor time that a process has used, in user and kernel mode, over all its threads. Its resolution is
/// the kernel's tick, 10 ms as a rule.
///
/// # Errors
/// [`MachineError::Io`] when there is no such process, [`MachineError::Form`].
pub fn process_cpu_time(process_id: u32) -> Result<Duration, MachineError> {
    let path = PathBuf::from(format!("/proc/{process_id}/stat"));
    let text = read(&path)?;
    let ticks =
        cpu_ticks(&text).ok_or_else(|| MachineError::Form { path, evidence: text.trim().to_owned() })?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// utime + stime, fields 14 and 15 of proc(5). Field 2, the name in parentheses, may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(14 - 3);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

/// Memory of a process that is there, not only promised to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Bytes that nobody else sees: heap and stacks.
    pub anonymous_bytes: u64,
    /// Bytes of memory files that it has touched.
    pub shared_bytes: u64,
}

impl ResidentMemory {
    /// That of the process now.
    ///
    /// # Errors
    /// [`MachineError::Io`] when there is no such process, [`MachineError::Form`].
    pub fn of(process_id: u32) -> Result<Self, MachineError> {
        let path = PathBuf::from(format!("/proc/{process_id}/status"));
        let text = read(&path)?;
        let bytes_of =
            |names: &[&str]| kibibytes(&text, names).map(|kibibytes| kibibytes * 1024).map_err(str::to_owned);
        let of_both = || {
            let anonymous_bytes = bytes_of(&["RssAnon"])?;
            Ok(Self { anonymous_bytes, shared_bytes: bytes_of(&["RssShmem", "HugetlbPages"])? })
        };
        of_both().map_err(|evidence| MachineError::Form { path, evidence })
    }

    /// Both kinds.
    #[must_use]
    pub fn all_bytes(self) -> u64 {
        self.anonymous_bytes + self.shared_bytes
    }
}

/// Bytes that a process has mapped with huge pages of any kind.
///
/// # Errors
/// [`MachineError::Io`] when there is no such process or it is another user's, [`MachineError::Form`].
pub fn huge_page_bytes(process_id: u32) -> Result<u64, MachineError> {
    let path = PathBuf::from(format!("/proc/{process_id}/smaps_rollup"));
    let text = read(&path)?;
    let kibibytes =
        huge_page_kibibytes(&text).map_err(|line| MachineError::Form { path, evidence: line.to_owned() })?;
    Ok(kibibytes * 1024)
}

/// The sum of the huge-page lines; the line that cannot be read, if one cannot.
fn huge_page_kibibytes(smaps: &str) -> Result<u64, &str> {
    kibibytes(
        smaps,
        &["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb"],
    )
}

/// The sum of the lines of these names, in a text of `name: number kB`; the line that cannot be read, if one
/// cannot.
fn kibibytes<'a>(text: &'a str, names: &[&str]) -> Result<u64, &'a str> {
    let mut sum = 0;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if names.contains(&name) {
            let value = value.trim().strip_suffix(" kB").ok_or(line)?;
            sum += value.parse::<u64>().map_err(|_| line)?;
        }
    }
    Ok(sum)
}

fn read(path: &PathBuf) -> Result<String, MachineError> {
    fs::read_to_string(path).map_err(|source| MachineError::Io { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use std::{process, thread, time::Instant};

    use super::*;

    #[test]
    fn the_machine_describes_itself() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1);
        assert!(!machine.cpu.is_empty());
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 5 1000 50";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn busy_time_is_seen() {
        let before = process_cpu_time(process::id()).expect("this process");
        let start = Instant::now();
        let mut spent = Duration::ZERO;
        while spent < Duration::from_millis(50) && start.elapsed() < Duration::from_secs(30) {
            let now = process_cpu_time(process::id()).expect("this process");
            spent = now.checked_sub(before).expect("processor time only grows");
        }
        assert!(spent >= Duration::from_millis(50), "{spent:?} after 30 s of work");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = process_cpu_time(u32::MAX).expect_err("no such process").to_string();
        assert!(error.starts_with("reading /proc/4294967295/stat"), "{error}");
    }

    #[test]
    fn huge_pages_are_summed_over_their_kinds() {
        let smaps = "5600-7fff ---p 00000000 00:00 0 [rollup]\nRss: 10 kB\nAnonHugePages:      2048 kB\n\
                     ShmemPmdMapped:     4096 kB\nPrivate_Hugetlb:       0 kB\n";
        assert_eq!(huge_page_kibibytes(smaps), Ok(6144));
        assert_eq!(huge_page_kibibytes("AnonHugePages: many kB"), Err("AnonHugePages: many kB"));
        huge_page_bytes(process::id()).expect("this process");
    }

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = ResidentMemory::of(process::id()).expect("this process");
        let touched = vec![1_u8; 64 << 20];
        let after = ResidentMemory::of(process::id()).expect("this process");
        assert!(after.anonymous_bytes >= before.anonymous_bytes + (32 << 20), "{before:?}, {after:?}");
        assert!(after.all_bytes() >= after.anonymous_bytes && touched[1] == 1);
    }

    #[test]
    fn a_pinned_thread_stays_on_its_core() {
        let cores = allowed_cores().expect("the cores of this thread");
        let last = cores.len() - 1;
        let pinned = thread::spawn(move || {
            let core = pin_to(&cores, last).expect("an allowed core");
            assert_eq!(allowed_cores().expect("the cores of this thread"), [core]);
            pin_to(&cores, cores.len()).expect_err("one too many").to_string()
        });
        let error = pinned.join().expect("no panic");
        assert!(error.starts_with("no core of index"), "{error}");
    }
}
