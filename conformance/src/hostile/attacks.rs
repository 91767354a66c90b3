//! The attacks, one a function, each over within some ten milliseconds.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use farsight_base::LeafNumber;
use farsight_fabric_shm::raw_client::{RawClient, RawQueue, attach, hello};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{
    CallId, ControlRequest, Direction, Request, SubModelsWanted, TableId, WriteEntries, WriteEntry,
    WriteOperation,
};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};

use super::Attacker;
use super::raw_ring::{
    CLIENT_SLEEPING, REPLY_HEAD, REPLY_TAIL, REQUEST_HEAD, REQUEST_TAIL, RawRing, SERVER_SLEEPING,
};
use crate::fuzz;

/// The regions that the test's tables have.
const REGIONS: u32 = 3;
/// How long one attack lasts.
const ATTACK: Duration = Duration::from_millis(20);
const COUNTERS: [usize; 6] =
    [REQUEST_TAIL, REQUEST_HEAD, REPLY_TAIL, REPLY_HEAD, SERVER_SLEEPING, CLIENT_SLEEPING];

impl Attacker {
    /// Writes anything anywhere in its rings.
    pub(super) fn scribble(&mut self) {
        let client = self.connect();
        let queues: Vec<RawRing> =
            (0..=self.random.below(4)).map(|_| RawRing::new(client.open_queue())).collect();
        let small = self.chance(2);
        let until = Instant::now() + ATTACK;
        while Instant::now() < until {
            for queue in &queues {
                for _ in 0..500 {
                    let value = if small { self.random.below(4_000) } else { self.random.next_u64() };
                    queue.set(self.random.next_u64() as usize, value);
                }
                queue.queue.wake();
                self.perhaps_die();
            }
        }
    }

    /// Counters that might be true, frames longer than what is published, sleep that is none.
    pub(super) fn lie_in_counters(&mut self) {
        let client = self.connect();
        let mut ring = RawRing::new(client.open_queue());
        let until = Instant::now() + ATTACK;
        while Instant::now() < until {
            let frame = self.a_frame();
            let announced = match self.random.below(4) {
                0 => self.random.below(1 << 20),
                1 => u64::from(u32::MAX),
                _ => frame.len() as u64,
            };
            ring.push(&frame, announced);
            let counter = COUNTERS[self.random.below(6) as usize];
            let value = self.random.below(40_000);
            if self.chance(3) {
                ring.set(counter, value);
            }
            ring.set(CLIENT_SLEEPING, 1);
            ring.queue.wake();
            self.perhaps_die();
        }
    }

    /// Frames that are none, or ask for what there is not; the replies are read, or never.
    pub(super) fn send_broken_frames(&mut self) {
        let client = self.connect();
        let mut ring = RawRing::new(client.open_queue());
        let reads = self.chance(2);
        let until = Instant::now() + ATTACK;
        while Instant::now() < until {
            let frame = self.a_frame();
            if !ring.push(&frame, frame.len() as u64) {
                std::thread::yield_now();
            }
            if reads {
                ring.discard_replies();
            }
            ring.queue.wake();
            self.perhaps_die();
        }
    }

    /// As many connections as there are to be had, greeted or silent, left open for a while.
    pub(super) fn flood_connections(&mut self) {
        let mut clients: Vec<RawClient> = Vec::new();
        for _ in 0..200 {
            let client = RawClient::connect(&self.socket);
            if self.chance(2) {
                client.send(&hello(FORMAT_VERSION));
            }
            clients.push(client);
            self.perhaps_die();
        }
        std::thread::sleep(ATTACK);
    }

    /// As many queues as there are to be had, each with a request that the server must wake for.
    pub(super) fn flood_queues(&mut self) {
        let client = self.connect();
        let mut queues = Vec::new();
        for _ in 0..100 {
            let mut ring = RawRing::new(client.open_queue());
            let frame = self.a_frame();
            ring.push(&frame, frame.len() as u64);
            ring.queue.wake();
            queues.push(ring);
            self.perhaps_die();
        }
    }

    /// The dearest calls there are, as fast as they are taken.
    pub(super) fn flood_calls(&mut self) {
        let client = self.connect();
        let mut rings: Vec<RawRing> = (0..8).map(|_| RawRing::new(client.open_queue())).collect();
        let mut frames = vec![Vec::new(); 3];
        Request::scan(&mut frames[0], self.spared, Direction::Ascending, 0, u16::MAX);
        Request::get(&mut frames[1], self.spared, &[1; 1024]);
        Request::sub_models(&mut frames[2], self.spared, 0, SubModelsWanted::AllFrom, 0);
        let until = Instant::now() + 5 * ATTACK;
        while Instant::now() < until {
            for ring in &mut rings {
                let frame = &frames[self.random.below(3) as usize];
                while ring.push(frame, frame.len() as u64) {}
                ring.discard_replies();
                ring.queue.wake();
            }
            self.perhaps_die();
        }
    }

