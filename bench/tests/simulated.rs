//! YCSB where verbs have prices: small testbeds, whose results can be reckoned by hand.

use std::sync::Arc;

use farsight::{Access, CachePolicy, EngineKind, ReadsByOthers};
use farsight_bench::driver::Cancellation;
use farsight_bench::report::{SimulatedRecord, simulated_table};
use farsight_bench::simulated::{Offloaded, Profile, ProxyPace, Proxying, SimulatedPlan};
use farsight_bench::workload::{Distribution, KeySpace, Workload};

const KEYS: u64 = 20_000;

fn plan(workload: Workload) -> SimulatedPlan {
    SimulatedPlan {
        profile: Profile::load("cx4x2").expect("an own profile"),
        engine: EngineKind::XSTORE,
        memory_nodes: 0,
        machines: 2,
        proxying: None,
        threads: 3,
        workload,
        distribution: Distribution::Uniform,
        dataset: "spread".to_owned(),
        value_bytes: 8,
        batch: 4,
        access: Access::OneSided,
        seconds: 0.000_4,
        warm_up_seconds: None,
        then: None,
        sample_seconds: None,
        cache_bytes: None,
        value_cache_bytes: None,
        cache_policy: CachePolicy::default(),
        publishes_models: true,
    }
}

fn space(plan: &SimulatedPlan) -> Arc<KeySpace> {
    plan.key_space((0..KEYS).map(|key| key << 40).collect()).expect("keys")
}

fn run(plan: &SimulatedPlan) -> SimulatedRecord {
    plan.run(&space(plan), &Cancellation::default()).expect("a result")
}

#[test]
fn two_runs_of_any_workload_are_one() {
    for workload in Workload::ALL {
        let plan = plan(workload);
        let record = run(&plan);
        assert!(record.throughput_ops_per_s > 1e5, "{workload}: {record:?}");
        assert_eq!(record, run(&plan), "workload {workload}");
    }
}

#[test]
fn the_price_of_an_operation_does_not_depend_on_the_fabric() {
    let record = run(&plan(Workload::C));
    assert!((2.0..2.05).contains(&record.reads_per_op), "{record:?}");
    assert!((256.0..262.0).contains(&record.bytes_read_per_op), "{record:?}");
    assert_eq!((record.calls_per_op, record.fallbacks_per_op), (0.0, 0.0));
    assert!((0.5..0.55).contains(&record.doorbells_per_op), "two a batch of four: {record:?}");
    let alone = run(&SimulatedPlan { batch: 1, ..plan(Workload::C) });
    assert!((1.0..1.01).contains(&alone.reads_per_op), "the leaf, whole: {alone:?}");
    assert!((448.0..452.0).contains(&alone.bytes_read_per_op), "{alone:?}");
    let calls = run(&SimulatedPlan { access: Access::Rpc, ..plan(Workload::C) });
    assert_eq!((calls.calls_per_op, calls.reads_per_op), (0.25, 0.0), "a batch is one call: {calls:?}");
}

#[test]
fn a_lonely_get_takes_the_sum_of_its_parts() {
    let plan = SimulatedPlan { machines: 1, threads: 1, batch: 1, ..plan(Workload::C) };
    let of = |name: &str| plan.profile.value(name);
    let issued_ns = 1e3 / of("card.read_issued") + 1e3 / of("card.read_served");
    let overhead = of("link.packet_overhead");
    let bytes_ns = 8.0 / of("link.rate") * (overhead + 16.0 + overhead + 448.0);
    let thread_ns = of("thread.get") + of("thread.post") + of("thread.doorbell") + of("thread.completion");
    let expected_ns = of("link.round_trip") + issued_ns + bytes_ns + thread_ns;
    let record = run(&plan);
    let late_ns = record.latency_ns.p50 as f64 - expected_ns;
    // The histogram keeps three digits; a part that is an event of its own rounds up.
    assert!((-2.0..10.0).contains(&late_ns), "{} ns, expected {expected_ns}", record.latency_ns.p50);
    let rate = 1e9 / expected_ns;
    assert!((record.throughput_ops_per_s / rate - 1.0).abs() < 0.02, "{record:?}, expected {rate}");
    assert_eq!(record.bottleneck, None, "it waits");
}

