//! Fuzz targets of what this crate keeps to itself: handshakes and control messages, batches as a server gets
//! them, results as a client gets them.
//!
//! For tests alone (feature `hostile`). Each target is a function of its bytes that panics exactly if a
//! promise is broken; `conformance` runs them among those of the other crates.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use farsight_base::sync::Ordering;
use farsight_base::{ClientId, Epoch, Line, RegionId, RemoteAddress};
use farsight_fabric::filter::Filter;
use farsight_fabric::{
    Answer, CallHandler, FabricError, Parked, QueuePair as _, ReadMode, Region, RegionRights, Ticket,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::batch::{Awaited, OpenBatch};
use crate::control::{ClientMessage, FABRIC_VERSION, MAGIC, Purpose, ServerMessage};
use crate::frames::{Batch, FRAME_BYTES_MAX, HEADER_BYTES, Heading, VerbKind, first_frame, lines_of_bytes};
use crate::grants::{Grants, Token};
use crate::link::{AttachedRegion, Link, Welcome};
use crate::queue::TcpQueue;
use crate::served_regions::{ServedRegion, ServedRegions};
use crate::server_queue::{Buffers, ServerQueue, Visit, Work};
use farsight_fabric_net::packets::{Packets, first_packet};
use farsight_fabric_net::{Received, Stream, Waiting};

const REGION: RegionId = RegionId(1);
const REGION_BYTES: u64 = 1 << 16;
/// Results may be that many before a run is over.
const VISITS_MAX: usize = 1 << 12;

fn pair() -> (Stream, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let sockets = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (own, peer) = sockets.expect("two sockets");
    (Stream::new(own, None), peer)
}

fn give(peer: &OwnedFd, bytes: &[u8]) {
    let sent = rustix::net::send(peer, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    assert_eq!(sent.expect("the other end lives"), bytes.len(), "the kernel has room for an input");
}

/// A packet that decodes as a message is the one that the message encodes to; texts are repaired once.
pub fn control(data: &[u8]) {
    let Ok(Some((packet, length_bytes))) = first_packet(data) else { return };
    let whole = &data[..length_bytes];
    if let Ok(message) = ClientMessage::decode(packet) {
        assert_eq!(message.encode(), whole, "{message:?}");
    }
    if let Ok(message) = ServerMessage::decode(packet) {
        let again = message.encode();
        let (packet, length_bytes) = first_packet(&again).expect("a packet").expect("a whole one");
        assert_eq!(length_bytes, again.len());
        assert_eq!(ServerMessage::decode(packet).as_ref(), Ok(&message));
        let has_text = matches!(
            message,
            ServerMessage::Refusal { .. }
                | ServerMessage::Failed { .. }
                | ServerMessage::Goodbye { .. }
                | ServerMessage::Dismissal { .. }
        );
        assert!(has_text || again == whole, "{message:?}");
    }
}

/// Messages of every kind.
#[must_use]
pub fn control_seeds() -> Vec<Vec<u8>> {
    let (key, region) = ([7; 16], RegionId(3));
    let hello = |purpose| ClientMessage::Hello {
        magic: MAGIC,
        fabric_version: FABRIC_VERSION,
        format_version: 7,
        purpose,
    };
    let from_client =
        [hello(Purpose::Client), hello(Purpose::Queue { client: 1, key }), ClientMessage::Attach { region }];
    let text = || "grüße".to_owned();
    let from_server = [
        ServerMessage::Welcome { epoch: 5, client: 1, key },
        ServerMessage::Ready,
        ServerMessage::Refusal { text: text() },
        ServerMessage::Attached { region, rights: RegionRights::ReadWrite, length_bytes: 64, token: key },
        ServerMessage::NoSuchRegion { region },
        ServerMessage::Failed { text: text() },
        ServerMessage::Goodbye { text: String::new() },
        ServerMessage::Dismissal { text: text() },
    ];
    let from_client = from_client.iter().map(ClientMessage::encode);
    from_client.chain(from_server.iter().map(ServerMessage::encode)).collect()
}

/// Answers with what it is asked.
struct Echo;

impl CallHandler for Echo {
    fn handle(&mut self, _: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        reply.extend_from_slice(request);
        Answer::Now
    }
}

/// Tokens that stand in inputs for that of the region which may be changed, or may not.
fn mark(rights: RegionRights) -> Token {
    [if rights == RegionRights::ReadOnly { 0xa1 } else { 0xa2 }; 16]
}

/// The token that stands for that of a region which is withdrawn.
const WITHDRAWN: Token = [0xa3; 16];

/// A server's end of a queue pair that is sent any bytes. It answers what was requested, touches nothing
/// without a grant, and ends the queue at anything malformed.
pub fn batches(data: &[u8]) {
    let served = Arc::new(ServedRegions::default());
    served.notify(7);
    let grants = Arc::new(Grants::new(Arc::clone(&served)));
    let create = |mark: Token, rights| {
        let region = served.create(REGION_BYTES, rights).expect("memory");
        let token = grants.grant(&ServedRegion { region: Arc::clone(&region), rights }).expect("a token");
        (mark, token, region)
    };
    let regions = [
        create(mark(RegionRights::ReadOnly), RegionRights::ReadOnly),
        create(mark(RegionRights::ReadWrite), RegionRights::ReadWrite),
        create(WITHDRAWN, RegionRights::ReadWrite),
    ];
    let (_, _, withdrawn) = &regions[2];
    served.lock().withdraw(withdrawn.id(), String::new).expect("it was served");
    grants.revoke(withdrawn.id());
    let mut input = data.get(..FRAME_BYTES_MAX).unwrap_or(data).to_vec();
    for (mark, token, _) in &regions {
        while let Some(at) = input.windows(16).position(|window| window == mark) {
            input[at..at + 16].copy_from_slice(token);
        }
    }
    let expected = expected_headings(&input);
    let (stream, peer) = pair();
    let mut queue = ServerQueue::new(ClientId(1), grants, stream, None);
    give(&peer, &input);
    let (mut buffers, mut client, mut arrived) = (Buffers::new(), Stream::new(peer, None), Vec::new());
    let (mut buffer, mut parked) = (vec![0; 1 << 18], Parked::default());
    let mut ended = None;
    for _ in 0..VISITS_MAX {
        let (parked, buffers) = (&mut parked, &mut buffers);
        let mut work = Work { place: 0, handler: &mut Echo, parked, buffers, budget: 3, done: 0 };
        let visit = queue.visit(&mut work);
        let mut has_arrived = false;
        while let Ok(Received::Bytes(length_bytes)) = client.receive(&mut buffer) {
            arrived.extend_from_slice(&buffer[..length_bytes]);
            has_arrived = true;
        }
        match visit {
            Visit::Idle if !has_arrived => break,
            Visit::Ended | Visit::Denied | Visit::Disorder(_) => {
                ended = Some(visit);
                break;
            }
            _ => {}
        }
    }
    check_answers(&arrived, &expected, ended.as_ref());
    for (_, _, region) in [&regions[0], &regions[2]] {
        let is_unchanged = region.words().iter().all(|word| word.load(Ordering::Relaxed) == 0);
        assert!(is_unchanged, "{} was changed without a right", region.id());
    }
}

/// What each batch at the input's start is answered with, if it is not denied: sequence, verbs, and lengths
/// of the calls.
fn expected_headings(mut input: &[u8]) -> Vec<(u64, usize, Vec<usize>)> {
    let mut expected: Vec<(u64, usize, Vec<usize>)> = Vec::new();
    while let Ok(Some((header, body))) = first_frame(input) {
        let Ok(batch) = Batch::decode(header, body) else { break };
        if header.sequence != expected.len() as u64 + 1 {
            break;
        }
        let calls = (batch.one_sided..batch.len()).map(|index| batch.verb(index).count as usize);
        expected.push((header.sequence, batch.one_sided, calls.collect()));
        input = &input[HEADER_BYTES + body.len()..];
    }
    expected
}

fn check_answers(arrived: &[u8], expected: &[(u64, usize, Vec<usize>)], ended: Option<&Visit>) {
    assert!(arrived.len().is_multiple_of(64), "answers are lines");
    let lines: Vec<Line> = arrived
        .chunks_exact(64)
        .map(|bytes| {
            let mut words =
                bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("a word")));
            Line(std::array::from_fn(|_| words.next().expect("eight words")))
        })
        .collect();
    let mut at = 0;
    let mut next = || {
        let heading = Heading::decode(lines.get(at)?).expect("a heading");
        at += 1 + match heading {
            Heading::Completions { lines, words, .. } => lines as usize + lines_of_bytes(words as usize * 8),
            Heading::Reply { length_bytes, .. } => lines_of_bytes(length_bytes as usize),
        };
        assert!(at <= lines.len(), "an answer ends in the middle");
        Some(heading)
    };
    for (number, verbs, calls) in expected {
        if *verbs > 0 {
            let Some(Heading::Completions { sequence, executed, denial, notice, .. }) = next() else {
                panic!("no completions for batch {number}, ended {ended:?}");
            };
            assert_eq!((sequence, notice), (*number, 7));
            if denial.is_some() {
                assert!((executed as usize) < *verbs && ended == Some(&Visit::Denied));
                break;
            }
            assert_eq!(executed as usize, *verbs);
        }
        for (index, length) in calls.iter().enumerate() {
            let Some(Heading::Reply { sequence, verb, length_bytes, .. }) = next() else {
                panic!("no reply to call {index} of batch {number}");
            };
            let got = (sequence, verb as usize, length_bytes as usize);
            assert_eq!(got, (*number, verbs + index, *length));
        }
    }
    assert_eq!(next(), None, "an answer to nothing");
}

