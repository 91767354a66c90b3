//! A comparison as markdown: rates with quotients, and the marks.

use std::fmt::Write as _;

use farsight_bench::report::{ComparedStore, Comparison, Work, thousands};

const READS: [Work; 5] =
    [Work::GetUniform, Work::GetZipfian, Work::SingleUniform, Work::SingleZipfian, Work::Scan];
const MIXES: [Work; 6] = [Work::A, Work::B, Work::D, Work::E, Work::F, Work::InsertFivePercent];

/// What Farsight should reach: work, other store, the other's work, at least so many times as fast.
const MARKS: [(Work, &str, Work, f64, &str); 6] = [
    (
        Work::GetUniform,
        "LMDB",
        Work::GetUniform,
        30.0,
        "GETs in batches against LMDB, its reader not its writer",
    ),
    (Work::SingleUniform, "LMDB", Work::SingleUniform, 6.0, "single GETs against the same"),
    (Work::GetUniform, "BTreeMap", Work::GetUniform, 14.0, "GETs in batches against BTreeMap"),
    (Work::GetUniform, "RocksDB", Work::GetUniform, 75.0, "GETs in batches against RocksDB's MultiGet"),
    (Work::Scan, "LMDB", Work::Scan, 5.0, "scans against LMDB"),
    (Work::GetUniform, "static tree", Work::GetUniform, 1.0, "GETs in batches against the static tree"),
];
/// The part of the shape limit that batched GETs should reach.
const SHAPE_MARK: f64 = 0.75;

/// The whole comparison.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let mut text = String::new();
    let Comparison { date, dataset, batch, seconds, rounds, machine, .. } = comparison;
    let _ = writeln!(
        text,
        "{} keys of `{dataset}`, values of 8 B, batches of {batch}; {rounds} rounds, turns of {seconds} s; {}, {} \
         cores, {} MiB on huge pages; {date}.\n\n    {}\n",
        thousands(comparison.keys),
        machine.cpu,
        machine.cores,
        machine.huge_page_bytes_mapped >> 20,
        comparison.command,
    );
    rates(&mut text, comparison, &READS);
    rates(&mut text, comparison, &MIXES);
    let _ = writeln!(
        text,
        "M operations/s, medians, of processor time where nothing is written and else of wall time; in parentheses how many times as fast Farsight is (the median over the rounds). \
         Limits of this machine, one thread: {:.1} M random 64 B reads/s, {:.1} M unchecked GETs in the same \
         layout/s.\n",
        comparison.random_read_limit_per_s / 1e6,
        comparison.shape_limit_per_s / 1e6,
    );
    marks(&mut text, comparison);
    text
}

fn rates(text: &mut String, comparison: &Comparison, works: &[Work]) {
    let titles: Vec<&str> = works.iter().map(|work| work.title()).collect();
    let _ = writeln!(text, "| | client B/key | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|--:|{}", "--:|".repeat(works.len()));
    let farsight = &comparison.stores[0];
    for store in &comparison.stores {
        let cells: Vec<String> = works.iter().map(|work| cell(farsight, store, *work)).collect();
        if cells.iter().all(|cell| cell == "-") {
            continue;
        }
        let bytes = store.client_bytes_per_key.map_or("-".to_owned(), |bytes| format!("{bytes:.2}"));
        let _ = writeln!(text, "| {} | {bytes} | {} |", store.name, cells.join(" | "));
    }
    text.push('\n');
}

fn cell(farsight: &ComparedStore, store: &ComparedStore, work: Work) -> String {
    let Some(rate) = store.rate(work) else { return "-".to_owned() };
    let millions = rate.ops_per_s / 1e6;
    let millions = if millions < 10.0 { format!("{millions:.2}") } else { format!("{millions:.1}") };
    match farsight.times(work, store, work) {
        Some(times) if store.name != farsight.name => format!("{millions} ({})", quotient(times)),
        _ => format!("**{millions}**"),
    }
}

fn quotient(times: f64) -> String {
    if times < 10.0 { format!("{times:.1}") } else { format!("{times:.0}") }
}

fn marks(text: &mut String, comparison: &Comparison) {
    let farsight = &comparison.stores[0];
    let mut rows = Vec::new();
    for (work, other, other_work, wanted, title) in MARKS {
        let seen = comparison.store(other).and_then(|other| farsight.times(work, other, other_work));
        rows.extend(seen.map(|seen| (title, wanted, seen)));
    }
    if let Some(rate) = farsight.rate(Work::GetUniform) {
        let seen = rate.ops_per_s / comparison.shape_limit_per_s;
        rows.push(("GETs in batches against the unchecked ones", SHAPE_MARK, seen));
    }
    if rows.is_empty() {
        return;
    }
    text.push_str("| times as fast | mark | seen | |\n|---|--:|--:|---|\n");
    for (title, wanted, seen) in rows {
        let verdict = if seen >= wanted { "reached" } else { "missed" };
        let shown = if seen < 1.0 { format!("{seen:.2}") } else { quotient(seen) };
        let _ = writeln!(text, "| {title} | {wanted} | {shown} | {verdict} |");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use farsight_bench::machine::Machine;
    use farsight_bench::report::Rate;

    use super::*;

    fn example() -> Comparison {
        let store = |name: &str, rate: f64, works: &[Work]| ComparedStore {
            name: name.into(),
            note: "n".into(),
            is_batched: true,
            client_bytes_per_key: Some(0.8),
            rates: works
                .iter()
                .map(|work| Rate::of_runs(*work, vec![rate, rate * 2.0, rate * 3.0]))
                .collect(),
        };
        Comparison {
            date: "2026-01-02".into(),
            command: "cargo run --release".into(),
            machine: Machine::default(),
            dataset: "uniform".into(),
            keys: 1_000,
            batch: 64,
            seconds: 0.1,
            rounds: 3,
            random_read_limit_per_s: 2e8,
            shape_limit_per_s: 4e7,
            stores: vec![
                store("Farsight", 1e7, &Work::ALL),
                store("LMDB", 1e6, &Work::ALL),
                store("static tree", 2e7, &[Work::GetUniform]),
            ],
        }
    }

    #[test]
    fn rates_quotients_and_marks_are_shown() {
        let text = markdown(&example());
        assert!(text.contains("| Farsight | 0.80 | **20.0** |"), "{text}");
        assert!(text.contains("| LMDB | 0.80 | 2.00 (10) |"), "{text}");
        assert!(text.contains("| static tree | 0.80 | 40.0 (0.5) | - | - | - | - |"), "{text}");
        assert!(text.contains("| scans against LMDB | 5 | 10 | reached |"), "{text}");
        assert!(text.contains("| GETs in batches against the static tree | 1 | 0.50 | missed |"), "{text}");
        assert!(
            text.contains("| GETs in batches against the unchecked ones | 0.75 | 0.50 | missed |"),
            "{text}"
        );
        assert!(!text.contains("RocksDB"), "it did not take part: {text}");
        assert_eq!(text.matches("| static tree |").count(), 1, "no row without a rate: {text}");
    }
}