#[test]
fn what_limits_a_testbed_follows_from_its_profile() {
    let slow = |name: &str, value: f64| Profile::load("cx4x2").expect("an own profile").with(name, value);
    for (profile, access, part, ops_per_s) in [
        // Two cards of a million READs; two READs a GET.
        (slow("card.read_served", 1.0), Access::OneSided, "server: card", 1e6),
        // Two links of 0.5 Gb/s; answers of 192 + 64 B and two packets' overhead.
        (slow("link.rate", 0.5), Access::OneSided, "server: link out", 2.0 * 0.5e9 / 8.0 / 316.0),
        // Two cores; a call of 4 keys.
        (
            slow("machine.server_cores", 2.0).with("core.descent", 5_000.0),
            Access::Rpc,
            "server: cores",
            2.0 * 4e9 / (220.0 + 4.0 * 5_060.0),
        ),
    ] {
        let plan = SimulatedPlan { profile, access, seconds: 0.002, ..plan(Workload::C) };
        let record = run(&plan);
        assert_eq!(record.bottleneck.as_deref(), Some(part), "{record:?}");
        let got = record.throughput_ops_per_s;
        assert!((got / ops_per_s - 1.0).abs() < 0.02, "{part}: {got}, expected {ops_per_s}");
    }
}

#[test]
fn a_window_shorter_than_opening_the_sessions_measures_what_a_long_one_does() {
    let profile = Profile::load("cx4x2").expect("an own profile").with("card.read_served", 10.0);
    let of = |seconds: f64| {
        run(&SimulatedPlan { profile: profile.clone(), threads: 24, seconds, ..plan(Workload::C) })
    };
    let (short, long) = (of(0.000_1), of(0.001));
    assert_eq!(short.bottleneck, long.bottleneck);
    let [short, long] = [short, long].map(|record| record.latency_ns.p50 as f64);
    assert!((short / long - 1.0).abs() < 0.05, "{short} and {long} ns");
}

#[test]
fn sensitivity_has_a_row_for_each_uncertain_constant() {
    let profile = Profile::load("cx4x2").expect("an own profile").with("card.read_served", 1.0);
    let plan = SimulatedPlan { profile, seconds: 0.000_2, ..plan(Workload::C) };
    let space = space(&plan);
    let mut record = run(&plan);
    record.sensitivity = plan.sensitivity(&space, &Cancellation::default()).expect("results");
    assert_eq!(record.sensitivity.len(), plan.uncertain().len());
    let row = |name: &str| record.sensitivity.iter().find(|row| row.constant == name).expect("a row");
    let atomics = row("card.atomic_served");
    assert_eq!(atomics.ops_per_s_at_low.to_bits(), atomics.ops_per_s_at_high.to_bits(), "a GET has none");
    let reads = row("card.read_served");
    assert!(reads.ops_per_s_at_high > 1.2 * record.throughput_ops_per_s, "{reads:?}");
    let text = simulated_table(&[record]);
    assert!(text.contains("card.read_served"), "{text}");
    assert!(text.contains("less than 0.5 %:\n") && text.contains("card.atomic_served"), "{text}");
}

#[test]
fn machines_have_no_more_threads_than_cores() {
    let plan = SimulatedPlan { threads: 25, ..plan(Workload::C) };
    let error = plan.run(&space(&plan), &Cancellation::default()).expect_err("too many").to_string();
    assert_eq!(error, "25 threads a machine are more than the 24 cores of profile cx4x2");
}

/// Three memory nodes and two compute nodes.
fn pool(engine: &'static EngineKind, workload: Workload) -> SimulatedPlan {
    let profile = Profile::load("cx5").expect("an own profile");
    SimulatedPlan { profile, engine, memory_nodes: 3, batch: 8, ..plan(workload) }
}

#[test]
fn two_runs_of_a_pool_are_one() {
    for engine in [EngineKind::ROLEX, EngineKind::XSTORE_D] {
        for workload in [Workload::A, Workload::D, Workload::E] {
            let plan = pool(engine, workload);
            let record = run(&plan);
            assert!(record.throughput_ops_per_s > 1e5, "{engine}, {workload}: {record:?}");
            assert_eq!(record, run(&plan), "{engine}, workload {workload}");
        }
    }
}

