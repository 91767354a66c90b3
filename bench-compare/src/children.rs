//! What this program does as a child of itself: Farsight's server, LMDB's loader; and what it loads the
//! former with.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use farsight::{Access, Server, ServerBuilder, ServerUrl};
use farsight_bench::driver::{Age, Loading, Values};
use farsight_bench::machine;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::peers::farsight::Acknowledged;
use crate::stores;

/// Values of eight bytes, in leaves.
pub(crate) const VALUES: Values = Values::fixed(size_of::<u64>());

/// What Farsight's tables of [`VALUES`] are loaded with.
pub(crate) fn loading(access: Access) -> Loading {
    Loading { values: VALUES, access, age: Age::Fresh, cache_bytes: None, value_cache_bytes: None }
}

/// Serves until told to end, or until the parent ends.
pub(crate) fn serve(
    socket: &Path,
    core: Option<usize>,
    listen: Option<ServerUrl>,
    data: Option<(&Path, Acknowledged)>,
) -> Result<ExitCode> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle SIGINT and SIGTERM")?;
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the parent's end")?;
    if let Some(core) = core {
        machine::pin_to(&[core], 0)?;
    }
    let mut builder = Server::builder().socket(socket);
    if let Some((directory, acknowledged)) = data {
        builder = builder.data(directory, acknowledged.into());
    }
    let server = listen.into_iter().fold(builder, ServerBuilder::listen).start()?;
    let mut out = std::io::stdout().lock();
    let urls: Vec<String> = server.urls().iter().map(|url| format!("url={url}")).collect();
    writeln!(out, "ready {} pid={}", urls.join(" "), std::process::id())?;
    out.flush()?;
    signals.forever().next();
    server.shutdown()?;
    Ok(ExitCode::SUCCESS)
}

/// Loads the keys in a file of [`write_keys`] into LMDB.
pub(crate) fn load_lmdb(directory: &Path, keys: &Path) -> Result<ExitCode> {
    let bytes = std::fs::read(keys).with_context(|| format!("reading {}", keys.display()))?;
    let (words, rest) = bytes.as_chunks::<8>();
    ensure!(rest.is_empty(), "{} holds {} B, not whole keys", keys.display(), bytes.len());
    let keys: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    stores::load_lmdb(directory, &keys)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes keys, eight bytes each, for a child.
pub(crate) fn write_keys(path: &Path, keys: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}
