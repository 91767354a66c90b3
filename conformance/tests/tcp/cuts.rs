//! Connections that are cut in the middle of writes: every write acts once, and says what it did.
//!
//! A relay stands between client and server. It cuts a queue pair's connection when it is told to: before a
//! request arrives, before a reply does, or so that the request arrives later than its repetition. The server
//! lives through all of it. So no write may be indeterminate, and a map says what each of them finds.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_client::{Access, Client, ClientOptions, Session};
use farsight_fabric_tcp::{ConnectOptions, ListenOptions, TcpConnection, TcpHost};
use farsight_index::OldValues;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::{KeyKind, TableDefinition, ValueKind, WriteOperation, WriteOutcome};

/// Keys written: few, so that batches have many writes of one.
const KEYS: u64 = 40;
/// The bit of keys that are added to.
const COUNTER_BIT: u32 = 32;
/// Calls of a session.
const CALLS: u64 = 150;
/// Entries of a batch at most: more than the calls in flight carry at once; of values of any length less.
const BATCH_MAX: u64 = 1_500;
const BATCH_OF_BLOCKS_MAX: u64 = 40;
/// Of values of any length, one in so many is as long as it may be; and bytes of the others at most.
const LONG_ONE_IN: u64 = 16;
const SHORT_BYTES_MAX: u64 = 300;
/// How long a late request is held up: long enough for its repetition to come first, most of the time.
const HELD_UP: Duration = Duration::from_millis(15);
/// Bytes that a relay forwards at once.
const PIECE_BYTES: usize = 16 << 10;

/// What a cut does.
#[derive(Clone, Copy)]
enum Cut {
    /// A request never arrives.
    LosesRequest,
    /// A request arrives when its connection is gone.
    DelaysRequest,
    /// A reply never arrives.
    LosesReply,
}

/// What the relays of one test share.
#[derive(Default)]
struct Relay {
    /// Pieces until the next cut of each kind; zero: none is wanted.
    until: [AtomicU64; 3],
    cuts: AtomicU64,
    ends: AtomicBool,
}