#[test]
fn a_pools_operations_cost_what_they_do_elsewhere() {
    let gets = run(&pool(EngineKind::ROLEX, Workload::C));
    // Now and then two keys of a batch are of one leaf, and share its READ.
    assert!((0.99..1.0).contains(&gets.reads_per_op), "the leaf, whole: {gets:?}");
    assert!((443.0..448.0).contains(&gets.bytes_read_per_op), "{gets:?}");
    assert_eq!((gets.calls_per_op, gets.writes_per_op, gets.atomics_per_op), (0.0, 0.0, 0.0));
    let updates = run(&pool(EngineKind::ROLEX, Workload::A));
    assert!(updates.calls_per_op < f64::EPSILON, "{updates:?}");
    // Half of the operations are updates: a lock, four WRITEs, the lock's release among them.
    assert!((0.4..0.6).contains(&updates.atomics_per_op), "{updates:?}");
    let writes = updates.writes_per_op / updates.atomics_per_op;
    assert!((3.8..4.2).contains(&writes), "{writes} WRITEs an update: {updates:?}");
    let calls = run(&pool(EngineKind::XSTORE_D, Workload::A));
    assert_eq!((calls.writes_per_op, calls.atomics_per_op), (0.0, 0.0), "{calls:?}");
    assert!(calls.calls_per_op > 0.1, "{calls:?}");
}

#[test]
fn the_few_cores_of_memory_nodes_bound_who_asks_them() {
    let profile = Profile::load("cx5").expect("an own profile");
    let profile = profile.with("machine.memory_node_cores", 1.0).with("core.write_entry", 10_000.0);
    let of = |engine| run(&SimulatedPlan { profile: profile.clone(), ..pool(engine, Workload::A) });
    let (asks, alone) = (of(EngineKind::XSTORE_D), of(EngineKind::ROLEX));
    assert_eq!(asks.bottleneck.as_deref(), Some("server: cores"), "{asks:?}");
    // Three cores, 10 us an update, every other operation one.
    assert!(asks.throughput_ops_per_s < 1.05 * 3.0 * 2.0 / 10e-6, "{asks:?}");
    assert!(alone.throughput_ops_per_s > 2.0 * asks.throughput_ops_per_s, "{alone:?}");
}

#[test]
fn machines_that_write_for_others_take_failed_swaps_away() {
    let of = |proxies: usize| {
        let profile = Profile::load("cx3").expect("an own profile");
        let distribution = Distribution::Zipfian { theta: 0.99 };
        let pool = pool(EngineKind::FLEXKV, Workload::A);
        let proxying = (proxies > 0).then(|| Proxying::by(proxies));
        let plan = SimulatedPlan { profile, distribution, machines: 10, threads: 10, proxying, ..pool };
        let record = run(&plan);
        assert_eq!(record, run(&plan), "two runs are one");
        record
    };
    let (alone, proxied) = (of(0), of(10));
    let served = |record: &SimulatedRecord| {
        record.utilization.iter().find(|part| part.name == "proxies: cores").map(|part| part.parts)
    };
    assert_eq!((served(&alone), served(&proxied)), (None, Some(10)));
    assert!(proxied.throughput_ops_per_s > 1.1 * alone.throughput_ops_per_s, "{alone:?} {proxied:?}");
    assert!(proxied.latency_ns.p99 < alone.latency_ns.p99, "{alone:?} {proxied:?}");
    assert!(proxied.atomics_per_op < alone.atomics_per_op / 2.0, "{alone:?} {proxied:?}");
}

/// A FlexKV table with hot keys, and machines that write for others as they are told.
fn proxied(offloaded: Offloaded, workload: Workload) -> SimulatedPlan {
    let profile = Profile::load("cx3").expect("an own profile");
    let pace = ProxyPace::new(1_000).expect("a pace");
    SimulatedPlan {
        profile,
        distribution: Distribution::Zipfian { theta: 0.99 },
        machines: 6,
        threads: 4,
        proxying: Some(Proxying { offloaded, pace, ..Proxying::by(6) }),
        seconds: 0.002,
        // Eight seconds of the coordinator.
        warm_up_seconds: Some(0.008),
        ..pool(EngineKind::FLEXKV, workload)
    }
}

#[test]
fn the_knob_turns_in_the_simulator_and_samples_show_it() {
    let plan = SimulatedPlan {
        seconds: 0.02,
        warm_up_seconds: Some(0.0),
        then: Some((Workload::C, 0.004)),
        sample_seconds: Some(0.001),
        ..proxied(Offloaded::Found, Workload::A)
    };
    let record = run(&plan);
    assert_eq!(record, run(&plan), "two runs are one");
    assert_eq!(record.samples.len(), 24, "{record:?}");
    let counted: f64 = record.samples.iter().map(|sample| sample.ops_per_s * 0.001).sum();
    assert!((counted / (record.throughput_ops_per_s * 0.024) - 1.0).abs() < 1e-9, "{record:?}");
    let offloaded: Vec<f64> =
        record.samples.iter().map(|sample| sample.offloaded.expect("machines serve")).collect();
    // It begins with all, and measures none of them next.
    assert!(offloaded.contains(&1.0) && offloaded.contains(&0.0), "{offloaded:?}");
    // Reads that follow turn nothing.
    assert!(offloaded[21..].windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()), "{offloaded:?}");
}

