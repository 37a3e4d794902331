//! The figures of `vicinity top` compared with those of the kernel and the daemon.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::vicinity;
use crate::counters::Counters;
use crate::guest::{serve_iperf, sh};
use crate::rig::{Rig, ip, step};

fn top(rig: &Rig) -> Value {
    let mut command = vicinity();
    command.args(["top", "--once", "--json", "--runtime-dir"]);
    let output = command.arg(rig.daemon().path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Returns the ids of the threads of a process whose names begin with `start`.
fn threads_named(pid: &str, start: &str) -> BTreeSet<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let ids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let name = |id: &String| fs::read_to_string(format!("/proc/{pid}/task/{id}/comm"));
    ids.filter(|id| name(id).unwrap_or_default().starts_with(start))
        .map(|id| id.parse().unwrap())
        .collect()
}

/// Returns how many nanoseconds a thread has run.
fn ran(thread: u64) -> f64 {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn assert_a_thread_is_one(thread: &Value) {
    let sum = number(&thread["use"]) + number(&thread["wait"]) + number(&thread["block"]);
    assert!((sum - 1.0).abs() < 1e-6, "{thread}");
}

#[test]
fn top_agrees_with_proc_and_with_the_daemon() {
    let rig = Rig::new(None);
    let [red, blue] = rig.boot_named(["red", "blue"]);
    step("a stream");
    serve_iperf(&blue);
    let stream = format!("setsid iperf3 --client {} --time 3600", ip(2));
    sh(&red, &format!("{stream} </dev/null >/dev/null 2>&1 &"));
    let [before] = Counters::of(rig.daemon(), ["blue"]);
    while Counters::of(rig.daemon(), ["blue"])[0].grown(&before, "rx_bytes") < 1 << 20 {}

    step("both VMs are found");
    let first = top(&rig);
    let pid = |name: &str| {
        let vms = first["vms"].as_array().unwrap();
        let vm = vms.iter().find(|vm| vm["name"] == name);
        vm.unwrap_or_else(|| panic!("no {name}: {first}"))["pid"].to_string()
    };
    let vcpus = ["red", "blue"].map(|name| threads_named(&pid(name), "CPU "));

    step("their figures agree with those of the kernel");
    let all = || {
        vcpus
            .each_ref()
            .map(|ids| ids.iter().map(|id| ran(*id)).sum::<f64>())
    };
    let (earlier, report, later) = (all(), top(&rig), all());
    let vms: Vec<&Value> = report["vms"].as_array().unwrap().iter().collect();
    let vm = |name| *vms.iter().find(|vm| vm["name"] == name).unwrap();
    let seconds = number(&report["seconds"]);
    for (index, name) in ["red", "blue"].into_iter().enumerate() {
        let vm = vm(name);
        let threads = vm["threads"].as_array().unwrap();
        threads.iter().for_each(assert_a_thread_is_one);
        let found = threads.iter().filter(|thread| thread["role"] == "vcpu");
        let found: BTreeSet<u64> = found.map(|thread| thread["id"].as_u64().unwrap()).collect();
        assert_eq!(found, vcpus[index]);
        // `vicinity top` took its readings between the first and the last reading of this test.
        let used = number(&vm["guest"]["use"]) * seconds;
        let most = (later[index] - earlier[index]) / 1e9;
        assert!(
            used > 0.0 && used <= most * 1.1,
            "{name}: {used} s of {most} s"
        );
        assert!(number(&vm["memory"]["bytes"]) > f64::from(1 << 20));
        assert_eq!(vm["notes"], Value::Array(Vec::new()));
    }

    step("their back-end is QEMU and the switch");
    let charged: f64 = ["red", "blue"]
        .map(|name| number(&vm(name)["backend_in_vicinity"]))
        .into_iter()
        .inspect(|charged| assert!(*charged > 0.0))
        .sum();
    let network = &report["vicinity"]["networks"][0];
    let (used, left) = (
        number(&network["workers"]["use"]),
        number(&network["uncharged"]),
    );
    assert!(
        (charged + left - used).abs() < 1e-6,
        "{charged} + {left} of {used}"
    );
    assert_eq!(
        report["vicinity"]["pid"].as_u64(),
        Some(u64::from(rig.pid()))
    );
    for (name, direction) in [("red", "tx_bytes"), ("blue", "rx_bytes")] {
        let traffic = &vm(name)["traffic"];
        assert!(
            number(&traffic[direction]) > number(&traffic["descriptors"]),
            "{traffic}"
        );
    }

    step("which VM sends to which");
    let pairs = report["pairs"].as_array().unwrap();
    let bytes = |from: &str, to: &str| {
        let pair = |pair: &&Value| pair["from"] == from && pair["to"] == to;
        let pair = pairs.iter().find(pair);
        number(&pair.unwrap_or_else(|| panic!("{from} to {to}: {pairs:?}"))["bytes"])
    };
    assert!(bytes("red", "blue") > 10.0 * bytes("blue", "red"));
    let sent = number(&vm("red")["traffic"]["tx_bytes"]);
    // The counters of both ports come from one answer.
    assert!((bytes("red", "blue") / sent - 1.0).abs() < 0.05, "{report}");
    let mut command = vicinity();
    command.args(["top", "--prometheus", "--runtime-dir"]);
    let output = command.arg(rig.daemon().path("")).output().unwrap();
    let series = String::from_utf8(output.stdout).unwrap();
    let labels = r#"vicinity_pair_bytes_total{network="default",from="red",to="blue"}"#;
    assert!(series.contains(labels), "{series}");

    step("as a table");
    let mut command = vicinity();
    command.args(["top", "--once", "--runtime-dir"]);
    let output = command.arg(rig.daemon().path("")).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    println!("{table}");
    for text in [
        "red",
        "blue",
        "└ backend",
        "supervisor",
        "this program",
        "FROM",
    ] {
        assert!(table.contains(text), "{text}");
    }
    drop((red, blue));
}
