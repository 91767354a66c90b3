//! A compute node that holds a leaf's lock and does nothing more, over real memory nodes. The next one that
//! needs the lock has the holder fenced, and only then takes the lock over.

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_fabric::lane::PoolLane;
use farsight_fabric::{FabricError, QueuePair};
use farsight_index_rolex::LeafPlace;
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::LockWord;

use super::pool_store::PoolStore;
use crate::fabric::FabricUnderTest;

const TABLE: &str = "t";
const TABLE_BYTES: u64 = 1 << 20;

/// What comes of WRITEs at a leaf's lock, one a node, by a compute node that has been fenced.
fn write_late<Q: QueuePair>(queues: &mut [Q], regions: &[farsight_base::RemoteAddress]) -> Vec<FabricError> {
    let late = |(queue, lock): (&mut Q, &farsight_base::RemoteAddress)| {
        let lane = PoolLane::new(std::slice::from_mut(queue));
        let written = lane.block_on(async |slot| {
            slot.post_write(0, 0, *lock, &[0]);
            slot.completed().await;
            slot.take_word(0, 0)
        });
        written.and_then(|word| word).expect_err("a fenced compute node's WRITE")
    };
    queues.iter_mut().zip(regions).map(late).collect()
}

/// The lock is taken over. Nothing that the fenced compute node posts executes at any memory node any more.
/// It is told why, and its process goes on as another compute node.
///
/// # Panics
/// If a promise is broken.
pub fn a_silent_lock_holder_is_fenced_everywhere<F: FabricUnderTest>(subjects: impl IntoIterator<Item = F>) {
    let pool = PoolStore::rolex(subjects, TABLE_BYTES);
    drop(pool.create(TABLE, 8));
    let silent = pool.connect();
    let its_table = silent.open_table(TABLE).expect("the table");
    let mut its_session = its_table.session(Access::OneSided).expect("a session");
    let mut links = silent.links(TABLE).expect("the table");
    let table = links.cache.table().clone();
    let lock_at = |node, leaf| table.address(LeafPlace::new(node, leaf).expect("a leaf"), OWNER_WORD);
    let (number, before) = links.locks.draw(1);
    let locked = LockWord::of(number, before + 1).0;
    let found = PoolLane::new(&mut links.queues).block_on(async |slot| {
        slot.post_compare_swap(0, 0, lock_at(0, 0), LockWord::FREE.0, locked);
        slot.completed().await;
        slot.take_word(0, 0)
    });
    assert_eq!(found.expect("a lane").expect("an atomic"), LockWord::FREE.0, "the first leaf was locked");

    let other = pool.connect();
    let table = other.open_table(TABLE).expect("the table");
    let mut session = table.session(Access::OneSided).expect("a session");
    let written = session.write_one(WriteOperation::Put, 7, b"survivor").expect("a put");
    assert!(matches!(written, WriteOutcome::Inserted(_)), "{written:?}");
    for node in pool.nodes() {
        let stats = node.stats();
        assert_eq!((stats.fenced, stats.compute_nodes), (1, 1), "{stats:?}");
    }
    let locks: Vec<_> = (0..pool.nodes().len()).map(|node| lock_at(node, 0)).collect();
    for error in write_late(&mut links.queues, &locks) {
        assert!(matches!(error, FabricError::Dismissed { .. }), "{error}");
    }
    let mut value = [0; 8];
    session.get(7, &mut value).expect("a get").expect("the pair");
    assert_eq!(&value, b"survivor");

    // Its process goes on under another number, though a read is what finds out.
    let found = its_session.get(7, &mut value).expect("a get of a fenced compute node");
    assert!(found.is_some() && &value == b"survivor", "{value:?}");
    its_session.write_one(WriteOperation::Put, 7, b"anew----").expect("a put");
    session.get(7, &mut value).expect("a get").expect("the pair");
    assert_eq!(&value, b"anew----");
    for node in pool.nodes() {
        let stats = node.stats();
        assert_eq!((stats.fenced, stats.compute_nodes), (1, 2), "{stats:?}");
    }
}
