//! What is seen on a real fabric is possible on the simulated one, and what is promised holds on both.

use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_conformance::litmus::{self, Program, programs, simulated};
use farsight_fabric::{AtomicUnit, Guarantees};
use farsight_fabric_sim::{Fault, Kind, ReliableConnection, Rule, Weakest};

#[test]
fn shared_memory() {
    litmus::compare(Shm::new);
}

#[test]
fn sockets() {
    litmus::compare(Tcp::default);
}

/// A card that promises all that there is to promise.
#[derive(Debug)]
enum Strongest {}

impl Kind for Strongest {
    const GUARANTEES: Guarantees = Guarantees {
        name: "sim-strongest",
        atomic_unit: AtomicUnit::Line,
        read_lines_in_order: true,
        writes_in_order: true,
        atomic_after_write: true,
        read_after_atomic: true,
        write_after_read: true,
        read_before_completion: true,
        ..Weakest::GUARANTEES
    };
}

fn check_card<K: Kind>() {
    let check = |program: &&Program| {
        let seen = simulated::sample::<K>(program);
        println!("{}: {}", program.name, program.text_of(&seen));
        program.check_simulator(&K::GUARANTEES, &seen).err().map(|what| format!("{}: {what}", program.name))
    };
    let failures: Vec<String> = programs::ALL.iter().filter_map(check).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_card_that_promises_nothing_shows_everything() {
    check_card::<Weakest>();
}

#[test]
fn a_reliable_connection_keeps_its_promises_and_no_others() {
    check_card::<ReliableConnection>();
}

#[test]
fn a_card_that_promises_everything_keeps_it() {
    check_card::<Strongest>();
}

/// The comparison is judged by simulators that are not what they are taken for.
#[test]
fn a_simulator_of_another_strength_is_caught() {
    let of_promises = |program: &&&Program| program.outcomes.iter().any(|outcome| outcome.unless.is_some());
    let programs: Vec<&&Program> = programs::ALL.iter().filter(of_promises).collect();
    assert!(programs.len() >= 6, "one for each promise");
    for program in programs {
        let (weak, strong) = (simulated::sample::<Weakest>(program), simulated::sample::<Strongest>(program));
        let too_strong = program.check_simulator(&Weakest::GUARANTEES, &strong).expect_err(program.name);
        assert!(too_strong.contains("too strong"), "{too_strong}");
        let unseen = program.check_within(&weak, &strong).expect_err(program.name);
        assert!(unseen.contains("too strong"), "{unseen}");
        let too_weak = program.check_simulator(&Strongest::GUARANTEES, &weak).expect_err(program.name);
        assert!(too_weak.contains("must never happen"), "{too_weak}");
        let broken = program.check_promises(&Strongest::GUARANTEES, &weak).expect_err(program.name);
        assert_eq!(broken, too_weak);
    }
}

/// A card that says that a WRITE is complete before all of it is in memory breaks the contract, and is found.
#[test]
fn a_card_that_completes_writes_too_early_is_caught() {
    let program =
        programs::ALL.iter().find(|program| program.name == "two WRITEs in turn").expect("a program");
    let early = Rule::always(Fault::EarlyCompletion, 3, 10_000);
    let seen = simulated::sample_with::<Weakest>(program, &early);
    let broken = program.check_promises(&Weakest::GUARANTEES, &seen).expect_err("it is seen");
    assert!(broken.contains("flag=1 payload=0 must never happen"), "{broken}");
}
