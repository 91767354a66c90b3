//! A client that does what it likes with everything a server gives it: what a process of the role `hostile`
//! runs until it is killed.
//!
//! Invariant: it uses nothing but what any client is given: a control socket, memory files, wake sockets. It
//! writes no pair of the tables that it is told to spare, for every client may write. If the server lets
//! anything through that it must refuse, the attacker says so in the file that it is told
//! ([`Attacker::breach`]). What befalls the attacker does not matter.

mod attacks;
mod raw_ring;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farsight_base::prng::SplitMix64;
use farsight_fabric_shm::raw_client::RawClient;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::TableId;

/// One attack in so many is the last.
const DEATH_ONE_IN: u64 = 8;
/// The latest moment of an attack at which it dies.
const DEATH_US_MAX: u64 = 20_000;
/// Kinds of attacks.
pub const ATTACKS: usize = 11;

/// One hostile client process.
pub struct Attacker {
    socket: PathBuf,
    /// Where a broken promise is told.
    breach: PathBuf,
    /// Where each attack that came to its end is told, a byte each: its number.
    diary: PathBuf,
    /// The table whose pairs others rely on.
    spared: TableId,
    random: SplitMix64,
    /// When it dies by itself, in the middle of the attack of now.
    dies_at: Option<Instant>,
}

impl Attacker {
    /// One that attacks the server at `socket`, with the choices of `seed`.
    #[must_use]
    pub fn new(socket: PathBuf, breach: PathBuf, diary: PathBuf, spared: TableId, seed: u64) -> Self {
        Self { socket, breach, diary, spared, random: SplitMix64::new(seed), dies_at: None }
    }

    /// Does one thing at random, for some ten milliseconds; now and then dies in the middle of it.
    ///
    /// # Panics
    /// If the diary cannot be written.
    pub fn attack(&mut self) {
        let attacks: [fn(&mut Self); ATTACKS] = [
            Self::scribble,
            Self::lie_in_counters,
            Self::send_broken_frames,
            Self::flood_connections,
            Self::flood_queues,
            Self::flood_calls,
            Self::leave_loads_unfinished,
            Self::send_descriptors,
            Self::babble_on_the_control_socket,
            Self::resize_and_reopen,
            Self::read_everything,
        ];
        let after = Duration::from_micros(self.random.below(DEATH_US_MAX));
        self.dies_at = self.chance(DEATH_ONE_IN).then(|| Instant::now() + after);
        let number = self.random.below(ATTACKS as u64) as usize;
        // A panic of the hand-made client means that the server closed on it, as it should.
        if catch_unwind(AssertUnwindSafe(|| attacks[number](self))).is_ok() {
            let diary = std::fs::File::options().append(true).create(true).open(&self.diary);
            diary.and_then(|mut diary| diary.write_all(&[number as u8])).expect("the diary can be written");
        }
    }

    fn connect(&self) -> RawClient {
        RawClient::greeted(&self.socket, FORMAT_VERSION)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    /// Dies on the spot, if this is the attack to die in and the time has come.
    fn perhaps_die(&self) {
        if self.dies_at.is_some_and(|at| Instant::now() >= at) {
            std::process::abort();
        }
    }

    /// Tells that a promise is broken.
    fn breach(&self, what: &str) {
        std::fs::write(&self.breach, what).expect("the test's directory is there");
    }
}
