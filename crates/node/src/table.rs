//! A table on this node: what its node knows of it, whatever its engine.

use std::sync::{Arc, PoisonError, RwLock};

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{
    Ack, ErrorCode, INTEGER_BYTES, Operand, PoolPlace, RegionInfo, Request, ServerError, TableId, TableInfo,
    TableLayout, TableStats, WriteOperation, padded,
};

use crate::engine::{HostedStats, HostedTable};
use crate::flexkv::FlexTable;
use crate::rolex::PooledTable;
use crate::table_name::TableName;

/// A table on this node.
pub(crate) struct Table {
    /// What it was made as; its name is `name`, its place is `place`.
    info: TableInfo,
    place: RwLock<PoolPlace>,
    name: Arc<TableName>,
    hosted: Arc<dyn HostedTable>,
}

impl Table {
    /// A table that its engine has made in this layout.
    pub(crate) fn new(
        id: TableId,
        layout: TableLayout,
        place: PoolPlace,
        name: Arc<TableName>,
        hosted: Arc<dyn HostedTable>,
    ) -> Self {
        let TableLayout { definition, engine, block_lines, format_version } = layout;
        let regions = hosted.regions();
        let own = RwLock::new(place.clone());
        let info = TableInfo { id, definition, engine, block_lines, format_version, place, regions };
        Self { info, place: own, name, hosted }
    }

    /// What clients are told of it, under its name now.
    pub(crate) fn info(&self) -> TableInfo {
        let mut info = self.info.clone();
        info.definition.name = self.name.get();
        // Each change is complete, here and below.
        info.place.clone_from(&self.place.read().unwrap_or_else(PoisonError::into_inner));
        info
    }

    /// Its number.
    pub(crate) fn id(&self) -> TableId {
        self.info.id
    }

    /// When its writes are acknowledged, if it says so.
    pub(crate) fn ack(&self) -> Option<Ack> {
        self.info.definition.ack
    }

    /// Its name, which may change.
    pub(crate) fn name(&self) -> &TableName {
        &self.name
    }

    /// Of how many nodes it is.
    pub(crate) fn nodes(&self) -> usize {
        self.info.place.epochs.len()
    }

    /// Has another node in the place of a lost one.
    pub(crate) fn take_in(&self, place: &PoolPlace) {
        self.place.write().unwrap_or_else(PoisonError::into_inner).clone_from(place);
    }

    /// Its regions here.
    pub(crate) fn regions(&self) -> &[RegionInfo] {
        &self.info.regions
    }

    /// What its engine keeps of it.
    pub(crate) fn hosted(&self) -> &Arc<dyn HostedTable> {
        &self.hosted
    }

    /// Its blocks, which compute nodes are given.
    pub(crate) fn blocks(&self) -> Result<&PooledTable, ServerError> {
        self.hosted.blocks().ok_or_else(|| {
            let text =
                format!("table {:?} is of {}: its node gives out its leaves", self.name, self.info.engine);
            ServerError::new(ErrorCode::BadRequest, text)
        })
    }

    /// Its objects, for which compute nodes are given memory.
    pub(crate) fn objects(&self) -> Result<&FlexTable, ServerError> {
        self.hosted.objects().ok_or_else(|| {
            let text = format!("table {:?} is of {}: it has no objects", self.name, self.info.engine);
            ServerError::new(ErrorCode::BadRequest, text)
        })
    }

