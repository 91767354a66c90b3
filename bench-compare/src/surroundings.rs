//! What surrounds a measurement: the file system, and who else wants the processor.

use std::path::Path;

use anyhow::{Context, Result};

/// File systems in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// The file system of `directory` and its device, as in "ext4 on /dev/vda".
pub(crate) fn file_system(directory: &Path) -> Result<String> {
    let path = directory.canonicalize().with_context(|| format!("looking for {}", directory.display()))?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    Ok(named(&mounts, &path).unwrap_or_else(|| "an unknown file system".to_owned()))
}

/// By the mount that has most of the path; of several at one place the last, which covers the others.
fn named(mounts: &str, path: &Path) -> Option<String> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').map(|field| field.replace("\\040", " "));
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let holding = mounts.lines().filter_map(mount).filter(|(_, at, _)| path.starts_with(at));
    let (device, _, kind) = holding.max_by_key(|(_, at, _)| at.len())?;
    let warning = if IN_MEMORY.contains(&&*kind) { ", where nothing outlives the machine" } else { "" };
    Some(format!("{kind} on {device}{warning}"))
}

/// The processes that wanted to run, on average over the last minute.
pub(crate) fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.with_context(|| format!("no load in {:?}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_names_the_file_system() {
        let mounts = "\
/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/vdb /data xfs rw 0 0
/dev/vdc /data btrfs rw 0 0
/dev/vdd /a\\040b ext2 rw 0 0
";
        for (path, expected) in [
            ("/data/x", "btrfs on /dev/vdc"),
            ("/database", "ext4 on /dev/vda"),
            ("/dev/shm", "tmpfs on tmpfs, where nothing outlives the machine"),
            ("/a b/c", "ext2 on /dev/vdd"),
        ] {
            assert_eq!(named(mounts, Path::new(path)).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(named("", Path::new("/")), None);
        assert!(file_system(Path::new("/proc")).expect("it is there").starts_with("proc on "));
        let missing = file_system(Path::new("/nowhere")).expect_err("it is not there").to_string();
        assert_eq!(missing, "looking for /nowhere");
    }
}
