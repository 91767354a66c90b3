//! Lines of the meta region from the memory node that holds it, by a call.

use std::ops::Range;

use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair};
use farsight_protocol::{
    Blocks, ControlRequest, DecodeError, ErrorCode, Reply, Request, ServerError, Space, TableId,
};

use super::LineSource;
use crate::cache::fetch::META_NODE;

/// Lines that are requested at once, so that calls are rare; of a small region a part, so that several
/// trainers get some.
const LINES_A_CALL: u32 = 4096;
const SHARE_OF_A_CALL: u32 = 32;

/// Lines of one table's meta region, from the coordinator.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorLines {
    table: TableId,
    /// Lines that are requested at once.
    lines_a_call: u32,
}

/// Why there are no more lines.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinesError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The coordinator refused.
    #[error("the coordinator refused: {0}")]
    Refused(#[from] ServerError),
    /// The coordinator's answer is not understood.
    #[error("the coordinator's answer is unintelligible: {0}")]
    Decode(#[from] DecodeError),
}

impl CoordinatorLines {
    /// Lines of this table, whose meta region has so many.
    #[must_use]
    pub fn new(table: TableId, region_lines: u32) -> Self {
        Self { table, lines_a_call: LINES_A_CALL.min(region_lines / SHARE_OF_A_CALL) }
    }

    async fn ask<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        count: u32,
    ) -> Result<Option<Range<u32>>, LinesError> {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        Request::control(
            &mut request,
            &ControlRequest::Allocate { table: self.table, space: Space::Meta, count },
        );
        slot.call(META_NODE, &request, &mut reply).await?;
        match Reply::decode(&reply)? {
            Ok(reply) => {
                let Blocks { first, count } = reply.control()?;
                Ok(Some(first..first.saturating_add(count)))
            }
            Err(refused) if matches!(refused.code, ErrorCode::RegionFull | ErrorCode::NoMemory) => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }
}

impl LineSource for CoordinatorLines {
    type Error = LinesError;

    async fn more<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        lines: u32,
    ) -> Result<Option<Range<u32>>, LinesError> {
        let plenty = lines.max(self.lines_a_call);
        match self.ask(slot, plenty).await? {
            None if plenty > lines => self.ask(slot, lines).await,
            given => Ok(given),
        }
    }
}
