//! YCSB's workloads as streams of operations.
//!
//! Protocol: split a dataset into keys to load and keys to insert ([`KeySpace::split`]), load the former,
//! give each thread an [`OperationStream`] and call [`OperationStream::fill`] for each batch.
//!
//! | workload | mix, % | keys popular |
//! |---|---|---|
//! | A | read 50, update 50 | uniform or Zipfian |
//! | B | read 90, update 10 as in XStore's Table 1; YCSB's own 95:5 is [`Workload::BStandard`] | uniform or
//! Zipfian |
//! | C | read 100 | uniform or Zipfian |
//! | D | read 95, insert 5 | uniform or latest |
//! | E | scan 95 of 1 to 100 keys, insert 5 | uniform or Zipfian |
//! | F | read 50, read-modify-write 50 | uniform or Zipfian |
//!
//! (XStore, OSDI 2020, section 7.1; Cooper et al., SoCC 2010. Any distribution can be chosen for any
//! workload.)

mod error;
mod key_space;
mod popularity;
mod shape_change;
mod stream;
mod twitter;
mod update_share;

use std::{fmt, str::FromStr};

use farsight_oracles::Identity;

pub use error::WorkloadError;
pub use key_space::{InsertSupply, KeySpace};
pub use shape_change::{ChangeKeys, ShapeChange};
pub use stream::{OperationStream, SLOTS_DEFAULT};
pub use twitter::Cluster;
pub use update_share::UpdateShare;

/// Longest scan of workload E, in keys; lengths are uniform from 1.
pub const SCAN_LENGTH_MAX: u16 = 100;

/// Zipfian skew of YCSB.
pub const ZIPFIAN_THETA_DEFAULT: f64 = 0.99;

/// One operation on the store. Values are the driver's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Get the value of a key that was loaded or inserted before.
    Read {
        /// The key.
        key: Identity,
    },
    /// Replace the value of such a key.
    Update {
        /// The key.
        key: Identity,
    },
    /// Insert a key that the store does not hold.
    Insert {
        /// The key.
        key: Identity,
    },
    /// Read pairs in key order from a key on.
    Scan {
        /// The first key, which the store holds.
        key: Identity,
        /// How many pairs.
        length: u16,
    },
    /// Get a value, then replace it.
    ReadModifyWrite {
        /// The key.
        key: Identity,
    },
}

impl Operation {
    fn key_mut(&mut self) -> &mut Identity {
        match self {
            Self::Read { key }
            | Self::Update { key }
            | Self::Insert { key }
            | Self::Scan { key, .. }
            | Self::ReadModifyWrite { key } => key,
        }
    }
}

/// A workload: one of YCSB's, or one of a paper's that measures with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Update heavy.
    A,
    /// Read mostly, 90:10 as in XStore's Table 1.
    B,
    /// Read mostly, 95:5 as in YCSB.
    BStandard,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read-modify-write.
    F,
    /// As one of Twitter's caches.
    Twitter(Cluster),
    /// Reads and this share of updates.
    Updates(UpdateShare),
}

/// Shares of the operations in percent; they add up to 100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mix {
    /// Reads.
    pub read: u8,
    /// Updates.
    pub update: u8,
    /// Inserts.
    pub insert: u8,
    /// Scans.
    pub scan: u8,
    /// Read-modify-writes.
    pub read_modify_write: u8,
}

impl Workload {
    /// Every workload of YCSB, in order.
    pub const ALL: [Self; 7] = [Self::A, Self::B, Self::BStandard, Self::C, Self::D, Self::E, Self::F];

    /// Its name; [`FromStr`] reads those of YCSB.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::BStandard => "b-standard",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::Twitter(cluster) => cluster.name(),
            Self::Updates(share) => share.name(),
        }
    }

    /// Which keys are popular, unless said otherwise: the youngest in workload D, as published in a cache's,
    /// all alike in the others.
    #[must_use]
    pub fn usual_distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest { theta: ZIPFIAN_THETA_DEFAULT },
            Self::Twitter(cluster) => cluster.distribution(),
            _ => Distribution::Uniform,
        }
    }

    /// Shares of its operations.
    #[must_use]
    pub fn mix(self) -> Mix {
        match self {
            Self::A => Mix { read: 50, update: 50, ..Mix::default() },
            Self::B => Mix { read: 90, update: 10, ..Mix::default() },
            Self::BStandard => Mix { read: 95, update: 5, ..Mix::default() },
            Self::C => Mix { read: 100, ..Mix::default() },
            Self::D => Mix { read: 95, insert: 5, ..Mix::default() },
            Self::E => Mix { scan: 95, insert: 5, ..Mix::default() },
            Self::F => Mix { read: 50, read_modify_write: 50, ..Mix::default() },
            Self::Twitter(cluster) => cluster.mix(),
            Self::Updates(share) => {
                Mix { read: 100 - share.percent(), update: share.percent(), ..Mix::default() }
            }
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        Self::ALL
            .into_iter()
            .find(|workload| workload.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| WorkloadError::UnknownWorkload { name: text.to_owned() })
    }
}

