//! The kernel with Soft-RoCE and its start-up file system, kept in the user's cache.
//!
//! Invariant: a file in the cache under its final name is complete. One process at a time puts it together
//! under another name and renames it. Its SHA-256 sums are checked at each use.
//!
//! Protocol: `apt-get` downloads Debian's kernel and checks it by its own signatures; of the package the
//! kernel and the modules that are needed remain. From them, the first process's script and busybox comes
//! the start-up file system, written anew whenever it differs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::initrd::Archive;
use super::tools;

/// Debian's package that depends on the newest kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// The modules that are loaded, with all that they need.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    "crc32_generic",
    "rdma_rxe",
    "dummy",
    "sch_netem",
    "sch_ingress",
    "cls_matchall",
    "act_gact",
];
const SUMS: &str = "SHA256SUMS";
const ORDER: &str = "order";
/// What was kept was kept for these [`MODULES`].
const WANTED: &str = "wanted";
const INIT: &str = include_str!("init.sh");

/// What QEMU boots.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) initrd: PathBuf,
}

/// The kernel in the cache, fetched before if need be.
pub(super) fn provide() -> anyhow::Result<Kernel> {
    let cache = cache_directory()?;
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    let lock_path = cache.join("lock");
    let lock = File::create(&lock_path).with_context(|| format!("opening {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("locking {}", lock_path.display()))?;
    let kernel = cache.join("kernel");
    if !is_whole(&kernel) {
        let partial = cache.join("partial");
        remove(&partial)?;
        remove(&kernel)?;
        fs::create_dir(&partial).with_context(|| format!("making {}", partial.display()))?;
        let fetched = fetch(&partial).and_then(|version| gather(&partial, &version));
        let outcome =
            fetched.and_then(|()| fs::rename(partial.join("kept"), &kernel).context("keeping the kernel"));
        remove(&partial)?;
        outcome?;
    }
    let initrd = cache.join("initrd");
    let contents = start_up_file_system(&kernel)?;
    if fs::read(&initrd).ok().as_deref() != Some(&contents) {
        let unfinished = cache.join("initrd.partial");
        fs::write(&unfinished, &contents).with_context(|| format!("writing {}", unfinished.display()))?;
        fs::rename(&unfinished, &initrd).with_context(|| format!("writing {}", initrd.display()))?;
    }
    Ok(Kernel { image: kernel.join("vmlinuz"), initrd })
}

/// `$XDG_CACHE_HOME/farsight/softroce`, or `~/.cache/farsight/softroce`.
fn cache_directory() -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("farsight/softroce"))
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    Ok(())
}

/// True if all files are there as they were written, and all that are wanted.
fn is_whole(kernel: &Path) -> bool {
    let wanted = fs::read_to_string(kernel.join(WANTED));
    wanted.is_ok_and(|wanted| wanted == MODULES.join("\n"))
        && kernel.join(SUMS).exists()
        && tools::run(Command::new("sha256sum").args(["--check", "--quiet", SUMS]).current_dir(kernel))
            .is_ok()
}

/// Downloads the kernel's package and unpacks it into `directory`. Returns the kernel's version.
fn fetch(directory: &Path) -> anyhow::Result<String> {
    let depends = tools::run(Command::new("apt-cache").args(["depends", META_PACKAGE]))?;
    let package = depends
        .lines()
        .find_map(|line| {
            line.trim().strip_prefix("Depends: ").filter(|name| name.starts_with("linux-image-"))
        })
        .with_context(|| format!("apt knows no {META_PACKAGE}: run `apt-get update` once"))?;
    eprintln!("softroce: downloading {package}, once");
    tools::run(Command::new("apt-get").args(["download", "--quiet", package]).current_dir(directory))?;
    let file = fs::read_dir(directory)
        .context("reading what was downloaded")?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get download {package} left no package"))?;
    tools::run(Command::new("dpkg").arg("-x").arg(&file).arg("unpacked").current_dir(directory))?;
    Ok(package.trim_start_matches("linux-image-").to_owned())
}

