//! VMs are reset, switched off and killed, while two others exchange frames.

use serde_json::json;
use vm_harness::vm::{Link, Nic, Spec, Vm};

use crate::common::holdings::Holdings;
use crate::common::until;
use crate::guest::{Pinging, ping, serve_iperf, sh};
use crate::rig::{Rig, ip, step};
use crate::tiny::{Firmware, Tiny};

/// Resets of VMs without an operating system, half of them with QEMU as server.
const RESETS: u32 = 1000;

/// Default number of kills of such VMs. `VICINITY_KILLS` sets another number.
const KILLS: u32 = 16;

/// Number of such VMs, every other one with QEMU as server. There are several because a front-end
/// may connect only 20 times in 10 seconds.
const TINY: u32 = 16;

/// Such VMs that run at a time. A single one would mostly wait for a CPU, because two other VMs are
/// busy. All have the same address, so they also send to each other.
const AT_ONCE: usize = 4;

const NETWORK: &str = "default";

fn config() -> String {
    let mut text = format!("[[network]]\nname = \"{NETWORK}\"\n");
    let mut port = |vm: &str, mode: &str| {
        let port = format!("[[network.port]]\nvm = \"{vm}\"\nmode = \"{mode}\"\n");
        text.push_str(&port);
    };
    port("red", "server");
    port("blue", "client");
    for number in 0..TINY {
        let mode = ["server", "client"][number as usize % 2];
        port(&format!("tiny-{number}"), mode);
    }
    text
}

fn holdings(rig: &Rig) -> Holdings {
    Holdings::settled(rig.daemon(), NETWORK)
}

/// Returns the VM that is reset, switched off and killed. After a reset, its kernel boots again and
/// configures its address by itself.
fn guest(rig: &Rig) -> Spec {
    let address = ip(3);
    let mut spec = rig.bare("guest").nic(Nic {
        link: Link::VhostUser {
            socket: rig.daemon().path("default/guest.sock"),
            qemu_listens: true,
        },
        mac: "52:54:00:00:98:03".to_owned(),
        address: Some(format!("{address}/24")),
        properties: Vec::new(),
    });
    spec.qemu_args = ["-action", "reboot=reset"].map(str::to_owned).to_vec();
    spec
}

fn up(rig: &Rig) -> Vm {
    let [vm] = rig.boot([guest(rig)]);
    rig.until_state("guest", "running");
    ping(&vm, &ip(2));
    vm
}

fn load(vm: &Vm) {
    let to = ip(2);
    // The time is longer than any test takes.
    let iperf = format!("iperf3 --client {to} --time 86400 </dev/null >/dev/null 2>&1");
    sh(vm, &format!("setsid {iperf} &"));
    sh(
        vm,
        "until ss -Htn state established 'dport = :5201' | grep -q .; do sleep 0.1; done",
    );
}

#[test]
fn vm_comes_and_goes() {
    let rig = Rig::new(None);
    let [red, blue] = rig.boot_named(["red", "blue"]);
    serve_iperf(&blue);
    let pinging = Pinging::start(&red, &ip(2));
    let vm = up(&rig);
    let before = holdings(&rig);

    step("reset under load");
    load(&vm);
    reset(&rig, &vm, &red);
    before.assert_unchanged(rig.daemon(), NETWORK, "after a reset");
    pinging.goes_on();

    step("powered off from the guest");
    drop(vm.start("echo o >/proc/sysrq-trigger").unwrap());
    rig.until_state("guest", "waiting");
    until("QEMU's end", || !vm.is_running().unwrap());
    drop(vm);
    pinging.goes_on();
    let without = holdings(&rig);

    step("killed under load");
    let vm = up(&rig);
    // The iperf3 server still waits for the guest that was killed, and serves only one client at a
    // time.
    sh(&blue, "pkill -KILL iperf3; sleep 0.5");
    serve_iperf(&blue);
    load(&vm);
    before.assert_unchanged(rig.daemon(), NETWORK, "with the guest again");
    drop(vm);
    rig.until_state("guest", "waiting");
    without.assert_unchanged(rig.daemon(), NETWORK, "after the kill");

    let port = rig.daemon().port("guest");
    assert!(port["reason"].is_string(), "{port}");
    assert_eq!(port["quarantines"], 0, "{port}");

    step("the other VMs are unaffected");
    let [sent, received] = pinging.stop();
    assert!(sent - received <= 1, "{received} of {sent} echoes");
}

fn reset(rig: &Rig, vm: &Vm, neighbour: &Vm) {
    let boot = || sh(vm, "cat /proc/sys/kernel/random/boot_id");
    let old = boot();
    let mut qmp = vm.qmp().unwrap();
    qmp.execute("system_reset", &json!({})).unwrap();
    rig.until_state("guest", "connected");
    rig.until_state("guest", "running");
    let there = format!("ping -c 1 -W 1 {}", ip(3));
    sh(neighbour, &format!("until {there}; do :; done"));
    assert_ne!(boot(), old);
    ping(vm, &ip(2));
}

/// VMs are reset, and QEMU processes killed, with frames in flight, while two other VMs are under
/// load. The test counts only resets and kills at which the NIC's rings ran and carried frames.
#[test]
fn a_thousand_resets_under_load() {
    let kills = setting("VICINITY_KILLS").unwrap_or(KILLS);
    let rig = Rig::new(Some(&config()));
    let firmware = Firmware::assemble(rig.folder());
    let [red, blue] = rig.boot_named(["red", "blue"]);
    serve_iperf(&blue);
    let pinging = Pinging::start(&red, &ip(2));
    load(&red);
    let before = holdings(&rig);

    for vm in ["tiny-0", "tiny-1"] {
        step(&format!("{vm} is reset"));
        let mut tiny = Tiny::start(&rig, &firmware, vm);
        rig.until_state(vm, "running");
        let running = holdings(&rig);
        for reset in 0..RESETS / 2 {
            tiny.reset(1 + reset % 50);
        }
        running.assert_unchanged(rig.daemon(), NETWORK, "after so many resets");
        drop(tiny);
        rig.until_state(vm, "waiting");
        before.assert_unchanged(rig.daemon(), NETWORK, "after its end");
    }
    let vms: Vec<String> = (1..=kills)
        .map(|kill| format!("tiny-{}", kill % TINY))
        .collect();
    for (round, vms) in (0..).zip(vms.chunks(AT_ONCE)) {
        step(&format!("{} of {kills} are killed", round * AT_ONCE));
        drop(Tiny::start_all(&rig, &firmware, vms));
    }
    for number in 0..TINY {
        let vm = format!("tiny-{number}");
        rig.until_state(&vm, "waiting");
        assert_eq!(rig.daemon().port(&vm)["quarantines"], 0, "{vm}");
    }
    before.assert_unchanged(rig.daemon(), NETWORK, "after so many kills");

    step("the other VMs are unaffected");
    pinging.goes_on();
    let [sent, received] = pinging.stop();
    assert!(sent - received <= 1, "{received} of {sent} echoes");
    sh(&red, "pgrep iperf3");
    assert_eq!(rig.daemon().network(NETWORK)["restarts"], 0);
}

fn setting(name: &str) -> Option<u32> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}
