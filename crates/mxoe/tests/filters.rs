//! The filters of ports, in the kernel: two ports on one interface. Needs root and `ip`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use mxoe::wire::{Destination, destination};
use mxoe::{Address, Config, Endpoints, Filter, Node, Port, address};

const KEY: u32 = 7;
const TIMEOUT: Duration = Duration::from_secs(60);

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {output:?}");
}

#[test]
fn each_port_receives_discovery_and_the_frames_for_its_endpoints() {
    let name = format!("mxoe-filters-{}", std::process::id());
    ip(&["netns", "add", &name]);
    ip(&[
        "-n", &name, "link", "add", "from", "mtu", "9000", "type", "veth", "peer", "name", "to",
        "mtu", "9000",
    ]);
    for link in ["from", "to"] {
        ip(&["-n", &name, "link", "set", link, "up"]);
    }
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    ip(&["netns", "del", &name]);
    assert!(output.status.success(), "{output:?}");
}

/// Sends an announcement and connects to these endpoints. Returns what each of the two ports has received of them.
fn sent(endpoints: &[u8], ports: [&mut Port; 2]) -> [Vec<Destination>; 2] {
    let [from, to] = ["from", "to"].map(|name| address(name).unwrap());
    let mut sender = Port::open("from", []).unwrap();
    let now = sender.now();
    let mut node = Node::new(Config::new(from, "from", 1));
    assert!(node.open(now, 1, KEY, 1));
    node.announce(now);
    for endpoint in endpoints.iter().copied() {
        let to = Address { host: to, endpoint };
        node.connect(now, 1, to, KEY, 0).unwrap();
    }
    assert!(sender.send(&mut node).unwrap());
    let last = Destination::Endpoint(*endpoints.last().unwrap());
    let end = sender.now() + TIMEOUT;
    let mut received = [Vec::new(), Vec::new()];
    // The frame for the last endpoint passes every filter of this test.
    for (port, received) in ports.into_iter().zip(&mut received) {
        while !received.contains(&last) {
            assert!(sender.now() < end, "{received:?}");
            port.receive(|frame| received.push(destination(frame).unwrap()));
        }
    }
    received
}

#[test]
#[ignore = "the part of the other test in its namespace"]
fn child() {
    let mut all = Port::open("to", []).unwrap();
    let mut filtered = {
        let socket = Port::open_shared_socket("to").unwrap();
        Port::adopt_shared(socket, address("to").unwrap()).unwrap()
    };
    let endpoint = Destination::Endpoint;
    let filter = |endpoints| Filter {
        mac: address("to").unwrap(),
        endpoints,
        passes_other_addresses: false,
    };
    for own in [3, 200] {
        let mut endpoints = Endpoints::default();
        endpoints.insert(own);
        filtered.filter(&filter(endpoints)).unwrap();
        let [every, some] = sent(&[5, 254, own], [&mut all, &mut filtered]);
        assert!(every.contains(&endpoint(5)) && every.contains(&endpoint(254)));
        assert!(some.contains(&Destination::Host));
        let others = some
            .iter()
            .filter(|to| ![Destination::Host, endpoint(own)].contains(to));
        assert_eq!(others.count(), 0, "{some:?}");
        // All but one, as for the process that answers for the host.
        endpoints.remove(own);
        endpoints.insert(5);
        filtered.filter(&filter(endpoints.complement())).unwrap();
        let [_, some] = sent(&[5, 254, own], [&mut all, &mut filtered]);
        assert!(!some.contains(&endpoint(5)) && some.contains(&endpoint(254)));
    }
}
