//! Recordings with faults, with hostile names, and of large hosts.

use serde_json::{Value, json};

/// The beginning, in seconds since 1970.
const BEGAN: f64 = 1_790_000_000.0;

/// Figures of an interval without VMs.
pub(crate) fn empty() -> Value {
    json!({
        "version": 1, "program": "0.0.0", "at": BEGAN, "seconds": 1.0,
        "host": {
            "cpus": 8, "busy": 3.2, "interrupts": 0.1, "stolen": 0.0, "pressure": 12.0, "memory": 64_000_000_000_u64,
            "memory_available": 41_000_000_000_u64, "watts": 61.0, "energy": "MODELLED", "own": 0.004,
        },
        "vicinity": null, "vms": [], "pairs": [], "switches": null, "cannot_read": [], "problems": [],
        "networks": [{ "name": "lan", "up": true, "restarts": 0, "reason": null, "uplink": "vic0", "fdb_entries": 9 }],
        "ports": [], "remote_peers": [], "direct": [], "spaces": [], "messages": null,
    })
}

fn activity(used: f64, wait: f64) -> Value {
    json!({
        "threads": 2.0, "use": used, "wait": wait, "block": 2.0 - used - wait, "executions_per_second": 900.0,
        "switches_per_second": 880.0, "cpu_per_execution_us": 250.0, "wait_per_execution_us": 12.0,
    })
}

/// A VM that the observer sees.
pub(crate) fn vm(name: &str, pid: u32, used: f64, wait: f64) -> Value {
    json!({
        "name": name, "pid": pid, "accelerator": "KVM", "guest": activity(used, wait), "backend": activity(0.1, 0.0),
        "backend_in_vicinity": 0.05, "switches_between": null, "halt_poll": null, "traffic": null,
        "memory": { "bytes": 2_100_000_000_u64, "kind": "pss" }, "watts": 4.0,
        "cgroup": { "path": format!("/machine.slice/{pid}.scope"), "version": 2, "weight": 100, "throttled": 0.0 },
        "threads": [{
            "id": pid + 1, "name": "CPU 0/KVM", "role": "vcpu", "threads": 1.0, "use": used, "wait": wait, "block": 0.1,
            "executions_per_second": 900.0, "switches_per_second": 880.0, "cpu_per_execution_us": null,
            "wait_per_execution_us": null,
        }],
        "notes": ["its NICs on bridges are not known"],
    })
}

/// A port that runs.
pub(crate) fn port(name: &str, bytes: f64) -> Value {
    json!({
        "network": "lan", "vm": name, "kind": "vm", "state": "running", "reason": null, "mac": "52:54:00:00:00:01",
        "mtu": 1500, "fdb_entries": 1, "stuck_ms": 0, "duplicates": [],
        "rates": {
            "tx_frames": bytes / 1400.0, "tx_bytes": bytes, "rx_frames": bytes / 2000.0, "rx_bytes": bytes / 2.0,
            "kicks": 800.0, "calls": 700.0, "backpressured": 3.0, "drops": 0.5,
        },
        "drops": { "receiver_full": 12, "hairpin": 1 },
        "latency": [[4096, 40], [8192, 130], [null, 1]], "bursts": [[1, 90], [64, 4]],
    })
}

pub(crate) fn pair(from: &str, to: &str, bytes: f64) -> Value {
    json!({ "network": "lan", "from": from, "to": to, "frames": bytes / 1400.0, "bytes": bytes })
}

/// The three faults that a person must find at first sight, on a busy host.
pub(crate) fn faulty() -> Value {
    let mut live = empty();
    let names = ["web", "db", "cache", "mail", "build", "dns", "proxy", "log"];
    live["vms"] = names
        .iter()
        .zip(1_u32..)
        .map(|(name, n)| vm(name, 1000 * n, 0.1 * f64::from(n), 0.01 * f64::from(n)))
        .collect();
    live["ports"] = names
        .iter()
        .zip(1_u32..)
        .map(|(name, n)| port(name, 250_000.0 * f64::from(n)))
        .collect();
    live["pairs"] = json!([
        pair("web", "db", 12_300_000.0),
        pair("db", "web", 880_000.0),
        pair("web", "cache", 4_000_000.0),
        pair("cache", "web", 900.0),
        pair("proxy", "web", 2_000_000.0),
        pair("mail", "vic0", 60_000.0),
        pair("build", "log", 100.0),
        pair("dns", "proxy", 7_000.0),
    ]);
    let problem = |kind: &str, vm: &str, ago: f64, text: &str, remedy: &str| {
        json!({
            "kind": kind, "severity": "critical", "vm": vm, "network": "lan", "since": BEGAN - ago, "text": text,
            "remedy": remedy,
        })
    };
    live["problems"] = json!([
        problem(
            "private-memory",
            "mail",
            340.0,
            "The memory of mail is private to its QEMU, so the switch cannot \
            forward its frames: its ring is not in guest memory. Start the VM with the options that this command \
            prints.",
            "vicinity qemu-args --network lan mail"
        ),
        problem(
            "receiver-stuck",
            "db",
            42.0,
            "db has taken no frame for 42 s, although frames wait for it: its \
            guest's driver has stopped, or its vCPUs do not run.",
            "vicinity port show lan db"
        ),
        problem(
            "duplicate-address",
            "cache",
            75.0,
            "cache and log both use the address 52:54:00:00:00:07: each loses \
            the other's frames.",
            "vicinity qemu-args --network lan cache"
        ),
    ]);
    live["remote_peers"] = json!([{
        "network": "lan", "vm": "mail", "mac": "52:54:00:aa:00:01", "vlan": 0, "tx_frames": 40.0, "tx_bytes": 60_000.0,
        "rx_frames": 20.0, "rx_bytes": 3_000.0,
    }]);
    live["direct"] = json!([{
        "name": "shop", "up": true, "restarts": 0, "reason": null,
        "members": [
            { "vm": "web", "state": "joined", "reason": null }, { "vm": "db", "state": "joined", "reason": null },
        ],
    }]);
    live["messages"] = json!({
        "up": true, "restarts": 0, "reason": null, "gateway_restarts": null, "gateway_reason": null,
        "uplink_restarts": null, "uplink_reason": null, "uplink": null,
        "members": [{
            "name": "web", "group": "hpc", "nic": "000000000001", "connected": true, "joined": true, "polling": false,
            "silent": false, "links": 3, "joins": 1, "linked": 4, "links_total": 4, "messages": 9_100, "bytes": 730_000,
            "faults": 0, "protocol_errors": 0,
        }],
    });
    live
}

