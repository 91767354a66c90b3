//! The server: versions, its socket's directory, and whether it answers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use farsight::{
    Addresses, Client, ConnectError, FORMAT_VERSION, FabricError, NodeStats, ServerUrl, SnapshotStats,
};

use super::Finding;
use crate::connection::{Connection, socket_of};
use crate::{ages, size};

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

pub(super) fn server(connection: &Connection, url: &Addresses) -> Finding {
    let what = "server";
    if socket_of(url).is_some_and(|socket| !socket.exists()) {
        return Finding::ok(what, format!("none at {url}; start one with: farsight serve"));
    }
    match connection.open().and_then(|client| answerers(&client)) {
        Ok(found) => {
            if let Some(NodeStats { version, .. }) = found.iter().find(|node| node.version != VERSION) {
                let text = format!("version {version} at {url}, this program is {VERSION}");
                return Finding::warn(what, text, "install the same version on both sides");
            }
            let processes: Vec<String> = found.iter().map(|node| node.process_id.to_string()).collect();
            let text = format!("answers at {url}, process {}", processes.join(", "));
            match lost(&found) {
                lost if lost.is_empty() => Finding::ok(what, text),
                lost => Finding::warn(
                    what,
                    format!("{text}: the pool goes on without nodes {}", lost.join(", ")),
                    "start a new one in the place of each, and run: farsight repair",
                ),
            }
        }
        Err(error) => {
            let remedy = match url.urls() {
                _ if is_untrusted(&error) => "end that server, or trust its user: --server-uid".to_owned(),
                [one] => format!("farsight serve --listen {one}"),
                nodes => {
                    let listen = |node: &ServerUrl| format!("farsight serve --listen {node}");
                    nodes.iter().map(listen).collect::<Vec<_>>().join("; ")
                }
            };
            Finding::warn(what, farsight::with_causes(&*error), remedy)
        }
    }
}

/// How far back the snapshots of a server reach, or of each of a pool's nodes, and whether some are held
/// back. Nothing where none answers: that was said.
pub(super) fn snapshots(connection: &Connection) -> Vec<Finding> {
    let nodes = connection.open().and_then(|client| Ok(client.node_stats()?)).unwrap_or_default();
    let kept = nodes.iter().filter_map(|node| Some((node, node.data.as_ref()?)));
    kept.map(|(node, data)| {
        let snapshots = node.tables.iter().filter_map(|table| Some((table, table.snapshot?)));
        let written = snapshots.filter(|(_, snapshot)| snapshot.oldest_ms.is_some());
        let oldest = written.min_by_key(|(_, snapshot)| snapshot.oldest_ms);
        let ages = oldest.map_or_else(String::new, |(table, SnapshotStats { oldest_ms, median_ms, .. })| {
            format!(", of table {:?} {}", table.info.definition.name, ages::text(oldest_ms, median_ms))
        });
        let (process, bytes) = (node.process_id, size::text(data.replay_bytes));
        let text = format!("process {process}: a restart reads {bytes} of log; pieces {}{ages}", data.pieces);
        if data.pieces_left == 0 {
            return Finding::ok("snapshots", text);
        }
        let text = format!("{text}; pieces left since a pair is damaged {}", data.pieces_left);
        Finding::warn("snapshots", text, "the server's stderr names the keys: write them again")
    })
    .collect()
}

/// True if another user listens there.
fn is_untrusted(error: &anyhow::Error) -> bool {
    let connecting = error.downcast_ref::<ConnectError>();
    matches!(connecting, Some(ConnectError::Fabric(FabricError::UntrustedServer { .. })))
}

/// What the server says of itself, or each of a pool's nodes.
fn answerers(client: &Client) -> Result<Vec<NodeStats>> {
    // Nodes that answer, one of which has lost its memory, are no pool.
    client.tables()?;
    Ok(client.node_stats()?)
}

/// The nodes, counted from one, without which a pool goes on.
fn lost(nodes: &[NodeStats]) -> Vec<String> {
    let Some(NodeStats { lost, place: Some(place), .. }) = nodes.first() else { return Vec::new() };
    let places = (0..place.epochs.len()).filter(|place| lost.contains(*place));
    places.map(|place| (place + 1).to_string()).collect()
}
