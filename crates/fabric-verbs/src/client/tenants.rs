//! Keys of one tenant in the hands of another. Needs a device: `FARSIGHT_VERBS=1` asks for it.

use farsight_base::sync::Ordering;
use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, RegionRights};
use farsight_fabric_net::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::queue::VerbsQueue;
use super::refused::{outcome, with_server};
use crate::{ConnectOptions, VerbsConnection};

/// Sides with certificates of one authority, for these names.
fn sides<const COUNT: usize>(names: [&str; COUNT]) -> [Tls; COUNT] {
    let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = parameters.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(parameters, key);
    names.map(|name| {
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.signed_by(&key, &issuer).expect("a certificate").pem();
        let key = key.serialize_pem();
        Tls::from_pem(certificate.as_bytes(), key.as_bytes(), authority.as_bytes()).expect("a side")
    })
}

/// A client and a queue with the region attached.
fn open(address: &str, tls: &Tls, region: RegionId) -> (VerbsConnection, VerbsQueue) {
    let options = ConnectOptions { tls: Some(tls.clone()), ..ConnectOptions::new(1) };
    let connection = VerbsConnection::connect(address, options).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(region).expect("the region attaches");
    (connection, queue)
}

/// A verb whose key is not its client's.
type Lie = fn(&mut VerbsQueue, RemoteAddress);

/// Clients of one certificate have one key. Through another's queue pair that key opens nothing.
#[test]
#[ignore = "needs an RDMA device: cargo xtask softroce runs it where there is one"]
fn a_tenants_key_opens_nothing_for_another() {
    let [own, alice, bob] = sides(["127.0.0.1", "alice", "bob"]);
    with_server(Some(own), |host, address| {
        let region = host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
        // Relaxed: READ long after.
        region.words()[1].store(7, Ordering::Relaxed);
        let id = region.id();
        let at = RemoteAddress { region: id, offset_bytes: 0 };
        let (_alices_connection, mut alices) = open(address, &alice, id);
        let (_alices_second, mut alices_other) = open(address, &alice, id);
        let key = alices.region_mut(id).key;
        assert_eq!(alices_other.region_mut(id).key, key, "one tenant, one key");

        let lies: [Lie; 3] = [
            |queue, at| queue.post_read(0, at, 1, ReadMode::Plain),
            |queue, at| queue.post_write(0, at, &[9]),
            |queue, at| queue.post_fetch_add(0, at, 9),
        ];
        for lie in lies {
            let (connection, mut bobs) = open(address, &bob, id);
            let mut line = [Line::ZERO];
            read_alone(&mut bobs, at, &mut line, ReadMode::Plain).expect("by his own key");
            assert_ne!(bobs.region_mut(id).key, key, "two tenants, two keys");
            bobs.region_mut(id).key = key;
            lie(&mut bobs, at);
            let error = outcome(&mut bobs).expect_err("the card refuses another tenant's key");
            let is_end = matches!(error, FabricError::Disconnected { .. } | FabricError::Dismissed { .. });
            assert!(is_end, "{error}");
            connection.check().expect_err("the connection is over");
        }
        for queue in [&mut alices, &mut alices_other] {
            let mut line = [Line::ZERO];
            read_alone(queue, at, &mut line, ReadMode::Plain).expect("others go on");
            assert_eq!(line[0].0[..2], [0, 7], "nothing was changed");
        }
    });
}
