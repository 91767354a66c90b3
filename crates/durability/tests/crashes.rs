//! Crashes at every operation of the disk: recovery finds all that was acknowledged, and of the rest all of a
//! frame or nothing.

mod backups;
mod crash_model;
mod damage;
mod former;
mod pieces;
mod readers;

use crash_model::{Durability, Outcome, Program, seed, try_to_start};
use farsight_durability::disk::{Fault, SimulatedDisk};

/// Bytes of a batch of the log: of some records, so that there are several.
const BATCH_BYTES_MAX: usize = 512;
/// Programs of a run.
const PROGRAMS: u64 = 6;
/// Operations of a start that fail in turn, one a start.
const STARTS: u64 = 14;
/// Ways in which one crash may go.
const CRASHES: u64 = 2;

/// Runs a program until it crashes at each of its operations in turn, and looks what is left.
fn crash_everywhere(durability: Durability) {
    let seed = seed("crash_everywhere");
    for program in (0..PROGRAMS).map(|number| Program::new(seed ^ number, durability)) {
        let disk = SimulatedDisk::default();
        assert_eq!(program.run(&disk).outcome, Outcome::Done, "without a fault, {program:?}");
        for at in 0..disk.operations() {
            let disk = SimulatedDisk::new(&[Fault::CrashAt(at)]);
            let run = program.run(&disk);
            for crash in 0..CRASHES {
                let what = format!("{program:?}, crash {crash} at operation {at}");
                let after = disk.crash(seed ^ at << 8 ^ crash);
                run.check(&after, &what);
                // What recovery itself had done when the machine stopped again is no matter.
                let operations = after.operations();
                let again = disk.crash(seed ^ at << 8 ^ crash);
                again.set_faults(&[Fault::CrashAt(at % operations.max(1))]);
                drop(farsight_durability::Store::open(std::sync::Arc::new(again.clone()), 1));
                run.check(&again.crash(at), &what);
            }
        }
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    crash_everywhere(Durability::EachGroup);
}

#[test]
fn a_crash_between_syncs_loses_the_end_alone() {
    crash_everywhere(Durability::SomeGroups);
}

/// Any failure of the disk leaves a log that is right, whether the program can go on or not.
fn fail_everywhere() {
    let seed = seed("a_failure_at_any_operation");
    for program in (0..PROGRAMS).map(|number| Program::new(seed ^ number, Durability::EachGroup)) {
        let disk = SimulatedDisk::default();
        program.run(&disk);
        for at in 0..disk.operations() {
            let disk = SimulatedDisk::new(&[Fault::FailAt(at)]);
            let run = program.run(&disk);
            let what = format!("{program:?}, failure of operation {at}");
            disk.set_faults(&[]);
            run.check(&disk.crash(seed ^ at), &what);
        }
    }
}

#[test]
fn a_failure_at_any_operation_loses_nothing_that_was_acknowledged() {
    fail_everywhere();
}

/// A process that starts again behind a failure of the disk finds nothing that the machine may still lose.
/// What a failed sync has dropped, programs see all the same. No later sync writes it.
fn start_behind_failures() {
    let seed = seed("start_behind_failures");
    for program in (0..PROGRAMS / 3).map(|number| Program::new(seed ^ number, Durability::SomeGroups)) {
        let disk = SimulatedDisk::default();
        program.run(&disk);
        for at in 0..disk.operations() {
            let disk = SimulatedDisk::new(&[Fault::FailAt(at)]);
            let run = program.run(&disk);
            // The start may fail, too.
            for start in 0..STARTS {
                disk.set_faults(&[Fault::FailAt(start)]);
                drop(try_to_start(&disk));
            }
            disk.set_faults(&[]);
            run.check_start(&disk, seed ^ at, &format!("{program:?}, failure of operation {at}"));
        }
    }
}

#[test]
fn a_start_behind_a_failure_finds_nothing_that_may_still_be_lost() {
    start_behind_failures();
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let seed = seed("a_full_disk");
    for number in 0..PROGRAMS {
        let program = Program::new(seed ^ number, Durability::EachGroup);
        for capacity_bytes in (0..40).map(|step| step * 1500) {
            let disk = SimulatedDisk::new(&[Fault::CapacityBytes(capacity_bytes)]);
            let run = program.run(&disk);
            let what = format!("{program:?} on a disk of {capacity_bytes} B");
            run.check(&disk.crash(seed), &what);
        }
    }
}

/// The checkers checked: each injected bug is found. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;
    use farsight_durability::injected;

    use super::*;

    /// With fresh programs each time: once in a few dozen times none of them meets a bug.
    fn crash_everywhere_again() {
        (0..8).for_each(|_| crash_everywhere(Durability::EachGroup));
    }

    #[test]
    fn a_failed_sync_that_is_retried() {
        assert_found(&injected::FAILED_SYNC_RETRIED, fail_everywhere);
    }

    #[test]
    fn a_failed_sync_that_the_next_life_trusts() {
        assert_found(&injected::UNSYNCED_TRUSTED, start_behind_failures);
    }

    #[test]
    fn a_tail_that_is_trusted() {
        assert_found(&injected::TAIL_TRUSTED, crash_everywhere_again);
    }

    #[test]
    fn a_segment_that_is_removed_early() {
        assert_found(&injected::SEGMENT_REMOVED_EARLY, crash_everywhere_again);
    }

    #[test]
    fn a_version_that_is_given_again() {
        assert_found(&injected::VERSION_REUSED, crash_everywhere_again);
    }

    #[test]
    fn a_backup_whose_catalogue_is_not_read_again() {
        assert_found(&injected::CATALOGUE_READ_ONCE, backups::beside_programs);
    }

    #[test]
    fn frames_of_a_piece_in_any_order() {
        assert_found(&injected::FRAMES_NOT_CHAINED, readers::tell_the_same);
    }

    #[test]
    fn an_oldest_record_that_is_kept() {
        assert_found(&injected::OLDEST_KEPT, crash_everywhere_again);
    }

    #[test]
    fn a_middle_that_is_cut() {
        assert_found(&injected::MIDDLE_CUT, damage::any_bit);
    }
}
