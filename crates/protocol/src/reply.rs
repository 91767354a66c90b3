//! Replies: what a server's processor answers.
//!
//! Header, 16 B: error code 8 (zero: none), flags 8, reserved 16, count 32, argument 64; then the answer's
//! words, or an error's UTF-8 text.

use farsight_layout::{SUB_MODEL_WORDS, SubModelRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::request::{decode_whole, padded};
use crate::wire::{Words, put, put_padded};
use crate::{
    BRANCH_CHILDREN_MAX, DecodeError, ErrorCode, HEADER_BYTES, SentAddress, SentOutcome, ServerError,
};

/// Writes one reply.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    frame: &'a mut Vec<u8>,
}

impl<'a> ReplyWriter<'a> {
    /// Begins a reply in `frame`, replacing what it held.
    pub fn new(frame: &'a mut Vec<u8>) -> Self {
        frame.clear();
        frame.resize(HEADER_BYTES, 0);
        Self { frame }
    }

    /// A copy of what was written.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.frame.clone()
    }

    /// Sets the header's count and argument.
    pub fn set(&mut self, count: u32, argument: u64) {
        self.frame[4..8].copy_from_slice(&count.to_le_bytes());
        self.frame[8..16].copy_from_slice(&argument.to_le_bytes());
    }

    /// Appends a value with its version; an absent one is version zero.
    #[inline]
    pub fn push_value(&mut self, version: u64, value: &[u8]) {
        put(self.frame, version);
        put_padded(self.frame, value);
    }

    /// Appends a pair.
    #[inline]
    pub fn push_pair(&mut self, key: u64, version: u64, value: &[u8]) {
        put(self.frame, key);
        self.push_value(version, value);
    }

    /// Appends a value of any length with its version, and its length before it.
    #[inline]
    pub fn push_long_value(&mut self, version: u64, value: &[u8]) {
        put(self.frame, version);
        put(self.frame, value.len() as u64);
        put_padded(self.frame, value);
    }

    /// Appends the version of a value that is too long for a reply, in place of the value: it is fetched.
    pub fn push_elsewhere(&mut self, version: u64) {
        put(self.frame, version);
        put(self.frame, LENGTH_ELSEWHERE);
    }

    /// Appends a pair whose value is too long for a reply.
    pub fn push_pair_elsewhere(&mut self, key: u64, version: u64) {
        put(self.frame, key);
        self.push_elsewhere(version);
    }

    /// Appends a pair whose value has any length.
    #[inline]
    pub fn push_long_pair(&mut self, key: u64, version: u64, value: &[u8]) {
        put(self.frame, key);
        self.push_long_value(version, value);
    }

    /// Appends a write's outcome.
    #[inline]
    pub fn push_outcome(&mut self, outcome: SentOutcome) {
        put(self.frame, outcome.to_word());
    }

    /// Appends a write's outcome, with the value before: zeros without one.
    pub fn push_exchanged(&mut self, outcome: SentOutcome, old: Option<&[u8]>, value_bytes: usize) {
        self.push_outcome(outcome);
        let begin = self.frame.len();
        self.frame.resize(begin + padded(value_bytes), 0);
        if let Some(old) = old {
            self.frame[begin..][..value_bytes].copy_from_slice(old);
        }
    }

    /// Appends a write's outcome, with the value before and its length; none without one.
    pub fn push_exchanged_value(&mut self, outcome: SentOutcome, old: Option<&[u8]>) {
        self.push_outcome(outcome);
        let old = old.unwrap_or_default();
        put(self.frame, old.len() as u64);
        put_padded(self.frame, old);
    }

    /// Bytes of an outcome with a value before of so many.
    #[must_use]
    pub fn exchanged_value_bytes(value_bytes: usize) -> usize {
        16 + padded(value_bytes)
    }

    /// Appends words.
    pub fn push_words(&mut self, words: impl IntoIterator<Item = u64>) {
        for word in words {
            put(self.frame, word);
        }
    }

    /// Appends a sub-model with its part of the translation table.
    pub fn push_sub_model(&mut self, number: u32, record: &SubModelRecord, entries: &[u64]) {
        put(self.frame, u64::from(number));
        self.push_words(record.to_words());
        let begin = self.frame.len();
        self.frame.resize(begin + 8 * entries.len(), 0);
        for (bytes, entry) in self.frame[begin..].as_chunks_mut::<8>().0.iter_mut().zip(entries) {
            *bytes = entry.to_le_bytes();
        }
    }

    /// Appends a branch: the least key of each child but the first, and the children's numbers.
    ///
    /// # Panics
    /// If there is not one boundary less than children.
    pub fn push_branch(&mut self, number: u32, boundaries: &[u64], children: &[u32]) {
        assert_eq!(boundaries.len() + 1, children.len(), "boundaries between children");
        put(self.frame, u64::from(number) | (children.len() as u64) << u32::BITS);
        self.push_words(boundaries.iter().copied());
        let pair = |pair: &[u32]| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << u32::BITS;
        self.push_words(children.chunks(2).map(pair));
    }

    /// Appends a control answer in postcard.
    ///
    /// # Panics
    /// Never: control answers always serialize.
    pub fn push_control(&mut self, answer: &impl Serialize) {
        self.frame.extend_from_slice(&postcard::to_stdvec(answer).expect("a control answer serializes"));
    }

    /// Bytes of `entry` in a control answer.
    ///
    /// # Panics
    /// Never: control answers always serialize.
    #[must_use]
    pub fn control_bytes(entry: &impl Serialize) -> usize {
        postcard::experimental::serialized_size(entry).expect("a control answer serializes")
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// True while nothing follows the header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frame.len() == HEADER_BYTES
    }

    /// Makes the reply a refusal.
    pub fn refuse(self, error: &ServerError) {
        self.frame.truncate(HEADER_BYTES);
        self.frame.fill(0);
        self.frame[0] = error.code as u8;
        self.frame.extend_from_slice(error.text.as_bytes());
    }
}

