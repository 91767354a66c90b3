//! What etcd has under a pool's name.

use anyhow::Result;
use farsight::{ClusterUrl, Etcd, EtcdOptions, Known};

use super::Finding;
use crate::connection::Connection;

/// Whether etcd answers, and which nodes are registered.
pub(super) fn cluster(connection: &Connection, name: &ClusterUrl) -> Finding {
    match known(connection, name) {
        Ok(known) => finding(name, &known),
        Err(error) => {
            let remedy = "start etcd; until then name the nodes themselves with --connect";
            Finding::warn("etcd", farsight::with_causes(&*error), remedy)
        }
    }
}

fn known(connection: &Connection, name: &ClusterUrl) -> Result<Known> {
    let allow_plaintext = connection.options()?.allow_plaintext;
    Ok(Etcd::open(name, EtcdOptions { allow_plaintext })?.read()?)
}

fn finding(name: &ClusterUrl, known: &Known) -> Finding {
    let what = "etcd";
    let registered = known.nodes().len();
    let Some(map) = known.pool() else {
        let text = format!("answers; {name} has no map yet, and {registered} nodes are registered");
        return Finding::ok(what, text);
    };
    let all = map.epochs().len();
    let is_there = |epoch: &&u64| known.node(**epoch).is_some();
    let there = map.epochs().iter().filter(is_there).count();
    let coordinator = map.epochs().iter().position(|epoch| Some(*epoch) == known.coordinator());
    let coordinator = coordinator.map_or_else(|| "nobody".to_owned(), |place| format!("node {}", place + 1));
    let text = format!(
        "answers; {there} of the {all} nodes of {name} are registered, besides {} new ones; map number {}, coordinator's \
         lease: {coordinator}",
        registered - there,
        map.term()
    );
    if there == all {
        return Finding::ok(what, text);
    }
    let remedy = "start the others, or new ones with the same --cluster, and take those in: farsight repair";
    Finding::warn(what, text, remedy)
}