/// Of a record of seven lines.
const FILTER: Filter = Filter { words: 0b1110_0000, parts_begin: 3, part_lines: 1, sharing_log2: 0 };

/// Batches of every verb, alone and together.
#[must_use]
pub fn batch_seeds() -> Vec<Vec<u8>> {
    let verbs = [
        (VerbKind::ReadPlain, 1, &[][..]),
        (VerbKind::ReadStamped, 7, &[]),
        (VerbKind::Write, 2, &[1, 2]),
        (VerbKind::CompareSwap, 1, &[0, 9]),
        (VerbKind::FetchAdd, 1, &[5]),
        (VerbKind::ReadFiltered, 7, &[3, FILTER.encode()]),
    ];
    let mut seeds = Vec::new();
    for count in 1..=verbs.len() {
        for mark in [mark(RegionRights::ReadOnly), mark(RegionRights::ReadWrite), WITHDRAWN] {
            let (mut open, mut output) = (OpenBatch::default(), Vec::new());
            for round in 0..2 {
                for (slot, (kind, count, words)) in verbs[..count].iter().enumerate() {
                    let (filter, completes) = (FILTER, true);
                    let (serial, region, kind, count) = (1, 0, *kind, *count);
                    let awaited = Awaited { slot, serial, kind, region, count, filter, completes };
                    // Each batch but the first names another region besides.
                    let other = round > 0 && slot.is_multiple_of(2);
                    let token = if other { self::mark(RegionRights::ReadWrite) } else { mark };
                    open.add(awaited, &token, 64 * round, words);
                }
                let (kind, completes) = (VerbKind::Call, true);
                let call =
                    Awaited { slot: 9, serial: 1, kind, region: 0, count: 1, filter: FILTER, completes };
                open.add_call(call, &b"a request"[..count]);
                open.finish(&mut output, |_| {});
            }
            seeds.push(output);
        }
    }
    seeds
}

