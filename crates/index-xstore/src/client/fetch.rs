//! Values that the server finds: as many as a reply carries by one call, those that none carries in pieces.
//!
//! Invariant: what comes in pieces is of one version, for the server keeps a copy of it meanwhile. An answer
//! gets its version when its value is whole.
//!
//! Protocol of keys: the first call requests all. As many as its reply has room for the later ones request,
//! several of which are in flight.
//!
//! Protocol of a value in pieces: the first call's reply says how long it is, and brings as much of it as a
//! reply carries. All others bring as much, so the client knows their offsets.
//!
//! Values are fetched side by side. The calls of all are in flight together, and execute in their order. What
//! is left of the oldest value is requested first. The server has copies of as many as were begun. So no more
//! are begun than [`SIDE_BY_SIDE_BYTES`] hold of values as long as the last one, and one before any came. A
//! value for which the server has no memory beside others is requested once more when they are there.

use std::collections::VecDeque;

use farsight_fabric::QueuePair;
use farsight_fabric::lane::Lane;
use farsight_index::Answers;
use farsight_protocol::{DecodeError, ErrorCode, HEADER_BYTES, PairsReader, Reply, Request};

use super::write::CALLS_IN_FLIGHT;
use super::{XClient, XStoreError};

/// Bytes of values that are fetched side by side, or one value.
const SIDE_BY_SIDE_BYTES: usize = 8 << 20;

/// While more calls than these are in flight no others are sent: so that several share a doorbell.
const REFILLED_FROM: usize = CALLS_IN_FLIGHT / 2;

/// What is kept between batches.
#[derive(Debug, Default)]
pub(super) struct FetchBuffers {
    /// Ranges of the batch that no call asks for yet.
    left: VecDeque<(usize, usize)>,
    /// Places in the batch of values that no reply carries, and their keys.
    elsewhere: Vec<(usize, u64)>,
}

/// What came of a value.
pub(super) enum Arrival<'r> {
    /// It is there, and so long.
    Begin(usize),
    /// These bytes of it, behind so many others.
    Piece(usize, &'r [u8]),
    /// It is whole, and of this version.
    Whole(u64),
}

/// A piece that came.
struct FetchedPiece<'r> {
    version: u64,
    value_bytes: usize,
    piece: &'r [u8],
}

impl<'r> FetchedPiece<'r> {
    /// Decodes one of a value of so many bytes at most.
    fn decode(frame: &'r [u8], value_bytes_max: usize) -> Result<Self, XStoreError> {
        let reply = Reply::decode(frame)??;
        let (version, piece) = PairsReader::of_any_length(reply.words()?).value()?;
        let value_bytes = usize::try_from(reply.argument).unwrap_or(usize::MAX);
        // What is not whole goes on: a piece that brings nothing would not.
        let is_sound = value_bytes <= value_bytes_max
            && piece.len() <= value_bytes
            && (!piece.is_empty() || value_bytes == 0);
        if is_sound {
            return Ok(Self { version, value_bytes, piece });
        }
        let expected = format!("a piece of a value of up to {value_bytes_max} B");
        let got = format!("{} B of {value_bytes} B", piece.len());
        Err(DecodeError::new("a piece of a value", 8, expected, got).into())
    }

    /// Refuses a later piece that does not follow.
    fn check(&self, version: u64, value_bytes: usize, piece_bytes: usize) -> Result<(), DecodeError> {
        if (self.version, self.value_bytes, self.piece.len()) == (version, value_bytes, piece_bytes) {
            return Ok(());
        }
        let expected = format!("{piece_bytes} B of version {version}, {value_bytes} B");
        let got = format!("{} B of version {}, {} B", self.piece.len(), self.version, self.value_bytes);
        Err(DecodeError::new("a later piece of a value", HEADER_BYTES, expected, got))
    }
}

