//! Certificates for TCP and RDMA, from the command line.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use farsight::Tls;

/// This side's certificate and key, and whom it believes. All three or none.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsFiles {
    /// This side's certificate, in PEM; then the other side must have one, too, and all is encrypted but what
    /// RDMA cards send
    #[arg(long = "tls-certificate", id = "tls-certificate", value_name = "FILE",
        requires_all = ["tls-key", "tls-authorities"])]
    certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long = "tls-key", id = "tls-key", value_name = "FILE", requires = "tls-certificate")]
    key: Option<PathBuf>,
    /// Certificates of the authorities that sign the other side's, in PEM
    #[arg(
        long = "tls-authorities",
        id = "tls-authorities",
        value_name = "FILE",
        requires = "tls-certificate"
    )]
    authorities: Option<PathBuf>,
}

impl TlsFiles {
    /// True if one of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.authorities.is_some()
    }

    /// What the files hold; `None` if none was given.
    pub(crate) fn read(&self) -> Result<Option<Tls>> {
        let (Some(certificate), Some(key), Some(authorities)) =
            (&self.certificate, &self.key, &self.authorities)
        else {
            return Ok(None);
        };
        Ok(Some(Tls::from_files(certificate, key, authorities)?))
    }
}
