//! Uplinks of a network by interfaces of the host. Needs root, for network namespaces.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use common::neighbours::started;
use common::{Daemon, vicinity};
use front_end::{Layout, Nic, Options, Wire, features, frame};

/// Two networks, whose uplinks are connected by a veth pair.
const CONFIG: &str = r#"
[[network]]
name = "one"
uplink = { interface = "veth1" }
[[network.port]]
vm = "vm1"
[[network]]
name = "two"
uplink = { interface = "veth2" }
[[network.port]]
vm = "vm2"
"#;

const CABLE: &str = "ip link add veth1 type veth peer name veth2 && ip link set veth1 up && \
                     ip link set veth2 up";

/// Creates two taps that can have several queues, on a bridge.
const TAPS: &str = "ip link add br0 type bridge && ip link set br0 up && \
                    for tap in tap1 tap2; do \
                    ip tuntap add $tap mode tap multi_queue && ip link set $tap master br0; done";

/// Starts a daemon in its own network namespace with these links.
fn start(folder: &Path, links: &str, config: &str) -> Daemon {
    let mut command = Command::new("unshare");
    let script = format!("{links} && exec \"$0\" \"$@\"");
    command.args(["--net", "sh", "-c", &script, env!("CARGO_BIN_EXE_vicinity")]);
    Daemon::start_by(command, folder, Some(config))
}

fn connect(daemon: &Daemon, network: &str, vm: &str) -> Nic {
    let options = Options {
        features: features::LINUX,
        ..Options::default()
    };
    connect_with(daemon, network, vm, options)
}

fn connect_with(daemon: &Daemon, network: &str, vm: &str, options: Options) -> Nic {
    let socket = daemon.path(&format!("{network}/{vm}.sock"));
    let stream = UnixStream::connect(socket).unwrap();
    let nic = started(Wire::new(stream.into()), options);
    daemon.until_state(vm, "running");
    nic
}

/// Waits for a frame with these bytes. Other frames use the cable, too.
fn comes(nic: &mut Nic, bytes: &[u8]) -> front_end::Received {
    loop {
        let received = nic.wait_to_receive();
        if received.frame == bytes {
            return received;
        }
    }
}

/// Kills the data plane, and asserts that the next one uses the uplink again.
fn another_has_it(daemon: &Daemon, a: Nic, b: &mut Nic) {
    daemon.signal_data_plane("one", rustix::process::Signal::KILL);
    drop(a);
    common::until("the network", || daemon.network("one")["restarts"] == 1);
    let mut a = connect(daemon, "one", "vm1");
    let again = frame::numbered(frame::mac(2), frame::mac(1), 7, 60);
    a.wait_to_send(&again, Layout::One);
    comes(b, &again);
}

#[test]
fn vms_of_two_networks_talk_over_interfaces_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), CABLE, CONFIG);
    let mut a = connect(&daemon, "one", "vm1");
    let mut b = connect(&daemon, "two", "vm2");
    for number in 0..100 {
        let length = 60 + 14 * usize::try_from(number).unwrap();
        let there = frame::numbered(frame::mac(2), frame::mac(1), number, length);
        a.wait_to_send(&there, Layout::Pieces(100));
        comes(&mut b, &there);
        let back = frame::numbered(frame::mac(1), frame::mac(2), number, length);
        b.wait_to_send(&back, Layout::One);
        comes(&mut a, &back);
    }
    // A frame that needs segmentation goes as a whole, because both ends accept such frames: partial
    // checksum, 54 bytes of headers.
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let long = frame::tcp(frame::mac(2), frame::mac(1), 1, &[5; 30_000]);
    assert!(a.send_with(&header, &long, Layout::One));
    let received = comes(&mut b, &long);
    // The header is the same, except for the length of the headers, which is only a hint.
    assert_eq!(received.header[..2], header[..2]);
    assert_eq!(received.header[4..10], header[4..10]);
    let [one, two] = ["veth1", "veth2"].map(|uplink| daemon.port(uplink));
    assert_eq!(
        (&one["kind"], &one["state"]),
        (&"uplink".into(), &"running".into())
    );
    assert!(one["counters"]["rx_frames"].as_u64() >= Some(101));
    assert!(two["counters"]["tx_frames"].as_u64() >= Some(101));
    another_has_it(&daemon, a, &mut b);
}

#[test]
fn vlan_tags_go_over_the_interface_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = CONFIG
        .replace("vm = \"vm1\"", "vm = \"vm1\"\ntrunk = [10]")
        .replace("vm = \"vm2\"", "vm = \"vm2\"\ntrunk = [10]");
    let daemon = start(folder.path(), CABLE, &config);
    let mut a = connect(&daemon, "one", "vm1");
    let mut b = connect(&daemon, "two", "vm2");
    for number in 0..20 {
        let bare = frame::numbered(frame::mac(2), frame::mac(1), number, 200);
        let tagged = [&bare[..12], &[0x81, 0, 0x60, 10], &bare[12..]].concat();
        a.wait_to_send(&tagged, Layout::One);
        comes(&mut b, &tagged);
    }
    // The partial checksum is at the same place.
    let bare = frame::tcp(frame::mac(2), frame::mac(1), 1, &[5; 1000]);
    let tagged = [&bare[..12], &[0x81, 0, 0, 10], &bare[12..]].concat();
    let header = [1, 0, 58, 0, 0, 0, 38, 0, 16, 0, 0, 0];
    assert!(a.send_with(&header, &tagged, Layout::One));
    let received = comes(&mut b, &tagged);
    assert_eq!(received.header[6..8], [38, 0]);
}

