//! Keys as sessions take them: the integers that stand for keys of eight bytes, or bytes of any length.
//!
//! Invariant: a session on a table of one kind refuses keys of the other kind. The engine tells them apart.

use farsight_index::{Answers, EngineError, OldValues, Writes};
use farsight_protocol::WriteOutcome;

use crate::attached::{Operations, Read};
use crate::{ReadError, Session};

mod sealed {
    use super::{
        Answers, EngineError, OldValues, Operations, Read, ReadError, Session, WriteOutcome, Writes,
    };

    pub trait Sealed: Copy {
        fn get(session: &mut Session, key: Self, value: &mut [u8]) -> Result<Option<u64>, ReadError>;

        fn multi_get(
            engine: &mut dyn Operations,
            knows: u64,
            keys: &[Self],
            answers: &mut Answers,
        ) -> Read<()>;

        fn write(
            engine: &mut dyn Operations,
            writes: Writes<'_, Self>,
            outcomes: &mut Vec<WriteOutcome>,
            old_values: &mut OldValues,
        ) -> Result<(), EngineError>;

        /// Room for the keys of a batch, empty.
        fn take_room(session: &mut Session) -> Vec<Self>;

        /// Gives it back.
        fn keep_room(session: &mut Session, room: Vec<Self>);

        /// Bytes of the key, if keys have any length; 0 of an integer.
        fn bytes(self) -> usize;
    }
}

pub(crate) use sealed::Sealed;

/// A key as sessions take it. The trait is sealed: `u64` and `&[u8]` are such keys.
pub trait SessionKey: Sealed {}

impl SessionKey for u64 {}
impl SessionKey for &[u8] {}

impl Sealed for u64 {
    #[inline(always)]
    fn get(session: &mut Session, key: Self, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        session.get_integer(key, value)
    }

    #[inline(always)]
    fn multi_get(engine: &mut dyn Operations, knows: u64, keys: &[Self], answers: &mut Answers) -> Read<()> {
        engine.multi_get(knows, keys, answers)
    }

    #[inline(always)]
    fn write(
        engine: &mut dyn Operations,
        writes: Writes<'_, Self>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        engine.write(writes, outcomes, old_values)
    }

    fn take_room(session: &mut Session) -> Vec<Self> {
        session.take_integers()
    }

    fn keep_room(session: &mut Session, room: Vec<Self>) {
        session.keep_integers(room);
    }

    fn bytes(self) -> usize {
        0
    }
}

impl Sealed for &[u8] {
    fn get(session: &mut Session, key: Self, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        session.get_single(key, value)
    }

    fn multi_get(engine: &mut dyn Operations, knows: u64, keys: &[Self], answers: &mut Answers) -> Read<()> {
        engine.multi_get_byte_keys(knows, keys, answers)
    }

    fn write(
        engine: &mut dyn Operations,
        writes: Writes<'_, Self>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        engine.write_byte_keys(writes, outcomes, old_values)
    }

    /// They are their callers', so no room for them outlives a call.
    fn take_room(_: &mut Session) -> Vec<Self> {
        Vec::new()
    }

    fn keep_room(_: &mut Session, _: Vec<Self>) {}

    fn bytes(self) -> usize {
        self.len()
    }
}
