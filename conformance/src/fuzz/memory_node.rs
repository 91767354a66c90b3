//! A memory node under any sequence of frames, and clients that come and go. Each request gets one
//! well-formed reply. The node gives no block to anybody while another compute node that lives has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::Host;
use farsight_index::EngineKind;
use farsight_layout::pool::BlockGeometry;
use farsight_layout::{FORMAT_VERSION, Geometry};
use farsight_node::Service;
use farsight_node::{NodeOptions, NodeState, Worker};
use farsight_protocol::{
    Adopted, Blocks, Claim, ComputeNode, ControlRequest, Fenced, KeyKind, LostNodes, PoolMap, PoolPlace,
    Reply, Request, ServerError, Space, TableDefinition, TableId, TableLayout, TakenBlocks,
};
use serde::de::DeserializeOwned;

use super::local_host::LocalHost;
use super::request;
use super::source::Source;

/// Room for a few dozen leaves, so that regions fill up.
const TABLE_BYTES: u64 = 64 << 10;
/// Frames of one run.
const STEPS_MAX: usize = 64;
const CLIENTS: usize = 4;

/// A compute node: the coordinator's life and number.
type Identity = (u64, ComputeNode);

/// Who has a block that is pinned.
const NOBODY: (Identity, Claim) = ((u64::MAX, ComputeNode(0)), Claim::ALLOCATED);

/// Who has blocks, and since which call.
type By = (ClientId, Claim);
/// What they are.
type Of = (TableId, Space);

struct SteppedNode {
    host: Arc<LocalHost>,
    state: Arc<NodeState>,
    worker: Worker,
    now: MonotonicNs,
    twin: NodeTwin,
}

/// Who has what, by the answers.
#[derive(Default)]
struct NodeTwin {
    identities: BTreeMap<u64, Identity>,
    blocks: BTreeMap<(u32, bool, u32), (Identity, Claim)>,
}

impl SteppedNode {
    fn new() -> Self {
        let host = Arc::new(LocalHost::default());
        let options = NodeOptions { table_memory_bytes: TABLE_BYTES, ..NodeOptions::default() };
        let state = NodeState::new(vec![host.clone()], &options, MonotonicNs(0)).expect("a memory node");
        let worker = Worker::open(&state, 0, "worker").expect("a port");
        Self { host, state, worker, now: MonotonicNs(0), twin: NodeTwin::default() }
    }

    fn frame(&mut self, client: ClientId, frame: &[u8]) -> Vec<u8> {
        self.host.send(client, frame);
        self.now = self.now.plus(Duration::from_millis(2));
        assert_eq!(self.worker.step(self.now, 1), 1, "the request is served");
        assert_eq!(self.state.failure(), None, "the memory node met a bug");
        self.host.receive()
    }

    fn ask(&mut self, client: ClientId, request: &ControlRequest) {
        let mut frame = Vec::new();
        Request::control(&mut frame, request);
        let reply = self.frame(client, &frame);
        match request {
            ControlRequest::Register { .. } => {
                if let Ok(number) = answer(&reply) {
                    self.twin.join(client, (self.host.epoch().0, number));
                }
            }
            ControlRequest::Announce { coordinator, compute_node, .. } => {
                if answer::<()>(&reply).is_ok() {
                    self.twin.join(client, (*coordinator, *compute_node));
                }
            }
            ControlRequest::Allocate { table, space, count } => {
                if let Ok(given) = answer::<Blocks>(&reply) {
                    assert!(given.count > 0 && given.count <= *count, "{given:?} for {request:?}");
                    assert!(
                        *space == Space::Leaves || (given.count == *count && given.first > 0),
                        "{given:?}"
                    );
                    self.twin.give((client, Claim::ALLOCATED), (*table, *space), &[given]);
                }
            }
            ControlRequest::TakeOrphans { table, space, .. } => {
                if let Ok(TakenBlocks { claim, blocks }) = answer(&reply) {
                    self.twin.give((client, claim), (*table, *space), &blocks);
                }
            }
            ControlRequest::Free { table, space, claim, blocks } => {
                if let Ok(count) = answer::<u64>(&reply) {
                    let freed = self.twin.take((client, *claim), (*table, *space), blocks, None);
                    assert_eq!(count, freed, "{request:?}");
                }
            }
            ControlRequest::Pin { table, space, claim, blocks } => {
                if answer::<()>(&reply).is_ok() {
                    self.twin.take((client, *claim), (*table, *space), blocks, Some(NOBODY));
                }
            }
            ControlRequest::Adopt { table, space, blocks, .. } => {
                if let Ok(Adopted { claim, is_done: true }) = answer(&reply) {
                    self.twin.adopt((client, claim), (*table, *space), blocks);
                }
            }
            ControlRequest::Fence { coordinator, compute_node, .. } => {
                if answer(&reply) == Ok(Fenced::Done) {
                    self.twin.end((*coordinator, *compute_node));
                }
            }
            ControlRequest::Map => {
                let map = answer::<PoolMap>(&reply).expect("an answer");
                assert!(map.is_sound(), "{map:?}");
            }
            _ => drop(Reply::decode(&reply).expect("a reply")),
        }
    }
}

