//! The list of FDB entries, and the remote peers of ports.

use super::*;
use crate::client::ClientError;
use crate::status::{FdbEntryStatus, FdbOrigin, Kind, RemotePeerStatus};

fn list(daemon: &Daemon, network: &str) -> Result<Vec<FdbEntryStatus>, ClientError> {
    client::get(&daemon.run(), &format!("/v1/networks/{network}/fdb"))
}

#[test]
fn the_fdb_is_listed_page_by_page_in_the_order_of_its_ports() {
    let daemon = Daemon::start(TWO);
    let told: Vec<_> = list(&daemon, "blue")
        .unwrap()
        .into_iter()
        .map(|it| (it.vm, it.mac.to_string(), it.origin, it.idle_seconds))
        .collect();
    let mac = |last| format!("52:54:00:00:00:0{last}");
    let expected = [
        ("a".to_owned(), mac(1), FdbOrigin::Pinned, None),
        ("b".to_owned(), mac(2), FdbOrigin::Learnt, Some(5)),
    ];
    assert_eq!(told, expected);
    let again = list(&daemon, "blue").unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.unwrap().as_secs() - again[0].since;
    assert!((60..120).contains(&age), "{age}");
    assert_eq!(again[0].kind, Kind::Vm);
    daemon.stop();
}

#[test]
fn a_list_of_no_network_and_of_one_that_is_down_is_refused_with_a_sentence() {
    let daemon = Daemon::start(TWO);
    let said = list(&daemon, "bleu").unwrap_err().to_string();
    assert!(said.contains("did you mean blue?"), "{said}");
    // The supervisor restarts the data plane, so that a list may come too late to find it down.
    until("a list while the data plane is down", || {
        let restarts = daemon.networks()[0].restarts;
        let mut a = daemon.connect("blue/a.sock");
        daemon.until_port("a", running);
        a.write_all(b"P").unwrap();
        until("the data plane to end", || {
            let network = &daemon.networks()[0];
            !network.up || network.restarts > restarts
        });
        list(&daemon, "blue").is_err_and(|error| error.to_string().contains("does not run"))
    });
    daemon.stop();
}

#[test]
fn remote_peers_are_told_for_their_port_and_in_the_metrics() {
    let daemon = Daemon::start(TWO);
    let peers = daemon.port("a").unwrap().remote_peers;
    let expected = RemotePeerStatus {
        mac: Mac::from_octets([0x52, 0x54, 0, 0, 0, 9]),
        vlan: 0,
        sent_frames: 3,
        sent_bytes: 300,
        received_frames: 4,
        received_bytes: 400,
    };
    assert_eq!(peers, [expected]);
    assert_eq!(daemon.port("b").unwrap().remote_peers, []);
    let request = client::ApiRequest::get("/metrics");
    let (_, text) = client::text(&daemon.run(), request).unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let line = "vicinity_remote_peer_bytes_total{network=\"blue\",vm=\"a\",peer=\"52:54:00:00:00:09\",vlan=\"0\",\
                direction=\"received\"} 400";
    assert!(text.lines().any(|it| it == line), "{text}");
    daemon.stop();
}
