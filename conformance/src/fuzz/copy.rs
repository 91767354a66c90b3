//! A copy of tables: bytes that stand in its files, and written files that were changed.

use std::convert::Infallible;
use std::sync::Arc;

use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_durability::{
    Archive, CopiedPair, CopyManifest, DirectoryArchive, PairSource, TableToCopy, finish_copy, read_manifest,
    read_table, write_table,
};

use super::source::Source;

const MANIFEST: &str = "copy";
const TABLE: &str = "table-t";

/// A pair as it was written.
type Pair = (Vec<u8>, u64, Vec<u8>);

/// Whatever stands in a file, reading ends. What is written comes back, each pair in its place. What was
/// changed is refused, and no pair was told that was not written.
pub(super) fn run(data: &[u8]) {
    drop(read_manifest(&with(MANIFEST, data)));
    let written = written(&mut Source::new(data));
    let archive = with(MANIFEST, &written.manifest);
    let manifest = read_manifest(&archive).expect("a manifest that was written");
    // Any bytes as the file of a table.
    drop(read(&with(TABLE, data), &manifest));
    drop(read(&with(TABLE, &[&written.table[..16], data].concat()), &manifest));
    assert_eq!(read(&with(TABLE, &written.table), &manifest), Ok(written.pairs.clone()));
    let mut source = Source::new(data);
    let mut changed = written.table.clone();
    let at = source.half() as usize % changed.len();
    if source.byte().is_multiple_of(2) {
        changed[at] ^= 1 << (source.byte() % 8);
    } else {
        changed.truncate(at);
    }
    let told = read(&with(TABLE, &changed), &manifest).expect_err("another file");
    assert!(written.pairs.starts_with(&told), "a pair that was not written");
}

/// The files of a copy.
struct Written {
    manifest: Vec<u8>,
    table: Vec<u8>,
    pairs: Vec<Pair>,
}

struct Pairs<'p>(std::slice::Iter<'p, Pair>);

impl PairSource for Pairs<'_> {
    type Error = Infallible;

    fn next(&mut self) -> Result<Option<CopiedPair<'_>>, Infallible> {
        let next = self.0.next();
        Ok(next.map(|(key, ends_at_ms, value)| CopiedPair { key, ends_at_ms: *ends_at_ms, value }))
    }
}

fn written(source: &mut Source<'_>) -> Written {
    let pair = |source: &mut Source<'_>| {
        let lengths = [source.below(20), [source.below(300), 150_000][source.below(8) / 7]];
        let [key, value] = lengths.map(|length| source.value(length));
        (key, source.word(), value)
    };
    let pairs: Vec<Pair> = (0..source.below(8)).map(|_| pair(source)).collect();
    let archive = DirectoryArchive::new(Arc::new(SimulatedDisk::default()));
    let definition = source.value(9);
    let is_ascending = source.byte().is_multiple_of(2);
    let table = TableToCopy { name: "t", definition: &definition, is_ascending };
    let copied = write_table(&archive, table, &mut Pairs(pairs.iter()), &mut |_| ());
    let manifest = CopyManifest { tables: vec![copied.expect("a disk without faults")] };
    finish_copy(&archive, &manifest).expect("a disk without faults");
    let content = |name: &str| {
        let mut content = Vec::new();
        let got = archive.get(name, &mut |bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        });
        got.expect("a file that was written");
        content
    };
    Written { manifest: content(MANIFEST), table: content(TABLE), pairs }
}

/// An archive with this file alone.
fn with(name: &str, bytes: &[u8]) -> DirectoryArchive {
    let disk = SimulatedDisk::default();
    let file = disk.create(name, 0).expect("a disk without faults");
    file.write_at(0, bytes).expect("a disk without faults");
    DirectoryArchive::new(Arc::new(disk))
}

/// The pairs of its table; if it is refused, those that were told before.
fn read(archive: &DirectoryArchive, manifest: &CopyManifest) -> Result<Vec<Pair>, Vec<Pair>> {
    let mut pairs = Vec::new();
    let read = read_table(archive, &manifest.tables[0], &mut |pair: CopiedPair<'_>| {
        pairs.push((pair.key.to_vec(), pair.ends_at_ms, pair.value.to_vec()));
        Ok::<_, Infallible>(())
    });
    if read.is_ok() { Ok(pairs) } else { Err(pairs) }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let recipe: Vec<u8> = (0..120).map(|byte: u8| byte.wrapping_mul(37)).collect();
    let Written { manifest, table, .. } = written(&mut Source::new(&recipe));
    vec![manifest, table[16..].to_vec(), table, recipe]
}
