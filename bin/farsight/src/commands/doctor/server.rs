//! The server: versions, its socket's directory, and whether it answers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use farsight::FORMAT_VERSION;

use super::Finding;
use crate::connection::Connection;
use crate::error_text;

/// Permission bits: others may write here, and only owners may delete here.
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn version() -> Finding {
    Finding::ok("farsight", format!("{VERSION}, format version {FORMAT_VERSION}"))
}

pub(super) fn socket_directory(socket: &Path) -> Finding {
    let what = "socket";
    let directory = socket.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let shown = directory.display();
    let metadata = match fs::metadata(&directory) {
        Ok(metadata) => metadata,
        Err(error) => return Finding::warn(what, format!("{shown}: {error}"), format!("mkdir -p {shown}")),
    };
    if !metadata.is_dir() {
        return Finding::warn(what, format!("{shown} is no directory"), "give --connect another path");
    }
    if metadata.mode() & OTHERS_WRITE != 0 && metadata.mode() & STICKY == 0 {
        return Finding::warn(
            what,
            format!("{shown} lets any user replace the socket by one of theirs"),
            format!("chmod o-w {shown}"),
        );
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if let Err(error) = rustix::fs::access(&directory, access) {
        return Finding::warn(
            what,
            format!("{shown}: {error}: this user cannot start a server there"),
            format!("sudo chown {} {shown}", rustix::process::geteuid().as_raw()),
        );
    }
    Finding::ok(what, socket.display().to_string())
}

pub(super) fn server(connection: &Connection) -> Finding {
    let what = "server";
    let url = connection.url();
    if connection.socket().is_some_and(|socket| !socket.exists()) {
        return Finding::ok(what, format!("none at {url}; start one with: farsight serve"));
    }
    match connection.open().and_then(|client| Ok(client.stats()?)) {
        Ok(stats) if stats.version != VERSION => Finding::warn(
            what,
            format!("version {} at {url}, this program is {VERSION}", stats.version),
            "install the same version on both sides",
        ),
        Ok(stats) => Finding::ok(what, format!("answers at {url}, process {}", stats.process_id)),
        Err(error) => {
            Finding::warn(what, error_text::chain(&error), format!("farsight serve --listen {url}"))
        }
    }
}
