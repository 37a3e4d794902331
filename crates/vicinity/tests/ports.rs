//! The status of ports: figures, and addresses that two ports use; and mirror ports.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use common::neighbours::started;
use common::{Daemon, until, vicinity};
use front_end::{Layout, Nic, Options, Wire, frame};
use observe::proc::Proc;
use rustix::process::Signal;

const CONFIG: &str = r#"
[[network]]
name = "lan"
[[network.port]]
vm = "vm1"
[[network.port]]
vm = "vm2"
[[network.port]]
vm = "vm3"
"#;

fn connect(daemon: &Daemon, station: u16) -> Nic {
    let socket = daemon.path(&format!("lan/vm{station}.sock"));
    let stream = UnixStream::connect(socket).unwrap();
    let nic = started(Wire::new(stream.into()), Options::default());
    daemon.until_state(&format!("vm{station}"), "running");
    nic
}

fn to(station: u16, from: u16, number: u64) -> Vec<u8> {
    frame::numbered(frame::mac(station), frame::mac(from), number, 200)
}

/// Sends a frame, and waits until another NIC has received it.
fn pass(from: &mut Nic, to: &mut Nic, bytes: &[u8]) {
    from.wait_to_send(bytes, Layout::One);
    while to.wait_to_receive().frame != bytes {}
}

fn said(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.command(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the value of the line of the metrics that begins with `begin`.
fn metric(daemon: &Daemon, begin: &str) -> f64 {
    let text = said(daemon, &["metrics"]);
    let line = text.lines().find_map(|line| line.strip_prefix(begin));
    line.unwrap_or_else(|| panic!("no {begin} in {text}"))
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn two_vms_with_one_address_are_named_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = vicinity();
    command.stderr(Stdio::from(std::fs::File::create(&log).unwrap()));
    let daemon = Daemon::start_logging(command, folder.path(), Some(CONFIG), "warn");
    let [mut a, mut b, mut c] = [1, 2, 3].map(|station| connect(&daemon, station));
    let written = || std::fs::read_to_string(&log).unwrap();
    assert_eq!(
        metric(
            &daemon,
            "vicinity_port_duplicate_addresses{network=\"lan\",vm=\"vm1\"}"
        ),
        0.0
    );
    let mut number = 0;
    // The switch logs it when a second has passed and a port sends.
    until("the log", || {
        for nic in [&mut a, &mut b] {
            pass(nic, &mut c, &to(3, 1, number));
            number += 1;
        }
        written().contains("two ports use one MAC address")
    });
    let (one, other) = (daemon.port("vm1"), daemon.port("vm2"));
    assert_eq!(one["duplicates"][0]["vm"], "vm2");
    assert_eq!(other["duplicates"][0]["vm"], "vm1");
    assert_eq!(one["duplicates"][0]["mac"], "52:54:00:00:00:01");
    assert_eq!(
        daemon.port("vm3")["duplicates"].as_array().unwrap().len(),
        0
    );
    assert!(said(&daemon, &["port", "list"]).contains("vm2 uses 52:54:00:00:00:01, too"));
    assert_eq!(
        metric(
            &daemon,
            "vicinity_port_duplicate_addresses{network=\"lan\",vm=\"vm1\"}"
        ),
        1.0
    );
    let text = written();
    assert!(
        text.contains("vm1") && text.contains("vm2") && text.contains("lan"),
        "{text}"
    );
    assert_eq!(text.matches("two ports use").count(), 1, "{text}");
}

#[test]
fn the_options_for_a_vm_are_those_of_the_port_that_the_daemon_has() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    // A port with its own address and socket, which were not in the file when the daemon was
    // started.
    let mac = "mac=52:54:00:00:00:09";
    let socket = daemon.path("elsewhere.sock");
    let socket = socket.to_str().unwrap();
    said(
        &daemon,
        &[
            "port",
            "add",
            "lan",
            "new",
            mac,
            &format!("socket={socket}"),
        ],
    );
    let options = said(&daemon, &["qemu-args", "new", "--one-line"]);
    assert!(
        options.contains(&format!("path={socket},reconnect")),
        "{options}"
    );
    assert!(options.contains(mac), "{options}");
    let xml = said(&daemon, &["libvirt-xml", "new", "--interface"]);
    assert!(
        xml.contains(&format!("path='{socket}' mode='client'")),
        "{xml}"
    );
    let nobody = daemon.command(&["libvirt-xml", "nwe"]);
    let error = String::from_utf8(nobody.stderr).unwrap();
    assert!(error.contains("Did you mean `new`?"), "{error}");
}

/// Returns the CPU time that a process's first thread has used so far. This data plane has only one
/// thread.
fn ran(process: u32) -> Duration {
    let totals = Proc::default().totals(process, process).unwrap();
    Duration::from_nanos(totals.run_ns)
}

#[test]
fn a_network_without_frames_takes_no_time_of_a_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let [mut a, mut b] = [1, 2].map(|station| connect(&daemon, station));
    for number in 0..100 {
        pass(&mut a, &mut b, &to(2, 1, number));
    }
    let process = daemon.data_plane("lan").unwrap();
    // Compare CPU time, because a busy machine does not stretch it. A worker that polls uses all
    // the CPU time that it gets.
    let pause = Duration::from_millis(500);
    let before = ran(process);
    std::thread::sleep(pause);
    let spent = ran(process) - before;
    assert!(spent < pause / 20, "{spent:?} of {pause:?}");
    // The worker also wakes up at once.
    pass(&mut b, &mut a, &to(1, 2, 100));
}

