//! What a table keeps of its values: the name of their type, whatever the engine.

use farsight::{Client, EngineKind, Table, TableError, TableOptions};

use crate::store::{TestStore, on_every_engine};

const MEMORY_BYTES: u64 = 8 << 20;

on_every_engine!(a_table_keeps_the_type_of_its_values, another_type_in_a_new_life_is_another_definition);

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
    let mut session = table.session(farsight::Options::default()).expect("a session");
    session.put(1, b"8 bytes.").expect("a put");
    let store = store.restart();
    make(&store.connect(), engine, "t", "<i8").expect("a new table");
    let error = farsight::with_causes(&session.get(1).expect_err("its bits are of another type"));
    assert!(error.contains("\"<i8\"") && error.contains("\"<f8\""), "{error}");
}
