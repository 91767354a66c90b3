//! Twitter's cache clusters as workloads, synthesized from what was published of each.
//!
//! Source: the means of 54 traces of March 2020 (Yang, Yue, Rashmi, OSDI 2020) in
//! [twitter-2020-march.csv](../../data/twitter-2020-march.csv). Nothing is replayed: a workload has a
//! cluster's shares of operations, its mean length of values, and its Zipfian skew.
//!
//! | operation of the cache | here |
//! |---|---|
//! | get, gets | read |
//! | set, cas, incr, prepend, delete, and what the table does not name | update of a stored key |
//! | add | insert of a new key |
//!
//! A cache's set may miss, and its deletes make room. Here the key is stored, and stays.

use std::sync::LazyLock;

use super::{Distribution, Mix, WorkloadError, ZIPFIAN_THETA_DEFAULT};

const TABLE: &str = include_str!("../../data/twitter-2020-march.csv");
/// Columns of the table.
const COLUMNS: usize = 6;

static CLUSTERS: LazyLock<Vec<ClusterProfile>> =
    LazyLock::new(|| read(TABLE).expect("the table of this crate, which a test reads"));

/// A cluster of which enough is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster(u8);

/// What is published of a cluster.
#[derive(Debug, Clone, PartialEq)]
struct ClusterProfile {
    number: u8,
    /// What results call it.
    name: String,
    known: Option<Known>,
}

#[derive(Debug, Clone, PartialEq)]
struct Known {
    key_bytes: u32,
    value_bytes: u32,
    mix: Mix,
    zipf_alpha: Option<f64>,
    ttl: String,
}

impl Cluster {
    /// The cluster of this number.
    ///
    /// # Errors
    /// [`WorkloadError::UnknownCluster`]; [`WorkloadError::UnpublishedCluster`] where the table has no
    /// figures.
    pub fn new(number: u8) -> Result<Self, WorkloadError> {
        match CLUSTERS.iter().find(|profile| profile.number == number) {
            None => Err(WorkloadError::UnknownCluster { number, clusters: CLUSTERS.len() }),
            Some(profile) if profile.known.is_none() => Err(WorkloadError::UnpublishedCluster { number }),
            Some(_) => Ok(Self(number)),
        }
    }

    /// All of which enough is published, by number.
    #[must_use]
    pub fn all() -> Vec<Self> {
        CLUSTERS
            .iter()
            .filter(|profile| profile.known.is_some())
            .map(|profile| Self(profile.number))
            .collect()
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// What results call it: `twitter:17`.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.profile().name
    }

    /// Shares of its operations.
    #[must_use]
    pub fn mix(self) -> Mix {
        self.known().mix
    }

    /// Which keys are popular. Where no skew is published, it is YCSB's.
    #[must_use]
    pub fn distribution(self) -> Distribution {
        Distribution::Zipfian { theta: self.zipf_alpha().unwrap_or(ZIPFIAN_THETA_DEFAULT) }
    }

    /// The published skew, if there is one.
    #[must_use]
    pub fn zipf_alpha(self) -> Option<f64> {
        self.known().zipf_alpha
    }

    /// Mean bytes of a key.
    #[must_use]
    pub fn key_bytes(self) -> u32 {
        self.known().key_bytes
    }

    /// Mean bytes of a value.
    #[must_use]
    pub fn value_bytes(self) -> u32 {
        self.known().value_bytes
    }

    /// Lifetimes of its pairs and their shares, as published.
    #[must_use]
    pub fn ttl(self) -> &'static str {
        &self.known().ttl
    }

    fn profile(self) -> &'static ClusterProfile {
        CLUSTERS.iter().find(|profile| profile.number == self.0).expect("made by new or all")
    }

    fn known(self) -> &'static Known {
        self.profile().known.as_ref().expect("made by new or all")
    }
}

/// Reads the table; the error says where and what.
fn read(table: &str) -> Result<Vec<ClusterProfile>, String> {
    let rows = table.lines().enumerate().filter(|(_, line)| !line.starts_with('#')).skip(1);
    rows.map(|(index, line)| profile(line).map_err(|error| format!("line {}: {error}", index + 1))).collect()
}

fn profile(line: &str) -> Result<ClusterProfile, String> {
    let fields: Vec<&str> = line.split(',').collect();
    let [cluster, key_bytes, value_bytes, operations, zipf_alpha, ttl] = fields[..] else {
        return Err(format!("expected {COLUMNS} fields, got {}: {line:?}", fields.len()));
    };
    let whole = |field: &str| field.parse::<u32>().map_err(|_| format!("expected a number, got {field:?}"));
    let number = whole(cluster)?.try_into().map_err(|_| format!("expected a cluster, got {cluster}"))?;
    let name = format!("twitter:{number}");
    if operations.is_empty() {
        return Ok(ClusterProfile { number, name, known: None });
    }
    let zipf_alpha = match zipf_alpha {
        "" => None,
        text => Some(text.parse().map_err(|_| format!("expected a skew, got {text:?}"))?),
    };
    let known = Known {
        key_bytes: whole(key_bytes)?,
        value_bytes: whole(value_bytes)?,
        mix: mix(operations)?,
        zipf_alpha,
        ttl: ttl.to_owned(),
    };
    Ok(ClusterProfile { number, name, known: Some(known) })
}