impl Relay {
    /// Relays connections to `server`; returns where.
    fn start(server: SocketAddr) -> (Arc<Self>, SocketAddr) {
        let relay = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let own = Arc::clone(&relay);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // Relaxed: a look now and then.
                if own.ends.load(Ordering::Relaxed) {
                    return;
                }
                let client = client.expect("a client");
                let server = TcpStream::connect(server).expect("the server");
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("an option");
                }
                let (from, to) = (client.try_clone().expect("a clone"), server.try_clone().expect("a clone"));
                let relay = Arc::clone(&own);
                std::thread::spawn(move || relay.carry_requests(from, to));
                let relay = Arc::clone(&own);
                std::thread::spawn(move || relay.carry_replies(server, client));
            }
        });
        (relay, address)
    }

    /// Wants this cut alone, so many pieces from now on.
    fn want(&self, cut: Cut, pieces: u64) {
        // Relaxed: nothing else goes with it.
        self.until.iter().for_each(|until| until.store(0, Ordering::Relaxed));
        self.until[cut as usize].store(pieces, Ordering::Relaxed);
    }

    /// Counts a piece. True if it is to be cut.
    fn strikes(&self, cut: Cut) -> bool {
        let count = |until: u64| until.checked_sub(1);
        // Relaxed: whichever piece it is.
        let strikes =
            self.until[cut as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1);
        self.cuts.fetch_add(u64::from(strikes), Ordering::Relaxed);
        strikes
    }

    fn carry_requests(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut piece = vec![0; PIECE_BYTES];
        let mut is_first = true;
        while let Ok(bytes @ 1..) = client.read(&mut piece) {
            // The first piece is a handshake's: a client makes only so many attempts.
            if !std::mem::take(&mut is_first) {
                if self.strikes(Cut::LosesRequest) {
                    break;
                }
                if self.strikes(Cut::DelaysRequest) {
                    let _ = client.shutdown(Shutdown::Both);
                    std::thread::sleep(HELD_UP);
                    let _ = server.write_all(&piece[..bytes]);
                    // The server has the bytes; it ends the connection when it has read them.
                    let _ = server.shutdown(Shutdown::Write);
                    return;
                }
            }
            if server.write_all(&piece[..bytes]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }

    fn carry_replies(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut piece = vec![0; PIECE_BYTES];
        let mut is_first = true;
        while let Ok(bytes @ 1..) = server.read(&mut piece) {
            if !std::mem::take(&mut is_first) && self.strikes(Cut::LosesReply) {
                break;
            }
            if client.write_all(&piece[..bytes]).is_err() {
                // Nobody is there any more; a late request may still be on its way to the server.
                return;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

/// A server, and a client that reaches it through a relay.
struct Run {
    _server: NodeHandle,
    relay: Arc<Relay>,
    client: Client,
}

impl Run {
    fn start() -> Self {
        let options = ListenOptions::new(FORMAT_VERSION);
        let host = Arc::new(TcpHost::listen("127.0.0.1:0", &options).expect("a host"));
        let (relay, address) = Relay::start(host.local_address());
        let options = NodeOptions { table_memory_bytes: 64 << 20, ..NodeOptions::default() };
        let server = Node::start(vec![host], &options).expect("a server");
        let connection = TcpConnection::connect(&address.to_string(), ConnectOptions::new(FORMAT_VERSION));
        let client = Client::new(connection.expect("a connection"), ClientOptions::default());
        Self { _server: server, relay, client: client.expect("a client") }
    }

    fn session(&self, values: ValueKind) -> Session {
        let definition = TableDefinition { values, ..TableDefinition::new("t", KeyKind::U64, 8) };
        let table = self.client.create_table(definition).expect("a table");
        table.session(Access::OneSided).expect("a session")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Relaxed: a look now and then.
        self.relay.ends.store(true, Ordering::Relaxed);
    }
}

/// Entries of a call.
type Entries = Vec<(u64, Vec<u8>)>;
/// What is there: a value and its version.
type Model = BTreeMap<u64, (Vec<u8>, u64)>;

/// What a write should find and do. The version of what it stores is the outcome's.
fn expect(
    model: &mut Model,
    operation: WriteOperation,
    key: u64,
    operand: &[u8],
    got: WriteOutcome,
) -> Vec<u8> {
    use WriteOperation::{CompareAndSet, FetchAdd, Insert, Put, Remove, Swap, Update};
    let before = model.get(&key).cloned();
    let old = before.clone().map(|(value, _)| value);
    let stored = match (operation, &before) {
        (Insert, Some((_, version))) => {
            assert_eq!(got, WriteOutcome::Exists(*version), "{operation:?} of {key}");
            return Vec::new();
        }
        (Update | Remove, None) => {
            assert_eq!(got, WriteOutcome::Absent, "{operation:?} of {key}");
            return Vec::new();
        }
        (Remove, Some(_)) => {
            assert!(matches!(got, WriteOutcome::Removed(_)), "{operation:?} of {key}: {got:?}");
            model.remove(&key);
            return Vec::new();
        }
        (FetchAdd, before) => {
            let integer = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let old = before.as_ref().map_or(0, |(value, _)| integer(value));
            old.wrapping_add(integer(operand)).to_le_bytes().to_vec()
        }
        (CompareAndSet, _) => operand[8..].to_vec(),
        (Put | Swap | Insert | Update, _) => operand.to_vec(),
        other => panic!("not tried: {other:?}"),
    };
    let version = match (got, &before) {
        (WriteOutcome::Replaced(version), Some((_, before))) => {
            assert!(version > *before, "{operation:?} of {key}: {got:?} of {before}");
            version
        }
        (WriteOutcome::Inserted(version), None) => version,
        _ => panic!("{operation:?} of {key}: {got:?} where {before:?} was"),
    };
    model.insert(key, (stored, version));
    old.unwrap_or_default()
}

/// Entries of a call. Where versions are compared each key comes once: a batch's are not known before.
fn draw(random: &mut SplitMix64, operation: WriteOperation, values: ValueKind, model: &Model) -> Entries {
    let (is_compare, is_addition) =
        (operation == WriteOperation::CompareAndSet, operation == WriteOperation::FetchAdd);
    let count_max = match values {
        _ if is_compare => KEYS,
        ValueKind::Fixed(_) => BATCH_MAX,
        ValueKind::Blocks { .. } => BATCH_OF_BLOCKS_MAX,
    };
    let count = [1, 1 + random.below(count_max)][random.below(2) as usize];
    let entry = |index| {
        let key = if is_compare { index % KEYS } else { random.below(KEYS) };
        if operation == WriteOperation::Remove {
            return (key, Vec::new());
        }
        let bytes = match values {
            ValueKind::Blocks { max_bytes, .. } if !is_addition => {
                let is_long = random.below(LONG_ONE_IN) == 0;
                random.below(if is_long { u64::from(max_bytes) } else { SHORT_BYTES_MAX })
            }
            _ => 8,
        };
        let mut operand = Vec::new();
        if is_compare {
            let version = model.get(&key).map_or(0, |(_, version)| *version);
            operand.extend(version.to_le_bytes());
        }
        operand.extend((0..bytes).map(|_| random.next_u64() as u8));
        // Counters are keys of their own.
        (key | u64::from(is_addition) << COUNTER_BIT, operand)
    };
    (0..count).map(entry).collect()
}

/// Writes of these kinds, in calls of one entry and of many, under cuts.
fn write_under_cuts(values: ValueKind, operations: &[WriteOperation]) {
    let run = Run::start();
    let mut session = run.session(values);
    let mut random = SplitMix64::fresh();
    let mut model = Model::new();
    let (mut outcomes, mut old_values) = (Vec::new(), OldValues::default());
    for _ in 0..CALLS {
        let operation = operations[random.below(operations.len() as u64) as usize];
        let entries = draw(&mut random, operation, values, &model);
        let cut = [Cut::LosesRequest, Cut::DelaysRequest, Cut::LosesReply][random.below(3) as usize];
        run.relay.want(cut, random.below(6));
        let written = entries.iter().map(|(key, value)| (*key, &value[..]));
        session.exchange(operation, written, &mut outcomes, &mut old_values).expect("the server lives");
        assert_eq!(outcomes.len(), entries.len());
        for (index, ((key, operand), outcome)) in entries.iter().zip(&outcomes).enumerate() {
            let old = expect(&mut model, operation, *key, operand, *outcome);
            if matches!(outcome, WriteOutcome::Replaced(_)) && operation.returns_value() {
                assert_eq!(old_values.get(index), Some(&old[..]), "{operation:?} of {key}");
            }
        }
    }
    let mut value = Vec::new();
    for key in (0..KEYS).chain((0..KEYS).map(|key| key | 1 << COUNTER_BIT)) {
        let version = session.get_into(key, &mut value).expect("an answer");
        let found = version.map(|version| (value.clone(), version));
        assert_eq!(found.as_ref(), model.get(&key), "key {key}");
    }
    // Relaxed: the relay has been told nothing since.
    let cuts = run.relay.cuts.load(Ordering::Relaxed);
    assert!(cuts > CALLS / 8, "{cuts} cuts in {CALLS} calls");
}

#[test]
fn writes_of_one_size_act_once_under_cuts() {
    use WriteOperation::{CompareAndSet, FetchAdd, Insert, Put, Remove, Swap, Update};
    let all = [Insert, Update, Put, Remove, CompareAndSet, FetchAdd, Swap];
    write_under_cuts(ValueKind::Fixed(8), &all);
}

#[test]
fn writes_of_any_length_act_once_under_cuts() {
    use WriteOperation::{CompareAndSet, FetchAdd, Insert, Put, Remove, Swap, Update};
    let all = [Insert, Update, Put, Remove, CompareAndSet, FetchAdd, Swap];
    write_under_cuts(ValueKind::blocks(30_000), &all);
}

/// Swaps of such values are no calls, but compare what was read.
#[test]
fn values_in_pieces_are_written_once_under_cuts() {
    use WriteOperation::{CompareAndSet, Insert, Put, Remove, Update};
    write_under_cuts(ValueKind::blocks(200_000), &[Insert, Update, Put, Remove, CompareAndSet]);
}
