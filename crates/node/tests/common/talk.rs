//! A client that speaks the protocol and nothing else: it encodes, calls, decodes.

use farsight_base::LeafNumber;
use farsight_index::EngineKind;
use farsight_layout::{FORMAT_VERSION, Geometry, SubModelRecord};
use farsight_protocol::{
    ControlRequest, Direction, KeyKind, ModelReader, NodeHello, NodeStats, PairsReader, PoolPlace, Reply,
    Request, SentModel, ServerError, SubModelsWanted, TableDefinition, TableId, TableInfo, TableLayout,
    ValueEntries, ValueKind, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};
use serde::de::DeserializeOwned;

use super::local_host::{LocalClient, MESSAGE_BYTES_MAX};

/// A pair: key, version, value.
pub type Pair = (u64, u64, Vec<u8>);

/// A sub-model: number, record, entries.
/// A number, and what stands there: a record with its table, or the boundaries and children of a branch.
#[derive(Clone, PartialEq, Debug)]
pub enum Sent {
    SubModel(u32, SubModelRecord, Vec<u64>),
    Branch(u32, Vec<u64>, Vec<u32>),
}

/// What a lookup said.
pub struct Looked {
    pub generation: u64,
    pub value: Option<Vec<u8>>,
    pub sub_models: Vec<Sent>,
}

/// What a piece of a model is: generation, the reply's count, and the piece.
pub struct ModelPiece<T> {
    pub generation: u64,
    pub count: u32,
    pub body: Vec<T>,
}

pub fn definition(name: &str, value_bytes: u16) -> TableDefinition {
    TableDefinition::new(name, KeyKind::U64, value_bytes)
}

/// The request for an XStore table on a node of this epoch alone.
pub fn create_at(epoch: u64, definition: TableDefinition) -> ControlRequest {
    let lines = Geometry::new(definition.values.leaf_bytes()).map_or(0, |geometry| geometry.leaf_lines());
    let (engine, block_lines) = (EngineKind::XSTORE.table(&[], 1), lines as u16);
    let layout = TableLayout { definition, engine, block_lines, format_version: FORMAT_VERSION };
    ControlRequest::CreateTable { layout, place: PoolPlace { epochs: vec![epoch], index: 0 }, id: None }
}

/// A value that carries its key.
pub fn value_of(key: u64, value_bytes: usize) -> Vec<u8> {
    key.to_le_bytes().into_iter().cycle().take(value_bytes).collect()
}

impl LocalClient {
    pub fn control<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, ServerError> {
        let mut frame = Vec::new();
        Request::control(&mut frame, request);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        Ok(reply.control().expect("an answer of the right type"))
    }

    pub fn create(&self, name: &str, value_bytes: u16) -> TableInfo {
        self.create_as(definition(name, value_bytes)).expect("a new table")
    }

    /// Makes a table on this node alone.
    pub fn create_as(&self, definition: TableDefinition) -> Result<TableInfo, ServerError> {
        let hello: NodeHello = self.control(&ControlRequest::Hello)?;
        self.control(&create_at(hello.epoch, definition))
    }

    pub fn stats(&self) -> NodeStats {
        let stats: NodeStats = self.control(&ControlRequest::Stats).expect("statistics");
        let tables = self.control(&ControlRequest::TableStats { from: TableId(0) });
        NodeStats { tables: tables.expect("statistics of tables"), ..stats }
    }

    pub fn get(&self, table: &TableInfo, keys: &[u64]) -> Result<Vec<Option<Vec<u8>>>, ServerError> {
        let mut frame = Vec::new();
        Request::get(&mut frame, table.id, keys);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        assert_eq!(reply.count as usize, keys.len());
        let mut reader = PairsReader::new(reply.words().unwrap(), table.definition.values.leaf_bytes());
        let values = keys.iter().map(|_| reader.value().unwrap());
        let values = values.map(|(version, value)| (version != 0).then(|| value.to_vec())).collect();
        assert!(reader.rest().is_empty());
        Ok(values)
    }