#[test]
fn pairs_bursts_and_latency_are_in_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let [mut a, mut b] = [1, 2].map(|station| connect(&daemon, station));
    pass(&mut b, &mut a, &to(1, 2, 0));
    for number in 0..20 {
        pass(&mut a, &mut b, &to(2, 1, number));
    }
    let of = |name: &str, more: &str| metric(&daemon, &format!("{name}{{network=\"lan\",{more}}}"));
    assert_eq!(
        of("vicinity_pair_frames_total", "from=\"vm1\",to=\"vm2\""),
        20.0
    );
    assert_eq!(
        of("vicinity_pair_bytes_total", "from=\"vm1\",to=\"vm2\""),
        4000.0
    );
    let vm = "vm=\"vm1\"";
    assert_eq!(of("vicinity_port_burst_frames_sum", vm), 20.0);
    let bucket = |bound: &str| {
        of(
            "vicinity_port_burst_frames_bucket",
            &format!("{vm},le=\"{bound}\""),
        )
    };
    let count = of("vicinity_port_burst_frames_count", vm);
    assert!(bucket("1") >= 1.0 && bucket("64") == count && bucket("+Inf") == count);
    assert_eq!(
        of("vicinity_port_latency_seconds_count", vm),
        (count / 8.0).ceil()
    );
    let sum = of("vicinity_port_latency_seconds_sum", vm);
    assert!(sum > 0.0 && sum < 10.0, "{sum}");
    // The API returns more than the tables show.
    let shown = said(&daemon, &["port", "show", "lan", "vm1"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["counters"]["bursts"]["sum"], 20);
    assert_eq!(shown["sent_to"][0]["vm"], "vm2");
}

#[test]
fn the_mirrored_ports_change_while_all_run() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let [mut a, mut b, mut c] = [1, 2, 3].map(|station| connect(&daemon, station));
    pass(&mut b, &mut a, &to(1, 2, 0));
    said(&daemon, &["port", "set", "lan", "vm3", "mirror=[\"vm1\"]"]);
    assert_eq!(daemon.port("vm3")["mirrors"], serde_json::json!(["vm1"]));
    pass(&mut a, &mut b, &to(2, 1, 1));
    while c.wait_to_receive().frame != to(2, 1, 1) {}
    pass(&mut b, &mut a, &to(1, 2, 2));
    assert_eq!(c.wait_to_receive().frame, to(1, 2, 2));
    // The daemon refuses to remove a port that is mirrored.
    let refused = daemon.command(&["port", "remove", "lan", "vm1"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    said(&daemon, &["port", "set", "lan", "vm3", "mirror=[\"*\"]"]);
    assert_eq!(
        daemon.port("vm3")["mirrors"],
        serde_json::json!(["vm1", "vm2"])
    );
    // A restarted data plane has the mirrors before the first frame.
    let old = daemon.signal_data_plane("lan", Signal::KILL);
    drop([a, b, c]);
    until("another one", || {
        daemon.data_plane("lan").is_some_and(|new| new != old)
    });
    let [mut c, mut b, mut a] = [3, 2, 1].map(|station| connect(&daemon, station));
    pass(&mut b, &mut a, &to(1, 2, 3));
    while c.wait_to_receive().frame != to(1, 2, 3) {}
    // The switch has learnt both addresses again.
    pass(&mut a, &mut b, &to(2, 1, 9));
    said(&daemon, &["port", "set", "lan", "vm3", "mirror="]);
    assert_eq!(daemon.port("vm3")["mirrors"], serde_json::json!([]));
    while c.receive().is_some() {}
    pass(&mut b, &mut a, &to(1, 2, 4));
    a.wait_to_send(&to(3, 1, 5), Layout::One);
    assert_eq!(c.wait_to_receive().frame, to(3, 1, 5), "it was mirrored");
}
