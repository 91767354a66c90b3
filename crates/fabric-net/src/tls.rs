//! TLS 1.3 with certificates on both sides.
//!
//! Invariant: this side says nothing of the fabric to a peer whose certificate fails a check. One of the
//! authorities that this side was given must have signed it, and it must be valid now. A server's must be for
//! the name or address that the client connected to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::secure::Session;

/// Who this side is, and whom it believes: for listening and for connecting.
#[derive(Clone, Debug)]
pub struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("the {what} cannot be read from {}: {source}", path.display())]
    File {
        /// What the file should hold.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Text that holds nothing of the kind.
    #[error(
        "the {what} is none: {reason}. It must be PEM, beginning with a line like -----BEGIN {label}-----"
    )]
    Pem {
        /// What the text should hold.
        what: &'static str,
        /// What is wrong.
        reason: String,
        /// What the PEM label says.
        label: &'static str,
    },
    /// Certificate, key and authorities do not go together.
    #[error("the {what} cannot be used: {reason}. {remedy}")]
    Unusable {
        /// Which of them.
        what: &'static str,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";
const AUTHORITIES: &str = "authorities' certificates";

impl Tls {
    /// From files in PEM: this side's certificate (with those between it and its authority, if any), its
    /// private key, and the certificates of the authorities that sign the other side's.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn from_files(
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
        authorities: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        let read = |what: &'static str, path: &Path| {
            std::fs::read(path).map_err(|source| TlsError::File { what, path: path.to_owned(), source })
        };
        let certificate = read(CERTIFICATE, certificate.as_ref())?;
        let key = read(KEY, key.as_ref())?;
        Self::from_pem(&certificate, &key, &read(AUTHORITIES, authorities.as_ref())?)
    }

    /// As [`Tls::from_files`], from the files' contents.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem(certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(CERTIFICATE, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Pem {
            what: KEY,
            reason: error.to_string(),
            label: "PRIVATE KEY",
        })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(AUTHORITIES, authorities)? {
            let remedy = "Give the certificate of an authority (CA)";
            roots.add(authority).map_err(|error| unusable(AUTHORITIES, &error, remedy))?;
        }
        let (roots, provider) = (Arc::new(roots), provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier
            .build()
            .map_err(|error| unusable(AUTHORITIES, &error, "Give at least one authority (CA)"))?;
        let mismatch = "Give the private key that belongs to the certificate";
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(verifier);
                builder.with_single_cert(chain.clone(), key.clone_key())
            })
            .map_err(|error| unusable(KEY, &error, mismatch))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, key))
            .map_err(|error| unusable(KEY, &error, mismatch))?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// The server's side of a new connection.
    ///
    /// # Errors
    /// For want of memory alone.
    pub fn accept(&self) -> io::Result<Session> {
        let session = UnbufferedServerConnection::new(Arc::clone(&self.server));
        session.map(Session::Server).map_err(io::Error::other)
    }

    /// The client's side of a new connection to `host`, a name or an address.
    ///
    /// # Errors
    /// If `host` is neither.
    pub fn connect(&self, host: &str) -> io::Result<Session> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = UnbufferedClientConnection::new(Arc::clone(&self.client), name);
        session.map(Session::Client).map_err(io::Error::other)
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |reason: String| TlsError::Pem { what, reason, label: "CERTIFICATE" };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() { Err(bad("it holds no certificate".to_owned())) } else { Ok(found) }
}

fn unusable(what: &'static str, error: &dyn std::error::Error, remedy: &'static str) -> TlsError {
    TlsError::Unusable { what, reason: error.to_string(), remedy }
}

/// The shorter AES first: every processor that runs this does it in hardware.
fn provider() -> Arc<CryptoProvider> {
    use ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let cipher_suites =
        vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}
