//! Fuzz targets of what this crate keeps to itself: control messages, and frames of calls against a client's
//! windows. Besides, a fault of a client's card ([`VerbsHost::break_queue_pairs`](crate::VerbsHost) is one of
//! the server's).
//!
//! For tests alone (feature `hostile`). Each target is a function of its bytes that panics exactly if a
//! promise is broken; `conformance` runs them among those of the other crates. Neither needs a device.

use farsight_base::RegionId;
use farsight_fabric::RegionRights;
use farsight_fabric_net::packets::first_packet;

use crate::call_frame::{CallHeader, HEADER_BYTES, HEADER_WORDS};
use crate::client::calls::Calls;
use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::ibv::pair::Endpoint;
use crate::{CALLS_MAX, SLOTS, VerbsQueue};

/// The queue whose calls are played.
const QUEUE: u64 = 9;

/// Puts the queue pair into error, and tells nobody.
///
/// # Panics
/// If the card will not.
pub fn break_queue_pair(queue: &VerbsQueue) {
    queue.pair.break_off().expect("every queue pair can be put into error");
}

/// A packet that decodes as a message is the one that the message encodes to; texts are repaired once.
pub fn control(data: &[u8]) {
    let Ok(Some((packet, length_bytes))) = first_packet(data) else { return };
    let whole = &data[..length_bytes];
    if let Ok(message) = FromClient::decode(packet) {
        assert_eq!(message.encode(), whole, "{message:?}");
    }
    let Ok(message) = FromServer::decode(packet) else { return };
    let repaired = message.encode();
    let (packet, _) = first_packet(&repaired).expect("a packet").expect("a whole one");
    assert_eq!(FromServer::decode(packet).as_ref(), Ok(&message));
    let has_text = matches!(
        message,
        FromServer::Refusal { .. }
            | FromServer::Goodbye { .. }
            | FromServer::Failed { .. }
            | FromServer::Dismissal { .. }
    );
    assert!(has_text || repaired == whole, "{message:?}");
}

/// Messages of every kind.
#[must_use]
pub fn control_seeds() -> Vec<Vec<u8>> {
    let endpoint = Endpoint {
        number: 17,
        sequence: 0x00ab_cdef,
        lid: 3,
        path_unit: 5,
        is_infiniband: true,
        reads_begun_max: 16,
        reads_served_max: 16,
        gid: [0xfe; 16],
    };
    let (region, text) = (RegionId(3), || "gr\u{fc}\u{df}e".to_owned());
    let rights = RegionRights::ReadOnly;
    let from_client = [
        FromClient::Hello { magic: MAGIC, fabric_version: FABRIC_VERSION, format_version: 7 },
        FromClient::OpenQueue { endpoint },
        FromClient::Attach { region },
        FromClient::CloseQueue { queue: QUEUE },
    ];
    let from_server = [
        FromServer::Welcome { epoch: 5, client: 1 },
        FromServer::Refusal { text: text() },
        FromServer::QueueOpened { queue: QUEUE, endpoint },
        FromServer::Attached { region, rights, length_bytes: 64, address: 1 << 40, key: 77 },
        FromServer::NoSuchRegion { region },
        FromServer::Goodbye { text: text() },
        FromServer::Failed { text: String::new() },
        FromServer::Dismissal { text: text() },
        FromServer::Withdrawn { region },
        FromServer::Notice { number: 4 },
    ];
    from_client.iter().map(FromClient::encode).chain(from_server.iter().map(FromServer::encode)).collect()
}

/// A request under way, as a naive twin keeps it.
struct Sent {
    window: usize,
    header: CallHeader,
    is_acknowledged: bool,
    is_answered: bool,
}

/// A client's calls and their twin.
struct Game {
    calls: Calls,
    /// The call that each slot waits for.
    awaited: Vec<Option<u64>>,
    sent: Vec<Sent>,
    posted: u64,
}

impl Game {
    fn post(&mut self, slot: usize) {
        self.posted += 1;
        self.awaited[slot] = Some(self.posted);
        self.calls.post(slot, &self.posted.to_le_bytes());
    }

