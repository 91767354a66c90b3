//! TLS: whom each side lets in, and the suite of the contract through it.

use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::harness::{Ask, FORMAT, Running, call, request, ring_and_wait};
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::{Connection as _, FabricError, Host as _, QueuePair as _};
use farsight_fabric_tcp::{
    ConnectOptions, ListenError, ListenOptions, TcpConnection, TcpHost, Tls, TlsError,
};

use super::certificates::Authority;
use super::raw::{Raw, hello};

const LOCALHOST: &str = "127.0.0.1";

/// TCP through TLS as a subject of the suite.
struct Secured {
    at: Tcp,
    tls: Tls,
}

impl Secured {
    fn new() -> Self {
        Self { at: Tcp::default(), tls: Authority::new().side(LOCALHOST) }
    }
}

impl FabricUnderTest for Secured {
    type Host = TcpHost;
    type Connection = TcpConnection;

    fn listen(&self, format_version: u32) -> TcpHost {
        self.at
            .listen_with(&ListenOptions { tls: Some(self.tls.clone()), ..ListenOptions::new(format_version) })
    }

    fn connect(&self, format_version: u32) -> Result<TcpConnection, FabricError> {
        self.at.connect_with(ConnectOptions {
            tls: Some(self.tls.clone()),
            ..ConnectOptions::new(format_version)
        })
    }
}

mod suite {
    use super::Secured;

    farsight_conformance::fabric_suite!(Secured::new());
}

fn server(tls: Option<Tls>) -> Running<TcpHost> {
    let options = ListenOptions { tls, ..ListenOptions::new(FORMAT) };
    Running::start(TcpHost::listen("127.0.0.1:0", &options).expect("a server"), 1)
}

fn connect(server: &Running<TcpHost>, tls: Option<Tls>) -> Result<TcpConnection, FabricError> {
    let options = ConnectOptions { tls, ..ConnectOptions::new(FORMAT) };
    TcpConnection::connect(&server.host().local_address().to_string(), options)
}

