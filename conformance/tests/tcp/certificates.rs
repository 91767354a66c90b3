//! Certificates made for a test.

use farsight_fabric_tcp::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = parameters.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(parameters, key) }
    }

    /// A certificate for `name`, valid up to the end of a year.
    pub(crate) fn certify(&self, name: &str, last_year: i32) -> Certificate {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        parameters.not_before = date_time_ymd(2000, 1, 1);
        parameters.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let pem = parameters.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Certificate { pem, key: key.serialize_pem() }
    }

    /// A side with a certificate for `name` that believes this authority.
    pub(crate) fn side(&self, name: &str) -> Tls {
        self.certify(name, 2099).side(&self.pem)
    }
}

impl Certificate {
    /// The side that this is the certificate of, and that believes `authorities`.
    pub(crate) fn side(&self, authorities: &str) -> Tls {
        Tls::from_pem(self.pem.as_bytes(), self.key.as_bytes(), authorities.as_bytes()).expect("a good side")
    }
}
