//! What a benchmark of the store needs besides the store: keys, operations, clocks and a result that reads
//! well.
//!
//! Invariant: everything here is a function of its arguments and a seed, so that a run can be repeated.
//! Nothing here runs inside the timed loop but [`workload::OperationStream::fill`] and
//! [`histogram::LatencyHistogram::record`].
//!
//! | module | holds |
//! |---|---|
//! | [`driver`] | the loads and runs of a benchmark, against a server process |
//! | [`dataset`] | named sorted key sets, synthetic and real, and files of keys |
//! | [`workload`] | YCSB A-F as streams of operations prepared in advance |
//! | [`histogram`] | latencies of batches and their quantiles |
//! | [`limits`] | what the machine allows, measured beside the store |
//! | [`loaded_leaves`] | leaves as a bulk load leaves them, without a server |
//! | [`model_survey`] | a model trained over a dataset's leaves, and how well it follows them |
//! | [`figures`] | results as pictures |
//! | [`flexkv_figures`] | the runs of each figure of FlexKV's evaluation |
//! | [`machine`] | the machine's description, pinning, processor time of a process |
//! | [`simulated`] | YCSB on the simulated fabric, where verbs have prices |
//! | [`verb_mixes`] | the verbs of FlexKV and its rivals where they have prices |
//! | [`report`] | the record of a result, its JSON and its table |
//! | [`whole_file`] | files that hold a whole result or the one before |

#![forbid(unsafe_code)]

pub mod dataset;
pub mod driver;
pub mod figures;
pub mod flexkv_figures;
pub mod histogram;
pub mod limits;
pub mod loaded_leaves;
pub mod machine;
pub mod model_survey;
pub mod report;
pub mod simulated;
pub mod verb_mixes;
pub mod whole_file;
pub mod workload;
