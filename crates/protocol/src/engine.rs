//! The engines that there are, each by one name: what users, programs and the catalogue call it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who does what with a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// Clients read one-sided by a learned cache, the node writes.
    XStore,
    /// Compute nodes read and write the memory of the nodes one-sided.
    Rolex,
    /// XStore over several nodes: each has an ordered range of the keys, and its processor writes there.
    XStoreD,
}

/// A name of no engine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no engine is called {got:?}; there are {}", names())]
pub struct UnknownEngine {
    /// The name.
    pub got: String,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::XStore, Self::Rolex, Self::XStoreD];

    /// The engine of a table over so many nodes for which none is asked by name.
    #[must_use]
    pub const fn usual(nodes: usize) -> Self {
        if nodes == 1 { Self::XStore } else { Self::Rolex }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XStore => "xstore",
            Self::Rolex => "rolex",
            Self::XStoreD => "xstore-d",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == name);
        found.ok_or_else(|| UnknownEngine { got: name.to_owned() })
    }
}

/// How a table is worked with, as its nodes keep it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TableEngine {
    /// Compute nodes do every operation one-sided; leaves lie on any node.
    Rolex,
    /// Compute nodes read one-sided; the nodes' processors write. Each node has an ordered range of the keys.
    /// Over several nodes it is XStore-D.
    XStore {
        /// The least key of each node's range but the first node's, ascending; none of a single node.
        #[serde(with = "crate::exact::words")]
        boundaries: Vec<u64>,
    },
}

impl TableEngine {
    /// Its engine's name.
    #[must_use]
    pub fn name(&self) -> Engine {
        match self {
            Self::Rolex => Engine::Rolex,
            Self::XStore { boundaries } if boundaries.is_empty() => Engine::XStore,
            Self::XStore { .. } => Engine::XStoreD,
        }
    }

    /// XStore over so many nodes, with ranges of the same number of keys of a sample, or, if that has fewer
    /// keys than there are nodes, of the same width.
    #[must_use]
    pub fn x_store(mut sample: Vec<u64>, nodes: usize) -> Self {
        sample.sort_unstable();
        sample.dedup();
        let count = sample.len();
        let boundary = |node: usize| match sample.get(node * count / nodes) {
            Some(key) if count >= nodes => *key,
            _ => (((node as u128) << u64::BITS) / nodes as u128) as u64,
        };
        Self::XStore { boundaries: (1..nodes).map(boundary).collect() }
    }

    /// True for the same engine, wherever its ranges begin.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// True for one that can be over so many nodes.
    #[must_use]
    pub fn is_sound(&self, nodes: usize) -> bool {
        match self {
            Self::Rolex => true,
            Self::XStore { boundaries } => {
                boundaries.len() + 1 == nodes
                    && boundaries.first().is_none_or(|first| *first > 0)
                    && boundaries.is_sorted_by(|low, high| low < high)
            }
        }
    }
}

impl fmt::Display for TableEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

fn names() -> String {
    Engine::ALL.map(Engine::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_by_their_names() {
        for engine in Engine::ALL {
            assert_eq!(engine.to_string().parse(), Ok(engine));
        }
        let error = "xstored".parse::<Engine>().unwrap_err().to_string();
        assert_eq!(error, "no engine is called \"xstored\"; there are xstore, rolex, xstore-d");
    }

    fn boundaries(sample: &[u64], nodes: usize) -> Vec<u64> {
        let engine = TableEngine::x_store(sample.to_vec(), nodes);
        assert!(engine.is_sound(nodes), "{engine:?}");
        let TableEngine::XStore { boundaries } = engine else { panic!("not XStore") };
        boundaries
    }

    #[test]
    fn ranges_have_the_same_number_of_a_samples_keys() {
        assert_eq!(boundaries(&[60, 50, 10, 20, 30, 40, 10], 3), [30, 50]);
        assert_eq!(boundaries(&[0, 1, 2], 3), [1, 2]);
        assert_eq!(boundaries(&[7; 100], 1), []);
    }

    #[test]
    fn without_a_sample_they_have_the_same_width() {
        assert_eq!(boundaries(&[], 4), [1 << 62, 1 << 63, 3 << 62]);
        assert_eq!(boundaries(&[5, 5, 5], 2), [1 << 63]);
        assert_eq!(boundaries(&[], 16).len(), 15);
    }

    #[test]
    fn ranges_that_cannot_be_are_found() {
        for (boundaries, nodes) in [(vec![], 2), (vec![5], 1), (vec![0], 2), (vec![5, 5], 3), (vec![6, 5], 3)]
        {
            let engine = TableEngine::XStore { boundaries };
            assert!(!engine.is_sound(nodes), "{engine:?}");
        }
    }
}
