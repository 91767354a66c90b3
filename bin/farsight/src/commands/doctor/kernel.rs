//! The kernel: its release, its huge pages, and what it lets fences do.

use std::fs;

use super::Finding;

/// The first release with MADV_COLLAPSE, by which tables get their huge pages.
const RELEASE_WITH_COLLAPSE: (u32, u32) = (6, 1);

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SHARED_HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

pub(super) fn release() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let (major, minor) = RELEASE_WITH_COLLAPSE;
    match numbers(&release) {
        Some(found) if found < RELEASE_WITH_COLLAPSE => Finding::warn(
            "kernel",
            format!("Linux {release} has no MADV_COLLAPSE: tables stay on 4 KiB pages, which costs reads"),
            format!(
                "install Linux {major}.{minor} or later, on Debian: sudo apt-get install linux-image-amd64"
            ),
        ),
        _ => Finding::ok("kernel", format!("Linux {release}")),
    }
}

pub(super) fn huge_pages() -> Finding {
    let remedy = format!("echo madvise | sudo tee {HUGE_PAGES}");
    match chosen(HUGE_PAGES) {
        None => Finding::warn(
            "huge pages",
            "the kernel has no transparent huge pages: reads miss the TLB more",
            "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
        Some(mode) if mode == "never" => {
            Finding::warn("huge pages", format!("{mode}: reads miss the TLB more"), remedy)
        }
        Some(mode) => Finding::ok("huge pages", mode),
    }
}

/// Regions are shared memory. They are collapsed on demand, which only "deny" forbids.
pub(super) fn shared_memory_huge_pages() -> Finding {
    let what = "shmem_enabled";
    match chosen(SHARED_HUGE_PAGES) {
        Some(mode) if mode == "deny" => Finding::warn(
            what,
            format!("{mode}: tables stay on 4 KiB pages, which costs reads"),
            format!("echo advise | sudo tee {SHARED_HUGE_PAGES}"),
        ),
        Some(mode) => Finding::ok(what, format!("{mode} (tables are collapsed on demand)")),
        None => Finding::ok(what, "not told by this kernel"),
    }
}

/// Programs that write tables over shared memory, as those of ROLEX and FlexKV, and are stopped under a lock.
pub(super) fn write_protection() -> Finding {
    let what = "fences";
    match farsight::check_write_protection() {
        Ok(()) => Finding::ok(what, "a program that is stopped under a lock is kept from writing, and lives"),
        Err(error) => Finding::warn(
            what,
            format!("no userfaultfd ({error}): a program that is stopped under a lock may be killed"),
            "let the sandbox allow userfaultfd(2), in containers by a seccomp profile, or serve with a longer --lease",
        ),
    }
}

/// The mode in brackets, as in `always [madvise] never`.
fn chosen(path: &str) -> Option<String> {
    bracketed(&fs::read_to_string(path).ok()?).map(str::to_owned)
}

fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode)
}

/// Major and minor number of a release.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_releases_are_read() {
        assert_eq!(bracketed("always [madvise] never\n"), Some("madvise"));
        assert_eq!(bracketed("always"), None);
        assert_eq!(numbers("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(numbers("5.15"), Some((5, 15)));
        assert_eq!(numbers("unknown"), None);
    }
}
