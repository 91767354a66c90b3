//! Why words are no top model.

/// Words that a top model cannot be decoded from: what is wrong, at which word, what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The words end too early, or go on after the model.
    #[error("top model: {what} ends at word {expected}, but there are {got} words")]
    Length {
        /// The part that decides the length.
        what: &'static str,
        /// Words that there should be.
        expected: u64,
        /// Words that there are.
        got: u64,
    },
    /// A field has a value that it never has.
    #[error("top model, word {word}: {what}: expected {expected}, got {got:#x}")]
    Field {
        /// The field.
        what: &'static str,
        /// Its place.
        word: usize,
        /// The rule it breaks.
        expected: &'static str,
        /// The value found.
        got: u64,
    },
    /// A bucket of the radix tree begins or ends with a sub-model out of order. So dispatch would not be
    /// monotone, or would leave one out, or name one that does not exist.
    #[error("top model, word {word}: sub-model: expected {expected_min} to {expected_max}, got {got}")]
    Order {
        /// The bucket's place.
        word: usize,
        /// The least sub-model that may come here.
        expected_min: u64,
        /// The greatest.
        expected_max: u64,
        /// The value found.
        got: u64,
    },
    /// A node or a list of the radix tree does not stand where the tree's order puts it.
    #[error("top model, word {word}: offset of a node or list in the array: expected {expected}, got {got}")]
    Offset {
        /// The place of the bucket that names it.
        word: usize,
        /// Where the next node or list begins.
        expected: u64,
        /// The value found.
        got: u64,
    },
}
