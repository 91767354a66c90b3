//! What stands under a pool's keys in etcd: values that somebody has written there, and a pool's own.

use farsight_cluster::{MapRecord, Member};
use farsight_protocol::{POOL_NODES_MAX, PoolAddresses, PoolMap, PoolPlace};

use super::source::Source;

/// What is decoded is what its encoder writes, to the byte, and within the bounds of a pool. What a pool can
/// have comes back.
pub(super) fn run(data: &[u8]) {
    if let Ok(map) = MapRecord::decoded(data) {
        assert_eq!(map.encoded(), data);
        assert!((1..=POOL_NODES_MAX).contains(&map.epochs().len()));
        assert_eq!(map.addresses().check(map.epochs().len()), Ok(()));
        assert!(map.is_complete());
    }
    if let Ok(member) = Member::decoded(data) {
        assert_eq!(member.encoded(), data);
        assert_eq!(member.check(), Ok(()));
    }
    let mut source = Source::new(data);
    let member = member(&mut source);
    let came = Member::decoded(&member.encoded());
    assert_eq!(came.is_ok(), member.check().is_ok());
    if let Ok(came) = came {
        assert_eq!(came, member);
    }
    if let Some(map) = map(&mut source)
        && map.is_complete()
    {
        assert_eq!(MapRecord::decoded(&map.encoded()).as_ref(), Ok(&map));
    }
}

/// Text of up to 300 B, which is more than an address has.
fn text(source: &mut Source<'_>) -> String {
    let length = source.below(301);
    "tcp://h:1".chars().cycle().take(length).collect()
}

fn member(source: &mut Source<'_>) -> Member {
    let (epoch, is_durable) = (source.word(), source.byte().is_multiple_of(2));
    let (pool_nodes, addresses) = (source.byte() % 20, source.below(6));
    Member { epoch, is_durable, pool_nodes, addresses: (0..addresses).map(|_| text(source)).collect() }
}

/// A node's map, if others can be told it.
fn map(source: &mut Source<'_>) -> Option<MapRecord> {
    let nodes = 1 + source.below(POOL_NODES_MAX + 1);
    let epochs: Vec<u64> = (0..nodes).map(|_| source.word()).collect();
    let addresses = PoolAddresses::of_one_fabric(epochs.iter().map(|_| text(source)));
    let (index, term, pool) = ((source.byte() % 20), source.half(), source.word());
    let map = PoolMap {
        epoch: epochs[0],
        pool: Some(pool),
        place: Some(PoolPlace { epochs, index }),
        term,
        addresses,
    };
    MapRecord::of(&map, source.byte().is_multiple_of(2))
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let addresses = vec!["tcp://10.0.0.1:7474".to_owned()];
    let member = Member { epoch: 7, is_durable: true, pool_nodes: 3, addresses };
    let addresses = PoolAddresses::of_one_fabric(["tcp://a:1".to_owned(), "tcp://b:1".to_owned()]);
    let place = Some(PoolPlace { epochs: vec![7, u64::MAX], index: 0 });
    let map = PoolMap { epoch: 7, pool: Some(7), place, term: 300, addresses };
    let map = MapRecord::of(&map, false).expect("a pool's map");
    vec![member.encoded(), map.encoded(), (0..=255).collect()]
}
