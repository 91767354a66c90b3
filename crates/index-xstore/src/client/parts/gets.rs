//! Many GETs at several parts.

use farsight_fabric::chained::UnderWay;
use farsight_fabric::{CostClass, QueuePair};
use farsight_index::Answers;

use super::super::leaf::{KEY_LINES, with_value_lines};
use super::super::multi_get::{Nowhere, Predicted};
use super::super::whole_leaves::keys_together;
use super::super::{Access, BATCH, XClient, XStoreError};
use super::{Part, XParts};

impl XParts {
    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// [`XStoreError`]; then `answers` means nothing.
    pub fn multi_get<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), XStoreError> {
        if let [part] = &mut self.parts[..] {
            return part.client.multi_get(&mut queues[0], keys, answers);
        }
        self.share_out_keys(keys);
        if self.parts[0].client.goes_beside_others::<Q>() {
            self.get_side_by_side(queues)?;
        } else {
            for (part, queue) in self.parts.iter_mut().zip(queues) {
                part.client.multi_get(queue, &part.keys, &mut part.answers)?;
            }
        }
        let by_values = self.parts[0].client.by_values;
        self.parts[0].client.reset_answers(answers, keys.len());
        for part in &self.parts {
            for (found, place) in part.answers.iter().zip(&part.places) {
                match found {
                    None => {}
                    Some((value, version)) if by_values => answers.set_value(*place, version, value),
                    Some((value, version)) => {
                        answers.value_mut(*place).copy_from_slice(value);
                        answers.set_version(*place, version);
                    }
                }
            }
        }
        Ok(())
    }

    fn share_out_keys(&mut self, keys: &[u64]) {
        for part in &mut self.parts {
            part.keys.clear();
            part.places.clear();
        }
        for (place, key) in keys.iter().enumerate() {
            let part = self.part_of(*key);
            self.parts[part].keys.push(*key);
            self.parts[part].places.push(place);
        }
    }

    /// Each step at every part, as many keys of each at a time as a queue pair takes together.
    fn get_side_by_side<Q: QueuePair>(&mut self, queues: &mut [Q]) -> Result<(), XStoreError> {
        let are_whole = self.parts[0].client.prefers_whole_leaves::<Q>();
        let together = if are_whole { keys_together::<Q>() } else { BATCH };
        let mut longest = 0;
        for part in &mut self.parts {
            part.client.reset_answers(&mut part.answers, part.keys.len());
            part.client.counters.gets += part.keys.len() as u64;
            longest = longest.max(part.keys.len());
        }
        for first in (0..longest).step_by(together) {
            let with_keys = |part: &&mut Part| first < part.keys.len();
            if are_whole {
                for (part, queue) in
                    self.parts.iter_mut().zip(&mut *queues).filter(|(part, _)| with_keys(part))
                {
                    part.client.begin_whole_leaves(queue, chunk(&part.keys, first, together))?;
                }
                for (part, queue) in
                    self.parts.iter_mut().zip(&mut *queues).filter(|(part, _)| with_keys(part))
                {
                    let keys = chunk(&part.keys, first, together);
                    part.client.end_whole_leaves(queue, keys, &mut part.answers, first)?;
                }
                continue;
            }
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues).filter(|(part, _)| with_keys(part)) {
                let keys = chunk(&part.keys, first, together);
                part.chains = part.client.begin_gets(queue, keys, &mut part.answers, first)?;
            }
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues).filter(|(part, _)| with_keys(part)) {
                let keys = chunk(&part.keys, first, together);
                let chains = part.chains.as_mut();
                part.client.go_on_with_gets(queue, keys, &mut part.answers, first, chains)?;
            }
            for (part, queue) in self.parts.iter_mut().zip(&mut *queues).filter(|(part, _)| with_keys(part)) {
                let keys = chunk(&part.keys, first, together);
                let chains = part.chains.take();
                part.client.end_gets(queue, keys, &mut part.answers, first, chains)?;
            }
        }
        Ok(())
    }
}

fn chunk(keys: &[u64], first: usize, together: usize) -> &[u64] {
    &keys[first..keys.len().min(first + together)]
}

impl XClient {
    /// True if a step of this client's batches is worth doing beside others': where READs wait for another
    /// machine. Over memory the processor is what a batch waits for.
    pub(super) fn goes_beside_others<Q: QueuePair>(&self) -> bool {
        self.access == Access::OneSided && !matches!(Q::GUARANTEES.cost_class, CostClass::Memory)
    }

    /// Predict, resolve, and the READs of a batch's key parts; nothing is under way without a model.
    fn begin_gets<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<Option<UnderWay>, XStoreError> {
        self.pin();
        self.scratch.slow_path.clear();
        let Some(model) = self.model.take() else {
            self.leave_unrouted(keys.len());
            return Ok(None);
        };
        let predicted = Predicted::new(&model, keys, &mut self.refreshes);
        let region = self.cache.region();
        let into = answers.part_mut(first, keys.len());
        let mut steps = self.scratch.steps(self.cache.reader(), keys, into, &predicted);
        let begun = with_value_lines!(self.cache.reader(), VALUE_LINES => {
            UnderWay::begin::<KEY_LINES, VALUE_LINES, Q>(queue, region, keys.len(), &mut steps)
        });
        self.model = Some(model);
        Ok(Some(begun?))
    }

    /// Search, and the READs of values.
    fn go_on_with_gets<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
        chains: Option<&mut UnderWay>,
    ) -> Result<(), XStoreError> {
        let Some(chains) = chains else { return Ok(()) };
        let region = self.cache.region();
        let into = answers.part_mut(first, keys.len());
        let mut steps = self.scratch.steps(self.cache.reader(), keys, into, &Nowhere);
        with_value_lines!(self.cache.reader(), VALUE_LINES => {
            chains.go_on::<KEY_LINES, VALUE_LINES, Q>(queue, region, &mut steps)?;
        });
        Ok(())
    }

    /// Accept; then the slow path.
    fn end_gets<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
        chains: Option<UnderWay>,
    ) -> Result<(), XStoreError> {
        if let Some(chains) = chains {
            let into = answers.part_mut(first, keys.len());
            let mut steps = self.scratch.steps(self.cache.reader(), keys, into, &Nowhere);
            with_value_lines!(self.cache.reader(), VALUE_LINES => {
                chains.end::<KEY_LINES, VALUE_LINES, Q>(queue, &mut steps)?;
            });
        }
        self.finish_batch(queue, keys, answers, first)
    }
}