/// A received reply: what the server did not refuse.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The header's count.
    pub count: u32,
    /// The header's argument.
    pub argument: u64,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Decodes a frame.
    ///
    /// # Errors
    /// The outer one for bytes that are no reply, the inner one for a refusal.
    pub fn decode(frame: &'a [u8]) -> Result<Result<Self, ServerError>, DecodeError> {
        let Some((head, body)) = frame.split_at_checked(HEADER_BYTES) else {
            let got = format!("{} B", frame.len());
            return Err(DecodeError::new("a reply's header", 0, format!("{HEADER_BYTES} B"), got));
        };
        let unused = [head[1], head[2], head[3]];
        if unused != [0; 3] {
            return Err(DecodeError::new("a reply's flags", 1, "zeros".into(), format!("{unused:?}")));
        }
        if head[0] != 0 {
            let code = ErrorCode::from_number(head[0]).ok_or_else(|| {
                DecodeError::new("a reply's error code", 0, "a known code".into(), head[0].to_string())
            })?;
            return Ok(Err(ServerError::new(code, String::from_utf8_lossy(body))));
        }
        let count = u32::from_le_bytes(head[4..8].try_into().expect("four bytes"));
        let argument = u64::from_le_bytes(head[8..].try_into().expect("eight bytes"));
        Ok(Ok(Self { count, argument, body }))
    }

    /// The body as words.
    ///
    /// # Errors
    /// If it is no whole number of words.
    pub fn words(&self) -> Result<Words<'a>, DecodeError> {
        Words::new("a reply's words", self.body)
    }

    /// The outcomes of a write of `count` entries.
    ///
    /// # Errors
    /// If there are more or fewer, or one is none.
    pub fn outcomes(
        &self,
        count: usize,
    ) -> Result<impl Iterator<Item = Result<SentOutcome, DecodeError>> + use<'a>, DecodeError> {
        let words = self.words()?;
        if words.len() != count {
            let got = format!("{} words", words.len());
            return Err(DecodeError::new("a write's outcomes", HEADER_BYTES, format!("{count} words"), got));
        }
        Ok(words.iter().enumerate().map(|(index, word)| sent_outcome(HEADER_BYTES + 8 * index, word)))
    }

    /// The outcomes of a write of `count` entries, each with the value before, of `value_bytes`. That is
    /// zeros unless the outcome says that there was one.
    ///
    /// # Errors
    /// As [`Reply::outcomes`].
    pub fn exchanged(
        &self,
        count: usize,
        value_bytes: usize,
    ) -> Result<impl Iterator<Item = Result<(SentOutcome, &'a [u8]), DecodeError>> + use<'a>, DecodeError>
    {
        let (expected, entry_bytes) = (count * (8 + padded(value_bytes)), 8 + padded(value_bytes));
        if self.body.len() != expected {
            let (expected, got) = (format!("{expected} B"), format!("{} B", self.body.len()));
            return Err(DecodeError::new(
                "a write's outcomes and values before",
                HEADER_BYTES,
                expected,
                got,
            ));
        }
        Ok(self.body.chunks_exact(entry_bytes).enumerate().map(move |(index, entry)| {
            let word = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"));
            let outcome = sent_outcome(HEADER_BYTES + entry_bytes * index, word)?;
            Ok((outcome, &entry[8..8 + value_bytes]))
        }))
    }

    /// The outcomes of the first writes of values of any length, each with the value before: `count` of them,
    /// of up to `sent` that were sent. The value is empty unless the outcome says that there was one.
    ///
    /// # Errors
    /// If there are none, or more than were sent.
    pub fn exchanged_values(
        &self,
        sent: usize,
    ) -> Result<impl Iterator<Item = Result<(SentOutcome, &'a [u8]), DecodeError>> + use<'a>, DecodeError>
    {
        let (count, mut values) = (self.count as usize, PairsReader::of_any_length(self.words()?));
        if !(1..=sent).contains(&count) {
            return Err(DecodeError::new("a write's outcomes", 4, format!("1 to {sent}"), count.to_string()));
        }
        let left = move |values: PairsReader<'a>| 8 * values.rest().len();
        let whole = self.body.len();
        Ok((1..=count).map(move |number| {
            let offset = HEADER_BYTES + whole - left(values);
            let (word, old) = values.value()?;
            if number == count && left(values) > 0 {
                let got = format!("{} B more", left(values));
                return Err(DecodeError::new("a write's outcomes", offset, "their end".into(), got));
            }
            Ok((sent_outcome(offset, word)?, old))
        }))
    }

    /// Where so many keys stand.
    ///
    /// # Errors
    /// If it says that of more or fewer.
    pub fn addresses(
        &self,
        count: usize,
    ) -> Result<impl Iterator<Item = SentAddress> + use<'a>, DecodeError> {
        let words = self.words()?;
        let expected = SentAddress::WORDS * count;
        if words.len() != expected {
            let (expected, got) = (format!("{expected} words"), format!("{} words", words.len()));
            return Err(DecodeError::new("where keys stand", HEADER_BYTES, expected, got));
        }
        let of = move |index: usize| [0, 1].map(|word| words.get(SentAddress::WORDS * index + word));
        Ok((0..count).map(move |index| SentAddress::from_words(of(index))))
    }

    /// A control answer.
    ///
    /// # Errors
    /// If the body is not one of type `T`.
    pub fn control<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        decode_whole("a control answer", self.body)
    }
}

