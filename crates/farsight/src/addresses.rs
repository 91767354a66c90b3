//! Where a client connects: one server, or the memory nodes of a pool.

use std::fmt;
use std::str::FromStr;

use crate::{ServerUrl, UrlError};

/// The address of a server, or those of some of a pool's memory nodes with commas between:
/// `tcp://a:7474,tcp://b:7474`. The client that makes the pool's first table has those of all, in the pool's
/// order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Addresses(Vec<ServerUrl>);

impl Addresses {
    /// Some of a pool's memory nodes, or all with the coordinator first; or one server.
    ///
    /// # Panics
    /// Without any.
    #[must_use]
    pub fn new(urls: Vec<ServerUrl>) -> Self {
        assert!(!urls.is_empty(), "a client connects to something");
        Self(urls)
    }

    /// The addresses, at least one.
    #[must_use]
    pub fn urls(&self) -> &[ServerUrl] {
        &self.0
    }
}

impl FromStr for Addresses {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // A socket's path may have commas: an address begins where a scheme does.
        let mut texts: Vec<String> = Vec::new();
        for piece in text.split(',') {
            match texts.last_mut() {
                Some(before) if !piece.contains("://") => {
                    before.push(',');
                    before.push_str(piece);
                }
                _ => texts.push(piece.to_owned()),
            }
        }
        texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ServerUrl::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl From<ServerUrl> for Addresses {
    fn from(url: ServerUrl) -> Self {
        Self(vec![url])
    }
}

impl From<&ServerUrl> for Addresses {
    fn from(url: &ServerUrl) -> Self {
        url.clone().into()
    }
}

impl From<&Self> for Addresses {
    fn from(addresses: &Self) -> Self {
        addresses.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["tcp://a:1,tcp://b:2,tcp://[::1]:3", "shm:///run/a,b.sock,shm:///c", "rdma://h:1"] {
            assert_eq!(text.parse::<Addresses>().unwrap().to_string(), text);
        }
        let two: Addresses = "shm:///run/a,b.sock,shm:///c".parse().unwrap();
        assert_eq!(two.urls(), [ServerUrl::shm("/run/a,b.sock"), ServerUrl::shm("/c")]);
    }

    #[test]
    fn the_wrong_one_of_several_is_named() {
        let error = "tcp://a:1,tcp://:2".parse::<Addresses>().unwrap_err();
        assert!(matches!(error, UrlError::Endpoint { url, .. } if url == "tcp://:2"));
        assert!(matches!("".parse::<Addresses>(), Err(UrlError::NoScheme { .. })));
        assert!(matches!(",tcp://a:1".parse::<Addresses>(), Err(UrlError::NoScheme { .. })));
    }
}