    /// Pairs, and the key from which to go on.
    pub fn scan(
        &self,
        table: &TableInfo,
        from: u64,
        limit: u16,
    ) -> Result<(Vec<Pair>, Option<u64>), ServerError> {
        let mut frame = Vec::new();
        Request::scan(&mut frame, table.id, Direction::Ascending, from, limit);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        let mut reader = PairsReader::new(reply.words().unwrap(), table.definition.values.leaf_bytes());
        let mut pairs = Vec::new();
        while let Some(pair) = reader.pair().unwrap() {
            pairs.push((pair.key, pair.version, pair.value.to_vec()));
        }
        assert_eq!(reply.count as usize, pairs.len());
        Ok((pairs, Some(reply.argument).filter(|next| *next > 0)))
    }

    pub fn write(
        &self,
        table: TableId,
        operation: WriteOperation,
        entries: &[(u64, LeafNumber, Vec<u8>)],
    ) -> Result<Vec<WriteOutcome>, ServerError> {
        let value_bytes = entries.first().map_or(0, |(_, _, value)| value.len());
        let mut frame = Vec::new();
        Request::begin_write(&mut frame, table, operation, entries.len(), value_bytes);
        for (key, hint, value) in entries {
            let value = if operation.has_value() { value.as_slice() } else { &[] };
            WriteEntries::push(&mut frame, WriteEntry { key: *key, hint: *hint, value });
        }
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        assert_eq!(reply.count as usize, entries.len());
        Ok(reply.outcomes(entries.len()).unwrap().map(|sent| sent.unwrap().outcome).collect())
    }

    /// Puts values that carry their keys.
    pub fn put(&self, table: &TableInfo, keys: &[u64]) -> Vec<WriteOutcome> {
        let value_bytes = table.definition.values.leaf_bytes();
        let entries: Vec<_> =
            keys.iter().map(|key| (*key, LeafNumber::NONE, value_of(*key, value_bytes))).collect();
        let outcomes = entries.chunks(64).map(|piece| self.write(table.id, WriteOperation::Put, piece));
        outcomes.flat_map(Result::unwrap).collect()
    }

