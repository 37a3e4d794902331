//! The uplink: a tap, here in a network namespace that ends with the daemon.

use std::process::Stdio;

use vm_harness::host::{ChildProcess, run};

use crate::common::until;
use crate::counters::Counters;
use crate::guest::{ping, received, serve_iperf, sh, stack_counter, tcp_both_ways};
use crate::rig::{Rig, inside, ip, step};

const CONFIG: &str = "
[[network]]
name = \"lan\"
uplink = { tap = \"vic0\" }
[[network.port]]
vm = \"red\"
[[network.port]]
vm = \"blue\"
";

/// The host's address on the tap.
const HOST: u8 = 254;

#[test]
fn uplink() {
    let rig = Rig::isolated(CONFIG);
    let host = format!("{}/24", ip(HOST));
    run(inside(
        rig.pid(),
        &["ip", "addr", "add", &host, "dev", "vic0"],
    ))
    .unwrap();
    let mut server = inside(rig.pid(), &["iperf3", "--server"]);
    server.stdin(Stdio::null()).stdout(Stdio::null());
    let _server = ChildProcess::spawn(server).unwrap();
    until("iperf3", || {
        let listening = run(inside(rig.pid(), &["ss", "-Htln"])).unwrap();
        listening.contains(":5201")
    });

    let [red, blue] = rig.boot_named(["red", "blue"]);
    let counters = || Counters::of(rig.daemon(), ["vic0", "red"]);

    step("host and VM");
    ping(&red, &ip(HOST));
    let (before, got) = (counters(), received(&red, "eth0"));
    tcp_both_ways(&red, &ip(HOST), 16);
    serve_iperf(&blue);
    let to_blue = ip(2);
    let client = ["iperf3", "--client", &to_blue, "--bytes", "4M"];
    run(inside(rig.pid(), &client)).unwrap();
    let (after, got_now) = (counters(), received(&red, "eth0"));

    step("large frames pass without segmentation, in both directions");
    for (what, port, frames, bytes) in [
        ("from the host", 0, "tx_frames", "tx_bytes"),
        ("to the host", 0, "rx_frames", "rx_bytes"),
        ("to the VM", 1, "rx_frames", "rx_bytes"),
    ] {
        let frames = after[port].grown(&before[port], frames);
        let bytes = after[port].grown(&before[port], bytes);
        assert!(bytes > 8 << 20, "{what}: {bytes} bytes");
        assert!(bytes / frames > 1514, "{what}: {bytes} in {frames}");
    }
    assert_eq!(after[1].grown(&before[1], "segmented"), 0);
    let [bytes, packets] = [0, 1].map(|which| got_now[which] - got[which]);
    assert!(bytes / packets > 1514, "the guest: {bytes} in {packets}");

    step("VM and VM");
    let before = counters();
    tcp_both_ways(&red, &ip(2), 16);
    let after = counters();
    let flooded = after[0].grown(&before[0], "rx_bytes");
    assert!(flooded < 1 << 20, "{flooded} bytes between VMs went out");

    step("the uplink's link goes down and up again");
    run(inside(rig.pid(), &["ip", "link", "set", "vic0", "down"])).unwrap();
    ping(&red, &ip(2));
    run(inside(rig.pid(), &["ip", "link", "set", "vic0", "up"])).unwrap();
    sh(
        &red,
        &format!("until ping -c 1 -W 1 {}; do :; done", ip(HOST)),
    );
    for vm in [&red, &blue] {
        assert_eq!(stack_counter(vm, "TcpInCsumErrors"), 0);
    }
}