/// Shares in percent. What is not named counts as updates; what is too much by rounding, a read less.
fn mix(operations: &str) -> Result<Mix, String> {
    let mut mix = Mix::default();
    for share in operations.split(' ') {
        let (operation, part) = share.split_once(':').ok_or_else(|| format!("no share in {share:?}"))?;
        let part: f64 = part.parse().map_err(|_| format!("expected a share, got {part:?}"))?;
        if !(0.0..=1.0).contains(&part) {
            return Err(format!("expected a share from 0 to 1, got {share:?}"));
        }
        let percent = (part * 100.0).round() as u8;
        match operation {
            "get" | "gets" => mix.read += percent,
            "set" | "cas" | "incr" | "prepend" | "delete" => mix.update += percent,
            "add" => mix.insert += percent,
            _ => return Err(format!("unknown operation {operation:?}")),
        }
    }
    let written = mix.update + mix.insert;
    if written > 100 {
        return Err(format!("writes are {written} % of {operations:?}"));
    }
    mix.read = mix.read.min(100 - written);
    mix.update += 100 - written - mix.read;
    Ok(mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_54_clusters_of_which_one_is_unpublished() {
        let clusters = read(TABLE).expect("the table");
        assert!(clusters.iter().map(|profile| profile.number).eq(1..=54));
        assert_eq!(Cluster::all().len(), 53);
        for cluster in Cluster::all() {
            let mix = cluster.mix();
            assert_eq!(mix.read + mix.update + mix.insert, 100, "{cluster:?}");
            assert!((1..=200).contains(&cluster.key_bytes()), "{cluster:?}");
            assert!((1..=70_000).contains(&cluster.value_bytes()), "{cluster:?}");
            assert!(cluster.zipf_alpha().is_none_or(|alpha| (0.0..3.0).contains(&alpha)), "{cluster:?}");
            assert!(!cluster.ttl().is_empty(), "{cluster:?}");
        }
        let unskewed: Vec<u8> =
            Cluster::all().into_iter().filter(|it| it.zipf_alpha().is_none()).map(Cluster::number).collect();
        assert_eq!(unskewed, [43, 46]);
    }

    #[test]
    fn clusters_that_papers_name_are_as_they_say() {
        let cluster = |number| Cluster::new(number).expect("published");
        assert_eq!(cluster(1).mix(), Mix { read: 99, update: 1, ..Mix::default() });
        assert_eq!(cluster(1).distribution(), Distribution::Zipfian { theta: 2.6774 });
        assert_eq!(cluster(35).distribution(), Distribution::Zipfian { theta: 0.0 });
        assert_eq!(cluster(50).value_bytes(), 67_485);
        assert_eq!(cluster(14).mix(), Mix { read: 65, update: 35, ..Mix::default() });
        assert_eq!(cluster(45).mix(), Mix { read: 85, insert: 15, ..Mix::default() });
        // Its shares are 101 %.
        assert_eq!(cluster(53).mix(), Mix { read: 88, update: 12, ..Mix::default() });
        assert_eq!(cluster(17).name(), "twitter:17");
    }

    #[test]
    fn what_cannot_be_read_is_named_and_placed() {
        for (line, evidence) in [
            ("1,2,3", "line 2: expected 6 fields, got 3: \"1,2,3\""),
            ("1,2,3,get:1.5,0,1d:1", "line 2: expected a share from 0 to 1, got \"get:1.5\""),
            ("1,2,3,touch:1,0,1d:1", "line 2: unknown operation \"touch\""),
            ("1,2,3,set:0.7 add:0.7,0,1d:1", "line 2: writes are 140 % of \"set:0.7 add:0.7\""),
            ("1,x,3,get:1,0,1d:1", "line 2: expected a number, got \"x\""),
        ] {
            assert_eq!(read(&format!("cluster\n{line}\n")).expect_err("a mistake"), evidence);
        }
    }

    #[test]
    fn clusters_that_are_not_there_are_refused() {
        let error = Cluster::new(55).expect_err("54 are published").to_string();
        assert_eq!(error, "no cluster 55; expected 1 to 54");
        let error = Cluster::new(5).expect_err("without figures").to_string();
        assert_eq!(error, "no figures are published of cluster 5");
    }
}