impl NodeTwin {
    fn join(&mut self, client: ClientId, identity: Identity) {
        let known = *self.identities.entry(client.0).or_insert(identity);
        assert_eq!(known, identity, "a client is one compute node's");
    }

    fn give(&mut self, (client, claim): By, (table, space): Of, given: &[Blocks]) {
        let owner = *self.identities.get(&client.0).expect("blocks are given to known compute nodes");
        for block in given.iter().flat_map(|run| run.first..run.first + run.count) {
            let had = self.blocks.insert((table.0, space == Space::Meta, block), (owner, claim));
            assert_eq!(had, None, "block {block} of {table:?} is given to {owner:?}");
        }
    }

    /// Takes those of the blocks that are the client's away from it, for somebody else; how many.
    fn take(
        &mut self,
        (client, claim): By,
        (table, space): Of,
        blocks: &[Blocks],
        to: Option<(Identity, Claim)>,
    ) -> u64 {
        let owner = *self.identities.get(&client.0).expect("a known compute node");
        let mut taken = 0;
        for block in blocks.iter().flat_map(|run| run.first..run.first + run.count) {
            let key = (table.0, space == Space::Meta, block);
            if self.blocks.get(&key) == Some(&(owner, claim)) {
                self.blocks.remove(&key);
                self.blocks.extend(to.map(|to| (key, to)));
                taken += 1;
            }
        }
        taken
    }

    /// Makes blocks the client's, also if another compute node has them.
    fn adopt(&mut self, by: By, (table, space): Of, blocks: &[Blocks]) {
        for block in blocks.iter().flat_map(|run| run.first..run.first + run.count) {
            self.blocks.remove(&(table.0, space == Space::Meta, block));
        }
        self.give(by, (table, space), blocks);
    }

    fn leave(&mut self, client: ClientId) {
        if let Some(identity) = self.identities.remove(&client.0)
            && !self.identities.values().any(|other| *other == identity)
        {
            self.end(identity);
        }
    }

    fn end(&mut self, identity: Identity) {
        self.identities.retain(|_, other| *other != identity);
        self.blocks.retain(|_, (owner, _)| *owner != identity);
    }
}

fn answer<T: DeserializeOwned>(reply: &[u8]) -> Result<T, ServerError> {
    Reply::decode(reply).expect("a reply").map(|reply| reply.control().expect("the answer to the request"))
}

pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let mut node = SteppedNode::new();
    let place = PoolPlace { epochs: vec![node.host.epoch().0], index: 0 };
    let block_lines = BlockGeometry::new(8).expect("a geometry").lines();
    let leaf_lines = Geometry::new(8).expect("a geometry").leaf_lines();
    let engines = [
        ("t", EngineKind::ROLEX.table(&[], 1), block_lines),
        ("d", EngineKind::XSTORE.table(&[], 1), leaf_lines),
    ];
    for (name, engine, lines) in engines {
        let definition = TableDefinition::new(name, KeyKind::U64, 8);
        let (block_lines, format_version) = (lines as u16, FORMAT_VERSION);
        let layout = TableLayout { definition, engine, block_lines, format_version };
        node.ask(ClientId(1), &ControlRequest::CreateTable { layout, place: place.clone(), id: None });
    }
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        let client = ClientId(1 + source.below(CLIENTS) as u64);
        match source.below(10) {
            0 => {
                let length_bytes = source.below(80);
                // Not one that is one: the twin would not know of it.
                let mut frame = vec![0xff];
                frame.extend_from_slice(source.take(length_bytes));
                Reply::decode(&node.frame(client, &frame)).expect("a reply").expect_err("no request");
            }
            1 => {
                node.state.note_departed(vec![client]);
                node.twin.leave(client);
            }
            2 => node.ask(client, &ControlRequest::Register { lost: LostNodes::default() }),
            3 | 4 => {
                let (table, space) = (TableId(0), Space::Leaves);
                node.ask(
                    client,
                    &ControlRequest::Allocate { table, space, count: 1 + source.below(9) as u32 },
                );
            }
            5 => {
                let frame = request::of_a_table(TableId(source.below(3) as u32), &mut source);
                // Answered or refused: that there is one reply is what counts.
                drop(Reply::decode(&node.frame(client, &frame)).expect("a reply"));
            }
            _ => node.ask(client, &request::control(&mut source)),
        }
    }
    node.ask(ClientId(1), &ControlRequest::Stats);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let all = (0..request::CONTROL_KINDS as u8).flat_map(|kind| {
        [
            [0, 2, 1, 2, 0, 3, 5, 9, kind, 0, 1, 2, 0, 0, 1, 3],
            [0, 2, 0, 4, 3, 0, 1, 1, 9, kind, 0, 0, 1, 0, 2, 1],
        ]
    });
    all.map(|bytes| bytes.repeat(3)).collect()
}
