//! The checkers checked: each injected bug is found within its number of seeds. Built with `--cfg injected`:
//! `RUSTFLAGS="--cfg injected" cargo test --profile tests -p farsight-sim --test injected`.

#![cfg(injected)]

use std::any::Any;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farsight_base::injection::{Bug, inject};
use farsight_fabric_sim::{Fault, Rule};
use farsight_index::ReadsByOthers;
use farsight_sim::{Failure, PoolShape, Scenario, named, run_seed};

/// Each bug of each crate that a simulation runs.
fn bugs() -> impl Iterator<Item = &'static Bug> {
    let lists = [
        farsight_base::injected::ALL,
        farsight_blocks::injected::ALL,
        farsight_client::injected::ALL,
        farsight_durability::injected::ALL,
        farsight_fabric::injected::ALL,
        farsight_fabric_sim::injected::ALL,
        farsight_index::injected::ALL,
        farsight_index_flexkv::injected::ALL,
        farsight_index_rolex::injected::ALL,
        farsight_index_xstore::injected::ALL,
        farsight_layout::injected::ALL,
        farsight_node::injected::ALL,
    ];
    lists.into_iter().flatten().copied()
}

/// The bug of this name.
fn bug(name: &str) -> &'static Bug {
    bugs().find(|bug| bug.name() == name).unwrap_or_else(|| panic!("no crate has a bug {name}"))
}

/// Seeds: from the first one on, or from one not far below the one that finds a bug today, where those before
/// it take long.
type Seeds = RangeInclusive<u64>;

