//! Where a server is, as users write it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A server's address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ServerUrl {
    /// `shm://` and the absolute path of the server's socket, taken literally (no `%` escapes): shared memory
    /// with a server on this host.
    Shm(PathBuf),
}

/// Text that is no server's address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// No `scheme://` in front.
    #[error("{url:?} is no server URL: it needs a scheme, as in shm:///run/farsight.sock")]
    NoScheme {
        /// The text.
        url: String,
    },
    /// A scheme that will never mean anything, or not yet.
    #[error("{url:?} has the unknown scheme {scheme:?}; known is shm, as in shm:///run/farsight.sock")]
    UnknownScheme {
        /// The text.
        url: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// A scheme whose fabric this program does not contain.
    #[error(
        "{url:?} asks for the fabric {scheme:?}, which is not built yet; \
         on the server's own host use shm, as in shm:///run/farsight.sock"
    )]
    NotBuilt {
        /// The text.
        url: String,
        /// The fabric's scheme.
        scheme: &'static str,
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

/// Schemes of fabrics to come: asking for one is no typing error.
const SCHEMES_TO_COME: [&str; 2] = ["tcp", "rdma"];

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
        let url = text.to_owned();
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UrlError::NoScheme { url });
        };
        if let Some(scheme) = SCHEMES_TO_COME.into_iter().find(|known| *known == scheme) {
            return Err(UrlError::NotBuilt { url, scheme });
        }
        if scheme != "shm" {
            return Err(UrlError::UnknownScheme { url, scheme: scheme.to_owned() });
        }
        if !rest.starts_with('/') {
            return Err(UrlError::NotAbsolute { url, rest: rest.to_owned() });
        }
        if rest.contains('\0') {
            return Err(UrlError::ZeroByte { url });
        }
        if rest.ends_with('/') {
            return Err(UrlError::Directory { url });
        }
        Ok(Self::Shm(PathBuf::from(rest)))
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(socket) => write!(f, "shm://{}", socket.display()),
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
        assert!(matches!(error("tcp://host:7000"), UrlError::NotBuilt { scheme: "tcp", .. }));
        assert!(matches!(error("rdma://host"), UrlError::NotBuilt { scheme: "rdma", .. }));
        assert!(matches!(error("shm://run/farsight.sock"), UrlError::NotAbsolute { .. }));
        assert!(matches!(error("shm://"), UrlError::NotAbsolute { .. }));
        assert!(matches!(error("shm:///run/"), UrlError::Directory { .. }));
        assert!(matches!(error("shm:///run/a\0b"), UrlError::ZeroByte { .. }));
    }

    #[test]
    fn mistakes_say_what_to_write_instead() {
        assert!(error("shm://run/farsight.sock").to_string().contains("shm:///run/farsight.sock"));
        assert!(error("redis://h").to_string().contains("known is shm"));
        assert!(error("tcp://h").to_string().contains("not built yet"));
    }
}
