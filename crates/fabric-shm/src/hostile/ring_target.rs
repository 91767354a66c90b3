//! A ring under any sequence of pushes, takes and scribbles. Frames come out as they went in. Once the peer
//! has scribbled, nothing comes but whole frames or a [`Disorder`]. Room that is kept stays.

use std::collections::VecDeque;
use std::sync::Arc;

use farsight_base::sync::Ordering;
use farsight_fabric::RegionRights;

use crate::mapping::SharedWords;
use crate::memory;
use crate::ring::{
    Consumer, Disorder, FILE_BYTES, FrameHeader, PAYLOAD_BYTES_MAX, Producer, REPLIES, REQUESTS,
};

/// Steps of one run.
const STEPS_MAX: usize = 200;
/// Words of a peer's file that hold counters.
const COUNTER_WORDS: usize = 96;

/// Both ends of one ring, and what went in and has not come out.
struct Ends {
    memory: SharedWords,
    producer: Producer,
    consumer: Consumer,
    unpublished: VecDeque<(FrameHeader, Vec<u8>)>,
    published: VecDeque<(FrameHeader, Vec<u8>)>,
    /// A frame for which room is kept.
    reserved: Option<(FrameHeader, Vec<u8>)>,
    /// The peer wrote what it liked: only bounds are promised from now on.
    scribbled: bool,
}

/// See the module.
pub fn ring(data: &[u8]) {
    let (_file, mapping) =
        memory::create("farsight-ring", FILE_BYTES, RegionRights::ReadWrite, 4096).expect("memory");
    let memory = SharedWords::new(Arc::new(mapping));
    let mut bytes = data.iter().copied();
    let place = if bytes.next().unwrap_or(0) & 1 == 0 { REQUESTS } else { REPLIES };
    let mut ends = Ends {
        producer: Producer::new(memory.clone(), place),
        consumer: Consumer::new(memory.clone(), place),
        memory,
        unpublished: VecDeque::new(),
        published: VecDeque::new(),
        reserved: None,
        scribbled: false,
    };
    for _ in 0..STEPS_MAX {
        let Some(kind) = bytes.next() else { return };
        if ends.step(kind, &mut bytes).is_err() {
            assert!(ends.scribbled, "disorder without cause");
            return;
        }
    }
}

impl Ends {
    fn step(&mut self, kind: u8, bytes: &mut impl Iterator<Item = u8>) -> Result<(), Disorder> {
        let mut number = |count: usize| {
            (0..count).fold(0_u64, |number, _| number << 8 | u64::from(bytes.next().unwrap_or(0)))
        };
        match kind % 8 {
            0..3 => {
                let length_bytes = number(if kind < 128 { 1 } else { 2 }) as usize;
                let payload: Vec<u8> =
                    (0..length_bytes).map(|index| kind.wrapping_add(index as u8)).collect();
                let header = FrameHeader { slot: number(1) as u32, sequence: number(2) };
                let may_push = self.reserved.is_none() || self.producer.has_room_for_any()?;
                if may_push && self.producer.try_push(header, &payload)? {
                    self.unpublished.push_back((header, payload));
                }
            }
            3 => {
                let is_new = self.producer.publish();
                assert_eq!(is_new, !self.unpublished.is_empty());
                self.published.append(&mut self.unpublished);
            }
            4 | 5 => self.take()?,
            6 => {
                self.consumer.publish();
                if let Some((header, payload)) = self.reserved.take() {
                    self.producer.release(payload.len());
                    assert!(self.producer.try_push(header, &payload)?, "room was kept for the frame");
                    self.unpublished.push_back((header, payload));
                } else if self.producer.has_room_for_any()? {
                    let payload = vec![kind; 256 * number(1) as usize];
                    self.producer.reserve(payload.len());
                    self.reserved = Some((FrameHeader { slot: 7, sequence: number(2) }, payload));
                }
            }
            _ => {
                self.scribbled = true;
                let words = self.memory.words();
                let index = number(2) as usize;
                let index = if kind & 0x40 == 0 { index % COUNTER_WORDS } else { index % words.len() };
                let value = if kind & 0x20 == 0 { number(8) } else { number(2) };
                words[index].store(value, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<(), Disorder> {
        let mut payload = Vec::new();
        let was_ready = self.consumer.is_ready();
        let taken = self.consumer.take(&mut payload)?;
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame of {} B", payload.len());
        if self.scribbled {
            return Ok(());
        }
        assert_eq!(was_ready, taken.is_some());
        assert_eq!(taken.map(|header| (header, payload)), self.published.pop_front());
        Ok(())
    }
}

/// Conversations in which the ring fills, wraps, and is scribbled on.
#[must_use]
pub fn ring_seeds() -> Vec<Vec<u8>> {
    let rounds = |steps: &[u8]| steps.iter().copied().cycle().take(600).collect::<Vec<u8>>();
    vec![
        rounds(&[0, 9, 1, 2, 3, 3, 4]),
        rounds(&[0, 200, 250, 3, 0, 1, 3, 4, 6]),
        rounds(&[1, 8, 250, 7, 0, 7, 3, 4, 5, 6]),
        [rounds(&[0, 9, 1, 2, 3, 3, 4]), vec![7, 0, 32, 0, 0, 0, 0, 0, 0, 0, 5, 4, 4, 4]].concat(),
    ]
}
