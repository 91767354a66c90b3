//! Where a server is, as users write it.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use farsight_cluster::{ClusterUrlError, without_password};

/// A server's address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ServerUrl {
    /// `shm://` and the absolute path of the server's socket, taken literally (no `%` escapes): shared memory
    /// with a server on this host.
    Shm(PathBuf),
    /// `tcp://` and `host:port`: a server anywhere, over TCP.
    Tcp(Endpoint),
    /// `rdma://` and the `host:port` at which the server sets up connections: over InfiniBand or RoCE.
    Rdma(Endpoint),
}

/// A host and a port on it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: String,
    /// The port. At zero a server listens at one that the system chooses.
    pub port: u16,
}

/// What is wrong with a `host:port`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointProblem {
    /// Nothing before the port.
    #[error("names no host")]
    NoHost,
    /// A host with bytes that no name has.
    #[error("has {host:?} for a host: letters, digits, '-', '.' and '_', or an IPv6 address in brackets")]
    NotAHost {
        /// What stands there.
        host: String,
    },
    /// Nothing after the host.
    #[error("names no port")]
    NoPort,
    /// A port that is no number, or too large.
    #[error("has {port:?} for a port: a number up to 65535")]
    NotAPort {
        /// What stands there.
        port: String,
    },
    /// Several colons.
    #[error("has several colons: an IPv6 address stands in brackets")]
    NoBrackets,
    /// A bracket that is not closed.
    #[error("opens a bracket and does not close it")]
    OpenBracket,
    /// Something else than an IPv6 address in brackets.
    #[error("has {host:?} in brackets, which is no IPv6 address")]
    NotIpv6 {
        /// What stands there.
        host: String,
    },
}

/// Text that is no server's address, nor a pool's name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// It is to be a pool's name in an etcd, and is none.
    #[error(transparent)]
    Cluster(#[from] ClusterUrlError),
    /// No `scheme://` in front.
    #[error("{url:?} is no server URL: it needs a scheme, as in shm:///run/farsight.sock")]
    NoScheme {
        /// The text.
        url: String,
    },
    /// A scheme that means nothing.
    #[error(
        "{url:?} has the unknown scheme {scheme:?}; known are shm, tcp and rdma, as in \
         shm:///run/farsight.sock and tcp://host:7474, and etcd alone, for a pool's name"
    )]
    UnknownScheme {
        /// The text.
        url: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// A host or port that is none.
    #[error("{url:?} {problem}; what is meant is like {scheme}://host:7474 or {scheme}://[::1]:7474")]
    Endpoint {
        /// The text.
        url: String,
        /// The scheme.
        scheme: &'static str,
        /// What is wrong behind it.
        problem: EndpointProblem,
    },
    /// A path that does not begin with a slash: usually a slash too few.
    #[error(
        "{url:?} names no absolute path after shm://; three slashes, as in shm:///{rest}, or the full path"
    )]
    NotAbsolute {
        /// The text.
        url: String,
        /// What stands after `://`.
        rest: String,
    },
    /// A path that names no file.
    #[error("{url:?} names a directory; the path is that of the server's socket")]
    Directory {
        /// The text.
        url: String,
    },
    /// A zero byte, which no path can hold.
    #[error("{url:?} has a zero byte in its path")]
    ZeroByte {
        /// The text.
        url: String,
    },
}

impl ServerUrl {
    /// The address of the server that listens at `socket`.
    #[must_use]
    pub fn shm(socket: impl AsRef<Path>) -> Self {
        Self::Shm(socket.as_ref().to_owned())
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UrlError::NoScheme { url: without_password(text) });
        };
        let endpoint = |scheme| {
            let parsed = Endpoint::parse(rest);
            parsed.map_err(|problem| UrlError::Endpoint { url: without_password(text), scheme, problem })
        };
        match scheme {
            "shm" => socket_path(text, rest).map(Self::Shm),
            "tcp" => endpoint("tcp").map(Self::Tcp),
            "rdma" => endpoint("rdma").map(Self::Rdma),
            _ => Err(UrlError::UnknownScheme { url: without_password(text), scheme: scheme.to_owned() }),
        }
    }
}

/// What stands behind `shm://`.
fn socket_path(text: &str, rest: &str) -> Result<PathBuf, UrlError> {
    let url = text.to_owned();
    if !rest.starts_with('/') {
        return Err(UrlError::NotAbsolute { url, rest: rest.to_owned() });
    }
    if rest.contains('\0') {
        return Err(UrlError::ZeroByte { url });
    }
    if rest.ends_with('/') {
        return Err(UrlError::Directory { url });
    }
    Ok(PathBuf::from(rest))
}

