//! Results as pictures: SVG drawn from the JSON that benchmarks write.
//!
//! Invariant: a picture holds nothing that the results do not; every mark in it is computed from them. Text
//! stays text, colours follow the reader's colour scheme, nothing is fetched. Blue is Farsight, or ROLEX
//! among its engines, orange what stands beside it; no meaning hangs on colour alone.

mod budget;
mod change;
mod engines;
mod flexkv;
mod inserts;
mod memory;
mod model;
mod scaling;
mod svg;
mod throughput;
mod twitter;

use serde::Deserialize;
use serde_json::Value;

use crate::report::{
    ChangeRecord, ClusterRecord, Comparison, FlexPointRecord, InsertRecord, ModelRecord, Record,
    SimulatedRecord,
};
use engines::distinct;

/// Why results could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The file holds something else than one result, or results that are drawn together.
    #[error("expected an array of one result, or of several of `farsight bench ycsb` or `change`, got {got}")]
    NotOneResult {
        /// What it holds.
        got: String,
    },
    /// The result is of a kind that has no picture.
    #[error("no picture for this result: expected one of bench-compare or of `farsight bench`")]
    UnknownKind,
    /// The result is of a known kind, and incomplete.
    #[error("a result of {kind} without {missing}")]
    Incomplete {
        /// The kind.
        kind: &'static str,
        /// What is missing.
        missing: &'static str,
    },
    /// The text is not JSON, or a result has another form than its kind.
    #[error("not a result: {0}")]
    Form(#[from] serde_json::Error),
}

/// The picture of the result in `json`, whose kind shows by its fields.
///
/// # Errors
/// [`FigureError`].
pub fn draw(json: &str) -> Result<String, FigureError> {
    let results: Value = serde_json::from_str(json)?;
    if let Some(picture) = of_several(&results) {
        return picture;
    }
    let Some([result]) = results.as_array().map(Vec::as_slice) else {
        let got =
            results.as_array().map_or("no array".to_owned(), |results| format!("{} results", results.len()));
        return Err(FigureError::NotOneResult { got });
    };
    if result.get("stores").is_some() {
        return throughput::draw(&Comparison::deserialize(result)?);
    }
    if result.get("curve").is_some() {
        return model::draw(&ModelRecord::deserialize(result)?);
    }
    if result.get("phases").is_some() {
        return inserts::draw(&InsertRecord::deserialize(result)?);
    }
    Err(FigureError::UnknownKind)
}