    /// Refuses a request with values of another size than the table's, or for more of them than an answer of
    /// `room_bytes` carries.
    pub(crate) fn check(&self, request: &Request<'_>, room_bytes: usize) -> Result<(), ServerError> {
        let values = self.info.definition.values;
        match request {
            Request::GetValues { .. }
            | Request::ScanValues { .. }
            | Request::WriteValues { .. }
            | Request::StageValue { .. }
            | Request::WriteStaged { .. }
            | Request::FetchValue { .. }
            | Request::LetGo { .. }
            | Request::LoadValues { .. }
            | Request::LoadLong { .. } => {
                return self.check_values(request);
            }
            Request::Write { operation, .. } if operation.has_value() && values.are_blocks() => {
                let got = format!("a write of values of one size, {operation:?}");
                return Err(self.wrong_kind("values of any length", &got));
            }
            Request::BulkLoad { .. } if values.are_blocks() => {
                return Err(self.wrong_kind("values of any length", "a bulk load of values of one size"));
            }
            _ => {}
        }
        let value_bytes = values.leaf_bytes();
        let (expected, got) = match request {
            Request::Write { operation: WriteOperation::FetchAdd, .. } => (INTEGER_BYTES, value_bytes),
            Request::Write { operation, entries, .. } => {
                (operation.operand_bytes(value_bytes), entries.value_bytes())
            }
            Request::BulkLoad { entries, .. } if !entries.is_empty() => (value_bytes, entries.value_bytes()),
            Request::Get { keys, .. } => {
                let fitting = room_bytes / (8 + padded(value_bytes));
                if keys.len() <= fitting {
                    return Ok(());
                }
                let text = format!(
                    "a reply carries {fitting} values of {value_bytes} B, {} were requested: send fewer keys a call",
                    keys.len()
                );
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
            _ => return Ok(()),
        };
        if got == expected {
            return Ok(());
        }
        let text = match request {
            Request::Write { operation: operation @ WriteOperation::FetchAdd, .. } => format!(
                "table {:?} has values of {value_bytes} B: a {operation:?} wants integers of {expected} B",
                self.name
            ),
            Request::Write { operation, .. } => format!(
                "table {:?} has values of {value_bytes} B: a {operation:?} brings {expected} B, got {got} B",
                self.name
            ),
            _ => format!("table {:?} has values of {expected} B, got values of {got} B", self.name),
        };
        Err(ServerError::new(ErrorCode::WrongValueSize, text))
    }

    /// Refuses a request for values of any length of a table of values of one size, and too long ones.
    fn check_values(&self, request: &Request<'_>) -> Result<(), ServerError> {
        let values = self.info.definition.values;
        if !values.are_blocks() {
            return Err(self.wrong_kind("values of one size", "a request for values of any length"));
        }
        let (operation, entries) = match request {
            Request::WriteValues { operation, entries, .. } => (operation, entries),
            Request::StageValue { piece, .. } | Request::LoadLong { part: piece, .. } => {
                return self.check_stored(piece.value_bytes as usize);
            }
            Request::LoadValues { entries, .. } => {
                return entries.iter().try_for_each(|entry| self.check_stored(entry.value.len()));
            }
            _ => return Ok(()),
        };
        for entry in entries.iter() {
            let Some(Operand { argument, value }) = Operand::of_any_length(*operation, entry.value) else {
                let got = format!("a {operation:?} with an operand of {} B", entry.value.len());
                return Err(self.wrong_kind("values of any length", &got));
            };
            let deadline_bytes = if operation.has_value() { values.deadline_bytes() } else { 0 };
            let Some(value_bytes) = value.len().checked_sub(deadline_bytes) else {
                let got = format!("a {operation:?} without one, {} B in all", entry.value.len());
                return Err(self.wrong_kind("pairs with deadlines", &got));
            };
            // Nothing that is expected or added is longer, but for that of a table of very short values.
            let is_value = *operation == WriteOperation::CompareAndSetValue;
            let longest = value_bytes.max(if is_value { argument.len() } else { 0 });
            let is_sum = *operation == WriteOperation::FetchAdd;
            if is_sum && value_bytes > 0 {
                return Err(self.wrong_kind("pairs without deadlines", "a FetchAdd with one"));
            }
            let bytes = if is_sum { INTEGER_BYTES } else { longest };
            self.check_length(bytes)?;
        }
        Ok(())
    }

    /// Refuses a value of so many bytes if the table has no such values.
    fn check_length(&self, bytes: usize) -> Result<(), ServerError> {
        let values = self.info.definition.values;
        if values.allows(bytes) {
            return Ok(());
        }
        let text = format!("table {:?} has values of {values}, got one of {bytes} B", self.name);
        Err(ServerError::new(ErrorCode::WrongValueSize, text))
    }

    /// The same, of a value behind its deadline, if pairs have any.
    fn check_stored(&self, stored_bytes: usize) -> Result<(), ServerError> {
        match stored_bytes.checked_sub(self.info.definition.values.deadline_bytes()) {
            Some(bytes) => self.check_length(bytes),
            None => Err(self.wrong_kind("pairs with deadlines", "a value that is shorter than one")),
        }
    }

    fn wrong_kind(&self, expected: &str, got: &str) -> ServerError {
        let text = format!("table {:?} has {expected}, got {got}", self.name);
        ServerError::new(ErrorCode::WrongValueSize, text)
    }

    /// The table's statistics at `now`, without its snapshot.
    pub(crate) fn stats(&self, now: MonotonicNs) -> TableStats {
        let HostedStats { leaves, meta, blocks, hash_index, huge_page_bytes, part } = self.hosted.stats(now);
        let (info, snapshot) = (self.info(), None);
        TableStats { info, leaves, meta, blocks, hash_index, huge_page_bytes, snapshot, part }
    }
}
