//! Clients and servers killed, stopped and started again in a loop, under load, over shared memory and TCP.
//!
//! `FARSIGHT_KILL_ROUNDS` sets the number of rounds (50), `FARSIGHT_TEST_SEED` replays the choices of a run;
//! the instants are the scheduler's.

mod client;
mod compute_nodes;
mod fences;
mod kept_values;
mod lost_nodes;
mod oracle;
mod pool;
mod process;

use std::fs::File;
use std::time::{Duration, Instant};

use farsight::{Client, Server, ServerUrl};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, PATIENCE, eventually};
use farsight_conformance::engine::processes::{Player, argument, role, say};
use rustix::process::Signal;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use client::{FILE_WORDS, FINISH, THREADS, read_word, write_word};
use process::Footprint;

const ROUNDS: u64 = 50;
/// Over TCP: what differs from shared memory is how an end is noticed.
const ROUNDS_TCP: u64 = 25;
/// Clients at work at any time.
const CLIENTS: usize = 3;
/// Steps that each thread of each client must get done after every round.
const STEPS: u64 = 2;
/// The table that is loaded and never finished.
const LOADED: &str = "loaded";
const SERVING: &str = "serving";

#[test]
fn play() {
    match role().as_deref() {
        None => {}
        Some("server") => serve(argument("URL")),
        Some("client") => client::run(),
        Some("loader") => load_for_ever(&argument("URL")),
        Some("pool worker") => pool::work(),
        Some("compute node") => compute_nodes::serve(),
        Some("keeper of values") => kept_values::keep(),
        Some("lock holder") => fences::hold(),
        Some("memory node") => fences::serve(),
        Some(other) => panic!("there is no role {other}"),
    }
}

/// Serves until SIGTERM.
fn serve(url: ServerUrl) {
    let mut signals = Signals::new([SIGTERM]).expect("signals");
    let builder = Server::builder().listen(url).workers(2).table_memory_bytes(64 << 20);
    let server = builder.start().expect("a server");
    say(&format!("{SERVING} {}", server.url()));
    signals.forever().next();
    server.shutdown().expect("its threads end");
}

/// Begins one bulk load after the other and finishes none.
fn load_for_ever(url: &ServerUrl) {
    let table = connect(url).create_table::<u64>(LOADED, 8).expect("a table");
    loop {
        let mut load = table.bulk_load().expect("a load");
        for key in 0..50_000 {
            load.push(key, &[7; 8]).expect("a pair");
        }
        say("loading");
    }
}

fn connect(url: &ServerUrl) -> Client {
    farsight::connect(&url.to_string()).expect("a connection")
}

/// A client process and the file over which it and the test talk.
struct Worker {
    player: Player,
    file: File,
}