/// Which keys are popular.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// All loaded keys alike.
    Uniform,
    /// The loaded key of popularity rank r has weight r^-theta; ranks are scattered over the key order.
    Zipfian {
        /// The skew, 0 or more (also 1 and more).
        theta: f64,
    },
    /// The r-th youngest key has weight r^-theta. Ranks count a thread's own inserts, youngest first; a rank
    /// that no insert holds yet names a loaded key, in an arbitrary order.
    Latest {
        /// The skew, 0 or more.
        theta: f64,
    },
}

impl Distribution {
    /// The name that [`FromStr`] reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipfian { .. } => "zipfian",
            Self::Latest { .. } => "latest",
        }
    }

    /// What results call it: its name, and its skew if that is not YCSB's.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Zipfian { theta } | Self::Latest { theta }
                if theta.to_bits() != ZIPFIAN_THETA_DEFAULT.to_bits() =>
            {
                format!("{} {theta}", self.name())
            }
            _ => self.name().to_owned(),
        }
    }

    /// The same with another skew.
    ///
    /// # Errors
    /// [`WorkloadError::BadTheta`] if it is below 0 or not finite; [`WorkloadError::NoTheta`] where all keys
    /// are alike.
    pub fn with_theta(self, theta: f64) -> Result<Self, WorkloadError> {
        if !theta.is_finite() || theta < 0.0 {
            return Err(WorkloadError::BadTheta { theta });
        }
        match self {
            Self::Uniform => Err(WorkloadError::NoTheta { theta }),
            Self::Zipfian { .. } => Ok(Self::Zipfian { theta }),
            Self::Latest { .. } => Ok(Self::Latest { theta }),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Distribution {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let theta = ZIPFIAN_THETA_DEFAULT;
        match text {
            "uniform" => Ok(Self::Uniform),
            "zipfian" => Ok(Self::Zipfian { theta }),
            "latest" => Ok(Self::Latest { theta }),
            _ => Err(WorkloadError::UnknownDistribution { name: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_whole_and_every_name_is_read_back() {
        for workload in Workload::ALL {
            let mix = workload.mix();
            let sum = mix.read + mix.update + mix.insert + mix.scan + mix.read_modify_write;
            assert_eq!(sum, 100, "{workload}");
            assert_eq!(workload.name().parse::<Workload>().expect("its own name"), workload);
        }
        for name in ["uniform", "zipfian", "latest"] {
            assert_eq!(name.parse::<Distribution>().expect("a name").name(), name);
        }
    }

    #[test]
    fn another_skew_is_told_and_one_without_meaning_refused() {
        let zipfian: Distribution = "zipfian".parse().expect("a name");
        assert_eq!(zipfian.label(), "zipfian");
        assert_eq!(zipfian.with_theta(1.2).expect("a skew").label(), "zipfian 1.2");
        assert_eq!(zipfian.with_theta(0.0).expect("a skew"), Distribution::Zipfian { theta: 0.0 });
        for theta in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(zipfian.with_theta(theta), Err(WorkloadError::BadTheta { .. })), "{theta}");
        }
        let error = Distribution::Uniform.with_theta(1.2).expect_err("all alike").to_string();
        assert_eq!(error, "a skew of 1.2 for keys that are all alike; expected zipfian or latest");
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let error = "g".parse::<Workload>().expect_err("YCSB ends at F").to_string();
        assert_eq!(error, "unknown workload `g`; expected a, b, b-standard, c, d, e or f");
        let error = "pareto".parse::<Distribution>().expect_err("unknown").to_string();
        assert_eq!(error, "unknown distribution `pareto`; expected uniform, zipfian or latest");
    }
}