/// A client's end of a queue pair whose server answers with any bytes: every slot ends in a result or an
/// error, and nothing waits longer than the connection lasts.
pub fn answers(data: &[u8]) {
    let (control, server) = pair();
    let welcome = Welcome { epoch: Epoch(1), client: 1, key: [0; 16] };
    let link = Arc::new(Link::new("fuzz".to_owned(), Packets::new(control), welcome));
    let (stream, peer) = pair();
    let mut queue = TcpQueue::new(link, stream, Waiting::Asleep);
    let attached = AttachedRegion { token: [1; 16], length_bytes: REGION_BYTES, ..Default::default() };
    let attached = AttachedRegion { rights: RegionRights::ReadWrite, is_withdrawn: false, ..attached };
    queue.know(REGION, attached);
    post_all(&mut queue);
    queue.doorbell().expect("a server that says nothing yet");
    give(&peer, data.get(..FRAME_BYTES_MAX).unwrap_or(data));
    // Whatever is missing never comes, nor does the reason why, for which a client would wait.
    for end in [&peer, &server] {
        let _ = rustix::net::shutdown(end, rustix::net::Shutdown::Write);
    }
    let error = loop {
        if let Err(error) = queue.poll() {
            break error;
        }
        if (0..7).all(|slot| queue.is_complete(slot)) {
            break FabricError::Forked;
        }
    };
    let is_done = matches!(error, FabricError::Forked);
    for slot in [0, 1] {
        let mut lines = vec![Line::ZERO; 1 + slot * 6];
        if queue.is_complete(slot) || !is_done {
            let _ = queue.take_read(slot, &mut lines);
        }
    }
    if queue.is_complete(6) || !is_done {
        let _ = queue.view_filtered(6, &mut [Line::ZERO; 7]);
    }
    for slot in 2..5 {
        let _ = queue.take_word(slot);
    }
    let _ = queue.take_reply(5, &mut Vec::new());
}