/// The reason for which a client is not let in.
fn refusal(server: &Running<TcpHost>, tls: Option<Tls>) -> String {
    match connect(server, tls) {
        Ok(_) => panic!("it was let in"),
        Err(FabricError::System { .. } | FabricError::TimedOut { .. }) => panic!("it was not even refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn who_is_not_signed_by_the_authority_is_not_let_in() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = server(Some(ours.side(LOCALHOST)));
    let stranger = theirs.certify(LOCALHOST, 2099).side(&ours.pem);
    let reason = refusal(&server, Some(stranger));
    assert!(reason.contains("refuses this client's certificate"), "{reason}");
    let expired = ours.certify(LOCALHOST, 2001).side(&ours.pem);
    let reason = refusal(&server, Some(expired));
    assert!(reason.contains("valid now"), "{reason}");
    let reason = refusal(&server, None);
    assert!(reason.contains("TLS"), "{reason}");
    assert_eq!(server.host().client_count(), 0);
    let friend = connect(&server, Some(ours.side("any.name"))).expect("its certificate is good");
    let mut queue = friend.open_queue().expect("a queue");
    assert_eq!(call(&mut queue, 0, b"hello"), b"hello");
}

#[test]
fn a_server_that_is_another_is_not_believed() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let client = || Some(ours.side("client"));
    let impostors = [
        theirs.certify(LOCALHOST, 2099).side(&ours.pem),
        ours.certify(LOCALHOST, 2001).side(&ours.pem),
        ours.certify("other.example", 2099).side(&ours.pem),
    ];
    for impostor in impostors {
        let reason = refusal(&server(Some(impostor)), client());
        assert!(reason.contains("is the server's certificate signed"), "{reason}");
    }
    let reason = refusal(&server(None), client());
    assert!(reason.contains("does the server speak TLS"), "{reason}");
}

/// More calls than a worker executes at a time, and more bytes than it takes at a time: what it has decrypted
/// besides shows in no socket.
#[test]
fn what_was_decrypted_beside_a_full_buffer_is_not_forgotten() {
    let authority = Authority::new();
    let server = server(Some(authority.side(LOCALHOST)));
    let client = connect(&server, Some(authority.side("client"))).expect("its certificate is good");
    // So many queues that the worker asks the system which of them has something.
    let mut queues: Vec<_> = (0..4).map(|_| client.open_queue().expect("a queue")).collect();
    let slots: Vec<usize> = (0..400).collect();
    for round in 0..10 {
        // All of it arrives while the worker is busy elsewhere.
        queues[0].post_call(0, &request(Ask::Sleep, &[50])).expect("the request fits");
        queues[0].doorbell().expect("the doorbell rings");
        for slot in &slots {
            let mut asked = request(Ask::Pattern, &[8, round]);
            asked.resize(500, 0);
            queues[1].post_call(*slot, &asked).expect("the request fits");
        }
        ring_and_wait(&mut queues[1], &slots);
        ring_and_wait(&mut queues[0], &[0]);
    }
}

/// A client without a certificate gets no answer to anything that it says.
#[test]
fn a_client_needs_a_certificate() {
    use std::io::{Read as _, Write as _};
    let authority = Authority::new();
    let server = server(Some(authority.side(LOCALHOST)));
    let mut roots = rustls::RootCertStore::empty();
    let pem = authority.pem.as_bytes();
    let certificate =
        <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(pem);
    roots.add(certificate.expect("a certificate")).expect("an authority");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = LOCALHOST.to_owned().try_into().expect("a name");
    let session = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("a session");
    let raw = Raw::connect(server.host().local_address());
    let mut stream = rustls::StreamOwned::new(session, raw.0);
    let mut answer = Vec::new();
    let outcome =
        stream.write_all(&hello(&1_u32.to_le_bytes())).and_then(|()| stream.read_to_end(&mut answer));
    let error = outcome.expect_err("the server ends it").to_string();
    assert!(error.contains("CertificateRequired") && answer.is_empty(), "{error}");
    assert_eq!(server.host().client_count(), 0);
}

#[test]
fn clear_text_stays_on_this_machine_unless_allowed() {
    let options = ListenOptions::new(FORMAT);
    let flags = ["--tls-certificate", "--tls-key", "--tls-authorities", "--allow-plaintext"];
    match TcpHost::listen("0.0.0.0:0", &options).err() {
        Some(error @ ListenError::Plaintext { .. }) => {
            let text = error.to_string();
            assert!(flags.iter().all(|flag| text.contains(flag)), "{text}");
        }
        outcome => panic!("listening in the clear came to {outcome:?}"),
    }
    let allowed = ListenOptions { allow_plaintext: true, ..options };
    TcpHost::listen("0.0.0.0:0", &allowed).expect("allowed by name");
    // An address that is nobody's: nothing is sent there.
    match TcpConnection::connect("192.0.2.1:9", ConnectOptions::new(FORMAT)) {
        Err(FabricError::Refused { reason, .. }) => {
            assert!(flags.iter().all(|flag| reason.contains(flag)), "{reason}");
        }
        other => panic!("clear text to another machine came to {other:?}"),
    }
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let authority = Authority::new();
    let (one, other) = (authority.certify("one", 2099), authority.certify("other", 2099));
    let missing = Tls::from_files("/no/such/certificate", "/no/key", "/no/ca").expect_err("no file");
    assert!(matches!(&missing, TlsError::File { path, .. } if path.ends_with("certificate")), "{missing}");
    let make = |certificate: &str, key: &str, authorities: &str| {
        let made = Tls::from_pem(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes());
        made.expect_err("it cannot be used").to_string()
    };
    let wrong_key = make(&one.pem, &other.key, &authority.pem);
    assert!(wrong_key.contains("belongs to the certificate"), "{wrong_key}");
    assert!(make("", &one.key, &authority.pem).contains("BEGIN CERTIFICATE"));
    assert!(make(&one.pem, "none", &authority.pem).contains("BEGIN PRIVATE KEY"));
    assert!(make(&one.pem, &one.key, "none").contains("authorities"));
}
