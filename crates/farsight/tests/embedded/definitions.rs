//! What is said of a table when it is made, whatever the engine: the name of its values' type, its memory.

use farsight::{Client, EngineKind, Options, Session, Table, TableError, TableOptions, WriteOutcome};

use crate::store::{TestStore, on_every_engine};

const MEMORY_BYTES: u64 = 8 << 20;

on_every_engine!(
    a_table_keeps_the_type_of_its_values,
    another_type_in_a_new_life_is_another_definition,
    a_table_has_the_memory_that_it_was_made_with,
);

fn make(
    client: &Client,
    engine: &'static EngineKind,
    name: &str,
    value_type: &str,
) -> Result<Table<u64>, TableError> {
    let value_type = value_type.to_owned();
    let options = TableOptions { engine: Some(engine), value_type, ..TableOptions::default() };
    client.create_table_with(name, 8, &options)
}

fn a_table_keeps_the_type_of_its_values(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let (first, other) = (store.connect(), store.connect());
    make(&first, engine, "typed", "<f8").expect("a new table");
    make(&first, engine, "plain", "").expect("a new table");
    for client in [&first, &other] {
        // Who says nothing takes what is there, and is told.
        for asked in ["", "<f8"] {
            let table = make(client, engine, "typed", asked).expect("it is there");
            assert_eq!(table.info().definition.value_type, "<f8");
        }
        let found = client.table::<u64>("typed").expect("it is there");
        assert_eq!(found.info().definition.value_type, "<f8");
        for (name, asked) in [("typed", "<i8"), ("plain", "<f8")] {
            let error = make(client, engine, name, asked).err().expect("another type");
            let error = farsight::with_causes(&error);
            assert!(error.contains(&format!("of type {asked:?}")), "{error}");
        }
        let types: Vec<_> =
            client.tables().expect("a list").into_iter().map(|info| info.definition).collect();
        assert_eq!(types.iter().map(|table| &table.value_type[..]).collect::<Vec<_>>(), ["<f8", ""]);
        for wrong in ["a b", "\u{1b}[2J", &"t".repeat(33)] {
            assert!(make(client, engine, "wrong", wrong).is_err(), "{wrong:?}");
        }
    }
}

fn another_type_in_a_new_life_is_another_definition(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = make(&store.connect(), engine, "t", "<f8").expect("a new table");
    let mut session = table.session(Options::default()).expect("a session");
    session.put(1, b"8 bytes.").expect("a put");
    let store = store.restart();
    make(&store.connect(), engine, "t", "<i8").expect("a new table");
    let error = farsight::with_causes(&session.get(1).expect_err("its bits are of another type"));
    assert!(error.contains("\"<i8\"") && error.contains("\"<f8\""), "{error}");
}

fn a_table_has_the_memory_that_it_was_made_with(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let client = store.connect();
    let make = |name: &str, memory_bytes| {
        let options = TableOptions { engine: Some(engine), memory_bytes, ..TableOptions::default() };
        client.create_table_with::<u64>(name, 8, &options)
    };
    for wrong in [0, 1 << 20, MEMORY_BYTES + 1, u64::MAX] {
        let error = farsight::with_causes(&make("wrong", Some(wrong)).err().expect("too little or too much"));
        assert!(error.contains(&format!("{wrong} B; this node gives 2097152 to 8388608 B")), "{error}");
    }
    let small = make("small", Some(2 << 20)).expect("a new table");
    let usual = make("usual", None).expect("a new table");
    // Who says nothing takes what is there.
    make("small", None).expect("it is there");
    assert!(make("small", Some(4 << 20)).is_err() && make("usual", Some(2 << 20)).is_err());
    let leaves = |table: &Table<u64>| u64::from(table.info().regions[0].capacity);
    assert_eq!(leaves(&usual) / leaves(&small), 4, "in four times the memory");
    // A session follows its name into a table with more memory.
    let mut session = small.session(Options::default()).expect("a session");
    // Keys that ascend, without anybody who trains, make ROLEX walk ever longer ways.
    let pairs = if engine.nodes_train { 80_000 } else { 100 };
    let put = |session: &mut Session<u64>| {
        let pairs: Vec<_> = (0..pairs).map(|key| (key, b"8 bytes.")).collect();
        let mut outcomes = Vec::new();
        session.put_many(&pairs, &mut outcomes).expect("outcomes");
        outcomes.iter().filter(|outcome| matches!(outcome, WriteOutcome::Failed(_))).count()
    };
    assert_eq!(put(&mut session) > 0, engine.nodes_train, "room for fewer pairs");
    client.swap_tables("small", "usual").expect("swapped");
    let followed = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        matches!(session.put(7, b"8 bytes."), Ok(WriteOutcome::Inserted(_)))
    });
    assert!(followed, "the session goes on in the other table");
    assert_eq!(put(&mut session), 0);
}
