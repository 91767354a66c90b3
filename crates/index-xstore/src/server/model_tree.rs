//! The sub-models of one generation: those that the top model numbers, and below each that has outgrown its
//! bound a small B-tree of *branches*.
//!
//! Invariants:
//! - the sub-models below a branch tile the keys that the branch covers, in the order of its children;
//! - the top model's own numbers never change their keys: such a slot holds a sub-model or a branch;
//! - a branch has [`BRANCH_CHILDREN_MAX`] children at most, and a path [`BRANCH_LEVELS_MAX`] branches;
//! - of several sub-models in the place of one the first gets its number, unless that is the top model's. So
//!   what a client knows by the number stays nearly right.
//!
//! Only the trainer changes a tree, under the write lock of its model. Who marks sub-models holds the read
//! lock from the first look until the mark is set. So a mark meets the tree before a change or after it, and
//! the trainer hands marks of a sub-model that it replaces to all that take its place.

use std::ops::RangeInclusive;
use std::sync::Arc;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_layout::SubModelRecord;
use farsight_protocol::{BRANCH_CHILDREN_MAX, BRANCH_LEVELS_MAX};

/// Children that a branch keeps when it is split: room for a third more.
const CHILDREN_KEPT: usize = BRANCH_CHILDREN_MAX * 3 / 4;

/// The keys dispatched to a sub-model, both ends included; `None` if there are none.
pub(super) type Interval = Option<(u64, u64)>;

/// One sub-model and its part of the translation table, ready to be sent; by default of no keys.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SubModelImage {
    /// The keys dispatched to it, both ends included; `None` if there are none.
    pub interval: Interval,
    /// The sub-model.
    pub record: SubModelRecord,
    /// Its table: the words of one `farsight_layout::TableEntry` a leaf.
    pub entries: Box<[u64]>,
}

/// Where keys go on that one number stands for: child `i` from boundary `i - 1` on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Branch {
    /// The least key of each child but the first, ascending.
    pub boundaries: Vec<u64>,
    /// The children's numbers: sub-models, or further branches.
    pub children: Vec<u32>,
}

impl Branch {
    fn child_index(&self, key: u64) -> usize {
        self.boundaries.partition_point(|boundary| *boundary <= key)
    }

    /// Children `range` of it, as a branch of their own.
    fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self {
            boundaries: self.boundaries[range.start..range.end - 1].to_vec(),
            children: self.children[range].to_vec(),
        }
    }
}

/// What a number stands for.
#[derive(Clone, Debug)]
pub enum ModelSlot {
    /// A sub-model.
    SubModel(Arc<SubModelImage>),
    /// A branch.
    Branch(Arc<Branch>),
}

/// The way from one of the top model's numbers down to a key's sub-model.
#[derive(Clone, Debug, Default)]
pub struct ModelPath {
    /// The branches, from the outermost on: the number of each, and which child comes next.
    pub branches: Vec<(u32, usize)>,
    /// The number of the sub-model.
    pub sub_model: u32,
}

/// The sub-models of one generation.
pub(super) struct ModelTree {
    slots: Vec<ModelSlot>,
    /// A bit for each number: its sub-model waits to be trained again.
    marks: Vec<AtomicU64>,
    /// Numbers that nothing names any more.
    free: Vec<u32>,
    sub_models: u32,
    /// Sub-models below branches.
    below: u32,
    /// Numbers that stand for something else since they were last looked at, children before their branches.
    changed: Vec<u32>,
}

impl ModelTree {
    /// A tree of the sub-models of each of the top model's numbers, which tile its keys.
    pub(super) fn new(pieces: Vec<Vec<SubModelImage>>) -> Self {
        let nothing_yet = ModelSlot::Branch(Arc::default());
        let slots = vec![nothing_yet; pieces.len()];
        let (marks, free, changed) = (Vec::new(), Vec::new(), Vec::new());
        let mut tree = Self { slots, marks, free, sub_models: 0, below: 0, changed };
        tree.make_room_for_marks();
        for (number, images) in (0..).zip(pieces) {
            tree.sub_models += 1;
            tree.put(&ModelPath { branches: Vec::new(), sub_model: number }, images);
        }
        tree.changed = Vec::new();
        tree
    }

