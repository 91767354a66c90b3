//! What operations share of moving words: many of a memory node's with few doorbells, and one doorbell for
//! what a batch has posted to each.

use farsight_base::{LINE_BYTES, Line, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};

use crate::{LeafPlace, NODES_MAX};

/// Lines that one verb moves.
const LINES_PER_VERB: usize = 64;

/// READs `lines` whole lines of `node` from `from` on. Nothing else may be under way.
pub(crate) async fn read_words<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    node: usize,
    from: RemoteAddress,
    lines: usize,
) -> Result<Vec<u64>, FabricError> {
    let mut words = Vec::with_capacity(lines * WORDS_PER_LINE);
    let mut buffer = [Line::ZERO; LINES_PER_VERB];
    let mut next = 0;
    while next < lines {
        let first = next;
        let mut posted = [0; farsight_fabric::lane::VERBS_PER_NODE_MAX];
        for (verb, count) in posted.iter_mut().enumerate().take(slot.verbs()) {
            *count = LINES_PER_VERB.min(lines - next);
            if *count == 0 {
                break;
            }
            slot.post_read(node, verb, behind(from, next), *count, ReadMode::Plain);
            next += *count;
        }
        slot.completed().await;
        debug_assert!(first < next, "an operation has at least one verb");
        for (verb, count) in posted.into_iter().enumerate().take_while(|(_, count)| *count > 0) {
            slot.take_read(node, verb, &mut buffer[..count])?;
            words.extend(buffer[..count].iter().flat_map(|line| line.0));
        }
    }
    Ok(words)
}

/// WRITEs `words`, whole lines, to `node` from `to` on, and waits until they stand there. Nothing else may be
/// under way.
pub(crate) async fn write_words<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    node: usize,
    to: RemoteAddress,
    words: &[u64],
) -> Result<(), FabricError> {
    let mut pieces = words.chunks(LINES_PER_VERB * WORDS_PER_LINE).enumerate().peekable();
    while pieces.peek().is_some() {
        let mut posted = 0;
        for (piece, words) in pieces.by_ref().take(slot.verbs()) {
            slot.post_write(node, posted, behind(to, piece * LINES_PER_VERB), words);
            posted += 1;
        }
        slot.completed().await;
        for verb in 0..posted {
            slot.take_word(node, verb)?;
        }
    }
    Ok(())
}

/// The memory nodes that a batch has posted to.
#[derive(Default)]
pub(crate) struct PostedTo([bool; NODES_MAX]);

impl PostedTo {
    pub(crate) fn note(&mut self, place: LeafPlace) {
        self.0[place.node()] = true;
    }

    /// Rings for all of them, then waits for all of them.
    pub(crate) fn ring<Q: QueuePair>(self, queues: &mut [Q]) -> Result<(), FabricError> {
        self.doorbells(queues)?;
        self.drain(queues)
    }

    /// Rings for all of them.
    pub(crate) fn doorbells<Q: QueuePair>(&self, queues: &mut [Q]) -> Result<(), FabricError> {
        self.each(queues, Q::doorbell)
    }

    /// Waits for all of them.
    pub(crate) fn drain<Q: QueuePair>(&self, queues: &mut [Q]) -> Result<(), FabricError> {
        self.each(queues, Q::drain)
    }

    fn each<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        act: impl FnMut(&mut Q) -> Result<(), FabricError>,
    ) -> Result<(), FabricError> {
        let posted = queues.iter_mut().zip(self.0).filter(|(_, is_posted)| *is_posted);
        posted.map(|(queue, _)| queue).try_for_each(act)
    }
}

fn behind(address: RemoteAddress, lines: usize) -> RemoteAddress {
    RemoteAddress { offset_bytes: address.offset_bytes + (lines * LINE_BYTES) as u64, ..address }
}