/// Takes from the unpacked package what is kept.
fn gather(directory: &Path, version: &str) -> anyhow::Result<()> {
    let unpacked = directory.join("unpacked");
    let kept = directory.join("kept");
    fs::create_dir(&kept).context("making the directory of what is kept")?;
    tools::run(tools::command("depmod").arg("-b").arg(&unpacked).arg(version))?;
    let modules = unpacked.join("lib/modules").join(version);
    let dependencies =
        fs::read_to_string(modules.join("modules.dep")).context("reading the modules' dependencies")?;
    let order = load_order(&dependencies, MODULES)?;
    for path in &order {
        let name = file_name(path);
        fs::copy(modules.join(path), kept.join(name)).with_context(|| format!("keeping module {name}"))?;
    }
    let names: String = order.iter().flat_map(|path| [file_name(path), "\n"]).collect();
    fs::write(kept.join(ORDER), names).context("keeping the modules' order")?;
    fs::write(kept.join(WANTED), MODULES.join("\n")).context("keeping what was wanted")?;
    fs::copy(unpacked.join(format!("boot/vmlinuz-{version}")), kept.join("vmlinuz"))
        .context("keeping the kernel")?;
    let sums = tools::run(Command::new("sh").args(["-c", "sha256sum *"]).current_dir(&kept))?;
    fs::write(kept.join(SUMS), sums).context("keeping the sums")
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Paths of `wanted` and of all that they need, each after what it needs, from the lines of `modules.dep`
/// (`path: need need ...`, the deepest need last).
fn load_order<'a>(dependencies: &'a str, wanted: &[&str]) -> anyhow::Result<Vec<&'a str>> {
    let mut order = Vec::new();
    for name in wanted {
        let (path, needs) = dependencies
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(path, _)| file_name(path).split('.').next() == Some(name))
            .with_context(|| format!("this kernel has no module {name}"))?;
        for module in needs.split_whitespace().rev().chain([path]) {
            if Path::new(module).extension() != Some("ko".as_ref()) {
                bail!("{module} is compressed, which the start-up file system does not undo");
            }
            if !order.contains(&module) {
                order.push(module);
            }
        }
    }
    Ok(order)
}

/// The archive that the kernel starts from.
fn start_up_file_system(kernel: &Path) -> anyhow::Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let busybox = read(&tools::find("busybox").context("busybox is missing")?)?;
    let dynamic = b"/lib64/ld-linux";
    ensure!(
        !busybox.windows(dynamic.len()).any(|window| window == dynamic),
        "busybox needs shared libraries, and where it runs there are none: apt-get install busybox-static"
    );
    let mut archive = Archive::default();
    for directory in ["bin", "proc", "sys", "dev", "modules", "lower", "upper", "host"] {
        archive.directory(directory);
    }
    archive.console("dev/console");
    archive.file("init", INIT.as_bytes());
    archive.file("bin/busybox", &busybox);
    let order = fs::read_to_string(kernel.join(ORDER)).context("reading the modules' order")?;
    for name in order.lines() {
        archive.file(&format!("modules/{name}"), &read(&kernel.join(name))?);
    }
    archive.file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "kernel/a/rxe.ko: kernel/b/uverbs.ko kernel/b/core.ko\nkernel/b/core.ko:\n\
                                kernel/b/uverbs.ko: kernel/b/core.ko\nkernel/c/dummy.ko:\n\
                                kernel/c/adummy.ko: kernel/c/dummy.ko\nkernel/d/packed.ko.xz:\n";

    #[test]
    fn modules_follow_what_they_need_once() {
        let order = load_order(DEPENDENCIES, &["dummy", "rxe", "uverbs"]).unwrap();
        let expected = ["kernel/c/dummy.ko", "kernel/b/core.ko", "kernel/b/uverbs.ko", "kernel/a/rxe.ko"];
        assert_eq!(order, expected);
    }

    #[test]
    fn modules_that_cannot_be_loaded_are_named() {
        let error = |name| load_order(DEPENDENCIES, &[name]).unwrap_err().to_string();
        assert_eq!(error("9p"), "this kernel has no module 9p");
        assert!(error("packed").starts_with("kernel/d/packed.ko.xz is compressed"));
    }
}
