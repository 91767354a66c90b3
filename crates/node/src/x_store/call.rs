//! Requests of an XStore table, one a file.

mod bulk_load;
mod get;
mod lookup;
mod scan;
mod sub_models;
mod top_model;
mod write;

use farsight_index::LeafFormat;
use farsight_protocol::{Request, ServerError};

use super::Part;
use crate::bulk_load::Piece;
use crate::engine::{Call, Executed};

impl<F: LeafFormat> Part<F> {
    /// Executes one request.
    pub(super) fn execute_request(
        &self,
        request: &Request<'_>,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        match *request {
            Request::Get { keys, .. } => self.get(keys, call),
            Request::Scan { direction, from, limit, .. } => self.scan(direction, from, limit, call),
            Request::Write { operation, entries, .. } => Ok(self.write(operation, entries, call)),
            Request::Lookup { key, known, .. } => self.lookup(key, known, call),
            Request::TopModel { first_word, .. } => Ok(self.top_model(first_word, call)),
            Request::SubModels { key, wanted, .. } => Ok(self.sub_models(key, wanted, call)),
            Request::BulkLoad { last, piece, entries, .. } => {
                self.bulk_load(Piece::of_one_size(piece, last, entries), call)
            }
            Request::GetValues { .. }
            | Request::ScanValues { .. }
            | Request::WriteValues { .. }
            | Request::StageValue { .. }
            | Request::WriteStaged { .. }
            | Request::FetchValue { .. }
            | Request::LetGo { .. }
            | Request::LoadValues { .. }
            | Request::LoadLong { .. } => {
                unreachable!("such requests are of tables of blocks")
            }
            Request::Control(_) | Request::Delegate { .. } | Request::Find { .. } => {
                unreachable!("the node executes control requests, and refuses what compute nodes do")
            }
        }
    }
}