#[test]
fn vms_of_two_networks_talk_by_af_xdp() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(
        folder.path(),
        CABLE,
        &CONFIG.replace("\" }", "\", xdp = true }"),
    );
    let mut a = connect(&daemon, "one", "vm1");
    let mut b = connect(&daemon, "two", "vm2");
    // More frames than its rings have entries.
    for number in 0..3000 {
        let there = frame::numbered(frame::mac(2), frame::mac(1), number, 60);
        a.wait_to_send(&there, Layout::Pieces(100));
        comes(&mut b, &there);
        let back = frame::numbered(frame::mac(1), frame::mac(2), number, 1514);
        b.wait_to_send(&back, Layout::One);
        comes(&mut a, &back);
    }
    // No receiver behind this uplink can segment a frame, so the frame arrives in segments with
    // full checksums.
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let long = frame::tcp(frame::mac(2), frame::mac(1), 1, &[5; 30_000]);
    assert!(a.send_with(&header, &long, Layout::One));
    let mut next = 1;
    while next < 30_001 {
        let received = b.wait_to_receive();
        if received.frame[12..14] == [8, 0] {
            assert_eq!(received.header[..10], [0; 10]);
            let (sequence, payload) = frame::checked_tcp(&received.frame);
            assert_eq!((sequence, payload), (next, vec![5; 1000]));
            next += 1000;
        }
    }
    another_has_it(&daemon, a, &mut b);
}

/// Returns the queue pair by which a frame with these bytes has come, if one has.
fn pair_of(nic: &mut Nic, bytes: &[u8]) -> Option<usize> {
    nic.pairs.iter_mut().position(|pair| {
        std::iter::from_fn(|| pair.receive()).any(|received| received.frame == bytes)
    })
}

/// Sends these bytes by a queue pair. Returns the queue pair by which they arrive.
fn pass(from: &mut Nic, pair: usize, to: &mut Nic, bytes: &[u8]) -> usize {
    from.pairs[pair].wait_to_send(bytes, Layout::One);
    loop {
        match pair_of(to, bytes) {
            Some(pair) => return pair,
            None => front_end::nic::wait(&[&*to]),
        }
    }
}

/// Returns the frame of the same TCP connection in the opposite direction.
fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (at, length) in [(0, 6), (frame::TCP_START - 8, 4), (frame::TCP_START, 2)] {
        let (one, other) = frame[at..at + 2 * length].split_at_mut(length);
        one.swap_with_slice(other);
    }
    frame
}

#[test]
fn a_tap_has_a_queue_for_each_worker() {
    let folder = tempfile::tempdir().unwrap();
    let config = CONFIG
        .replace("interface = \"veth", "tap = \"tap")
        .replace("[[network]]", "[[network]]\nworkers = 2");
    let daemon = start(folder.path(), TAPS, &config);
    let links = Command::new("nsenter")
        .arg(format!("--net=/proc/{}/ns/net", daemon.child.id()))
        .args(["ip", "-details", "link", "show"])
        .output()
        .unwrap();
    let links = String::from_utf8(links.stdout).unwrap();
    assert_eq!(links.matches("numqueues 2").count(), 2, "{links}");
    let options = Options {
        features: features::LINUX | features::MQ,
        pairs: 2,
        ..Options::default()
    };
    let mut a = connect_with(&daemon, "one", "vm1", options);
    let mut b = connect_with(&daemon, "two", "vm2", options);
    // The bridge takes a moment until it forwards frames.
    let hello = frame::numbered(frame::mac(2), frame::mac(1), 0, 60);
    common::until("the bridge", || {
        a.wait_to_send(&hello, Layout::One);
        pair_of(&mut b, &hello).is_some()
    });
    // A tap sends the frames of a flow to the queue by which the frames of the opposite direction came. The
    // tap stores that queue after it has forwarded a frame. So the entry is certain once the next frame of
    // that queue has arrived.
    for flow in 0..64 {
        let mut there = frame::tcp(frame::mac(2), frame::mac(1), 1, &[flow; 100]);
        there[frame::TCP_START + 1] = flow;
        let back = reversed(&there);
        let [out, home] = [flow, flow / 2].map(|number| usize::from(number) % 2);
        let mut came = [0; 2];
        for _ in 0..3 {
            came[1] = pass(&mut a, out, &mut b, &there);
            came[0] = pass(&mut b, home, &mut a, &back);
        }
        assert_eq!(came, [out, home], "flow {flow}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vicinity.toml");
    std::fs::write(&file, CONFIG.replace("veth2", "nowhere0")).unwrap();
    let mut command = vicinity();
    command
        .args(["serve", "--runtime-dir"])
        .arg(folder.path().join("run"));
    command.arg("--config").arg(&file);
    // Only `nowhere0` is to be missing, so the other interface has to exist.
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("veth1", "lo");
    std::fs::write(&file, text).unwrap();
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no interface nowhere0"), "{said}");
    common::page::assert_quoted(&said);
}
