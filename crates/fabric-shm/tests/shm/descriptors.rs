//! A client at its limit of descriptors: what it asks for fails, and all that it has goes on.

use std::fs::File;
use std::process::Child;

use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::{Connection, FabricError, QueuePair, ReadMode};
use farsight_fabric_shm::{ShmConnection, ShmQueue};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Directory, call, connect_once_listening, eventually, isolated, play};
use crate::roles::await_ready;

/// What this process may have open.
const LIMIT: u64 = 64;
const REGION: RegionId = RegionId(1);
/// Queues requested in vain.
const ATTEMPTS: usize = 40;

/// Descriptors that are in nobody's way but take their room.
struct Room(Vec<File>);

impl Room {
    /// All that is left of [`LIMIT`].
    fn none() -> Self {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum }).expect("a lower limit");
        let mut room = Self(Vec::new());
        room.take();
        room
    }

    /// Takes what has become free.
    fn take(&mut self) {
        self.0.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    }

    fn free(&mut self, count: usize) {
        self.0.truncate(self.0.len() - count);
    }
}

struct Fixture {
    _directory: Directory,
    server: Child,
    connection: ShmConnection,
    older: ShmQueue,
}

impl Fixture {
    fn new() -> Self {
        let directory = Directory::new();
        let mut server = play("server", &directory.socket());
        await_ready(&mut server);
        let connection = connect_once_listening(&directory.socket());
        let older = connection.open_queue().expect("a queue");
        Self { _directory: directory, server, connection, older }
    }

    /// What was there before goes on, for as long as another question is asked, too.
    fn check_older(&mut self) {
        self.connection.check().expect("the connection lives");
        assert_eq!(call(&mut self.older, b"still there?"), b"still there?");
    }

    fn server_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.server.id())).expect("the server lives").count()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn assert_names_limit(error: &FabricError, step: &str) {
    assert!(matches!(error, FabricError::System { .. }), "{error}");
    let text = error.to_string();
    for word in [step, "64 descriptors", "ulimit -n"] {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
}

#[test]
fn a_queue_without_room_for_its_descriptors_fails_alone() {
    isolated("descriptors::a_queue_without_room_for_its_descriptors_fails_alone", || {
        let mut fixture = Fixture::new();
        let held = fixture.server_descriptors();
        let mut room = Room::none();
        // None of a queue's two descriptors finds room, then one of them.
        for free in [0, 1] {
            room.free(free);
            for _ in 0..ATTEMPTS {
                let error = fixture.connection.open_queue().expect_err("no room");
                assert_names_limit(&error, "opening a queue");
                fixture.check_older();
            }
            room.take();
        }
        room.free(2);
        // The server may still have closed less than that when its first answer came.
        eventually("the server forgets the queues", || fixture.server_descriptors() <= held);
        let mut queue = fixture.connection.open_queue().expect("there is room again");
        assert_eq!(call(&mut queue, b"a new one"), b"a new one");
        fixture.check_older();
    });
}

#[test]
fn a_region_without_room_for_its_descriptor_attaches_later() {
    isolated("descriptors::a_region_without_room_for_its_descriptor_attaches_later", || {
        let mut fixture = Fixture::new();
        let mut room = Room::none();
        let error = fixture.older.attach(REGION).expect_err("no room");
        assert_names_limit(&error, "attaching a region");
        fixture.check_older();
        room.free(1);
        fixture.older.attach(REGION).expect("there is room again");
        let mut line = [Line::ZERO];
        fixture.older.post_read(0, RemoteAddress { region: REGION, offset_bytes: 0 }, 1, ReadMode::Plain);
        fixture.older.doorbell().expect("the doorbell rings");
        fixture.older.take_read(0, &mut line).expect("a READ");
        assert_eq!(line[0].0[0], 42);
    });
}

#[test]
fn a_connection_without_room_names_the_limit() {
    isolated("descriptors::a_connection_without_room_names_the_limit", || {
        let mut fixture = Fixture::new();
        let mut room = Room::none();
        let mut refused = 0;
        let again = loop {
            match fixture.connection.reconnect(std::time::Duration::from_secs(5)) {
                Ok(connection) => break connection,
                Err(error) => assert_names_limit(&error, ""),
            }
            refused += 1;
            fixture.check_older();
            room.free(1);
        };
        // The socket, the one for the server's news, the server's process, and what ends the watcher.
        assert_eq!(refused, 4, "a connection has so many descriptors");
        drop(again);
    });
}
