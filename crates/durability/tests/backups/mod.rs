//! Backups beside a program that writes: each is a state of the time in which it was made. Crashes and damage
//! on the way to a directory of data leave none that a server would use.

mod turns;

use std::sync::Arc;

use farsight_base::prng::SplitMix64;
use farsight_durability::disk::{Disk, Fault, SimulatedDisk};
use farsight_durability::{Archive, DirectoryArchive, DurabilityError, Store, back_up, restore};

use crate::crash_model::{Durability, History, Outcome, Program, seed};
use turns::Turns;

const PROGRAMS: u64 = 60;

fn archive(disk: &SimulatedDisk) -> DirectoryArchive {
    DirectoryArchive::new(Arc::new(disk.clone()))
}

fn restored(kept: &SimulatedDisk) -> Result<SimulatedDisk, DurabilityError> {
    let disk = SimulatedDisk::default();
    restore(&archive(kept), &(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut |_| ())?;
    Ok(disk)
}

/// The data of a whole program, and its backup.
fn backed_up(program: Program) -> (History, SimulatedDisk, SimulatedDisk) {
    let (history, disk, kept) = (History::default(), SimulatedDisk::default(), SimulatedDisk::default());
    let run = program.run_watched(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &history);
    assert_eq!(run.outcome, Outcome::Done);
    back_up(&disk, &archive(&kept), &mut |_| ()).expect("nobody disturbs it");
    (history, disk, kept)
}

/// Makes backups beside programs.
pub(crate) fn beside_programs() {
    let seed = seed("beside_programs");
    let mut made = 0;
    for number in 0..PROGRAMS {
        let program = Program::new(seed ^ number, Durability::EachGroup);
        let mut random = SplitMix64::new(seed ^ number << 32);
        let (history, disk, kept) = (History::default(), SimulatedDisk::default(), SimulatedDisk::default());
        let turns = Turns::new(&disk);
        let what = format!("{program:?}");
        let written = turns.written();
        let first = std::thread::scope(|scope| {
            scope.spawn(|| {
                let run = program.run_watched(&written, &history);
                turns.end();
                assert_eq!(run.outcome, Outcome::Done, "{what}");
            });
            turns.grant(random.below(120));
            let first = history.acknowledged();
            let read = turns.read(random.next_u64());
            let end = back_up(&*read, &archive(&kept), &mut |_| ());
            turns.grant(u64::MAX);
            // A program that changes its tables with each look lets no backup end.
            match end {
                Ok(_) => Some(first),
                Err(DurabilityError::Changing { .. } | DurabilityError::Missing { .. }) => None,
                Err(error) => panic!("{what}: {error}"),
            }
        });
        if let Some(first) = first {
            history.check(&restored(&kept).expect("a backup that was made"), first, &what);
            made += 1;
        }
    }
    assert!(made > PROGRAMS / 4, "{made} backups of {PROGRAMS} programs");
    println!("{made} backups of {PROGRAMS} programs");
}

#[test]
fn a_backup_is_a_state_of_the_time_in_which_it_was_made() {
    beside_programs();
}

/// A backup without the end of its log could not be restored.
#[test]
fn data_whose_log_was_removed_are_not_backed_up() {
    let seed = seed("data_whose_log_was_removed");
    let mut refused = 0;
    for number in 0..PROGRAMS {
        let (_, disk, _) = backed_up(Program::new(seed ^ number, Durability::EachGroup));
        for name in disk.list().expect("no fault").iter().filter(|name| name.starts_with("log-")) {
            disk.remove(name).expect("no fault");
        }
        let made = back_up(&disk, &archive(&SimulatedDisk::default()), &mut |_| ());
        let is_noticed = matches!(&made, Err(DurabilityError::Missing { file, .. }) if file.contains("log-"));
        refused += u32::from(is_noticed);
    }
    assert!(refused > 0, "tables and snapshots of {PROGRAMS} programs named nothing in their logs");
    println!("{refused} of {PROGRAMS} programs");
}

#[test]
fn a_restore_that_crashes_leaves_nothing_that_a_server_would_use() {
    let seed = seed("a_restore_that_crashes");
    let (history, _, kept) = backed_up(Program::new(seed, Durability::EachGroup));
    let mut at = 0;
    loop {
        let disk = SimulatedDisk::new(&[Fault::CrashAt(at)]);
        let made = restore(&archive(&kept), &(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut |_| ());
        let after = disk.crash(seed ^ at);
        let is_empty = after.list().expect("no fault").is_empty();
        match Store::read(&after) {
            Ok(Some(_)) => history.check(&after, history.acknowledged(), "a restore with its catalogue"),
            Ok(None) => assert!(made.is_err(), "crash at {at}, {is_empty}"),
            Err(error) => assert!(matches!(error, DurabilityError::Missing { .. }), "{error}"),
        }
        if made.is_ok() {
            break;
        }
        at += 1;
    }
    assert!(at > 5, "{at} operations");
}

#[test]
fn a_backup_that_lost_or_changed_anything_is_refused() {
    let seed = seed("a_backup_that_lost");
    let (history, disk, kept) = backed_up(Program::new(seed, Durability::EachGroup));
    history.check(&restored(&kept).expect("whole"), history.acknowledged(), "as it is");
    let again = back_up(&disk, &archive(&kept), &mut |_| ()).expect_err("one is there");
    assert!(again.to_string().contains("a place of its own"), "{again}");
    let mut random = SplitMix64::new(seed);
    for name in kept.list().expect("no fault") {
        let (mut bytes, place) = (Vec::new(), archive(&kept));
        let read = place.get(&name, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        read.expect("no fault");
        let put = |bytes: Vec<u8>| {
            place.put(&name, &mut std::iter::once(Ok(bytes))).expect("no fault");
        };
        let refused = |what: &str| {
            let error = restored(&kept).err().expect(what).to_string();
            assert!(error.contains(&name) || error.contains("log"), "{what} of {name}: {error}");
        };
        // The snapshot of a table without pairs is an empty file.
        if !bytes.is_empty() {
            let cut = bytes.len() - 1 - random.below(bytes.len() as u64) as usize;
            put(bytes[..cut].to_vec());
            // Behind the last frame stand zeros, which nobody misses.
            match restored(&kept) {
                Ok(disk) => history.check(&disk, history.acknowledged(), &format!("{name} cut at {cut}")),
                Err(_) => refused("a cut"),
            }
            let at = random.below(bytes.len() as u64) as usize;
            let mut changed = bytes.clone();
            changed[at] ^= 1 << random.below(8);
            put(changed);
            match restored(&kept) {
                Ok(disk) => history.check(&disk, history.acknowledged(), &format!("{name} changed at {at}")),
                Err(_) => refused("a change"),
            }
        }
        place.remove(&name).expect("no fault");
        refused("loss");
        put(bytes.clone());
        assert!(restored(&kept).is_ok(), "whole again");
    }
}