/// The picture of results of `farsight bench ycsb`: engines by workload, memory where datasets differ, and of
/// simulated ones how they scale where compute nodes do. That of `farsight bench change`, a panel a change.
fn of_several(results: &Value) -> Option<Result<String, FigureError>> {
    let all_have = |field: &str| {
        let results = results.as_array().filter(|results| !results.is_empty());
        results.is_some_and(|results| results.iter().all(|result| result.get(field).is_some()))
    };
    if all_have("virtual_seconds") {
        return Some(Vec::<SimulatedRecord>::deserialize(results).map_err(FigureError::from).and_then(
            |records| match distinct(records.iter().map(|record| record.machines)).len() {
                1 if records.iter().any(|record| record.cache_budget_bytes.is_some()) => {
                    budget::draw(&records)
                }
                1 => engines::draw_simulated(&records),
                _ => scaling::draw(&records),
            },
        ));
    }
    if all_have("cluster") && all_have("runs") {
        let records = Vec::<ClusterRecord>::deserialize(results).map_err(FigureError::from);
        return Some(records.and_then(|records| twitter::draw(&records)));
    }
    if all_have("figure") && all_have("run") {
        let records = Vec::<FlexPointRecord>::deserialize(results).map_err(FigureError::from);
        return Some(records.and_then(|records| flexkv::draw(&records)));
    }
    if all_have("change") && all_have("samples") {
        let records = Vec::<ChangeRecord>::deserialize(results).map_err(FigureError::from);
        return Some(records.and_then(|records| change::draw(&records)));
    }
    if all_have("cache_bytes_per_key") && all_have("runs") {
        return Some(Vec::<Record>::deserialize(results).map_err(FigureError::from).and_then(|records| {
            match distinct(records.iter().map(|record| record.setting.dataset.as_str())).len() {
                1 => engines::draw(&records),
                _ => memory::draw(&records),
            }
        }));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::LatencyNs;
    use crate::machine::Machine;
    use crate::model_survey::survey;
    use crate::report::{
        ChangeMemory, ChangePhase, ChangeSample, ComparedStore, InsertPhase, InsertSample, InsertSetting,
        Measured, Rate, Setting, Work, cluster_record,
    };

    fn comparison() -> Comparison {
        let store = |name: &str, rate: f64| ComparedStore {
            name: name.into(),
            note: String::new(),
            is_batched: true,
            client_bytes_per_key: None,
            rates: Work::ALL.map(|work| Rate::of_runs(work, vec![rate])).into(),
        };
        Comparison {
            date: "2026-01-02".into(),
            command: "c".into(),
            machine: Machine { cpu: "Example <9000> & sons".into(), cores: 2, ..Machine::default() },
            dataset: "uniform".into(),
            keys: 1_000_000,
            batch: 64,
            seconds: 0.1,
            rounds: 5,
            random_read_limit_per_s: 2e8,
            shape_limit_per_s: 2e7,
            stores: vec![store("Farsight", 1.234e7), store("LMDB", 4.56e5)],
        }
    }

    fn inserts() -> InsertRecord {
        let sample = |at_s: f64| InsertSample {
            at_s,
            inserts_per_s: 2e6,
            gets_per_s: 8e6,
            retrained: 1_000,
            generation: 1,
            pending: 10,
            lag_ns: 2_000_000,
            pairs: 1,
        };
        let phase = |name: &str| InsertPhase {
            phase: name.into(),
            inserts_per_s: 2e6,
            gets_per_s: 8e6,
            get_latency_ns: LatencyNs::default(),
            get_processor_ns: LatencyNs::default(),
            reads_per_get: 2.0,
            fallbacks_per_get: 0.0,
            server_cpu_fraction: 1.0,
            training_cpu_fraction: 0.1,
            splits: 1,
            hint_hits: 1,
            descents: 1,
            lag_ns_max: 1,
            pending_max: 1,
            samples: [0.1, 0.2, 0.3].map(sample).into(),
        };
        InsertRecord {
            setting: InsertSetting {
                order: "random".into(),
                dataset: "uniform".into(),
                keys: 1_000,
                value_size: 8,
                batch: 64,
                seconds: 0.3,
                prefaulted_bytes: 0,
            },
            phases: ["insert", "read", "beside", "both"].map(phase).into(),
            machine: Machine::default(),
        }
    }

    fn change(name: &str) -> ChangeRecord {
        let sample = |(phase, at_s): (&str, f64)| ChangeSample {
            phase: phase.into(),
            at_s,
            interval_s: 0.1,
            writes_per_s: if phase == "during" { 2e6 } else { 0.0 },
            gets_per_s: 8e6,
            get_p99_ns: 12_345,
            reads_per_get: 2.5,
            fallbacks_per_get: 0.0,
            memory: ChangeMemory::default(),
        };
        let course = [("before", 0.1), ("during", 0.2), ("during", 0.3), ("settling", 0.4), ("after", 0.5)];
        ChangeRecord {
            change: name.into(),
            keys: 1_000,
            operations: 2_000,
            writes_per_s: 2e6,
            before: ChangePhase::default(),
            during: ChangePhase::default(),
            after: ChangePhase::default(),
            scans_before: None,
            scans_after: None,
            fresh: ChangeMemory::default(),
            end: ChangeMemory::default(),
            process_bytes_per_key: [0.5, 0.75],
            operations_checked: 1,
            marks: Vec::new(),
            samples: course.map(sample).into(),
            machine: Machine::default(),
        }
    }

    fn drawn(result: &impl serde::Serialize) -> String {
        let picture = draw(&serde_json::to_string(&[result]).expect("plain data")).expect("a picture");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
        assert!(
            picture.contains("prefers-color-scheme: dark") && !picture.contains("http://www.w3.org/1999")
        );
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        let (opened, closed) = (picture.matches("<text ").count(), picture.matches("</text>").count());
        assert!(opened == closed && opened > 10, "{opened} texts, {closed} ends");
        picture
    }

    fn record(workload: &str, engine: &str, dataset: &str) -> Record {
        let setting = Setting {
            workload: workload.into(),
            distribution: "uniform".into(),
            dataset: dataset.into(),
            keys: 1_000_000,
            value_size: 8,
            value_size_min: 8,
            values: "fixed".into(),
            threads: 1,
            batch: 64,
            access: "one-sided".into(),
            fabric: "shm".into(),
            engine: engine.into(),
            memory_nodes: 3,
            table: "fresh".into(),
            seconds: 1.0,
            acknowledged: None,
        };
        let measured = Measured {
            throughput_ops_per_s: 2.5e6,
            cache_bytes_per_key: 0.8,
            model_bytes_per_key: 0.2,
            ..Measured::default()
        };
        Record::of_runs(setting, &[measured], Machine { cpu: "one & only".into(), ..Machine::default() })
    }

    fn simulated(engine: &str, machines: usize) -> SimulatedRecord {
        SimulatedRecord {
            fabric: "sim".into(),
            profile: "cx5".into(),
            engine: engine.into(),
            memory_nodes: 3,
            testbed: "a testbed".into(),
            machines,
            proxies: 0,
            threads_per_machine: 24,
            workload: "a".into(),
            distribution: "uniform".into(),
            dataset: "uniform".into(),
            keys: 1_000_000,
            value_size: 8,
            batch: 8,
            access: "one-sided".into(),
            virtual_seconds: 0.002,
            throughput_ops_per_s: 1e6 * machines as f64,
            latency_ns: LatencyNs::default(),
            reads_per_op: 1.0,
            bytes_read_per_op: 448.0,
            writes_per_op: 0.0,
            atomics_per_op: 0.0,
            calls_per_op: 0.0,
            doorbells_per_op: 1.0,
            fallbacks_per_op: 0.0,
            bottleneck: None,
            utilization: Vec::new(),
            sensitivity: Vec::new(),
            cache_budget_bytes: None,
            cache_memory_bytes: 1 << 20,
            publishes_models: true,
            value_cache_bytes: None,
            value_hits_per_get: 0.0,
            offloaded: None,
            proxied_writes: Vec::new(),
            lone_reads: None,
            samples: Vec::new(),
        }
    }

    fn drawn_together(results: &[impl serde::Serialize]) -> String {
        let picture = draw(&serde_json::to_string(results).expect("plain data")).expect("a picture");
        assert!(picture.ends_with("</svg>\n") && !picture.contains("NaN"), "{picture}");
        picture
    }

    #[test]
    fn engines_are_drawn_beside_each_other() {
        let both = ["xstore", "rolex"];
        let bars = drawn_together(&both.map(|engine| record("c", engine, "uniform")));
        assert!(
            bars.contains(">ROLEX<") && bars.contains(">2.5<") && bars.contains("one &amp; only"),
            "{bars}"
        );
        let datasets = ["uniform", "lognormal"].map(|dataset| record("c", "rolex", dataset));
        let memory = drawn_together(&datasets);
        assert!(memory.contains("0.800, of it tables 75.0 %") && memory.contains(">lognormal<"), "{memory}");
        let bars = drawn_together(&both.map(|engine| simulated(engine, 3)));
        assert!(bars.contains("3 compute nodes of 24 threads") && bars.contains(">3.0<"), "{bars}");
        let lines = drawn_together(&[1, 2, 64].map(|machines| simulated("rolex", machines)));
        assert!(lines.contains("ROLEX 64.0") && lines.contains(">compute nodes<"), "{lines}");
        let of_budget = |bytes, publishes_models| SimulatedRecord {
            cache_budget_bytes: bytes,
            publishes_models,
            ..simulated("xstore", 3)
        };
        let budgets = [of_budget(None, true), of_budget(Some(0), true), of_budget(Some(1 << 19), false)];
        let bars = drawn_together(&budgets);
        assert!(bars.contains("top model alone, READs") && bars.contains("512 KiB, calls"), "{bars}");
        let mut none = record("c", "rolex", "uniform");
        none.median.throughput_ops_per_s = 0.0;
        let json = serde_json::to_string(&[none]).expect("plain data");
        assert!(draw(&json).unwrap_err().to_string().ends_with("without positive rates"));
    }

    #[test]
    fn clusters_are_drawn_by_their_rate() {
        let results = [cluster_record(50, [1e6, 2e5]), cluster_record(1, [3e6, 9.25e6])];
        let picture = drawn_together(&results);
        let at = |part: &str| picture.find(part).unwrap_or_else(|| panic!("no {part:?} in {picture}"));
        assert!(at(">1: 1 %, 2.7, 267 B<") < at(">50: 48 %, 1.3, 67485 B<"), "the fastest first");
        assert!(picture.contains(">9.2<") && picture.contains(">20 proxies<"), "{picture}");
        let none = cluster_record(1, [0.0, 1e6]);
        let json = serde_json::to_string(&[none]).expect("plain data");
        assert!(draw(&json).unwrap_err().to_string().ends_with("without positive rates"));
    }

    #[test]
    fn each_kind_of_result_has_its_picture() {
        let throughput = drawn(&comparison());
        assert!(throughput.contains("Example &lt;9000&gt; &amp; sons"), "texts are escaped");
        assert!(
            throughput.contains(">12.3<") && throughput.contains(">0.46<"),
            "rates stand beside their marks"
        );
        let keys: Vec<u64> = (1..50_000_u64).map(|key| key * key * 977).collect();
        let model = drawn(&survey("squares", &keys).expect("a model"));
        assert!(model.contains("squares"));
        assert!(drawn(&inserts()).contains("training"));
    }

    #[test]
    fn changes_are_panels_of_one_picture() {
        let picture = drawn_together(&["append", "window", "delete"].map(change));
        for text in [">append: 1,000 keys, 2,000 writes<", ">delete: ", ">reader's p99<", ">READs a GET<"] {
            assert!(picture.contains(text), "no {text} in {picture}");
        }
        assert!(drawn(&change("tenant")).contains(">new keys<"));
        let empty = ChangeRecord { samples: Vec::new(), ..change("tenant") };
        let json = serde_json::to_string(&[empty]).expect("plain data");
        assert!(draw(&json).unwrap_err().to_string().ends_with("without samples"));
    }

    #[test]
    fn what_cannot_be_drawn_is_named() {
        assert!(matches!(draw("{"), Err(FigureError::Form(_))));
        assert!(draw("{}").unwrap_err().to_string().ends_with("got no array"));
        assert!(draw("[{}, {}]").unwrap_err().to_string().ends_with("got 2 results"));
        assert!(matches!(draw("[{}]"), Err(FigureError::UnknownKind)));
        let mut comparison = comparison();
        comparison.stores.clear();
        let json = serde_json::to_string(&[comparison]).expect("plain data");
        assert_eq!(draw(&json).unwrap_err().to_string(), "a result of bench-compare without stores");
    }
}
