//! Where a client connects: one server, or the memory nodes of a pool, or a pool by its name.

use std::fmt;
use std::str::FromStr;

use farsight_cluster::ClusterUrl;

use crate::{ServerUrl, UrlError};

/// The address of a server, or those of some of a pool's memory nodes with commas between:
/// `tcp://a:7474,tcp://b:7474`. The client that makes the pool's first table has those of all, in the pool's
/// order. Or a pool's name in an etcd, `etcd://host:2379/users`, under which its nodes are registered
/// ([`ServerBuilder::cluster`](crate::ServerBuilder::cluster)).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Addresses(Given);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Given {
    Urls(Vec<ServerUrl>),
    Name(Box<ClusterUrl>),
}

impl Addresses {
    /// Some of a pool's memory nodes, or all with the coordinator first; or one server.
    ///
    /// # Panics
    /// Without any.
    #[must_use]
    pub fn new(urls: Vec<ServerUrl>) -> Self {
        assert!(!urls.is_empty(), "a client connects to something");
        Self(Given::Urls(urls))
    }

    /// The addresses, at least one; none of a pool by its name, whose nodes are to be found first
    /// ([`Addresses::resolve`]).
    #[must_use]
    pub fn urls(&self) -> &[ServerUrl] {
        match &self.0 {
            Given::Urls(urls) => urls,
            Given::Name(_) => &[],
        }
    }

    /// The pool's name in an etcd, if that is what was given.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterUrl> {
        match &self.0 {
            Given::Urls(_) => None,
            Given::Name(url) => Some(url),
        }
    }
}

impl FromStr for Addresses {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if ClusterUrl::is_meant(text) {
            return Ok(Self(Given::Name(Box::new(text.parse()?))));
        }
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
        texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Self::new)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Given::Urls(urls) => {
                let texts: Vec<String> = urls.iter().map(ServerUrl::to_string).collect();
                f.write_str(&texts.join(","))
            }
            Given::Name(url) => url.fmt(f),
        }
    }
}

impl From<ServerUrl> for Addresses {
    fn from(url: ServerUrl) -> Self {
        Self::new(vec![url])
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
    fn a_name_has_no_addresses_yet() {
        let name: Addresses = "etcd://a:1,b:2/users".parse().unwrap();
        assert_eq!((name.to_string().as_str(), name.urls().len()), ("etcd://a:1,b:2/users", 0));
        assert_eq!(name.cluster().map(ClusterUrl::name), Some("users"));
        assert!(matches!("etcd://a:1".parse::<Addresses>(), Err(UrlError::Cluster(_))));
    }

    #[test]
    fn the_wrong_one_of_several_is_named() {
        let error = "tcp://a:1,tcp://:2".parse::<Addresses>().unwrap_err();
        assert!(matches!(error, UrlError::Endpoint { url, .. } if url == "tcp://:2"));
        assert!(matches!("".parse::<Addresses>(), Err(UrlError::NoScheme { .. })));
        assert!(matches!(",tcp://a:1".parse::<Addresses>(), Err(UrlError::NoScheme { .. })));
    }
}