/// A value that was begun.
#[derive(Clone, Copy, Default, Debug)]
struct Coming {
    /// Its server knows it under this number.
    number: u64,
    version: u64,
    value_bytes: usize,
    /// Bytes of each piece but the last.
    piece_bytes: usize,
    /// Zero until its first piece is there.
    asked_bytes: usize,
    got_bytes: usize,
    is_done: bool,
    /// The server had no memory for it beside others.
    is_put_off: bool,
}

/// Values that are fetched side by side: a window of the wanted ones, each at its place modulo the window.
struct FetchWindow {
    wanted: usize,
    /// All before were answered.
    done: usize,
    begun: usize,
    coming: [Coming; CALLS_IN_FLIGHT],
    /// The calls in flight, each by its value: the first, in slot `first`, and those behind it.
    asked: [usize; CALLS_IN_FLIGHT],
    first: usize,
    in_flight: usize,
    /// Values that may be under way at once.
    side_by_side: usize,
}

impl FetchWindow {
    fn new(wanted: usize) -> Self {
        Self {
            wanted,
            done: 0,
            begun: 0,
            coming: [Coming::default(); CALLS_IN_FLIGHT],
            asked: [0; CALLS_IN_FLIGHT],
            first: 0,
            in_flight: 0,
            side_by_side: 1,
        }
    }

    fn of(&mut self, value: usize) -> &mut Coming {
        &mut self.coming[value % CALLS_IN_FLIGHT]
    }

    /// The value to request next: of those begun the oldest of which something was not requested, else a new
    /// one. `new_number` gives that a number.
    fn next(&mut self, new_number: impl FnOnce() -> u64) -> Option<usize> {
        if self.in_flight == CALLS_IN_FLIGHT {
            return None;
        }
        let coming = &self.coming;
        let open = (self.done..self.begun).find(|value| {
            let value = &coming[value % CALLS_IN_FLIGHT];
            value.asked_bytes > 0 && value.asked_bytes < value.value_bytes
        });
        if open.is_some() {
            return open;
        }
        if self.in_flight == 0 && self.done < self.begun {
            // Everything else is there, or was put off behind it.
            let oldest = self.done;
            *self.of(oldest) = Coming { number: new_number(), is_put_off: true, ..Coming::default() };
            return Some(oldest);
        }
        if self.begun == self.wanted || self.begun - self.done >= self.side_by_side {
            return None;
        }
        let begun = self.begun;
        *self.of(begun) = Coming { number: new_number(), ..Coming::default() };
        self.begun += 1;
        Some(begun)
    }

    /// Takes the reply to the oldest call. Hands what came to `take`.
    fn receive(
        &mut self,
        reply: &[u8],
        longest: usize,
        mut take: impl FnMut(usize, Arrival<'_>),
    ) -> Result<(), XStoreError> {
        let value = self.asked[self.first];
        let is_alone = self.begun - self.done == 1 || self.of(value).is_put_off;
        let coming = self.of(value);
        let received = FetchedPiece::decode(reply, longest);
        if let Err(XStoreError::Server(refused)) = &received
            && matches!(refused.code, ErrorCode::NoMemory | ErrorCode::OutOfResources)
            && coming.asked_bytes == 0
            && !is_alone
        {
            self.side_by_side = 1;
            return Ok(());
        }
        let FetchedPiece { version, value_bytes, piece } = received?;
        if coming.asked_bytes == 0 {
            let piece_bytes = piece.len();
            let number = coming.number;
            *coming = Coming { number, version, value_bytes, piece_bytes, ..Coming::default() };
            coming.asked_bytes = piece_bytes;
            coming.is_done = version == 0;
            if version > 0 {
                take(value, Arrival::Begin(value_bytes));
                self.side_by_side = (SIDE_BY_SIDE_BYTES / value_bytes.max(1)).clamp(1, CALLS_IN_FLIGHT);
            }
        } else {
            let expected_bytes = coming.piece_bytes.min(coming.value_bytes - coming.got_bytes);
            let fetched = FetchedPiece { version, value_bytes, piece };
            fetched.check(coming.version, coming.value_bytes, expected_bytes)?;
        }
        let coming = self.of(value);
        if coming.version > 0 {
            take(value, Arrival::Piece(coming.got_bytes, piece));
            coming.got_bytes += piece.len();
            if coming.got_bytes == coming.value_bytes {
                coming.is_done = true;
                take(value, Arrival::Whole(coming.version));
            }
        }
        while self.done < self.begun && self.coming[self.done % CALLS_IN_FLIGHT].is_done {
            self.done += 1;
        }
        Ok(())
    }
}

impl XClient {
    /// The values of `keys`, found by the server, into `answers` from number `first` on. Each reply answers a
    /// key at least, so there are no more calls than keys.
    pub(super) fn get_values_by_call<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        let mut buffers = std::mem::take(&mut self.fetching);
        buffers.elsewhere.clear();
        let got = self
            .get_carried(queue, keys, (answers, first), &mut buffers)
            .and_then(|()| self.get_elsewhere(queue, &buffers.elsewhere, answers));
        self.fetching = buffers;
        got
    }