/// The outcome in the word at `offset` of a reply.
#[inline]
fn sent_outcome(offset: usize, word: u64) -> Result<SentOutcome, DecodeError> {
    SentOutcome::from_word(word).ok_or_else(|| {
        DecodeError::new("a write's outcome", offset, "an outcome".into(), format!("{word:#018x}"))
    })
}

/// The length that says that a value is too long for a reply.
const LENGTH_ELSEWHERE: u64 = u64::MAX;

/// Reads values or pairs off a reply's body.
#[derive(Clone, Copy, Debug)]
pub struct PairsReader<'a> {
    words: Words<'a>,
    /// Bytes of each value; `None` if each says its own.
    value_bytes: Option<usize>,
}

impl<'a> PairsReader<'a> {
    /// Over `words`, with values of `value_bytes`.
    #[must_use]
    pub fn new(words: Words<'a>, value_bytes: usize) -> Self {
        Self { words, value_bytes: Some(value_bytes) }
    }

    /// Over `words`, with values of any length.
    #[must_use]
    pub fn of_any_length(words: Words<'a>) -> Self {
        Self { words, value_bytes: None }
    }

    /// The next value and its version.
    ///
    /// # Errors
    /// If the words end before it does, or it is elsewhere.
    pub fn value(&mut self) -> Result<(u64, &'a [u8]), DecodeError> {
        let (version, value) = self.value_or_elsewhere()?;
        let value = value.ok_or_else(|| {
            let expected = "a value that a reply carries".to_owned();
            DecodeError::new("a value", HEADER_BYTES, expected, "one that is fetched".into())
        })?;
        Ok((version, value))
    }

    /// The next version and its value; no value if it is too long for a reply, and has to be fetched.
    ///
    /// # Errors
    /// If the words end before it does.
    pub fn value_or_elsewhere(&mut self) -> Result<(u64, Option<&'a [u8]>), DecodeError> {
        let Some(value_bytes) = self.value_bytes else { return self.long_value() };
        let words = self.words.take("a value", 1 + padded(value_bytes) / 8)?;
        Ok((words.get(0), Some(&words.bytes()[8..8 + value_bytes])))
    }