    fn send(&mut self) {
        while let Some((window, header, request)) = self.calls.next() {
            assert_eq!(request, header.sequence.to_le_bytes(), "each call has its own request");
            assert!(self.sent.iter().all(|other| other.window != window), "window {window} is taken");
            self.sent.push(Sent { window, header, is_acknowledged: false, is_answered: false });
        }
        assert!(self.sent.len() <= CALLS_MAX, "more requests than windows");
    }

    fn acknowledge(&mut self, windows: u16) {
        self.calls.acknowledge(windows);
        for sent in self.sent.iter_mut().filter(|sent| windows >> sent.window & 1 == 1) {
            sent.is_acknowledged = true;
        }
        self.forget_done();
    }

    /// A message arrives, whatever is in it.
    fn receive(&mut self, words: [u64; HEADER_WORDS], message_bytes: usize) {
        let Ok((header, payload_bytes)) = CallHeader::of(words, message_bytes) else { return };
        assert_eq!((header.words(payload_bytes), payload_bytes + HEADER_BYTES), (words, message_bytes));
        let answered = self.calls.answer(header, &mut vec![1]);
        let mut known = self.sent.iter_mut();
        let known = known.find(|sent| !sent.is_answered && sent.header.sequence == header.sequence);
        let slot = header.slot as usize;
        match known {
            Some(sent) if header.queue == QUEUE && slot < SLOTS => {
                sent.is_answered = true;
                let is_awaited = self.awaited[slot] == Some(header.sequence);
                assert_eq!(answered, Ok(is_awaited.then_some(slot)), "{header:?}");
                if is_awaited {
                    self.awaited[slot] = None;
                }
            }
            _ => assert!(answered.is_err(), "{header:?} is of no request under way"),
        }
        self.forget_done();
    }

    fn forget_done(&mut self) {
        self.sent.retain(|sent| !(sent.is_acknowledged && sent.is_answered));
    }
}

/// Calls are posted and sent, messages arrive, honest ones and any others. Each call is answered once, by its
/// own reply or by none. No request goes out before a window is free.
pub fn calls(data: &[u8]) {
    let mut game = Game { calls: Calls::new(QUEUE), awaited: vec![None; SLOTS], sent: Vec::new(), posted: 0 };
    let mut rest = data;
    while let Some(([step, argument], behind)) = rest.split_first_chunk().map(|(two, rest)| (*two, rest)) {
        rest = behind;
        match step % 6 {
            0 | 1 => game.post(usize::from(argument) % SLOTS),
            2 => {
                game.calls.ring();
                game.send();
            }
            3 => game.acknowledge(u16::from_le_bytes([argument, step])),
            4 if !game.sent.is_empty() => {
                let header = game.sent[usize::from(argument) % game.sent.len()].header;
                game.receive(header.words(8), HEADER_BYTES + 8);
            }
            _ => {
                let Some((bytes, behind)) = rest.split_first_chunk::<HEADER_BYTES>() else { return };
                rest = behind;
                let word = |index: usize| {
                    let bytes = bytes[8 * index..].first_chunk().expect("four words");
                    u64::from_le_bytes(*bytes)
                };
                game.receive(std::array::from_fn(word), usize::from(argument));
            }
        }
        game.send();
    }
}

/// A call and its reply, twice; a reply of nobody's; a slot that is posted to again.
#[must_use]
pub fn call_seeds() -> Vec<Vec<u8>> {
    let header = CallHeader { queue: QUEUE, slot: 5, sequence: 1 };
    let words: Vec<u8> = header.words(8).iter().flat_map(|word| word.to_le_bytes()).collect();
    let reply = [&[5, HEADER_BYTES as u8 + 8][..], &words].concat();
    let simple = [0, 5, 2, 0, 3, 255, 4, 0, 0, 6, 2, 0, 4, 0, 9, 255];
    vec![
        simple.to_vec(),
        [&[0, 5, 2, 0][..], &reply, &[3, 255]].concat(),
        [&[0, 5, 2, 0, 0, 5, 2, 0][..], &reply, &[4, 0, 3, 255, 9, 255]].concat(),
        (0..20).flat_map(|slot| [0, slot]).chain([2, 0, 4, 3, 3, 8, 4, 4, 3, 16]).collect(),
    ]
}
