//! The rival of the learned cache: a static tree over Farsight's own leaves, read through the same fabric.

use anyhow::{Context, Result, ensure};
use farsight::{Answers, FORMAT_VERSION};
use farsight_fabric::{Connection, QueuePair};
use farsight_fabric_shm::{ConnectOptions, ShmConnection, ShmQueue};
use farsight_index_baselines::TreeClient;
use farsight_layout::Geometry;

use super::Source;
use super::farsight::number;
use crate::store::Store;
use crate::tally::Tally;

struct Cached {
    tree: TreeClient,
    queue: ShmQueue,
    answers: Answers,
    // Behind the queue pair that was opened from it.
    _connection: ShmConnection,
}

pub(super) fn open(source: &Source<'_>) -> Result<Box<dyn Store>> {
    let (client, info) = (&source.farsight.client, source.farsight.table.info());
    let options = ConnectOptions::new(FORMAT_VERSION);
    let connection = ShmConnection::connect(client.peer(), options)?;
    let mut queue = connection.open_queue()?;
    queue.attach(info.region())?;
    let value_bytes = info.definition.values.leaf_bytes();
    let stats = client.stats()?.tables.into_iter().find(|table| table.info.id == info.id);
    let used_bytes = stats.context("the server has no such table")?.used_bytes();
    let blocks = used_bytes.div_ceil(Geometry::new(value_bytes)?.leaf_bytes() as u64);
    ensure!(blocks <= u64::from(info.capacity_leaves()), "{blocks} leaves, more than the region has");
    let tree = TreeClient::fetch(&mut queue, info.region(), value_bytes, blocks as u32)?;
    connection.collapse_to_huge_pages();
    Ok(Box::new(Cached { tree, queue, answers: Answers::default(), _connection: connection }))
}

impl Store for Cached {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        let mut value = [0; 8];
        for key in keys {
            let version = self.tree.get(&mut self.queue, *key, &mut value)?;
            tally.read(*key, version.map(|_| u64::from_le_bytes(value)));
        }
        Ok(())
    }

    fn get_batch(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        self.tree.multi_get(&mut self.queue, keys, &mut self.answers)?;
        for (index, key) in keys.iter().enumerate() {
            tally.read(*key, self.answers.get(index).map(|(value, _)| number(value)));
        }
        Ok(())
    }

    fn scan(&mut self, _scans: &[(u64, usize)], _tally: &mut Tally<'_>) -> Result<()> {
        anyhow::bail!("a scan READs the same leaves whatever led to the first: it is not compared")
    }

    fn put(&mut self, _pairs: &[(u64, u64)]) -> Result<()> {
        anyhow::bail!("the tree is static")
    }

    fn client_bytes(&self) -> Option<u64> {
        Some(self.tree.tree().bytes())
    }
}