    /// Puts values of any length.
    pub fn put_values(&self, table: &TableInfo, pairs: &[(u64, Vec<u8>)]) -> Vec<WriteOutcome> {
        let mut frame = Vec::new();
        Request::begin_write_values(&mut frame, table.id, WriteOperation::Put, pairs.len());
        for (key, value) in pairs {
            ValueEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value });
        }
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply").expect("outcomes");
        reply.outcomes(pairs.len()).unwrap().map(|sent| sent.unwrap().outcome).collect()
    }

    /// Swaps values of any length. What became of the first ones, with the values before.
    pub fn swap_values(
        &self,
        table: &TableInfo,
        pairs: &[(u64, Vec<u8>)],
    ) -> Result<Vec<(WriteOutcome, Vec<u8>)>, ServerError> {
        let mut frame = Vec::new();
        Request::begin_write_values(&mut frame, table.id, WriteOperation::Swap, pairs.len());
        for (key, value) in pairs {
            ValueEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value });
        }
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        let exchanged = reply.exchanged_values(pairs.len()).unwrap().map(Result::unwrap);
        Ok(exchanged.map(|(sent, old)| (sent.outcome, old.to_vec())).collect())
    }

    /// Swaps whose first value before leaves no room for a second outcome are executed as far as the answer
    /// says, and no further.
    pub fn check_full_answers(&self) {
        // Bytes of a reply's header, and of an outcome with a length.
        let (header_bytes, head_bytes) = (16, 16);
        for left_bytes in [8, 16, 24] {
            let length = MESSAGE_BYTES_MAX - header_bytes - head_bytes - left_bytes;
            let values = ValueKind::blocks(length as u32);
            let name = format!("left{left_bytes}");
            let table = self.create_as(TableDefinition { values, ..definition(&name, 8) }).expect("a table");
            self.put_values(&table, &[(1, value_of(1, length))]);
            let swapped = self.swap_values(&table, &[(1, vec![2; 3]), (2, vec![3; 4])]).expect("an answer");
            assert_eq!(swapped[0].1, value_of(1, length));
            let has_room = left_bytes >= head_bytes;
            assert_eq!(swapped.len(), if has_room { 2 } else { 1 }, "{left_bytes} B left");
            let found = self.get_value(&table, 2).expect("an answer").map(|(_, value)| value);
            assert_eq!(found, has_room.then(|| vec![3; 4]), "{left_bytes} B left");
        }
    }

    /// A value of any length, and its version.
    pub fn get_value(&self, table: &TableInfo, key: u64) -> Result<Option<(u64, Vec<u8>)>, ServerError> {
        let mut frame = Vec::new();
        Request::get_values(&mut frame, table.id, &[key]);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        let (version, value) = PairsReader::of_any_length(reply.words().unwrap()).value().unwrap();
        Ok((version != 0).then(|| (version, value.to_vec())))
    }

    pub fn lookup(&self, table: &TableInfo, key: u64, known: u32) -> Result<Looked, ServerError> {
        let mut frame = Vec::new();
        Request::lookup(&mut frame, table.id, key, 0, known);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        let mut reader = PairsReader::new(reply.words().unwrap(), table.definition.values.leaf_bytes());
        let (version, value) = reader.value().unwrap();
        let sub_models = sent(ModelReader::new(reader.rest()));
        assert_eq!(reply.count as usize, sub_models.len());
        let value = (version != 0).then(|| value.to_vec());
        Ok(Looked { generation: reply.argument, value, sub_models })
    }

    pub fn top_model(&self, table: TableId, first_word: u32) -> Result<ModelPiece<u64>, ServerError> {
        let mut frame = Vec::new();
        Request::top_model(&mut frame, table, first_word, 0);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        let body = reply.words().unwrap().iter().collect();
        Ok(ModelPiece { generation: reply.argument, count: reply.count, body })
    }

    /// Sub-models about a key, and the key behind them.
    pub fn sub_models(
        &self,
        table: TableId,
        key: u64,
        wanted: SubModelsWanted,
    ) -> Result<(ModelPiece<Sent>, u64), ServerError> {
        let mut frame = Vec::new();
        Request::sub_models(&mut frame, table, key, wanted, 0);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        let mut words = reply.words().unwrap();
        let next = words.take_last("the key behind").unwrap();
        let body = sent(ModelReader::new(words));
        Ok((ModelPiece { generation: reply.argument, count: reply.count, body }, next))
    }

    /// Sends one piece of a bulk load; returns the pairs loaded so far.
    pub fn load_piece(
        &self,
        table: &TableInfo,
        piece: u32,
        last: bool,
        keys: &[u64],
    ) -> Result<u64, ServerError> {
        let value_bytes = table.definition.values.leaf_bytes();
        let mut frame = Vec::new();
        Request::begin_bulk_load(&mut frame, table.id, last, piece, keys.len(), value_bytes);
        for key in keys {
            let value = value_of(*key, value_bytes);
            WriteEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value });
        }
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        assert_eq!(reply.count as usize, keys.len());
        Ok(reply.argument)
    }

    /// Loads ascending keys.
    pub fn load(&self, table: &TableInfo, keys: &[u64]) {
        let pieces = keys.len().div_ceil(200).max(1);
        for (number, piece) in keys.chunks(200).enumerate() {
            self.load_piece(table, number as u32, number + 1 == pieces, piece).expect("a piece");
        }
    }
}

fn sent(mut reader: ModelReader<'_>) -> Vec<Sent> {
    let mut all = Vec::new();
    while let Some(part) = reader.read().unwrap() {
        all.push(match part {
            SentModel::SubModel(sent) => {
                Sent::SubModel(sent.number, sent.record, sent.entries.iter().collect())
            }
            SentModel::Branch(sent) => {
                Sent::Branch(sent.number, sent.boundaries.iter().collect(), sent.children().collect())
            }
        });
    }
    all
}
