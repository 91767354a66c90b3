//! A pool's name in an etcd, as users write it.

use std::fmt;
use std::str::FromStr;

/// Bytes of a pool's name at most.
const NAME_BYTES_MAX: usize = 64;
/// Members of an etcd that are named at most.
const ENDPOINTS_MAX: usize = 16;
/// Where an etcd answers clients unless it was told otherwise.
const PORT: u16 = 2379;
/// What such an address begins with.
const SCHEME: &str = "etcd://";

/// `etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]/POOL`: a pool by its name, and the etcd that keeps its
/// map. A password may have no `@`, and shows in no text of this type.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClusterUrl {
    /// Members of the etcd, as `host:port`. One that answers is enough.
    endpoints: Vec<String>,
    user: Option<(String, String)>,
    name: String,
}

/// The text of an address for people, be it well-formed or not: without what may be a user's password. What
/// stands before the last `@` is none in the path of a socket, nor where no colon parts a user from it.
#[must_use]
pub fn without_password(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((secret, public)) if secret.contains(':') && !text.starts_with("shm://") => {
            let scheme = secret.find("://").map_or("", |at| &secret[..at + "://".len()]);
            format!("{scheme}…@{public}")
        }
        _ => text.to_owned(),
    }
}

/// Text that names no pool in an etcd.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{url:?} {problem}; what is meant is like etcd://host:2379/users or etcd://a:2379,b:2379/users")]
pub struct ClusterUrlError {
    /// The text, without a password.
    url: String,
    /// What is wrong with it.
    problem: &'static str,
}

impl ClusterUrl {
    /// True for text that is to be one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Members of the etcd, as `host:port`, at least one.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Who reads and writes there, and the password.
    #[must_use]
    pub fn user(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A member of the etcd that is on another host than this one, if there is any.
    #[must_use]
    pub fn far_endpoint(&self) -> Option<&str> {
        let is_here = |endpoint: &&String| {
            let host = endpoint.rsplit_once(':').map_or(endpoint.as_str(), |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || host.parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback())
        };
        self.endpoints.iter().find(|endpoint| !is_here(endpoint)).map(String::as_str)
    }
}

impl FromStr for ClusterUrl {
    type Err = ClusterUrlError;

    fn from_str(text: &str) -> Result<Self, ClusterUrlError> {
        let wrong = |problem| ClusterUrlError { url: without_password(text), problem };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("does not begin with etcd://"))?;
        let (user, rest) = match rest.split_once('@') {
            Some((user, rest)) => {
                let named =
                    user.split_once(':').filter(|(user, password)| !user.is_empty() && !password.is_empty());
                let (user, password) = named.ok_or_else(|| wrong("has no USER:PASSWORD before the @"))?;
                (Some((user.to_owned(), password.to_owned())), rest)
            }
            None => (None, rest),
        };
        let (hosts, name) = rest.split_once('/').ok_or_else(|| wrong("names no pool behind the etcd"))?;
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_of_names) {
            return Err(wrong("has no name of a pool: 1 to 64 letters, digits, '-', '.' and '_'"));
        }
        let endpoints: Option<Vec<String>> = hosts.split(',').map(endpoint).collect();
        let endpoints =
            endpoints.ok_or_else(|| wrong("has something else than hosts and ports of an etcd"))?;
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(wrong("names more than 16 members of an etcd"));
        }
        Ok(Self { endpoints, user, name: name.to_owned() })
    }
}

/// A host and a port; an IPv6 address stands in brackets.
fn endpoint(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse::<u16>().ok().filter(|port| *port > 0)?)
        }
        _ => (text, PORT),
    };
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = inner.map_or_else(|| is_name(host), |host| host.parse::<std::net::Ipv6Addr>().is_ok());
    is_host.then(|| format!("{host}:{port}"))
}

impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map_or_else(String::new, |(user, _)| format!("{user}:…@"));
        write!(f, "{SCHEME}{user}{}/{}", self.endpoints.join(","), self.name)
    }
}

impl fmt::Debug for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ClusterUrl {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn addresses_come_back() {
        for text in ["etcd://a:2379/users", "etcd://a:1,10.0.0.1:2,[::1]:3/u-s.e_r5"] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("etcd://a,[::1]/p").endpoints(), ["a:2379", "[::1]:2379"]);
        assert_eq!(parse("etcd://a/p").name(), "p");
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = parse("etcd://root:se:cret@a:1/p");
        assert_eq!(url.user(), Some(("root", "se:cret")));
        assert_eq!(url.to_string(), "etcd://root:…@a:1/p");
        assert!(!format!("{url:?}").contains("cret"));
        let more = "etcd://root:sec@secret@a/p";
        for wrong in ["etcd://root:secret@a:1", "etcd://root:secret@a:x/p", "etcd://secret@a/p", more] {
            let error = wrong.parse::<ClusterUrl>().expect_err(wrong);
            assert!(
                !error.to_string().contains("secret") && !format!("{error:?}").contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_may_be_a_password_is_left_out_of_any_text() {
        for (text, shown) in [
            ("etcds://root:se:c@ret@a/p", "etcds://…@a/p"),
            ("root:secret@a/p", "…@a/p"),
            ("tcp://root:secret@a:1", "tcp://…@a:1"),
            ("shm:///run/a:b@c", "shm:///run/a:b@c"),
            ("a@b", "a@b"),
            ("tcp://a:1", "tcp://a:1"),
            ("", ""),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let long = format!("etcd://a/{}", "n".repeat(NAME_BYTES_MAX + 1));
        let many = format!("etcd://{}/p", vec!["a"; ENDPOINTS_MAX + 1].join(","));
        for (wrong, why) in [
            ("http://a/p", "begin with etcd://"),
            ("etcd://a", "names no pool"),
            ("etcd://a/", "no name of a pool"),
            ("etcd://a/b/c", "no name of a pool"),
            ("etcd://a/b?c", "no name of a pool"),
            (&long, "no name of a pool"),
            ("etcd:///p", "hosts and ports"),
            ("etcd://a,/p", "hosts and ports"),
            ("etcd://a:0/p", "hosts and ports"),
            ("etcd://a:65536/p", "hosts and ports"),
            ("etcd://::1/p", "hosts and ports"),
            ("etcd://:@a/p", "USER:PASSWORD"),
            (&many, "more than 16"),
        ] {
            let error = wrong.parse::<ClusterUrl>().expect_err(wrong).to_string();
            assert!(error.contains(why) && error.contains("etcd://host:2379/users"), "{error}");
        }
    }

    #[test]
    fn other_hosts_are_told_apart() {
        assert_eq!(parse("etcd://localhost,127.0.0.1:1,[::1]/p").far_endpoint(), None);
        assert_eq!(parse("etcd://localhost,10.0.0.1:7/p").far_endpoint(), Some("10.0.0.1:7"));
        assert_eq!(parse("etcd://[fe80::1]:7/p").far_endpoint(), Some("[fe80::1]:7"));
    }
}