#[test]
fn a_part_that_is_set_stays_set_and_hot_partitions_are_spread() {
    let of = |offloaded| run(&proxied(offloaded, Workload::A));
    let [all, fifth, hottest] =
        [Offloaded::Numbered(100), Offloaded::Numbered(20), Offloaded::Hottest(20)].map(of);
    assert_eq!([&all, &hottest].map(|record| record.offloaded), [Some(1.0), Some(205.0 / 1_024.0)]);
    assert_eq!(fifth.offloaded, Some(210.0 / 1_024.0), "6 machines have 35 each");
    let written = |record: &SimulatedRecord| record.proxied_writes.iter().sum::<u64>();
    assert!(written(&hottest) > 2 * written(&fifth), "{fifth:?} {hottest:?}");
    let of_all = run(&proxied(Offloaded::Hottest(100), Workload::A));
    let variation = |record: &SimulatedRecord| record.proxied_writes_variation().expect("writes");
    assert!(variation(&of_all) < variation(&all), "{all:?} {of_all:?}");
}

#[test]
fn more_threads_of_a_machine_that_serves_are_more_cores() {
    let of = |threads| {
        let plan = proxied(Offloaded::Numbered(100), Workload::A);
        let proxying = plan.proxying.map(|proxying| Proxying { threads, ..proxying });
        run(&SimulatedPlan { profile: plan.profile.with("core.call", 20_000.0), proxying, ..plan })
    };
    let [one, two] = [1, 2].map(of);
    assert!(two.throughput_ops_per_s > 1.3 * one.throughput_ops_per_s, "{one:?} {two:?}");
}

#[test]
fn machines_that_find_keys_or_read_them_take_reads_from_the_others() {
    let of = |reads| {
        let plan = proxied(Offloaded::Numbered(100), Workload::C);
        let proxying = plan.proxying.map(|proxying| Proxying { reads, ..proxying });
        // Clients remember no address, and owners those of all keys.
        let cache_bytes = (reads != ReadsByOthers::Values).then_some(0);
        let record = run(&SimulatedPlan { proxying, cache_bytes, ..plan });
        (record.reads_per_op, record.calls_per_op)
    };
    let [alone, found, owned] = ReadsByOthers::ALL.map(of);
    assert!(alone.0 > 2.9 && alone.1 < 0.01, "buckets and objects: {alone:?}");
    // A batch of four keys goes to four machines at most.
    let calls = 0.25..=1.0;
    assert!((1.9..2.1).contains(&found.0) && calls.contains(&found.1), "slots and objects: {found:?}");
    assert!(owned.0 < 0.01 && calls.contains(&owned.1), "the owners' READs: {owned:?}");
}

#[test]
fn values_that_machines_keep_answer_reads_without_a_verb() {
    let of = |value_cache_bytes, workload| {
        let plan = SimulatedPlan {
            proxying: None,
            value_cache_bytes,
            batch: 1,
            warm_up_seconds: Some(0.01),
            ..proxied(Offloaded::Numbered(100), workload)
        };
        run(&plan)
    };
    let (without, with) = (of(None, Workload::C), of(Some(1 << 20), Workload::C));
    let [none, some] = [&without, &with].map(|record| record.lone_reads.expect("lone reads"));
    assert_eq!((none.value.part, without.value_hits_per_get), (0.0, 0.0));
    assert!(some.value.part > 0.2 && some.value.latency_ns_mean < some.address.latency_ns_mean, "{with:?}");
    assert!((some.value.part - with.value_hits_per_get).abs() < 0.02, "{with:?}");
    assert!((some.value.part + some.address.part + some.other.part - 1.0).abs() < 1e-9, "{with:?}");
    assert!(with.reads_per_op < without.reads_per_op, "{with:?} {without:?}");
    assert!(of(Some(1 << 20), Workload::A).throughput_ops_per_s > 1e5, "and writers recall them");
}

#[test]
fn an_engine_that_keeps_no_values_says_so() {
    let plan = SimulatedPlan { value_cache_bytes: Some(1 << 20), ..pool(EngineKind::ROLEX, Workload::C) };
    let error = plan.run(&space(&plan), &Cancellation::default()).expect_err("no cache").to_string();
    assert_eq!(error, "nobody keeps values of rolex's tables");
}
