//! Bytes read as a recipe: numbers and choices off the front, zeros once they have run out.

/// What is left of an input.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `length_bytes`, or what is left of them.
    pub(super) fn take(&mut self, length_bytes: usize) -> &'a [u8] {
        let (head, tail) = self.bytes.split_at(length_bytes.min(self.bytes.len()));
        self.bytes = tail;
        head
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn number(&mut self, length_bytes: usize) -> u64 {
        let mut word = [0; 8];
        let taken = self.take(length_bytes);
        word[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(word)
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    pub(super) fn half(&mut self) -> u32 {
        self.number(4) as u32
    }

    pub(super) fn word(&mut self) -> u64 {
        self.number(8)
    }

    /// A number below `bound`, which is not zero and at most 65536.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let length_bytes = if bound <= 256 { 1 } else { 2 };
        self.number(length_bytes) as usize % bound
    }

    /// A key: usually one of a few neighbours, so that keys meet; now and then any.
    pub(super) fn key(&mut self) -> u64 {
        match self.byte() {
            0xff => u64::MAX,
            0xfe => u64::MAX - 1,
            0xfd => 1 << 63,
            0xfc => self.word(),
            small => u64::from(small % 64),
        }
    }

    /// `length_bytes` bytes that follow from one of the source's.
    pub(super) fn value(&mut self, length_bytes: usize) -> Vec<u8> {
        let first = self.byte();
        (0..length_bytes).map(|index| first.wrapping_add(index as u8)).collect()
    }
}