impl Worker {
    /// Waits until each of its threads has done a few steps more: it found the server, whatever happened.
    fn await_progress(&mut self) {
        let steps = |file: &File| (1..=THREADS).map(|word| read_word(file, word)).collect::<Vec<_>>();
        let before = steps(&self.file);
        let begun = Instant::now();
        while !steps(&self.file).iter().zip(&before).all(|(now, before)| *now >= before + STEPS) {
            assert!(self.player.is_running(), "a client failed");
            assert!(begun.elapsed() < PATIENCE, "a client does not get on: {before:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The server, the clients, and where the choices come from.
struct Scene {
    directory: Directory,
    url: ServerUrl,
    random: SplitMix64,
    clients_ever: u64,
    server: Player,
    workers: Vec<Worker>,
}

impl Scene {
    fn over_shared_memory(random: SplitMix64) -> Self {
        let directory = Directory::new();
        let url = ServerUrl::shm(directory.file("socket"));
        Self::new(directory, &url, random)
    }

    fn over_tcp(random: SplitMix64) -> Self {
        // At a port of the system's choice, which the servers that follow take again.
        let url = "tcp://127.0.0.1:0".parse().expect("an address");
        Self::new(Directory::new(), &url, random)
    }

    fn new(directory: Directory, url: &ServerUrl, random: SplitMix64) -> Self {
        let (server, url) = start_server(url);
        let mut scene = Self { directory, url, random, clients_ever: 0, server, workers: Vec::new() };
        while scene.workers.len() < CLIENTS {
            scene.start_client();
        }
        scene
    }

    fn start_client(&mut self) {
        self.clients_ever += 1;
        let path = self.directory.file(&format!("client-{}", self.clients_ever));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        (0..FILE_WORDS).for_each(|word| write_word(&file, word, 0));
        let arguments = [
            ("URL", self.url.to_string()),
            ("FILE", path.display().to_string()),
            ("NUMBER", self.clients_ever.to_string()),
            ("SEED", self.random.next_u64().to_string()),
        ];
        self.workers.push(Worker { player: Player::start("client", &arguments), file });
    }

    fn pause(&mut self, most: Duration) {
        std::thread::sleep(Duration::from_micros(self.random.below(most.as_micros() as u64)));
    }

    /// One thing that goes wrong, at a random instant.
    fn round(&mut self) {
        self.pause(Duration::from_millis(60));
        let victim = self.random.below(CLIENTS as u64) as usize;
        match self.random.below(20) {
            0..8 => {
                self.server.signal(Signal::KILL);
                self.restart_server();
            }
            8..11 => {
                self.server.signal(Signal::TERM);
                self.restart_server();
            }
            11..13 => {
                self.server.signal(Signal::STOP);
                self.pause(Duration::from_millis(150));
                self.server.signal(Signal::CONT);
            }
            13..15 => {
                let player = &self.workers[victim].player;
                player.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(20));
                player.signal(Signal::CONT);
            }
            _ => {
                let signal = if self.random.below(4) == 0 { Signal::TERM } else { Signal::KILL };
                let mut worker = self.workers.swap_remove(victim);
                assert!(worker.player.is_running(), "a client failed");
                worker.player.signal(signal);
                worker.player.await_end();
                self.start_client();
            }
        }
        self.workers.iter_mut().for_each(Worker::await_progress);
    }

    /// Starts a server in the place of the one that was just ended, some time later.
    fn restart_server(&mut self) {
        self.server.await_end();
        self.pause(Duration::from_millis(40));
        self.server = start_server(&self.url).0;
    }

    fn server_footprint(&self) -> Footprint {
        Footprint::of(&self.server.id().to_string())
    }
}

/// A server, and where it listens.
fn start_server(url: &ServerUrl) -> (Player, ServerUrl) {
    let mut server = Player::start("server", &[("URL", url.to_string())]);
    let said = server.hear().expect("a server starts over the remains of another");
    let url = said.strip_prefix(SERVING).expect("it serves").trim();
    (server, url.parse().expect("its address"))
}

/// As many rounds as were requested, or as many as usual.
fn rounds(usual: u64) -> u64 {
    let rounds = std::env::var("FARSIGHT_KILL_ROUNDS");
    rounds.map_or(usual, |rounds| rounds.parse().expect("a number of rounds"))
}

#[test]
fn kills_under_load_lose_nothing_that_was_acknowledged_and_leak_nothing() {
    let seed = Seed::new("kills");
    let scene = Scene::over_shared_memory(seed.random(0));
    let directory = kill_under_load(scene, rounds(ROUNDS));
    // A server that is told to stop leaves no file of its own.
    assert!(!directory.file("socket").exists() && !directory.file("socket.lock").exists());
}

#[test]
fn kills_under_load_over_tcp() {
    let seed = Seed::new("kills over TCP");
    let scene = Scene::over_tcp(seed.random(0));
    kill_under_load(scene, rounds(ROUNDS_TCP));
}

fn kill_under_load(mut scene: Scene, rounds: u64) -> Directory {
    scene.workers.iter_mut().for_each(Worker::await_progress);
    for _ in 0..rounds {
        scene.round();
    }

    // What lived through all that holds no more than at its beginning.
    let mut lives = Vec::new();
    for worker in scene.workers.drain(..) {
        write_word(&worker.file, 0, FINISH);
        lives.push(worker.player.finish());
    }
    println!("{rounds} rounds, {} clients, the last of them in {lives:?}", scene.clients_ever);

    scene.server.signal(Signal::TERM);
    scene.server.await_end();
    scene.directory
}

#[test]
fn killed_clients_leave_a_server_as_it_was() {
    let seed = Seed::new("kills in one life");
    kill_clients_of(Scene::over_shared_memory(seed.random(1)));
}

#[test]
fn killed_clients_over_tcp_leave_a_server_as_it_was() {
    let seed = Seed::new("kills in one life over TCP");
    kill_clients_of(Scene::over_tcp(seed.random(1)));
}

fn kill_clients_of(mut scene: Scene) {
    const KILLED: u64 = 16;
    let observer = connect(&scene.url);
    scene.workers.iter_mut().for_each(Worker::await_progress);
    observer.create_table::<u64>(LOADED, 8).expect("a table");
    let empty_bytes = loaded_bytes(&observer);
    scene.kill_everybody(&observer);
    let before = scene.server_footprint();

    for round in 0..KILLED {
        let loader = [("URL", scene.url.to_string())];
        let mut loader = Player::start("loader", &loader);
        assert_eq!(loader.hear().as_deref(), Some("loading"));
        while scene.workers.len() < CLIENTS {
            scene.start_client();
        }
        scene.pause(Duration::from_millis(60));
        // In every other round it dies after a while, whatever it has done by then.
        if round % 2 == 0 {
            eventually("a load under way", || loaded_bytes(&observer) > empty_bytes + (1 << 20));
        }
        loader.kill();
        scene.workers.swap_remove(scene.random.below(CLIENTS as u64) as usize).player.kill();
    }
    scene.workers.iter_mut().for_each(Worker::await_progress);
    scene.kill_everybody(&observer);

    eventually("the unfinished loads' leaves", || loaded_bytes(&observer) == empty_bytes);
    before.await_return("the server", || scene.server_footprint());
    // Nothing that the dead held keeps anybody out.
    scene.start_client();
    scene.workers[0].await_progress();
    let mut load = observer.table::<u64>(LOADED).expect("the table").bulk_load().expect("a load");
    (0..1_000).for_each(|key| load.push(key, &[1; 8]).expect("a pair"));
    assert_eq!(load.finish().expect("the load of a living client"), 1_000);
}

impl Scene {
    /// Kills all clients and waits until the server has noticed.
    fn kill_everybody(&mut self, observer: &Client) {
        self.workers.drain(..).for_each(|worker| worker.player.kill());
        eventually("the clients' ends", || observer.stats().expect("an answer").clients == 1);
    }
}

/// Bytes in use of the leaves of the table that is loaded.
fn loaded_bytes(observer: &Client) -> u64 {
    let tables = observer.stats().expect("an answer").tables;
    tables.iter().find(|table| table.info.definition.name == LOADED).expect("the table").leaves.used_bytes()
}
