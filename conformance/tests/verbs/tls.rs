//! Certificates on the control connection: whom each side lets in, and that no stranger learns a key.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use farsight_conformance::fabric::harness::{FORMAT, Running, call};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_fabric::{Connection as _, FabricError, Host as _};
use farsight_fabric_tcp::Tls;
use farsight_fabric_verbs::{ConnectOptions, ListenError, ListenOptions, VerbsConnection, VerbsHost};

use super::certificates::Authority;

mod suite {
    use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

    use super::super::certificates::Authority;

    /// An address whose server and clients show certificates.
    fn secured() -> Verbs {
        let subject = Verbs::new();
        let tls = Authority::new().side(subject.host());
        subject.secured_by(tls)
    }

    // What control connections have a part in: setting up, ending, being told why. The cards' verbs are not
    // concerned.
    macro_rules! tests {
        ($($group:ident: $($test:ident),+;)+) => {
            $($(
                #[test]
                fn $test() {
                    if is_asked_for() {
                        farsight_conformance::fabric::$group::$test(&secured());
                    }
                }
            )+)+
        };
    }

    tests!(
        calls: echo, two_queues_do_not_mix;
        bounds: unknown_region_is_named;
        life: peer_death_ends_a_call, peer_death_ends_reads, closing_ends_the_queues,
            restart_is_another_epoch, other_format_is_refused_by_name, clients_are_counted,
            fenced_client_is_cut_off;
    );
}

fn server(subject: &Verbs, tls: Option<Tls>) -> Running<VerbsHost> {
    let options = ListenOptions { tls, allow_plaintext: true, ..ListenOptions::new(FORMAT) };
    Running::start(VerbsHost::listen(subject.address(), &options).expect("a server"), 1)
}

fn connect(subject: &Verbs, tls: Option<Tls>) -> Result<VerbsConnection, FabricError> {
    let options = ConnectOptions { tls, allow_plaintext: true, ..ConnectOptions::new(FORMAT) };
    VerbsConnection::connect(subject.address(), options)
}

/// The reason for which a client is not let in.
fn refusal(subject: &Verbs, tls: Option<Tls>) -> String {
    match connect(subject, tls) {
        Ok(_) => panic!("it was let in"),
        Err(FabricError::System { .. } | FabricError::TimedOut { .. }) => panic!("it was not even refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn who_is_not_signed_by_the_authority_is_not_let_in() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = server(&subject, Some(ours.side(subject.host())));
    let stranger = theirs.certify(subject.host(), 2099).side(&ours.pem);
    let reason = refusal(&subject, Some(stranger));
    assert!(reason.contains("refuses this client's certificate"), "{reason}");
    let reason = refusal(&subject, None);
    assert!(reason.contains("TLS"), "{reason}");
    assert_eq!(server.host().client_count(), 0);
    let friend = connect(&subject, Some(ours.side("any.name"))).expect("its certificate is good");
    let mut queue = friend.open_queue().expect("a queue");
    assert_eq!(call(&mut queue, 0, b"hello"), b"hello");
}

#[test]
fn a_server_that_is_another_is_not_believed() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let impostors = [
        theirs.certify(subject.host(), 2099).side(&ours.pem),
        ours.certify("other.example", 2099).side(&ours.pem),
    ];
    for impostor in impostors {
        let _running = server(&subject, Some(impostor));
        let reason = refusal(&subject, Some(ours.side("client")));
        assert!(reason.contains("is the server's certificate signed"), "{reason}");
    }
    let _running = server(&subject, None);
    let reason = refusal(&subject, Some(ours.side("client")));
    assert!(reason.contains("does the server speak TLS"), "{reason}");
}

/// A client that says hello and requests a region in the clear is told no key. TLS's own complaint comes
/// back, and the end.
#[test]
fn a_stranger_learns_no_key() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let server = server(&subject, Some(Authority::new().side(subject.host())));
    let packet = |kind: u32, fields: &[u8]| {
        let length_bytes = u32::try_from(4 + fields.len()).expect("a short packet");
        [&length_bytes.to_le_bytes()[..], &kind.to_le_bytes(), fields].concat()
    };
    let hello = packet(1, &[&b"FARVERBS"[..], &1_u32.to_le_bytes(), &FORMAT.to_le_bytes()].concat());
    let mut stream = TcpStream::connect(subject.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    // It may hang up before all is sent.
    let _ = stream.write_all(&[hello, packet(3, &1_u32.to_le_bytes())].concat());
    let mut answer = Vec::new();
    // Or cut the connection with what was sent unread.
    let _ = stream.read_to_end(&mut answer);
    // A TLS alert is a record of kind 21 with two bytes in it.
    assert!(answer.is_empty() || (answer[0] == 21 && answer.len() == 7), "{answer:?}");
    assert_eq!(server.host().client_count(), 0);
}

#[test]
fn clear_text_stays_on_this_machine_unless_allowed() {
    if !is_asked_for() {
        return;
    }
    let options = ListenOptions::new(FORMAT);
    match VerbsHost::listen("0.0.0.0:0", &options).err() {
        Some(ListenError::Address(error)) => {
            assert!(error.to_string().contains("allow clear text"), "{error}");
        }
        other => panic!("clear text for other machines came to {other:?}"),
    }
    // An address that is nobody's: nothing is sent there.
    match VerbsConnection::connect("192.0.2.1:9", ConnectOptions::new(FORMAT)) {
        Err(FabricError::Refused { reason, .. }) => assert!(reason.contains("allow clear text"), "{reason}"),
        other => panic!("clear text to another machine came to {other:?}"),
    }
}
