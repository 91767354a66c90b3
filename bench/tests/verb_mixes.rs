//! Verb mixes: their rates against the closed form of what limits them, and against each other.

use farsight_bench::driver::Cancellation;
use farsight_bench::report::{MixRecord, mix_table, ratio_table};
use farsight_bench::simulated::Profile;
use farsight_bench::verb_mixes::{Popularity, RatioPlan, System, VerbMixPlan, VerbRates};
use farsight_bench::workload::Workload;

fn profile() -> Profile {
    Profile::load("cx3").expect("an own profile")
}

/// A small testbed, whose memory nodes are nevertheless busy.
fn plan(system: System, workload: Workload) -> VerbMixPlan {
    let plan = VerbMixPlan::of_paper(profile(), system, workload);
    VerbMixPlan { compute_nodes: 10, cache_bytes: 1_000_000, seconds: 0.000_5, ..plan }
}

fn popularity() -> Popularity {
    Popularity::new(100_000, 0.99)
}

fn run(plan: &VerbMixPlan) -> MixRecord {
    plan.run(&popularity())
}

#[test]
fn two_runs_of_any_system_are_one() {
    for system in System::ALL {
        let plan = VerbMixPlan { offloaded: 0.5, seconds: 0.000_2, ..plan(system, Workload::A) };
        let record = run(&plan);
        assert!(record.throughput_ops_per_s > 1e5, "{record:?}");
        assert_eq!(record, run(&plan), "{}", system.name());
    }
}

#[test]
fn each_verb_reaches_what_its_part_allows() {
    let of = |name: &str| profile().value(name);
    let VerbRates { swaps_per_s, writes_per_s, calls_per_s, reads_per_s } =
        VerbRates::of(&plan(System::FlexKv, Workload::A));
    // Three cards, one lock each; three cards; and a message at each end of both ways.
    let expected = [
        ("CAS", swaps_per_s, 3e9 / of("card.atomic_held")),
        ("WRITE", writes_per_s, 3e6 * of("card.write_served")),
        ("READ", reads_per_s, 3e6 * of("card.read_served")),
        ("call", calls_per_s, 10e6 * of("card.message") / 4.0),
    ];
    for (verb, got, bound) in expected {
        assert!((0.95..1.001).contains(&(got / bound)), "{verb}: {got}, expected {bound}");
    }
}

#[test]
fn an_aceso_of_updates_is_limited_by_its_compare_and_swaps() {
    let record = run(&plan(System::Aceso, Workload::A));
    assert_eq!(record.bottleneck.as_deref(), Some("memory nodes: atomics' locks"), "{record:?}");
    assert!((record.atomics_per_op - 0.5).abs() < 0.05, "{record:?}");
    // The hottest key's memory node has more than its share of them.
    let bound = 3e9 / profile().value("card.atomic_held") / record.atomics_per_op;
    let got = record.throughput_ops_per_s / bound;
    assert!((0.7..1.0).contains(&got), "{got} of {bound}");
}

#[test]
fn a_proxied_write_needs_no_compare_and_swap() {
    let proxied = VerbMixPlan { offloaded: 1.0, ..plan(System::FlexKv, Workload::A) };
    let record = run(&proxied);
    assert_eq!(record.atomics_per_op.to_bits(), 0.0f64.to_bits(), "{record:?}");
    let alone = run(&plan(System::OneSided, Workload::A));
    assert!((alone.atomics_per_op - 0.5).abs() < 0.05, "{alone:?}");
    assert_eq!(alone.calls_per_op.to_bits(), 0.0f64.to_bits(), "{alone:?}");
    let nothing = run(&VerbMixPlan { offloaded: 0.0, ..proxied });
    assert_eq!(nothing.throughput_ops_per_s.to_bits(), alone.throughput_ops_per_s.to_bits());
}

/// A proxy's work keeps its compute node's clients from the card: with every partition at one compute node
/// that is as slow as its card.
#[test]
fn a_proxy_and_its_clients_share_a_card() {
    let slow = profile().with("card.message", 0.5);
    let plan = VerbMixPlan { offloaded: 1.0, profile: slow, ..plan(System::FlexKvOp, Workload::C) };
    let record = run(&plan);
    assert_eq!(record.bottleneck.as_deref(), Some("compute nodes: card"), "{record:?}");
    // Ten cards; four messages a call of another's key.
    let bound = 10.0 * 0.5e6 / 4.0 / 0.9;
    assert!((0.5..1.0).contains(&(record.throughput_ops_per_s / bound)), "{record:?}, bound {bound}");
}

#[test]
fn compute_nodes_have_as_many_cores_as_the_profile_says() {
    let few = profile().with("machine.client_cores", 1.0).with("thread.get", 10_000.0);
    let record = run(&VerbMixPlan { profile: few, seconds: 0.008, ..plan(System::Aceso, Workload::C) });
    assert_eq!(record.bottleneck.as_deref(), Some("compute nodes: cores"), "{record:?}");
    let got = record.throughput_ops_per_s;
    assert!((0.8e6..1e6).contains(&got), "ten cores of 10 us and more a SEARCH: {got}");
}

#[test]
fn the_tables_name_every_system() {
    let cancellation = Cancellation::default();
    let plan = VerbMixPlan { seconds: 0.000_1, ..plan(System::FlexKv, Workload::BStandard) };
    let (best, mut record) = plan.run_best(&popularity(), &cancellation).expect("a result");
    assert!(best.offloaded > 0.0 && record.value_hits_per_search > 0.0, "{record:?}");
    record.sensitivity = best.sensitivity(&popularity(), &cancellation).expect("results");
    let text = mix_table(&[record]);
    assert!(text.contains("flexkv") && text.contains("card.read_served"), "{text}");
    let ratios = RatioPlan { swaps: vec![1.0, 16.0], messages: vec![1.0] };
    let records = ratios.run(&plan, &popularity(), &cancellation).expect("results");
    let text = ratio_table(&records);
    assert!(System::ALL.iter().all(|system| text.contains(system.name())), "{text}");
    let rate = |record: usize, system: System| {
        let rates = &records[record].ops_per_s;
        rates.iter().find(|(name, _)| name == system.name()).expect("all systems").1
    };
    assert!(rate(0, System::Fusee) > rate(1, System::Fusee), "a costlier CAS costs FUSEE: {records:?}");
}
