//! Filling the cache: a new generation's top model, and all sub-models in advance.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::Lane;
use farsight_model::TopModel;
use farsight_protocol::{DecodeError, ModelReader, Reply, Request, SubModelsWanted};

use super::{Access, XClient, XStoreError};
#[cfg(injected)]
use crate::injected;

/// Words of a top model at most: 64 MiB, far above what any table needs.
const TOP_WORDS_MAX: usize = 8 << 20;
/// Times that fetching a top model begins again because a newer one came.
const RESTARTS_MAX: usize = 8;

/// True if the parts of a reply that names this generation belong to the model of that one. Numbers of two
/// generations mean different keys.
pub(super) fn are_of_one_generation(sent: u64, known: u64) -> bool {
    #[cfg(injected)]
    if injected::GENERATIONS_MIXED.is_injected() {
        return true;
    }
    sent == known
}

/// One call, to its end.
pub(super) fn call<'r, Q: QueuePair>(
    queue: &mut Q,
    request: &[u8],
    reply: &'r mut Vec<u8>,
) -> Result<Reply<'r>, XStoreError> {
    Lane::new(queue).block_on(async |slot| slot.call(request, reply).await)??;
    Ok(Reply::decode(reply)??)
}

impl XClient {
    /// Fetches the top model of `generation` or a newer one and makes it current, unless another session did.
    pub(super) fn fetch_generation<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        generation: u64,
    ) -> Result<(), XStoreError> {
        if self.cache.generation() >= generation {
            self.pin();
            return Ok(());
        }
        let mut words: Vec<u64> = Vec::new();
        let mut fetched = 0;
        let mut restarts = 0;
        loop {
            Request::top_model(&mut self.request, self.cache.table().id, words.len() as u32, fetched);
            let reply = call(queue, &self.request, &mut self.reply)?;
            let (total, piece) = (reply.count as usize, reply.words()?);
            if reply.argument != fetched && !words.is_empty() {
                // Trained anew between two pieces: begin again with the newer one. A server that keeps this
                // up is not believed: the old generation stays, and what it lacks is looked up by calls.
                restarts += 1;
                if restarts > RESTARTS_MAX {
                    return Ok(());
                }
                words.clear();
                fetched = 0;
                continue;
            }
            fetched = reply.argument;
            if total > TOP_WORDS_MAX || words.len() + piece.len() > total || (piece.is_empty() && total > 0) {
                let got = format!("{} words after {} of {total}", piece.len(), words.len());
                return Err(
                    DecodeError::new("a top model", 0, format!("up to {TOP_WORDS_MAX} words"), got).into()
                );
            }
            words.extend(piece.iter());
            if words.len() == total {
                break;
            }
        }
        if words.is_empty() {
            return Ok(());
        }
        let top = TopModel::from_words(&words).map_err(|error| {
            DecodeError::new("a top model", 0, "a model that can be evaluated".into(), error.to_string())
        })?;
        self.cache.install(fetched, top)?;
        self.pin();
        Ok(())
    }

    /// Fetches the whole model and table in advance, a page a call; nothing where the server searches.
    ///
    /// # Errors
    /// [`XStoreError`].
    pub fn prefill<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        if self.access == Access::Rpc {
            return Ok(());
        }
        self.fetch_generation(queue, u64::MAX)?;
        let Some(model) = self.model.clone() else { return Ok(()) };
        let mut key = 0;
        loop {
            let (table, all) = (self.cache.table().id, SubModelsWanted::AllFrom);
            Request::sub_models(&mut self.request, table, key, all, model.generation());
            let reply = call(queue, &self.request, &mut self.reply)?;
            if !are_of_one_generation(reply.argument, model.generation()) {
                // Trained anew meanwhile: what is missing comes on demand.
                return Ok(());
            }
            let mut words = reply.words()?;
            let next = words.take_last("the key behind sub-models")?;
            let mut sent = ModelReader::new(words);
            while let Some(part) = sent.read()? {
                self.cache.install_part(&model, &part)?;
                self.counters.sub_models_fetched += 1;
            }
            // A server that does not go on is not asked again and again: what is missing comes on demand.
            if next <= key {
                return Ok(());
            }
            key = next;
        }
    }
}