/// Names that try to be something else than text.
pub(crate) fn hostile() -> Value {
    let names = [
        "<img src=x onerror=\"document.title='owned'\">".to_owned(),
        "a".repeat(255),
        "\u{5d0}\u{5d1}\u{5d2}\u{202e}gnp.exe".to_owned(),
        "two\nlines".to_owned(),
        "\u{1f600}\u{1f680}".to_owned(),
        String::new(),
        "__proto__".to_owned(),
    ];
    let mut live = empty();
    live["vms"] = names
        .iter()
        .zip(1..)
        .map(|(name, n)| vm(name, n, 0.2, 0.3))
        .collect();
    live["ports"] = names.iter().map(|name| port(name, 5000.0)).collect();
    live["pairs"] = names
        .iter()
        .map(|name| pair(name, &names[0], 5000.0))
        .collect();
    live["problems"] = names
        .iter()
        .map(|name| {
            json!({
                "kind": "guest-waits", "severity": "warning", "vm": name, "network": null, "since": BEGAN,
                "text": format!("The vCPUs of {name} wait."), "remedy": format!("echo '{name}'"),
            })
        })
        .collect();
    live
}

/// A host with this many VMs, each of which sends to `peers` others.
pub(crate) fn large(vms: u32, peers: u32) -> Value {
    let name = |number: u32| format!("vm-{number:04}");
    let mut live = empty();
    live["vms"] = (0..vms)
        .map(|n| {
            vm(
                &name(n),
                n + 1,
                f64::from(n % 17) / 17.0,
                f64::from(n % 5) / 50.0,
            )
        })
        .collect();
    live["ports"] = (0..vms)
        .map(|n| port(&name(n), f64::from(n) * 1000.0))
        .collect();
    live["pairs"] = (0..vms)
        .flat_map(|n| (1..=peers).map(move |step| (n, (n + step * step) % vms)))
        .map(|(from, to)| pair(&name(from), &name(to), f64::from(from * 1000 + to + 1)))
        .collect();
    live
}

/// Returns a recording of the demo's traffic between two VMs (`vicinity demo --web`).
pub(crate) fn demo() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/demo.ndjson.gz");
    let unpacked = std::process::Command::new("gzip")
        .args(["-dc", file])
        .output();
    String::from_utf8(unpacked.unwrap().stdout).unwrap()
}

/// Returns the text of a recording of some seconds.
pub(crate) fn recording(live: &Value, seconds: u32) -> String {
    let lines = (0..seconds).map(|second| format!("{}\n", interval(live, second)));
    lines.collect()
}

/// Returns these figures in a later second, with other use, waits and rates.
pub(crate) fn interval(live: &Value, second: u32) -> Value {
    let factor = 1.0 + 0.3 * f64::from(second % 7) / 7.0;
    let mut live = live.clone();
    live["at"] = json!(BEGAN + f64::from(second));
    scale(&mut live["host"], &["busy"], factor);
    for vm in live["vms"].as_array_mut().unwrap() {
        scale(&mut vm["guest"], &["use", "wait"], factor);
    }
    for port in live["ports"].as_array_mut().unwrap() {
        let rates = ["tx_frames", "tx_bytes", "rx_frames", "rx_bytes"];
        scale(&mut port["rates"], &rates, factor);
    }
    for pair in live["pairs"].as_array_mut().unwrap() {
        scale(pair, &["frames", "bytes"], factor);
    }
    live
}

fn scale(figures: &mut Value, keys: &[&str], factor: f64) {
    for key in keys {
        if let Some(value) = figures[*key].as_f64() {
            figures[*key] = json!(value * factor);
        }
    }
}