    /// The numbers that there are: all below.
    pub(super) fn numbers(&self) -> u32 {
        self.slots.len() as u32
    }

    /// What stands for something else since this was last called.
    pub(super) fn take_changed(&mut self) -> Vec<(u32, ModelSlot)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|number| (number, self.slots[number as usize].clone())).collect()
    }

    fn set(&mut self, number: u32, slot: ModelSlot) {
        self.slots[number as usize] = slot;
        self.changed.push(number);
    }

    /// Sub-models, and those of them that are below branches.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.sub_models, self.below)
    }

    /// What `number` stands for; `None` if it was never given out.
    pub(super) fn slot(&self, number: u32) -> Option<&ModelSlot> {
        self.slots.get(number as usize)
    }

    /// The sub-model of this number; `None` if it is a branch, or none.
    pub(super) fn sub_model(&self, number: u32) -> Option<&Arc<SubModelImage>> {
        match self.slot(number)? {
            ModelSlot::SubModel(image) => Some(image),
            ModelSlot::Branch(_) => None,
        }
    }

    /// The way down from one of the top model's numbers to the sub-model of `key`.
    pub(super) fn path(&self, top_number: u32, key: u64) -> ModelPath {
        let mut path = ModelPath { branches: Vec::new(), sub_model: top_number };
        while let ModelSlot::Branch(branch) = &self.slots[path.sub_model as usize] {
            let index = branch.child_index(key);
            path.branches.push((path.sub_model, index));
            path.sub_model = branch.children[index];
        }
        path
    }

    /// Marks the sub-models of the top model's numbers `top_numbers` that meet `low..=high`. Tells `marked`
    /// of each that was not marked before.
    pub(super) fn mark(
        &self,
        top_numbers: RangeInclusive<u32>,
        (low, high): (u64, u64),
        marked: &mut impl FnMut(u32),
    ) {
        for number in top_numbers {
            match &self.slots[number as usize] {
                ModelSlot::SubModel(_) => self.mark_one(number, marked),
                ModelSlot::Branch(branch) => {
                    for child in branch.child_index(low)..=branch.child_index(high) {
                        self.mark(branch.children[child]..=branch.children[child], (low, high), marked);
                    }
                }
            }
        }
    }

    fn mark_one(&self, number: u32, marked: &mut impl FnMut(u32)) {
        let bit = 1 << (number % u64::BITS);
        // AcqRel: the trainer that takes the mark sees the change that it stands for. Partner: `take_mark`.
        let before = self.marks[(number / u64::BITS) as usize].fetch_or(bit, Ordering::AcqRel);
        if before & bit == 0 {
            marked(number);
        }
    }

    /// Takes the mark of `number` away; true if there was one.
    pub(super) fn take_mark(&self, number: u32) -> bool {
        let bit = 1 << (number % u64::BITS);
        // AcqRel: the leaves are collected after this, and a mark that comes later is set anew. Partner:
        // `mark_one`.
        self.marks[(number / u64::BITS) as usize].fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Puts `images`, which tile the keys of sub-model `number`, in its place. Returns their numbers.
    ///
    /// # Panics
    /// If a path gets longer than [`BRANCH_LEVELS_MAX`]. There is a whole training long before: it comes when
    /// as many sub-models are below branches as the top model has.
    pub(super) fn replace(&mut self, top_number: u32, number: u32, images: Vec<SubModelImage>) -> Vec<u32> {
        let low = images.first().and_then(|image| image.interval).map_or(0, |(low, _)| low);
        let path = self.path(top_number, low);
        assert_eq!(path.sub_model, number, "the sub-model of {low}");
        self.put(&path, images)
    }

    fn put(&mut self, path: &ModelPath, images: Vec<SubModelImage>) -> Vec<u32> {
        assert!(path.branches.len() < BRANCH_LEVELS_MAX - 1, "{} branches on a path", path.branches.len());
        let (number, is_below) = (path.sub_model, !path.branches.is_empty());
        let keeps_number = images.len() == 1 || is_below;
        self.sub_models += images.len() as u32 - 1;
        self.below += images.len() as u32 - u32::from(keeps_number);
        let boundaries: Vec<u64> =
            images[1..].iter().filter_map(|image| image.interval).map(|(low, _)| low).collect();
        assert_eq!(boundaries.len() + 1, images.len(), "each of several sub-models has keys");
        let numbers: Vec<u32> = (0..)
            .zip(images)
            .map(|(index, image)| {
                let slot = ModelSlot::SubModel(Arc::new(image));
                if index == 0 && keeps_number {
                    self.set(number, slot);
                    number
                } else {
                    self.allocate(slot)
                }
            })
            .collect();
        if numbers.len() > 1 {
            let children = Branch { boundaries, children: numbers.clone() };
            match path.branches.split_last() {
                Some((&(parent, index), above)) => self.insert(above, parent, index, children),
                None => self.put_branch(&[], number, children),
            }
        }
        numbers
    }

    /// Puts `children` in the place of child `index` of the branch `number`, which is below the branches
    /// `above`.
    fn insert(&mut self, above: &[(u32, usize)], number: u32, index: usize, children: Branch) {
        let ModelSlot::Branch(old) = &self.slots[number as usize] else { panic!("{number} is a branch") };
        let mut branch = Branch::clone(old);
        branch.boundaries.splice(index..index, children.boundaries);
        branch.children.splice(index..=index, children.children);
        self.put_branch(above, number, branch);
    }

    /// Makes `number` this branch, which is cut into several if it has too many children: beside it if there
    /// is a branch above, otherwise below it.
    fn put_branch(&mut self, above: &[(u32, usize)], number: u32, branch: Branch) {
        let count = branch.children.len();
        if count <= BRANCH_CHILDREN_MAX {
            self.set(number, ModelSlot::Branch(Arc::new(branch)));
            return;
        }
        let mut cut = Branch::default();
        let mut start = 0;
        while start < count {
            let rest = count - start;
            // Two last ones of equal size rather than a full one and a remnant.
            let taken = if rest <= BRANCH_CHILDREN_MAX { rest } else { CHILDREN_KEPT.min(rest.div_ceil(2)) };
            let part = ModelSlot::Branch(Arc::new(branch.part(start..start + taken)));
            if start > 0 {
                cut.boundaries.push(branch.boundaries[start - 1]);
            }
            let keeps_number = start == 0 && !above.is_empty();
            cut.children.push(if keeps_number { number } else { self.allocate(part.clone()) });
            if keeps_number {
                self.set(number, part);
            }
            start += taken;
        }
        match above.split_last() {
            Some((&(parent, index), above)) => self.insert(above, parent, index, cut),
            None => self.put_branch(&[], number, cut),
        }
    }

    /// Puts `image` in the place of sub-model `number` and of the next one of the same branch, whose keys
    /// follow.
    pub(super) fn merge(&mut self, path: &ModelPath, image: SubModelImage) {
        let &(parent, index) = path.branches.last().expect("a sub-model below a branch");
        let ModelSlot::Branch(old) = &self.slots[parent as usize] else { panic!("{parent} is a branch") };
        let mut branch = Branch::clone(old);
        branch.boundaries.remove(index);
        let gone = branch.children.remove(index + 1);
        self.set(path.sub_model, ModelSlot::SubModel(Arc::new(image)));
        self.set(parent, ModelSlot::Branch(Arc::new(branch)));
        // Of no keys: it may still wait to be trained.
        self.set(gone, ModelSlot::SubModel(Arc::default()));
        self.free.push(gone);
        self.sub_models -= 1;
        self.below -= 1;
    }

    /// The sub-model behind that of `path` in the same branch, with its number.
    pub(super) fn next_in_branch(&self, path: &ModelPath) -> Option<(u32, &Arc<SubModelImage>)> {
        let &(parent, index) = path.branches.last()?;
        let Some(ModelSlot::Branch(branch)) = self.slot(parent) else { return None };
        let next = *branch.children.get(index + 1)?;
        self.sub_model(next).map(|image| (next, image))
    }

    fn allocate(&mut self, slot: ModelSlot) -> u32 {
        if let Some(number) = self.free.pop() {
            self.set(number, slot);
            return number;
        }
        let number = u32::try_from(self.slots.len()).expect("fewer sub-models than leaves");
        self.slots.push(slot);
        self.changed.push(number);
        self.make_room_for_marks();
        number
    }

    fn make_room_for_marks(&mut self) {
        self.marks.resize_with(self.slots.len().div_ceil(u64::BITS as usize), AtomicU64::default);
    }
}
