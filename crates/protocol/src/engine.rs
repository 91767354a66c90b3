//! The engines that there are, each by one name: what users, programs and the catalogue call it.

use std::fmt;
use std::str::FromStr;

/// Who does what with a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// Clients read one-sided by a learned cache, the server writes: every table of a server.
    XStore,
    /// Compute nodes read and write the memory nodes of a pool one-sided: a pool's tables, unless they are
    /// asked for otherwise.
    Rolex,
    /// XStore in a pool: each memory node has an ordered range of the keys, and its processor writes there.
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

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XStore => "xstore",
            Self::Rolex => "rolex",
            Self::XStoreD => "xstore-d",
        }
    }

    /// True if its tables are a pool's, false if they are a server's.
    #[must_use]
    pub const fn is_pooled(self) -> bool {
        matches!(self, Self::Rolex | Self::XStoreD)
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
}
