//! The figures.

use std::fmt;
use std::str::FromStr;

/// A figure, or table, of FlexKV's evaluation.
///
/// The paper prints some of them in pairs. Where its text does not tell which of a pair is which, the number
/// here is one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlexFigure {
    /// Throughput by clients, YCSB A to D.
    Clients,
    /// Latencies with all clients.
    Latencies,
    /// Shares of updates, popular keys.
    Updates,
    /// The same, uniform keys.
    UniformUpdates,
    /// What each technique adds.
    Ablation,
    /// A workload that changes.
    Dynamic,
    /// Loads of the compute nodes that write for others.
    Balance,
    /// Their threads.
    ProxyThreads,
    /// Bytes of a pair.
    PairBytes,
    /// Memory nodes among all.
    NodeRatio,
    /// A compute node's memory.
    Memory,
    /// The part that is offloaded.
    OffloadedPart,
    /// What answers reads.
    Hits,
}

impl FlexFigure {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Clients,
        Self::Latencies,
        Self::Updates,
        Self::UniformUpdates,
        Self::Ablation,
        Self::Dynamic,
        Self::Balance,
        Self::ProxyThreads,
        Self::PairBytes,
        Self::NodeRatio,
        Self::Memory,
        Self::OffloadedPart,
        Self::Hits,
    ];

    /// Its number.
    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Self::Clients => "11",
            Self::Latencies => "12",
            Self::Updates => "13",
            Self::UniformUpdates => "14",
            Self::Ablation => "17",
            Self::Dynamic => "18",
            Self::Balance => "19",
            Self::ProxyThreads => "20",
            Self::PairBytes => "21",
            Self::NodeRatio => "22",
            Self::Memory => "23",
            Self::OffloadedPart => "24",
            Self::Hits => "table1",
        }
    }

    /// What it shows.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Clients => "Throughput by clients",
            Self::Latencies => "Latencies with all clients",
            Self::Updates => "Throughput by share of updates, Zipfian keys",
            Self::UniformUpdates => "Throughput by share of updates, uniform keys",
            Self::Ablation => "Throughput by technique",
            Self::Dynamic => "A workload that changes",
            Self::Balance => "Writes of the compute nodes that write for others",
            Self::ProxyThreads => "Throughput by threads that write for others",
            Self::PairBytes => "Throughput by bytes of a pair",
            Self::NodeRatio => "Throughput by memory nodes, of all nodes",
            Self::Memory => "Throughput by a compute node's memory",
            Self::OffloadedPart => "Throughput by the part offloaded",
            Self::Hits => "What answers reads",
        }
    }

    /// What changes from point to point, with its unit.
    #[must_use]
    pub fn axis(self) -> &'static str {
        match self {
            Self::Clients | Self::Latencies | Self::Ablation | Self::Dynamic | Self::Balance | Self::Hits => {
                "clients"
            }
            Self::Updates | Self::UniformUpdates => "% updates",
            Self::ProxyThreads => "threads",
            Self::PairBytes => "B a pair",
            Self::NodeRatio => "memory nodes",
            Self::Memory => "MB, beside 10 M keys",
            Self::OffloadedPart => "% offloaded",
        }
    }
}

impl fmt::Display for FlexFigure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.number())
    }
}

impl FromStr for FlexFigure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|figure| figure.number() == text).ok_or_else(|| {
            let numbers = Self::ALL.map(Self::number).join(", ");
            format!("no figure {text:?}: expected one of {numbers}, or all")
        })
    }
}
