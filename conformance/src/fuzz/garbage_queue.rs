//! A queue pair whose server answers anything: READs come out of a garbage region, replies out of a list.

use std::collections::VecDeque;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};
use farsight_fabric::{AtomicUnit, CostClass, FabricError, Guarantees, Meters, QueuePair, ReadMode, Slot};
use farsight_protocol::{CallId, Request};

/// The region of models.
pub(super) const META: RegionId = RegionId(2);
/// Verbs that any one operation of a client on a few keys may take.
const VERBS_MAX: u64 = 20_000;

enum GarbageSlot {
    Nothing,
    Read { is_meta: bool, line: usize, count: usize, number: u64 },
    Denied(RemoteAddress),
    Reply(Vec<u8>),
}

/// The queue pair. Verbs complete at the doorbell.
pub(super) struct GarbageQueue {
    pub(super) lines: Vec<Line>,
    /// The region of models.
    pub(super) meta: Vec<Line>,
    /// What the next calls are answered; once they run out, by nothing but zeros.
    pub(super) replies: VecDeque<Vec<u8>>,
    /// What READs bring in place of the region's lines, by how many were posted before.
    pub(super) forge: Option<fn(u64) -> Vec<Line>>,
    slots: Vec<GarbageSlot>,
    rung: Vec<bool>,
    completed: usize,
    pub(super) meters: Meters,
}

impl GarbageQueue {
    pub(super) fn new(lines: Vec<Line>) -> Self {
        let slots = (0..Self::SLOTS).map(|_| GarbageSlot::Nothing).collect();
        let (replies, meters) = (VecDeque::new(), Meters::default());
        let (meta, rung) = (Vec::new(), vec![true; Self::SLOTS]);
        Self { lines, meta, replies, forge: None, slots, rung, completed: 0, meters }
    }

    fn post(&mut self, slot: Slot, posted: GarbageSlot) {
        let verbs = self.meters.reads + self.meters.calls;
        assert!(verbs < VERBS_MAX, "no end after {verbs} verbs");
        self.slots[slot] = posted;
        self.rung[slot] = false;
    }

    /// The READ in a slot whose doorbell was rung.
    fn rung(&mut self, slot: Slot) -> GarbageSlot {
        assert!(self.rung[slot], "slot {slot} is taken before its doorbell");
        std::mem::replace(&mut self.slots[slot], GarbageSlot::Nothing)
    }
}

impl QueuePair for GarbageQueue {
    const SLOTS: usize = 256;
    const MESSAGE_BYTES_MAX: usize = 64 << 10;
    const GUARANTEES: Guarantees = Guarantees {
        name: "garbage",
        atomic_unit: AtomicUnit::Line,
        read_lines_in_order: false,
        writes_in_order: false,
        atomic_after_write: false,
        read_after_atomic: false,
        write_after_read: false,
        read_before_completion: false,
        atomics_coherent_with_cpu: false,
        one_sided: true,
        read_only_regions: true,
        revocable: true,
        tells_unasked: true,
        connections_break: true,
        cost_class: CostClass::Memory,
    };

    fn peer(&self) -> &'static str {
        "garbage"
    }

    /// A millisecond a verb.
    fn now(&self) -> MonotonicNs {
        MonotonicNs((self.meters.reads + self.meters.calls) * 1_000_000)
    }

    fn attach(&mut self, _region: RegionId) -> Result<u64, FabricError> {
        Ok((self.lines.len() * LINE_BYTES) as u64)
    }

    fn detach(&mut self, _region: RegionId) {}

    fn notice(&self) -> u64 {
        0
    }

    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, _mode: ReadMode) {
        let number = self.meters.reads;
        self.meters.reads += 1;
        let line = (from.offset_bytes / LINE_BYTES as u64) as usize;
        let is_meta = from.region == META;
        let lines = if is_meta { &self.meta } else { &self.lines };
        let fits = line.checked_add(line_count).is_some_and(|end| end <= lines.len());
        let aligned = from.offset_bytes.is_multiple_of(LINE_BYTES as u64);
        assert!(fits && aligned, "a READ of {line_count} lines at {from}, of {} lines", lines.len());
        self.post(slot, GarbageSlot::Read { is_meta, line, count: line_count, number });
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, _words: &[u64]) {
        self.post(slot, GarbageSlot::Denied(to));
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, _expected: u64, _new: u64) {
        self.post(slot, GarbageSlot::Denied(at));
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, _delta: u64) {
        self.post(slot, GarbageSlot::Denied(at));
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        let opened = CallId::open(request).and_then(|(_, request)| Request::decode(request));
        assert!(opened.is_ok(), "a client sent {request:x?}");
        self.meters.calls += 1;
        let reply = self.replies.pop_front().unwrap_or_else(|| vec![0; 16]);
        self.post(slot, GarbageSlot::Reply(reply));
        Ok(())
    }

    fn doorbell(&mut self) -> Result<(), FabricError> {
        self.completed += self.rung.iter().filter(|rung| !**rung).count();
        self.rung.fill(true);
        Ok(())
    }

    fn poll(&mut self) -> Result<usize, FabricError> {
        Ok(std::mem::take(&mut self.completed))
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), FabricError> {
        panic!("a client waits, and nothing is posted");
    }

    fn drain(&mut self) -> Result<(), FabricError> {
        Ok(())
    }

    fn is_complete(&self, slot: Slot) -> bool {
        self.rung[slot] && !matches!(self.slots[slot], GarbageSlot::Nothing)
    }

    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        match self.rung(slot) {
            GarbageSlot::Read { is_meta: true, line, count, .. } => {
                into.copy_from_slice(&self.meta[line..line + count]);
                Ok(())
            }
            GarbageSlot::Read { line, count, number, .. } => {
                match self.forge {
                    Some(forge) => into.copy_from_slice(&forge(number)[..count]),
                    None => into.copy_from_slice(&self.lines[line..line + count]),
                }
                Ok(())
            }
            _ => panic!("slot {slot} holds no READ"),
        }
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        match self.rung(slot) {
            GarbageSlot::Denied(address) => {
                let reason = "clients only READ".to_owned();
                Err(FabricError::AccessDenied { verb: "a change", address, length_bytes: 8, reason })
            }
            _ => panic!("slot {slot} holds no word"),
        }
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        match self.rung(slot) {
            GarbageSlot::Reply(reply) => {
                *into = reply;
                Ok(())
            }
            _ => panic!("slot {slot} holds no reply"),
        }
    }

    fn meters(&self) -> Meters {
        self.meters
    }
}