impl Endpoint {
    /// Reads `host:port`; an IPv6 address stands in brackets.
    fn parse(text: &str) -> Result<Self, EndpointProblem> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or(EndpointProblem::OpenBracket)?;
                host.parse::<Ipv6Addr>().map_err(|_| EndpointProblem::NotIpv6 { host: host.to_owned() })?;
                (host, rest.strip_prefix(':'))
            }
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(EndpointProblem::NoBrackets),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() {
            return Err(EndpointProblem::NoHost);
        }
        if !text.starts_with('[') && !host.bytes().all(is_of_names) {
            return Err(EndpointProblem::NotAHost { host: host.to_owned() });
        }
        let port = port.ok_or(EndpointProblem::NoPort)?;
        // No sign, no blank: what `u16` would take besides digits.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        match port.parse() {
            Ok(number) if digits => Ok(Self { host: host.to_owned(), port: number }),
            _ => Err(EndpointProblem::NotAPort { port: port.to_owned() }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(socket) => write!(f, "shm://{}", socket.display()),
            Self::Tcp(endpoint) => write!(f, "tcp://{endpoint}"),
            Self::Rdma(endpoint) => write!(f, "rdma://{endpoint}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> UrlError {
        text.parse::<ServerUrl>().expect_err("this is no URL")
    }

    #[test]
    fn a_socket_url_comes_back() {
        let url: ServerUrl = "shm:///run/a b%20.sock".parse().unwrap();
        assert_eq!(url, ServerUrl::shm("/run/a b%20.sock"));
        assert_eq!(url.to_string(), "shm:///run/a b%20.sock");
    }

    #[test]
    fn each_mistake_is_named() {
        assert!(matches!(error("/run/farsight.sock"), UrlError::NoScheme { .. }));
        assert!(matches!(error(""), UrlError::NoScheme { .. }));
        assert!(matches!(error("http://x"), UrlError::UnknownScheme { scheme, .. } if scheme == "http"));
        assert!(matches!(error("shm://run/farsight.sock"), UrlError::NotAbsolute { .. }));
        assert!(matches!(error("shm://"), UrlError::NotAbsolute { .. }));
        assert!(matches!(error("shm:///run/"), UrlError::Directory { .. }));
        assert!(matches!(error("shm:///run/a\0b"), UrlError::ZeroByte { .. }));
    }

    #[test]
    fn mistakes_show_no_password() {
        for text in ["etcds://u:secret@a:1/p", "tcp://u:secret@a:1", "u:secret@a:1"] {
            let error = error(text);
            assert!(
                !error.to_string().contains("secret") && !format!("{error:?}").contains("secret"),
                "{error}"
            );
        }
        assert!(error("shm://a@b").to_string().contains("shm://a@b"), "a path");
    }

    #[test]
    fn mistakes_say_what_to_write_instead() {
        assert!(error("shm://run/farsight.sock").to_string().contains("shm:///run/farsight.sock"));
        assert!(error("redis://h").to_string().contains("known are shm, tcp and rdma"));
        assert!(
            error("tcp://h").to_string().contains("names no port; what is meant is like tcp://host:7474")
        );
    }

    #[test]
    fn hosts_and_ports_come_back() {
        for text in ["tcp://host.example:7474", "rdma://10.0.0.1:1", "tcp://[fe80::1]:65535", "tcp://a_b-c:0"]
        {
            assert_eq!(text.parse::<ServerUrl>().unwrap().to_string(), text);
        }
        let url: ServerUrl = "rdma://[::1]:7474".parse().unwrap();
        assert_eq!(url, ServerUrl::Rdma(Endpoint { host: "::1".to_owned(), port: 7474 }));
    }

    #[test]
    fn each_mistake_in_a_host_or_port_is_named() {
        let problem = |text: &str| match error(text) {
            UrlError::Endpoint { problem, .. } => problem,
            other => panic!("{text}: {other}"),
        };
        assert_eq!(problem("tcp://"), EndpointProblem::NoHost);
        assert_eq!(problem("tcp://:7474"), EndpointProblem::NoHost);
        assert_eq!(problem("rdma://host"), EndpointProblem::NoPort);
        assert_eq!(problem("tcp://[::1]"), EndpointProblem::NoPort);
        assert_eq!(problem("tcp://::1:7474"), EndpointProblem::NoBrackets);
        assert_eq!(problem("tcp://[::1:7474"), EndpointProblem::OpenBracket);
        for port in ["", "65536", "+1", " 1", "7474/"] {
            assert_eq!(
                problem(&format!("tcp://host:{port}")),
                EndpointProblem::NotAPort { port: port.into() }
            );
        }
        for host in ["ho st", "a/b", "user@host", "\0"] {
            assert_eq!(problem(&format!("tcp://{host}:1")), EndpointProblem::NotAHost { host: host.into() });
        }
        assert_eq!(problem("tcp://[host]:1"), EndpointProblem::NotIpv6 { host: "host".into() });
    }
}