    fn long_value(&mut self) -> Result<(u64, Option<&'a [u8]>), DecodeError> {
        let head = self.words.take("a value's version and length", 2)?;
        let (version, length) = (head.get(0), head.get(1));
        if length == LENGTH_ELSEWHERE {
            return Ok((version, None));
        }
        let left_bytes = 8 * self.words.len() as u64;
        if length > left_bytes {
            let expected = format!("up to {left_bytes} B");
            return Err(DecodeError::new("a value's length", HEADER_BYTES, expected, length.to_string()));
        }
        let value = self.words.take("a value", padded(length as usize) / 8)?;
        Ok((version, Some(&value.bytes()[..length as usize])))
    }

    /// The next pair; `None` at the end.
    ///
    /// # Errors
    /// If the words end within it, or its value is elsewhere.
    pub fn pair(&mut self) -> Result<Option<SentPair<'a>>, DecodeError> {
        let Some(key) = self.key()? else { return Ok(None) };
        let (version, value) = self.value()?;
        Ok(Some(SentPair { key, version, value }))
    }

    /// The next key, with what [`PairsReader::value_or_elsewhere`] reads of its pair; `None` at the end.
    ///
    /// # Errors
    /// If the words end within the pair.
    #[expect(clippy::type_complexity, reason = "a pair, but for its value")]
    pub fn pair_or_elsewhere(&mut self) -> Result<Option<(u64, u64, Option<&'a [u8]>)>, DecodeError> {
        let Some(key) = self.key()? else { return Ok(None) };
        let (version, value) = self.value_or_elsewhere()?;
        Ok(Some((key, version, value)))
    }

    fn key(&mut self) -> Result<Option<u64>, DecodeError> {
        if self.words.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.words.take("a pair's key", 1)?.get(0)))
    }

    /// The words behind what was read.
    #[must_use]
    pub fn rest(self) -> Words<'a> {
        self.words
    }
}

/// What was sent of a model below its top.
#[derive(Clone, Copy, Debug)]
pub enum SentModel<'a> {
    /// A sub-model.
    SubModel(SentSubModel<'a>),
    /// A branch.
    Branch(SentBranch<'a>),
}

/// A sub-model as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct SentSubModel<'a> {
    /// Its number, unchecked.
    pub number: u32,
    /// Its record, unchecked.
    pub record: SubModelRecord,
    /// Its part of the translation table, as many entries as the record has leaves, unchecked.
    pub entries: Words<'a>,
}

/// A branch as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct SentBranch<'a> {
    /// Its number, unchecked.
    pub number: u32,
    /// The least key of each child but the first, unchecked.
    pub boundaries: Words<'a>,
    children: Words<'a>,
}

impl<'a> SentBranch<'a> {
    /// The children's numbers, one more than boundaries, unchecked.
    pub fn children(&self) -> impl Iterator<Item = u32> + use<'a> {
        let numbers = self.children.iter().flat_map(|pair| [pair as u32, (pair >> u32::BITS) as u32]);
        numbers.take(self.boundaries.len() + 1)
    }
}

/// A pair as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct SentPair<'a> {
    /// The key.
    pub key: u64,
    /// The version.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
}

/// Reads sub-models and branches off a reply's body.
#[derive(Clone, Copy, Debug)]
pub struct ModelReader<'a> {
    words: Words<'a>,
}

impl<'a> ModelReader<'a> {
    /// Over `words`.
    #[must_use]
    pub fn new(words: Words<'a>) -> Self {
        Self { words }
    }

    /// What has not been read.
    #[must_use]
    pub fn rest(&self) -> Words<'a> {
        self.words
    }

    /// The next sub-model or branch; `None` at the end.
    ///
    /// # Errors
    /// If the words end within it, or a branch has more children than the format allows.
    pub fn read(&mut self) -> Result<Option<SentModel<'a>>, DecodeError> {
        if self.words.is_empty() {
            return Ok(None);
        }
        let word = self.words.take("a sub-model's number", 1)?.get(0);
        let number = word as u32;
        let children = (word >> u32::BITS) as usize;
        if children > 0 {
            if children > BRANCH_CHILDREN_MAX {
                let expected = format!("1 to {BRANCH_CHILDREN_MAX}");
                return Err(DecodeError::new("a branch's children", 4, expected, children.to_string()));
            }
            let boundaries = self.words.take("a branch's boundaries", children - 1)?;
            let children = self.words.take("a branch's children", children.div_ceil(2))?;
            return Ok(Some(SentModel::Branch(SentBranch { number, boundaries, children })));
        }
        let words = self.words.take("a sub-model's record", SUB_MODEL_WORDS)?;
        let record = SubModelRecord::from_words([words.get(0), words.get(1), words.get(2)]);
        let entries = self.words.take("a sub-model's table", record.leaf_count as usize)?;
        Ok(Some(SentModel::SubModel(SentSubModel { number, record, entries })))
    }
}