    /// The values that replies carry. Notes the others.
    fn get_carried<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        (answers, first): (&mut Answers, usize),
        buffers: &mut FetchBuffers,
    ) -> Result<(), XStoreError> {
        let FetchBuffers { left, elsewhere } = buffers;
        left.clear();
        left.push_back((0, keys.len()));
        let mut asked = [(0, 0); CALLS_IN_FLIGHT];
        let (mut oldest, mut in_flight) = (0, 0);
        // Until a reply says how many it carries, one call has all.
        let (mut together, mut in_flight_max) = (keys.len(), 1);
        let mut got = Ok(());
        loop {
            let before = in_flight;
            let room = if before > REFILLED_FROM { 0 } else { in_flight_max - before };
            for _ in 0..room {
                let Some((begin, end)) = left.pop_front().filter(|_| got.is_ok()) else { break };
                let cut = end.min(begin + together);
                if cut < end {
                    left.push_front((cut, end));
                }
                let slot = (oldest + in_flight) % CALLS_IN_FLIGHT;
                Request::get_values(&mut self.request, self.cache.table().id, &keys[begin..cut]);
                queue.post_call(slot, &self.request)?;
                asked[slot] = (begin, cut);
                in_flight += 1;
            }
            if in_flight == 0 {
                return got;
            }
            if in_flight > before {
                queue.doorbell()?;
            }
            Lane::new(queue).await_reply(oldest, &mut self.reply)?;
            let (begin, end) = asked[oldest];
            (oldest, in_flight) = ((oldest + 1) % CALLS_IN_FLIGHT, in_flight - 1);
            if got.is_err() {
                continue;
            }
            match take_carried(&self.reply, &keys[begin..end], (answers, first + begin), elsewhere) {
                Ok(answered) => {
                    in_flight_max = CALLS_IN_FLIGHT;
                    if begin + answered < end {
                        left.push_front((begin + answered, end));
                        together = answered;
                    }
                }
                Err(error) => got = Err(error),
            }
        }
    }

    /// Values that no reply carries.
    fn get_elsewhere<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        wanted: &[(usize, u64)],
        answers: &mut Answers,
    ) -> Result<(), XStoreError> {
        self.fetch_values(
            queue,
            wanted.len(),
            |value| wanted[value].1,
            |value, fetched| {
                let index = wanted[value].0;
                match fetched {
                    Arrival::Begin(value_bytes) => answers.begin_value(index, value_bytes),
                    Arrival::Piece(offset, piece) => answers.put_piece(index, offset, piece),
                    Arrival::Whole(version) => answers.set_version(index, version),
                }
            },
        )
    }

    /// The value of `key`, into `value`, in place of what that holds; returns its version. The server finds
    /// it.
    pub(super) fn fetch_value<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>, XStoreError> {
        value.clear();
        let mut found = None;
        self.fetch_values(
            queue,
            1,
            |_| key,
            |_, fetched| match fetched {
                Arrival::Begin(value_bytes) => value.reserve(value_bytes),
                Arrival::Piece(_, piece) => value.extend_from_slice(piece),
                Arrival::Whole(version) => found = Some(version),
            },
        )?;
        Ok(found)
    }

    /// Fetches `wanted` values, whose keys `key_of` says, side by side. Pieces of each come in order.
    fn fetch_values<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        wanted: usize,
        key_of: impl Fn(usize) -> u64,
        mut take: impl FnMut(usize, Arrival<'_>),
    ) -> Result<(), XStoreError> {
        let (table, values) = (self.cache.table().id, self.cache.table().definition.values);
        let longest = values.bytes_max() + values.deadline_bytes();
        let mut window = FetchWindow::new(wanted);
        let mut fetched = Ok(());
        // Each turn brings a reply, or sends nothing any more.
        loop {
            let before = window.in_flight;
            let is_refilled = fetched.is_ok() && window.in_flight <= REFILLED_FROM;
            while is_refilled && let Some(value) = window.next(|| self.cache.next_number()) {
                let coming = window.of(value);
                let (number, offset) = (coming.number, coming.asked_bytes);
                coming.asked_bytes += coming.piece_bytes;
                Request::fetch_value(&mut self.request, table, number, key_of(value), offset as u64);
                let slot = (window.first + window.in_flight) % CALLS_IN_FLIGHT;
                queue.post_call(slot, &self.request)?;
                window.asked[slot] = value;
                window.in_flight += 1;
            }
            if window.in_flight == 0 {
                return fetched;
            }
            if window.in_flight > before {
                queue.doorbell()?;
            }
            Lane::new(queue).await_reply(window.first, &mut self.reply)?;
            if fetched.is_ok() {
                fetched = window.receive(&self.reply, longest, &mut take);
            }
            (window.first, window.in_flight) = ((window.first + 1) % CALLS_IN_FLIGHT, window.in_flight - 1);
        }
    }
}