    /// Pieces of bulk loads into tables of its own, whose last piece never comes.
    pub(super) fn leave_loads_unfinished(&mut self) {
        let client = self.connect();
        let mut ring = RawRing::new(client.open_queue());
        let table = TableId(self.spared.0 + 1 + self.random.below(2) as u32);
        for piece in 0..20 {
            let mut frame = Vec::new();
            Request::begin_bulk_load(&mut frame, table, false, piece, 100, 8);
            for key in 0..100 {
                let key = u64::from(piece) * 100 + key;
                let entry = WriteEntry { key, hint: LeafNumber::NONE, value: &[7; 8] };
                WriteEntries::push(&mut frame, entry);
            }
            while !ring.push(&frame, frame.len() as u64) {
                ring.discard_replies();
                self.perhaps_die();
            }
            ring.discard_replies();
            ring.queue.wake();
            self.perhaps_die();
        }
        std::thread::sleep(ATTACK);
    }

    /// Descriptors that nobody requested.
    pub(super) fn send_descriptors(&mut self) {
        let client = self.connect();
        let zero = std::fs::File::open("/dev/zero").expect("a file");
        let flood = vec![zero.as_fd(); 1 + self.random.below(200) as usize];
        for _ in 0..20 {
            let packet = attach(77, 0);
            client.send_with(&packet, &flood);
            drop(client.receive());
            self.perhaps_die();
        }
    }

    /// Anything at all instead of messages, before the hello or after it.
    pub(super) fn babble_on_the_control_socket(&mut self) {
        for _ in 0..10 {
            let client = if self.chance(2) { self.connect() } else { RawClient::connect(&self.socket) };
            for _ in 0..self.random.below(6) {
                let length = [0, 1, 4, 8, 24, 1024, 1025, 60_000][self.random.below(8) as usize];
                let mut packet: Vec<u8> = (0..length).map(|_| self.random.next_u64() as u8).collect();
                if let Some(kind) = packet.first_chunk_mut::<4>() {
                    *kind = (self.random.below(5) as u32).to_le_bytes();
                }
                client.send(&packet);
                self.perhaps_die();
            }
        }
    }

    /// Tries to resize, reseal, punch and write what it was given, by the descriptor and by another name.
    pub(super) fn resize_and_reopen(&mut self) {
        let client = self.connect();
        let region = client.attach(1);
        let path = format!("/proc/self/fd/{}", region.as_raw_fd());
        let reopened = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        for file in reopened.iter().chain([&region]) {
            self.try_resizing(file);
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(file, hole, 0, 4096).is_ok() {
                self.breach("a hole was punched into a read-only region");
            }
            if rustix::io::pwrite(file, &[7; 64], 0).is_ok() {
                self.breach("a read-only region was written");
            }
        }
        let RawQueue { file, .. } = client.open_queue();
        self.try_resizing(&file);
        // Its own rings it may punch: they read as zeros then.
        let whole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&file, whole, 0, 512 << 10);
    }

    /// Loads from every page that the server gives it, written or not.
    pub(super) fn read_everything(&mut self) {
        for region in 1..=REGIONS {
            drop(self.connect().read_everything(region));
            self.perhaps_die();
        }
    }

    fn try_resizing(&self, file: &OwnedFd) {
        for length in [0, 4096, 1 << 40] {
            if rustix::fs::ftruncate(file, length).is_ok() {
                self.breach("a memory file was resized");
            }
        }
        if rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_ok() {
            self.breach("a memory file was resealed");
        }
    }

    /// A request that writes nothing to the spared table: a good one, or one of the fuzzer's.
    fn a_frame(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        match self.random.below(6) {
            0 => Request::control(&mut frame, &ControlRequest::Stats),
            1 => Request::scan(&mut frame, self.spared, Direction::Descending, self.random.next_u64(), 500),
            2 => Request::lookup(&mut frame, self.spared, self.random.next_u64(), 0, u32::MAX),
            3 => {
                let other = TableId(self.spared.0 + 1);
                Request::begin_write(&mut frame, other, WriteOperation::Put, 1, 8);
                let key = self.random.below(1000);
                WriteEntries::push(
                    &mut frame,
                    WriteEntry { key, hint: LeafNumber(key as u32), value: &[1; 8] },
                );
            }
            4 => frame = vec![7; 64 << 10],
            _ => frame = fuzz::driver::input(&fuzz::target("request"), &mut self.random),
        }
        let opened = CallId::open(&frame).and_then(|(_, request)| Request::decode(request));
        let writes_spared = match opened {
            Ok(Request::Write { table, .. } | Request::BulkLoad { table, .. }) => table == self.spared,
            // It could make tables without end, and those stay.
            Ok(Request::Control(body)) => {
                matches!(ControlRequest::decode(body), Ok(ControlRequest::CreateTable { .. }))
            }
            _ => false,
        };
        if writes_spared { Vec::new() } else { frame }
    }
}