/// The first seed that fails, and how.
fn first_failure(mut seeds: Seeds, run: impl Fn(u64) -> Result<(), Box<Failure>>) -> Option<(u64, String)> {
    seeds.find_map(|seed| match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(done) => done.err().map(|failure| (seed, failure.what)),
        Err(panic) => Some((seed, format!("it panicked: {}", said(&*panic)))),
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing")
}

#[track_caller]
fn assert_found(name: &str, seeds: Seeds, run: impl Fn(u64) -> Result<(), Box<Failure>>) {
    match first_failure(seeds.clone(), run) {
        Some((seed, what)) => println!("{name}: found by seed {seed} of {seeds:?}: {what}"),
        None => panic!("{name}: not found by {seeds:?}"),
    }
}

fn assert_bug_is_found(name: &str, scenario: &str, seeds: Seeds) {
    let (bug, named) = (bug(name), named(scenario).expect("a scenario"));
    assert_found(&format!("{name} in {scenario}"), seeds, |seed| {
        inject(bug, || run_seed(seed, named, false).map(drop))
    });
}

/// Found by a seed of a scenario that `change` made of the named one, in these words.
fn assert_is_said(bug: &'static Bug, name: &str, change: impl Fn(&mut Scenario), seeds: Seeds, said: &str) {
    let found = seeds.clone().find_map(|seed| {
        let mut scenario = named(name).expect("a scenario").scenario(seed);
        change(&mut scenario);
        let failure = inject(bug, || scenario.run(false, &Arc::default())).err()?;
        failure.what.contains(said).then_some((seed, failure.what))
    });
    match found {
        Some((seed, what)) => println!("{bug:?} in {name}: found by seed {seed} of {seeds:?}: {what}"),
        None => panic!("{bug:?} in {name}: no seed of {seeds:?} says {said:?}"),
    }
}

macro_rules! found {
    ($($name:ident: $bug:ident in $scenario:literal within $count:literal $(from $first:literal)?;)+) => {
        $(
            #[test]
            fn $name() {
                let first = 1_u64 $(.max($first))?;
                assert_bug_is_found(stringify!($bug), $scenario, first..=first + $count - 1);
            }
        )+

        /// The bugs that scenarios find as they are.
        const FOUND: &[&str] = &[$(stringify!($bug)),+];
    };
}

found! {
    a_value_of_another_incarnation: AnyIncarnation in "mixed" within 10;
    a_value_that_is_being_written: OddAccepted in "mixed" within 100;
    a_value_that_is_not_there_yet: UnwrittenAccepted in "mixed" within 500;
    a_key_shown_before_its_value: KeyShownFirst in "mixed" within 300;
    a_left_leaf_shown_before_the_right_one: LinkedBeforeFilled in "mixed" within 100;
    a_miss_without_fences: MissWithoutFences in "mixed" within 10;
    no_step_to_the_sibling: NoSiblingStep in "mixed" within 10;
    a_slot_used_twice: SlotReused in "mixed" within 10;
    lines_that_stay_even: OpenedInPart in "mixed" within 100;
    an_incarnation_kept: IncarnationKept in "mixed" within 10;
    a_hint_trusted: HintTrusted in "mixed" within 10;
    a_scan_that_skips_a_leaf: ScanSkipsSibling in "mixed" within 10;
    a_scan_that_skips_a_leaf_on_its_way_down: DescentSkipsSibling in "mixed" within 40;
    a_merged_leaf_left_standing: RightLeftStanding in "merges" within 20;
    a_merge_in_place: MergedInPlace in "merges" within 200;
    a_scan_that_skips_what_was_merged: ScanSkipsMerged in "merges" within 400;
    a_part_driven_out_in_its_place: DrivenOutInPlace in "budgets" within 1_000;
    a_retrain_dropped: DroppedRetrain in "mixed" within 10;
    a_stale_model_kept: StaleModelKept in "mixed" within 20;
    parts_of_two_generations: GenerationsMixed in "merges" within 2_000;
    a_retry_without_bound: UnboundedRetry in "stalls" within 200;
    a_model_trained_on_keys: TrainedOnKeys in "mixed" within 20;
    bounds_that_are_not_checked: BoundsNotChecked in "flips" within 20;
    an_answer_before_its_effect: AnsweredBeforeVisible in "mixed" within 100;
    no_second_look_at_a_stamp: NoSecondLook in "mixed" within 500;
    a_lock_taken_over_without_a_fence: StolenUnfenced in "pool-leases" within 200;
    a_lock_that_nobody_else_takes_over: NotPoisoned in "pool-deaths" within 500;
    a_journal_cleared_before_the_repair_is_done: JournalClearedEarly in "pool-deaths" within 500 from 190;
    a_lock_released_before_the_writes: UnlockedFirst in "pool" within 50;
    a_leaf_not_read_again_under_its_lock: NoRereadUnderLock in "pool" within 50;
    a_fence_answered_early: FenceAnsweredEarly in "pool-leases" within 1_000;
    a_merged_leaf_left_open: MergedUnclosed in "pool-merges" within 200;
    a_processor_asked_beside_locks: AskedBesideLocks in "pool" within 100;
    a_leaf_adopted_that_was_free_meanwhile: AdoptedBlind in "pool-merges" within 400 from 110;
    a_leaf_at_which_a_group_begins_merged: AnchorTakenBlind in "pool-groups" within 1_000;
    a_write_done_along_and_again: TakenUnmarked in "pool" within 3_000;
    an_update_that_nobody_overtook: OvertakenByNone in "pool" within 50;
    an_update_before_a_write_that_looked: OvertakenByAny in "pool-conditional" within 3_000;
    leaves_in_use_given_back: LinkedFreed in "pool" within 50;
    a_scan_that_ends_with_a_part: ScanEndsWithPart in "parts" within 10;
    a_node_that_lost_its_memory: EpochsNotCompared in "parts-restarts" within 50;
    leaves_that_are_not_carried_over: LeavesNotCarriedOver in "pool" within 50;
    an_answer_of_the_one_before: TicketOutlivesClient in "parked" within 20;
    a_version_that_is_not_compared: VersionNotCompared in "conditional" within 20;
    a_value_before_of_another_key: OldValueOfAnother in "conditional" within 20;
    a_value_before_that_is_kept: OldValueKept in "pool-conditional" within 400;
    an_addition_repeated: WriteRepeated in "conditional" within 100;
    an_answer_before_its_sync: AnsweredBeforeSync in "kept" within 100;
    a_write_seen_before_its_sync: AppliedBeforeSync in "kept" within 100;
    a_segment_removed_early: SegmentRemovedEarly in "kept" within 400;
    a_version_given_again_by_the_next_life: VersionReused in "kept" within 50;
    an_addition_that_the_log_does_not_know: CallUnnoted in "kept" within 50;
    an_addition_noted_behind_its_writes: NoteBehindWrites in "kept" within 200;
    a_failed_sync_retried: FailedSyncRetried in "kept" within 200 from 65;
    a_failed_sync_trusted_by_the_next_life: UnsyncedTrusted in "kept" within 200;
    an_addition_whose_answer_is_not_kept: ReplyNotKept in "conditional" within 100;
    a_block_reused_while_it_is_live: LiveBlockReused in "blocks" within 20;
    a_value_compared_by_its_length: ValueComparedByLength in "blocks-conditional" within 20;
    a_value_shown_before_its_write: StagedValueShown in "blocks-long" within 20;
    a_piece_of_another_version: PieceOfNewerValue in "blocks-long" within 100;
    pieces_that_outlive_their_client: StagedValueLeaked in "blocks-long" within 100;
    a_torn_block: ChecksumSkipped in "blocks" within 1_000;
    a_block_of_another_pair: BlockIdentityNotCompared in "blocks" within 1_000;
    a_key_inserted_twice: BucketsNotReadAgain in "hashed" within 20;
    slots_that_were_copied_and_not_sealed: SlotsNotSealed in "hashed-growth" within 100;
    halves_named_before_they_are_written: PublishedBeforeHalves in "hashed-growth" within 500;
    a_half_that_a_walk_skips: HalfSkipped in "hashed-walks" within 20;
    an_old_directory_trusted: OldDirectoryTrusted in "hashed-growth" within 100;
    a_version_that_comes_again: RemovedVersionForgotten in "hashed" within 200;
    an_address_believed_without_its_slot: SlotNotCompared in "hashed" within 20;
    a_slot_swapped_beside_its_object: SwappedBesideWrite in "hashed" within 200;
    a_tail_that_does_not_follow: TailLeftBehind in "hashed-replicas" within 20;
    an_object_named_before_its_replicas: NamedBeforeReplicas in "hashed-replicas" within 4_000;
    a_node_taken_in_before_it_is_whole: TakenInUnwhole in "hashed-repairs" within 20;
    a_compute_node_of_the_old_list: OldListLetIn in "hashed-repairs" within 200;
    an_object_that_was_brought_in_another_use: BroughtInAnyUse in "hashed-repairs" within 1_000;
    a_shared_value_replaced_at_once: SharedNotClosed in "hashed-cached" within 20;
    a_closing_that_is_not_counted: ClosingNotCounted in "hashed-cached" within 200;
    a_value_kept_while_its_slot_closes: ClosingKept in "hashed-cached" within 2_000;
    a_closing_that_the_head_counts: CountedAtHead in "hashed-cached" within 500;
    a_slot_shared_at_the_tail_alone: SharedAtTail in "hashed-cached" within 500;
    a_kept_value_given_out_behind_its_lease: LeaseOutlived in "hashed-cached" within 200;
    a_split_that_waits_for_no_lease: SealedUnawaited in "hashed-cached" within 2_000;
    who_says_to_have_let_go_before_it_has: LetGoLater in "hashed-cached" within 2_000;
    one_who_keeps_values_forgotten: KeeperForgotten in "hashed-cached" within 4_000;
    a_recall_answered_by_the_first: RecallAnsweredEarly in "hashed-cached" within 2_000;
    an_object_freed_too_early: FreedBeforeReplaced in "hashed-stalls" within 10_000;
    an_object_in_hand_that_is_freed: HeldObjectFreed in "hashed-deaths" within 200;
    memory_given_again_in_one_life: GenerationKept in "hashed-stalls" within 8_000;
    a_call_to_a_compute_node_repeated: LostCallRepeated in "hashed-proxied" within 50;
    a_removal_by_a_compute_node_repeated: LostRemovalRepeated in "hashed-proxied" within 200;
    a_row_that_has_what_it_removed: RemovedInRowHeld in "hashed-proxied" within 50;
    a_key_said_to_be_absent_unread: AbsentUnread in "hashed-proxied" within 200;
    the_first_write_of_a_batch_stored: FirstWriteStored in "hashed-proxied" within 20;
    an_update_overtaken_by_who_looked: OvertakenByLooker in "hashed-conditional" within 2_000;
    a_swap_that_failed_answered: UnswappedAnswered in "hashed-proxied" within 50;
    splits_that_are_not_counted_again: RecountSkipped in "pool" within 2_000;
    lines_used_again_too_early: LinesReusedEarly in "pool-trainers" within 4000;
}

/// The bugs that tests of their own are for: below, in the fabric's, and in the models.
const FOUND_ELSEWHERE: &[&str] = &[
    "OtherEpochServed",
    "WidenedBeforeFilled",
    "OvertakenBeforeAsked",
    "UnshownCleared",
    "JournalMissing",
    "BornOpenedEarly",
    "ImageKept",
    "SentBehindGivenUp",
    "NewcomersFenced",
    "FlyingUnseen",
    "LostBackendKept",
    "LoneUpdateLost",
    "NumberReused",
    "AcquireLoads",
    "ReleaseStores",
    "AcquireFences",
    "AtomicBehindRefused",
    "ReleaseFences",
    "SeqCstFences",
    "ChangedUnlocked",
    "VersionTakenLate",
    "ReusedBlockTrusted",
    "RecordUnchecked",
    "LockWordReused",
    "NumbersShort",
    "FormerNumberForgotten",
    "FirstNumberFenced",
    "OrphanFencedAtHome",
    "LoadCountedAhead",
    "FullEndsStep",
    "GenerationNotCompared",
    "UnusedImagesKept",
    "ReadBesideReservation",
    "ReservationsLeft",
    "PieceMisplaced",
    "LoadedBlocksKept",
    "OwnBlockRetired",
    "EndedPairCounted",
    "EndedPairDecided",
    "EndedPairReturned",
    "LivesNotCompared",
    "DropNotKept",
    "RepairedByAnyVersion",
    "TouchedPieceKept",
    "LeftPieceAdvanced",
    "OldConnectionHeard",
    "StrangerExecuted",
    "NotesEndWithSegment",
    "UnchangingUnnoted",
    "HandFreedUnfenced",
    "RemovalLeftBehind",
    "ReadsBelieved",
    "EndedPairHeld",
    "AnsweredTooEarly",
    "TicketGivenAgain",
    "WokenBeforeReply",
    "EmptiedForOthers",
    "LeftAttemptHeard",
    "TailTrusted",
    "OldPieceForgotten",
    "FramesNotChained",
    "CatalogueReadOnce",
    "OldestKept",
    "MiddleCut",
];

/// No crate that is simulated declares a bug that no test injects. Those of real hosts (`fabric-host`,
/// `fabric-shm`) are for the models of those crates.
#[test]
fn every_bug_has_a_test() {
    let mut declared: Vec<&str> = bugs().map(Bug::name).collect();
    let mut injected: Vec<&str> = FOUND.iter().chain(FOUND_ELSEWHERE).copied().collect();
    declared.sort_unstable();
    injected.sort_unstable();
    assert_eq!(declared, injected);
}

#[test]
fn a_version_that_a_compute_node_does_not_compare() {
    assert_bug_is_found("VersionNotCompared", "pool-conditional", 1..=20);
}

#[test]
fn a_node_of_a_pool_that_answers_before_its_sync() {
    assert_bug_is_found("AnsweredBeforeSync", "parts-kept", 1..=100);
}

#[test]
fn a_node_of_a_pool_whose_log_does_not_know_additions() {
    assert_bug_is_found("CallUnnoted", "parts-kept", 1..=50);
}

#[test]
fn a_node_of_a_pool_that_gives_versions_again() {
    assert_bug_is_found("VersionReused", "parts-kept", 1..=50);
}

/// A session that takes an addition along does it, and so does the next.
#[test]
fn an_addition_done_along_and_again() {
    assert_bug_is_found("TakenUnmarked", "pool-conditional", 1..=3_000);
}

/// No bug, but what stands in for long lives: compute nodes go on under one number after the other, among
/// deaths, leases that end, and trainers.
#[test]
fn compute_nodes_that_change_their_numbers_all_the_time() {
    for scenario in ["pool", "pool-conditional", "pool-deaths", "pool-leases", "pool-trainers"] {
        for seed in 1..=40 {
            let run =
                inject(bug("NumbersShort"), || run_seed(seed, named(scenario).expect("a scenario"), false));
            if let Err(failure) = run {
                panic!("{failure}");
            }
        }
    }
}

/// No bug, but what stands in for a compute node that never refreshes: its tables are stale for ever.
#[test]
fn a_table_that_is_never_fetched_again_is_only_slow() {
    for seed in 1..=30 {
        let run = inject(bug("ImageKept"), || run_seed(seed, named("pool").expect("a scenario"), false));
        if let Err(failure) = run {
            panic!("{failure}");
        }
    }
}

/// A call that comes twice acts once, unless its answer is not kept.
#[test]
fn a_call_executed_twice() {
    let run = |seed| {
        let mut scenario = named("mixed").expect("a scenario").scenario(seed);
        scenario.rules.push(Rule::always(Fault::DoubledCall, 10, 0));
        scenario.run(false, &Arc::default()).map(drop)
    };
    assert_eq!(first_failure(1..=10, run), None);
    assert_found("DoubledCall", 1..=10, |seed| inject(bug("ReplyNotKept"), || run(seed)));
}

/// A card that breaks its promise leaves leaves that nobody can repair.
#[test]
fn writes_behind_one_that_was_given_up() {
    let strikes = |scenario: &mut Scenario| {
        let cut = Rule::always(Fault::CutToServer, 300, 8_000_000);
        scenario.rules = vec![cut, Rule::always(Fault::SlowVerb, 3, 4_000_000)];
    };
    assert_is_said(bug("SentBehindGivenUp"), "pool-network", strikes, 1..=200, "Contended");
}

/// Keys of two leaves, which are one leaf again every few writes: one seed of a hundred READs between a
/// merge's two stores. Which one it is depends on the vectors, for the widest take a torn leaf otherwise.
#[test]
fn a_merge_seen_half() {
    let two_leaves = |scenario: &mut Scenario| {
        scenario.keys.truncate(24);
        (scenario.hot_keys, scenario.filled_keys) = (scenario.keys.len(), scenario.keys.len());
        scenario.wave_writes = Some(24);
    };
    assert_is_said(
        bug("WidenedBeforeFilled"),
        "merges",
        two_leaves,
        1..=2_000,
        "no order explains these answers",
    );
}

/// Every client that connects is refused, for ever.
#[test]
fn newcomers_taken_for_fenced() {
    // Deaths under locks in the beginning; who waits for those locks lives, and newcomers come all the time.
    let deaths = |scenario: &mut Scenario| {
        let killed = Rule::always(Fault::KilledClient, 40, 0);
        scenario.rules = vec![Rule { during_ns: 0..5_000_000, ..killed }];
        let shape = PoolShape {
            memory_nodes: 2,
            trainers: 0,
            leaves_one_in: Some(10),
            ..scenario.pool.expect("one")
        };
        scenario.pool = Some(shape);
    };
    assert_is_said(bug("NewcomersFenced"), "pool", deaths, 1..=30, "2000 connections broke");
}

#[test]
fn a_lost_connection_kept() {
    assert_is_said(
        bug("LostBackendKept"),
        "pool-restarts",
        |_| (),
        1..=50,
        "looking back: 4 connections broke",
    );
}

/// Nobody reads but who looks back; who looks back writes every key, in calls of many.
#[test]
fn an_update_lost_that_nobody_saw() {
    let only_writes = |scenario: &mut Scenario| {
        scenario.rules = Vec::new();
        scenario.writes_percent = 100;
    };
    assert_is_said(bug("LoneUpdateLost"), "pool", only_writes, 1..=10, "version");
}

/// Four programs write three keys alone, on cards that promise no order.
fn few_keys(scenario: &mut Scenario) {
    scenario.keys.truncate(3);
    (scenario.hot_keys, scenario.filled_keys) = (1, 1);
    (scenario.programs, scenario.writes_percent, scenario.is_weakest) = (4, 100, true);
}

/// All memory nodes end, again and again, and give the numbers of tables anew; calls of before come behind
/// it.
#[test]
fn a_call_of_another_epoch_executed() {
    let many_ends = |scenario: &mut Scenario| {
        let ends = Rule { during_ns: 0..3_000_000_000, ..Rule::always(Fault::CrashedServer, 300, 0) };
        scenario.rules = vec![ends, Rule::always(Fault::SlowVerb, 20, 2_000_000)];
        scenario.pool =
            scenario.pool.map(|shape| PoolShape { reads_by_others: ReadsByOthers::None, ..shape });
    };
    assert_is_said(bug("OtherEpochServed"), "hashed-proxied", many_ends, 390..=1_400, "");
}

/// A look is over before the reservation that was posted before it.
#[test]
fn a_reservation_and_a_look_at_once() {
    let slow_verbs = |scenario: &mut Scenario| {
        few_keys(scenario);
        scenario.rules = vec![Rule::always(Fault::SlowVerb, 4, 20_000)];
    };
    assert_is_said(bug("ReadBesideReservation"), "hashed", slow_verbs, 2_800..=20_000, "");
}

/// The object's WRITE is refused, for its table is dropped; the slot's swap comes late.
#[test]
fn a_slot_of_an_object_that_was_refused() {
    let slow_verbs = |scenario: &mut Scenario| {
        few_keys(scenario);
        scenario.is_weakest = false;
        scenario.rules = vec![Rule::always(Fault::SlowVerb, 4, 50_000)];
    };
    assert_is_said(bug("AtomicBehindRefused"), "hashed-names", slow_verbs, 1..=200, "Damaged");
}

/// Who stopped goes on with the slot that it read, whose object is another of the same key by now.
#[test]
fn an_object_of_another_life() {
    let long_pauses = |scenario: &mut Scenario| {
        few_keys(scenario);
        scenario.keys.truncate(1);
        (scenario.programs, scenario.writes_percent) = (6, 50);
        scenario.rules = vec![Rule::always(Fault::PausedClient, 20, 1_000_000)];
    };
    assert_is_said(bug("GenerationNotCompared"), "hashed-stalls", long_pauses, 1..=1_000, "");
}

/// Who removes a key stops when the head has that and the tail has not; somebody inserts the key meanwhile.
#[test]
fn a_removed_pair_beside_a_new_one() {
    let long_pauses = |scenario: &mut Scenario| {
        few_keys(scenario);
        scenario.keys.truncate(1);
        (scenario.is_weakest, scenario.writes_percent) = (false, 70);
        scenario.rules = vec![Rule::always(Fault::PausedClient, 20, 1_000_000)];
    };
    assert_is_said(bug("RemovalLeftBehind"), "hashed-replicas", long_pauses, 165..=1_200, "");
}

/// An insert reads the overflow before a removal and the slot behind it.
#[test]
fn a_reservation_that_a_removal_left() {
    let long_reads = |scenario: &mut Scenario| {
        few_keys(scenario);
        (scenario.keys, scenario.programs) = (scenario.keys[..1].to_vec(), 3);
        scenario.rules = vec![Rule::always(Fault::SpreadRead, 3, 50_000)];
    };
    assert_is_said(bug("ReservationsLeft"), "hashed", long_reads, 1..=1_000, "");
}