/// Puts the values of a reply in their places, from number `first` on. Notes those that it does not carry.
/// Returns how many keys it answers: one at least.
fn take_carried(
    frame: &[u8],
    keys: &[u64],
    (answers, first): (&mut Answers, usize),
    elsewhere: &mut Vec<(usize, u64)>,
) -> Result<usize, XStoreError> {
    let reply = Reply::decode(frame)??;
    let answered = reply.count as usize;
    if !(1..=keys.len()).contains(&answered) {
        let expected = format!("1 to {} values", keys.len());
        return Err(DecodeError::new("a get's answer", 4, expected, answered.to_string()).into());
    }
    let mut values = PairsReader::of_any_length(reply.words()?);
    for (index, key) in (first..).zip(&keys[..answered]) {
        match values.value_or_elsewhere()? {
            (0, _) => {}
            (version, Some(value)) => answers.set_value(index, version, value),
            (_, None) => elsewhere.push((index, *key)),
        }
    }
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use farsight_base::prng::SplitMix64;
    use farsight_protocol::{ReplyWriter, ServerError};

    use super::*;

    const PIECE_BYTES: usize = 24;
    const VALUE_BYTES_MAX: usize = 20 * PIECE_BYTES;

    /// What a server answers that has so many copies at most: of values that take more than a reply.
    struct Server {
        values: Vec<Vec<u8>>,
        copies: HashSet<u64>,
        copies_max: usize,
        refused: usize,
    }

    impl Server {
        /// Sends a piece. Nothing is stored of an empty value.
        fn reply(&mut self, value: usize, number: u64, offset: usize) -> Vec<u8> {
            let mut frame = Vec::new();
            let mut writer = ReplyWriter::new(&mut frame);
            let stored = &self.values[value];
            let is_copied = stored.len() > PIECE_BYTES;
            if is_copied && offset == 0 && self.copies.len() == self.copies_max {
                self.refused += 1;
                writer.refuse(&ServerError::new(ErrorCode::NoMemory, "no memory"));
                return frame;
            }
            assert!(!is_copied || self.copies.insert(number) == (offset == 0), "a copy that there is not");
            let end = stored.len().min(offset + PIECE_BYTES);
            if end == stored.len() {
                self.copies.remove(&number);
            }
            writer.push_long_value(u64::from(!stored.is_empty()) * (1 + value as u64), &stored[offset..end]);
            writer.set(1, stored.len() as u64);
            frame
        }
    }

    /// Fetches all that a server has, whose replies come in the order of the requests. Returns what came, and
    /// how often a request was refused.
    fn fetch(rng: &mut SplitMix64, copies_max: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, usize) {
        let values: Vec<Vec<u8>> = (0..rng.below(40))
            .map(|_| {
                let length = rng.below(4).min(1) * rng.below(VALUE_BYTES_MAX as u64);
                (0..length).map(|_| rng.next_u64() as u8).collect()
            })
            .collect();
        let mut got = vec![Vec::new(); values.len()];
        let mut whole = vec![0; values.len()];
        let mut server = Server { values, copies: HashSet::new(), copies_max, refused: 0 };
        let mut window = FetchWindow::new(server.values.len());
        let mut numbers = 0;
        let mut in_flight = VecDeque::new();
        loop {
            while let Some(value) = window.next(|| {
                numbers += 1;
                numbers
            }) {
                let coming = window.of(value);
                in_flight.push_back((value, coming.number, coming.asked_bytes));
                coming.asked_bytes += coming.piece_bytes;
                window.asked[(window.first + window.in_flight) % CALLS_IN_FLIGHT] = value;
                window.in_flight += 1;
            }
            let Some((value, number, offset)) = in_flight.pop_front() else { break };
            let reply = server.reply(value, number, offset);
            let received = window.receive(&reply, VALUE_BYTES_MAX, |value, arrival| match arrival {
                Arrival::Begin(value_bytes) => got[value].reserve(value_bytes),
                Arrival::Piece(offset, piece) => {
                    assert_eq!(got[value].len(), offset);
                    got[value].extend_from_slice(piece);
                }
                Arrival::Whole(version) => whole[value] = version,
            });
            received.expect("a piece, or a refusal that is no end");
            (window.first, window.in_flight) = ((window.first + 1) % CALLS_IN_FLIGHT, window.in_flight - 1);
        }
        assert!(server.copies.is_empty(), "what was begun is fetched to its end");
        for (value, version) in whole.iter().enumerate() {
            assert_eq!(*version > 0, !server.values[value].is_empty(), "value {value}");
        }
        (server.values, got, server.refused)
    }

    #[test]
    fn values_come_whole_from_a_server_that_has_memory_for_few() {
        let mut rng = SplitMix64::fresh();
        let mut refused = 0;
        for _ in 0..400 {
            let copies_max = 1 + rng.below(CALLS_IN_FLIGHT as u64) as usize;
            let (stored, got, times) = fetch(&mut rng, copies_max);
            assert!(stored == got, "with {copies_max} copies");
            refused += times;
        }
        assert!(refused > 0, "no server was short of memory");
    }

    #[test]
    fn a_server_without_memory_for_one_value_refuses_the_batch() {
        let mut window = FetchWindow::new(3);
        assert_eq!(window.next(|| 1), Some(0));
        window.in_flight = 1;
        let mut server =
            Server { values: vec![vec![7; 99]], copies: HashSet::new(), copies_max: 0, refused: 0 };
        let refused = window.receive(&server.reply(0, 1, 0), VALUE_BYTES_MAX, |_, _| {});
        assert!(matches!(refused, Err(XStoreError::Server(error)) if error.code == ErrorCode::NoMemory));
    }
}
