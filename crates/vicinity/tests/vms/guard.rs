//! What a VM may send and receive: real guests, one of them with rules, and light front-ends that
//! receive the frames that guests do not show.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use front_end::frame::mac;
use front_end::{Layout, Nic, Options, Wire, features};
use vm_harness::vm::Vm;

use crate::arp;
use crate::counters::Counters;
use crate::guest::{iperf, ping, serve_iperf, sh};
use crate::rig::{Rig, ip, step};

/// Rate in bytes a second, and burst in bytes, that blue may send.
const RATE: f64 = 10e6 / 8.0;
const BURST: f64 = RATE / 10.0;

const CONFIG: &str = r#"
[[network]]
name = "lan"

[[network.port]]
vm = "red"
mac = "52:54:00:00:00:01"
vlan = 10
allowed-ips = ["10.98.0.1"]
role = "private"

[[network.port]]
vm = "blue"
vlan = 10
role = "promiscuous"
[network.port.limits]
send = { rate = "10 Mbit/s", burst = "100 ms" }

[[network.port]]
vm = "hidden"
vlan = 10
role = "private"

[[network.port]]
vm = "trunk"
trunk = [10, 20]
role = "promiscuous"

[[network.port]]
vm = "other"
vlan = 20
"#;

/// Connects a light front-end to a port.
fn light(rig: &Rig, name: &str) -> Nic {
    let socket = rig.daemon().path(&format!("lan/{name}.sock"));
    let wire = Wire::new(UnixStream::connect(socket).unwrap().into());
    let options = Options {
        features: features::LINUX,
        receive_bytes: 2048,
        ..Options::default()
    };
    let mut nic = Nic::new(wire, options);
    nic.start(|| {});
    nic.sync();
    nic
}

/// Returns all frames that a NIC has received.
fn come(nic: &mut Nic) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| nic.receive())
        .map(|received| received.frame)
        .collect()
}

/// Asserts that no VM answers.
fn no_ping(from: &Vm, more: &str) {
    let said = sh(
        from,
        &format!("ping -c 3 -i 0.2 -W 1 {more} {} || :", ip(2)),
    );
    assert!(said.contains(" 0 received"), "{said}");
}

#[test]
#[ignore = "`make soak` runs it; tests/guard of vicinity-switch has no VMs"]
fn guarded_vms() {
    let rig = Rig::new(Some(CONFIG));
    let [mut hidden, mut trunk, mut other] =
        ["hidden", "trunk", "other"].map(|name| light(&rig, name));
    let [red, blue] = rig.boot_named(["red", "blue"]);
    let lost = |reason: &str| {
        let port = rig.daemon().port("red");
        port["counters"]["drops"][reason].as_u64().unwrap()
    };

    step("frames with the VM's own addresses pass");
    ping(&red, &ip(2));

    step("a trunk receives the frame with its tag, and ports of another VLAN do not receive it");
    let tagged = |frame: &Vec<u8>| frame[6..16] == [0x52, 0x54, 0, 0, 0, 1, 0x81, 0, 0, 10];
    assert!(come(&mut trunk).iter().any(tagged));
    assert_eq!(come(&mut other), [[0_u8; 0]; 0]);

    step("private ports do not reach each other");
    let address = mac(9);
    let from_red = |frame: &Vec<u8>| frame[6..12] == [0x52, 0x54, 0, 0, 0, 1];
    for (target, answered) in [(2, true), (1, false)] {
        let target = [10, 98, 0, target];
        let request = arp::request(address, [10, 98, 0, 9], target);
        hidden.wait_to_send(&request, Layout::One);
        if answered {
            while !arp::is_answer(&hidden.wait_to_receive().frame, address, target) {}
        }
    }
    ping(&red, &ip(2));
    let answers = come(&mut hidden);
    assert!(!answers.iter().any(from_red), "{answers:02x?}");

    step("frames with the IP address of another VM are dropped");
    sh(&red, "ip addr add 10.98.0.77/24 dev eth0");
    let before = lost("ip_spoofed") + lost("arp_spoofed");
    no_ping(&red, "-I 10.98.0.77");
    assert!(lost("ip_spoofed") + lost("arp_spoofed") >= before + 3);
    ping(&red, &ip(2));

    step("frames with the MAC address of another VM are dropped");
    let set = |mac: &str| {
        let set = format!("ip link set eth0 down && ip link set eth0 address {mac}");
        sh(&red, &format!("{set} && ip link set eth0 up"));
    };
    set("52:54:00:00:00:66");
    let before = lost("mac_spoofed");
    no_ping(&red, "");
    assert!(lost("mac_spoofed") > before);
    set("52:54:00:00:00:01");
    sh(&red, &format!("until ping -c 1 -W 1 {}; do :; done", ip(2)));

    step("a rate-limited VM sends at its rate without loss");
    serve_iperf(&red);
    let names = ["red", "blue"];
    let before = Counters::of(rig.daemon(), names);
    let begin = Instant::now();
    iperf(&blue, &ip(1), "--bytes 4M");
    let after = Counters::of(rig.daemon(), names);
    let time = begin.elapsed().as_secs_f64();
    let sent = after[1].grown(&before[1], "tx_bytes") as f64;
    let most = RATE * time + BURST + 65_550.0;
    // iperf3 closes the connection once its last bytes are in a socket's buffer.
    assert!(sent >= f64::from(3 << 20), "{sent} bytes");
    assert!(sent <= most, "{sent} bytes in {time} s");
    assert!(after[1].grown(&before[1], "limited") > 0);
    let drops = |counters: &[Counters; 2]| counters.iter().map(Counters::lost).sum::<u64>();
    assert_eq!(drops(&after), drops(&before));
    assert_eq!(come(&mut other), [[0_u8; 0]; 0]);
}
