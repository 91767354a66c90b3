//! A client whose server ends and begins again.

use std::sync::Arc;

use farsight::{Access, WriteOperation};
use farsight_conformance::engine::direct::DirectStore;
use farsight_conformance::engine::{EngineUnderTest, SessionUnderTest, TableUnderTest};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

/// The session that was open before goes on after, against an empty table of the same name.
#[test]
fn a_session_finds_the_servers_next_life() {
    if !is_asked_for() {
        return;
    }
    let subject = Arc::new(Verbs::new());
    let store = DirectStore::start(Arc::clone(&subject), 4 << 20);
    let table = store.table(8);
    let mut session = table.session(Access::OneSided);
    session.write(WriteOperation::Insert, &[(1, vec![1; 8])]);
    assert!(session.get(1).is_some());
    let epoch = session.session().epoch();
    store.stop();
    let store = DirectStore::start(subject, 4 << 20);
    let again = store.table(8);
    assert_eq!(again.name(), table.name());
    assert_eq!(session.get(1), None, "the next life's table is empty");
    session.write(WriteOperation::Insert, &[(1, vec![2; 8])]);
    assert_eq!(session.get(1).map(|(value, _)| value), Some(vec![2; 8]));
    assert_ne!(session.session().epoch(), epoch);
}
