//! docs/faults.md lists the classes of faults as the code has them.

use std::fmt::Write as _;

use farsight_sim::{CLASSES, Cover, Evidence};

fn table() -> String {
    let mut table = "| class | what happens | covered |\n|---|---|---|\n".to_owned();
    for class in CLASSES {
        let names = |evidence: &[Evidence]| {
            let names: Vec<String> = evidence.iter().copied().map(name).collect();
            names.join("`, `")
        };
        let cover = match class.cover {
            Cover::By(evidence) => format!("yes: `{}`", names(evidence)),
            Cover::Counted(evidence) => format!("counted: `{}`", names(evidence)),
            Cover::Elsewhere(tests) => format!("elsewhere: {tests}"),
            Cover::Nothing(why) => format!("not: {why}"),
        };
        writeln!(table, "| {} | {} | {cover} |", class.id, class.name).expect("text grows");
    }
    table
}

fn name(evidence: Evidence) -> String {
    match evidence {
        Evidence::Struck(fault) => format!("{fault:?}"),
        Evidence::Seen(mark) => format!("{mark:?}"),
    }
}

#[test]
fn the_document_has_the_table_of_classes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/faults.md");
    let document = std::fs::read_to_string(path).expect("docs/faults.md");
    let table = table();
    assert!(document.contains(&table), "docs/faults.md should have this table:\n{table}");
}

#[test]
fn every_number_has_its_class() {
    let numbers = |id: &str| id.trim_end_matches(char::is_alphabetic).parse::<u32>().expect("a number");
    let listed: Vec<u32> = CLASSES.iter().map(|class| numbers(class.id)).collect();
    assert!(listed.is_sorted(), "classes stand in the order of their numbers");
    let missing: Vec<u32> = (1..=40).filter(|number| !listed.contains(number)).collect();
    assert!(missing.is_empty(), "no class has number {missing:?}");
    let mut ids: Vec<&str> = CLASSES.iter().map(|class| class.id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
}
