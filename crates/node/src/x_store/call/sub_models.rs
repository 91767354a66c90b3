//! Sub-models about a key, with their table entries and the branches that lead to them.

use farsight_index::LeafFormat;
use farsight_index_xstore::server::{ModelPath, ModelSlot, PublishedModel};
use farsight_layout::SUB_MODEL_WORDS;
use farsight_protocol::SubModelsWanted;

use crate::engine::{Call, Executed};
use crate::x_store::Part;

/// Numbers of the top model that are neighbours: aligned so many.
const TOP_NEIGHBOURS: u32 = 32;
/// How far ahead of their sending sub-models are prefetched.
const PREFETCHED: usize = 8;

impl<F: LeafFormat> Part<F> {
    pub(super) fn sub_models(&self, key: u64, wanted: SubModelsWanted, call: &mut Call<'_, '_>) -> Executed {
        let Some(model) = self.models.current() else {
            call.answer.set(0, 0);
            return Executed::default();
        };
        let path = model.path(key);
        let mut next = end_of(&model, path.sub_model);
        let sent = match wanted {
            SubModelsWanted::AllFrom => {
                let (sent, end) = send_all_from(&model, key, call);
                next = end;
                sent
            }
            SubModelsWanted::Path => send_path(&model, &path, call),
            SubModelsWanted::Neighbours => send_neighbours(&model, &path, call),
        };
        call.answer.push_words([next.unwrap_or(0)]);
        call.answer.set(sent, model.generation());
        Executed::default()
    }
}

/// The least key behind a sub-model; `None` if there is none.
fn end_of(model: &PublishedModel, number: u32) -> Option<u64> {
    match model.slot(number)? {
        ModelSlot::SubModel(image) => image.interval.and_then(|(_, high)| high.checked_add(1)),
        // Cut this very moment.
        ModelSlot::Branch(_) => None,
    }
}

/// Appends what `number` stands for, if the reply has room for it and for the word behind. Returns how many
/// it appended.
pub(super) fn send_slot(model: &PublishedModel, number: u32, call: &mut Call<'_, '_>) -> u32 {
    let words = |call: &Call<'_, '_>| (call.room_bytes() / 8).saturating_sub(1);
    match model.slot(number) {
        Some(ModelSlot::SubModel(image)) if 1 + SUB_MODEL_WORDS + image.entries.len() <= words(call) => {
            call.answer.push_sub_model(number, &image.record, &image.entries);
        }
        Some(ModelSlot::Branch(branch)) if 2 * branch.children.len() <= words(call) => {
            call.answer.push_branch(number, &branch.boundaries, &branch.children);
        }
        _ => return 0,
    }
    1
}

/// Appends the key's sub-model, then the branches on the way to it, the innermost first: each names what came
/// before.
fn send_path(model: &PublishedModel, path: &ModelPath, call: &mut Call<'_, '_>) -> u32 {
    send_slot(model, path.sub_model, call) + send_branches(model, path, call)
}

fn send_branches(model: &PublishedModel, path: &ModelPath, call: &mut Call<'_, '_>) -> u32 {
    path.branches.iter().rev().map(|(number, _)| send_slot(model, *number, call)).sum()
}

fn send_neighbours(model: &PublishedModel, path: &ModelPath, call: &mut Call<'_, '_>) -> u32 {
    let innermost = path.branches.last().and_then(|(number, _)| model.slot(*number));
    let numbers: Vec<u32> = if let Some(ModelSlot::Branch(branch)) = innermost {
        branch.children.clone()
    } else {
        let first = path.sub_model / TOP_NEIGHBOURS * TOP_NEIGHBOURS;
        (first..model.top_count().min(first + TOP_NEIGHBOURS)).collect()
    };
    numbers.iter().take(PREFETCHED).for_each(|number| model.prefetch_sub_model(*number));
    let mut sent = 0;
    for (place, number) in numbers.iter().enumerate() {
        if let Some(ahead) = numbers.get(place + PREFETCHED) {
            model.prefetch_sub_model(*ahead);
        }
        sent += send_slot(model, *number, call);
    }
    sent + send_branches(model, path, call)
}

/// Appends the sub-model of `key` and those behind it, and the branches that lead to them. Returns how many
/// it appended, and the key from which to go on.
fn send_all_from(model: &PublishedModel, key: u64, call: &mut Call<'_, '_>) -> (u32, Option<u64>) {
    let mut sent = 0;
    let mut key = key;
    let mut before = ModelPath::default();
    loop {
        let path = model.path(key);
        let is_new = |(place, (number, _)): (usize, &(u32, usize))| {
            before.branches.get(place).is_none_or(|(before, _)| before != number)
        };
        let known = path.branches.iter().enumerate().take_while(|branch| !is_new(*branch)).count();
        let wanted = path.branches[known..].iter().map(|(number, _)| *number).chain([path.sub_model]);
        for number in wanted {
            if send_slot(model, number, call) == 0 {
                return (sent, Some(key));
            }
            sent += 1;
        }
        let Some(next) = end_of(model, path.sub_model) else { return (sent, None) };
        (key, before) = (next, path);
    }
}