fn post_all(queue: &mut TcpQueue) {
    let at = |offset_bytes| RemoteAddress { region: REGION, offset_bytes };
    queue.post_read(0, at(64), 1, ReadMode::Plain);
    queue.post_read(1, at(128), 7, ReadMode::Stamped);
    queue.post_write(2, at(8), &[1, 2, 3]);
    queue.post_compare_swap(3, at(16), 0, 1);
    queue.post_fetch_add(4, at(24), 1);
    queue.post_filtered_read(6, at(192), 7, 3, FILTER);
    queue.post_call(5, b"hello").expect("it fits");
}

/// What a server answers to [`post_all`], whole and denied.
#[must_use]
pub fn answer_seeds() -> Vec<Vec<u8>> {
    let bytes = |lines: &[Line]| farsight_base::words::bytes_of(lines).to_vec();
    // A line of findings, eight of READs, two of the part picked.
    let completions = |executed, denial, lines, words, picks, withdrawn| {
        let (sequence, notice) = (1, 9);
        Heading::Completions { sequence, executed, denial, lines, words, picks, withdrawn, notice }
    };
    let good = completions(6, None, 11, 2, 1, 0);
    let denied = completions(2, Some(crate::frames::Denial::NoGrant), 8, 0, 0, 0);
    let withdrawn = completions(6, None, 0, 0, 0, 1);
    let reply = Heading::Reply { sequence: 1, verb: 6, length_bytes: 5, notice: 9 };
    let mut results = [Line([3; 8]); 12];
    results[0] = Line([5, 0, 0, 0, 0, 0, 0, 0]);
    vec![
        [bytes(&[good.encode()]), bytes(&results), bytes(&[reply.encode(), Line([1; 8])])].concat(),
        [bytes(&[denied.encode()]), bytes(&results[..8])].concat(),
        [bytes(&[withdrawn.encode()]), bytes(&[reply.encode(), Line([1; 8])])].concat(),
        bytes(&[reply.encode(), Line([1; 8])]),
    ]
}
