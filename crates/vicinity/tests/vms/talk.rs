//! Two VMs, the default configuration, and QEMU's options as `vicinity qemu-args` prints them.

use crate::common::vicinity;
use crate::counters::{Counters, assert_nothing_vanished};
use crate::guest::{copy_file, iperf, ping, serve_iperf, tcp_both_ways};
use crate::rig::{Rig, ip, step};

#[test]
fn two_vms_talk() {
    let rig = Rig::new(None);
    let [red, blue] = rig.boot_named(["red", "blue"]);
    let names = ["red", "blue"];

    step("a frame in each direction, so that both addresses are in the FDB");
    ping(&red, &ip(2));
    ping(&blue, &ip(1));
    let before = Counters::of(rig.daemon(), names);

    step("TCP in both directions");
    serve_iperf(&blue);
    tcp_both_ways(&red, &ip(2), 32);

    step("UDP in both directions");
    for direction in ["", "--reverse"] {
        let end = iperf(
            &red,
            &ip(2),
            &format!("--udp --bitrate 20M --bytes 2M {direction}"),
        );
        let lost = end["sum"]["lost_percent"].as_f64().unwrap();
        assert!(lost < 50.0, "{end}");
    }

    step("a file in each direction");
    copy_file(&red, &blue, &ip(2), 16);
    copy_file(&blue, &red, &ip(1), 16);

    step("counters");
    let after = Counters::of(rig.daemon(), names);
    assert_nothing_vanished(&before, &after);
    let frames = after[1].grown(&before[1], "rx_frames");
    let bytes = after[1].grown(&before[1], "rx_bytes");
    assert!(bytes > 48 << 20, "{bytes} bytes");
    assert!(bytes / frames > 1514, "large frames pass whole");
    for (after, before) in after.iter().zip(&before) {
        for name in ["segmented", "checksummed"] {
            assert_eq!(after.grown(before, name), 0, "{name}");
        }
    }

    step("the tables of the commands");
    let table = vicinity()
        .args(["port", "list", "--runtime-dir"])
        .arg(rig.daemon().path(""))
        .output()
        .unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    for vm in names {
        let row = table.lines().find(|line| line.starts_with(vm));
        assert!(row.is_some_and(|row| row.contains("running")), "{table}");
    }
}
