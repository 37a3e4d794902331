//! A trust group of three VMs. They continue to exchange packets when another member, the window, the process
//! that serves the group, or the daemon fails.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::direct::layout;
use lab::settings::{self, Journal};
use observe::proc::Proc;
use rustix::process::Signal;
use vm_harness::host::ChildProcess;
use vm_harness::vm::Vm;

use crate::common::{HANG, until};
use crate::direct::{
    address, config, counter, devices, flood, ip, is_well, load, member, received, signal,
    until_device, until_devices, until_joined, until_peers, until_reached, with_module,
};
use crate::direct_churn::{Churn, Way, leaving_vm};
use crate::guest::{self, sh};
use crate::rig::{Rig, step};

/// Two of the three members choose the way to each other by cost.
const PAIR: &str = "
[[direct.group.pair]]
vms = [\"a\", \"c\"]
policy = \"auto\"
";

/// Offloads of the device for the network stack.
const FEATURES: [&str; 4] = [
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
];

/// Prints the peers to which a guest is to send directly.
const PEERS: &str = "cat /sys/class/net/direct0/peers";

/// Bytes of a ring with its control words: 5 pages, of which the first contains the words.
const RING: u64 = 5 * 4096;
const PAGE: u64 = 4096;

/// Offsets of the control words in a ring.
const SESSION: u64 = 0;
const PRODUCED: u64 = 4;
const ACCEPTED: u64 = 128;
const CONSUMED: u64 = 132;

/// Bytes of a member's RAM.
const RAM: u64 = 512 << 20;

/// Asserts that UDP makes its sender wait. `a` sends more to `b` than its program takes, so the sender has to
/// wait. If the device took as many packets as a poll can take, sockets would drop two thirds of them.
fn udp_holds_its_sender_back(a: &Vm) {
    let end = guest::iperf(a, &ip(2), "--udp --bitrate 0 --length 16K --bytes 64M");
    let lost = end["sum"]["lost_percent"].as_f64().unwrap();
    println!("{lost} % lost");
    assert!(lost < 35.0);
}

/// Makes `a` send short packets to `c` while both share a CPU with each other and with a job that never
/// waits. The packets must then take the other way.
fn short_packets_while_cpus_are_short(a: &Vm, c: &Vm) {
    assert_eq!(sh(a, PEERS).lines().count(), 2);
    let mut hog = vm_harness::host::command("sh");
    hog.args(["-c", "while :; do :; done"]);
    let hog = ChildProcess::spawn(hog).unwrap();
    let mut pinned = Journal::begin().unwrap();
    for process in [a.id(), c.id(), hog.id()] {
        for thread in Proc::default().threads(process) {
            settings::pin(&mut pinned, thread, &[0]).unwrap();
        }
    }
    let sending = a.start("exec socat -u -b 100 OPEN:/dev/zero UDP-SENDTO:10.97.0.3:9");
    let left = format!("until test $({PEERS} | wc -l) = 1; do sleep 0.1; done");
    sh(a, &left);
    sh(c, &left);
    sending.unwrap().kill().unwrap();
}

/// Asserts that a sender sends packets again that a present member does not take. The member takes none, or
/// almost none. Its peer gets its pages back in time, and packets that were not taken are not lost.
fn what_is_not_taken_is_sent_again(window: &File, a: &Vm, b: &Vm) {
    let take = "socat -u UDP-RECV:7001 CREATE:/tmp/lines";
    sh(
        b,
        &format!(
            "setsid {take} </dev/null >/dev/null 2>&1 & \
             until ss -Huln 'sport = :7001' | grep -q .; do sleep 0.1; done"
        ),
    );
    let before = counter(a, "tx_resent");
    let withdrawn = counter(a, "tx_withdrawn");
    signal(b, Signal::STOP);
    sh(
        a,
        "for n in $(yes x | head -n 40) $(seq 100); do echo $n >/dev/udp/10.97.0.2/7001; done",
    );
    assert!(counter(a, "tx_held") >= 100);
    for _ in 0..40 {
        if counter(a, "tx_withdrawn") > withdrawn {
            break;
        }
        // Act as if `b` had taken one packet: a head entry, and a piece entry.
        advance(window, CONSUMED, 2);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(counter(a, "tx_withdrawn") > withdrawn);
    // The third member is still there.
    until_peers(a, 1);
    signal(b, Signal::CONT);
    for vm in [a, b] {
        until_peers(vm, 2);
    }
    sh(b, "until grep -q 100 /tmp/lines; do sleep 0.1; done");
    let arrived = sh(b, "pkill socat; grep -v x /tmp/lines");
    assert!((1..=100).map(|line| line.to_string()).eq(arrived.lines()));
    assert!(counter(a, "tx_resent") >= before + 100);
}

/// Returns a word of the ring from `a` to `b`.
fn word(window: &File, word: u64) -> u32 {
    word_at(window, layout::ring(0, 1) + word)
}

fn word_at(window: &File, at: u64) -> u32 {
    let mut value = [0; 4];
    window.read_exact_at(&mut value, at).unwrap();
    u32::from_le_bytes(value)
}

/// Adds `by` to a word of the ring.
fn advance(window: &File, what: u64, by: u32) {
    let value = word(window, what).wrapping_add(by).to_le_bytes();
    window
        .write_all_at(&value, layout::ring(0, 1) + what)
        .unwrap();
}

/// Returns the ring entries of a packet of one piece, as the sender's module writes them, with an
/// address near or beyond the end of a part of its RAM.
fn at_the_edge(random: &mut fastrand::Rng) -> [u8; 32] {
    let mut entries = [0; 32];
    if random.bool() {
        // The fields for checksums and segmentation.
        random.fill(&mut entries[..10]);
    }
    let length = random.u32(14..=65553);
    let edge = [RAM, 1 << 20, u64::MAX - 70_000][random.usize(..3)];
    let start = edge
        .wrapping_add(random.u64(..140_000))
        .wrapping_sub(70_000);
    entries[10..12].copy_from_slice(&1u16.to_le_bytes());
    entries[12..16].copy_from_slice(&length.to_le_bytes());
    entries[16..24].copy_from_slice(&start.to_le_bytes());
    entries[24..28].copy_from_slice(&length.to_le_bytes());
    entries
}

/// Waits until `a` and `b` have a session. If none begins, fails with the words of the ring and the kernel
/// logs of these VMs.
fn until_session(window: &File, vms: [&Vm; 2]) {
    let end = Instant::now() + HANG;
    loop {
        let words = [SESSION, ACCEPTED, PRODUCED, CONSUMED].map(|at| word(window, at));
        let [session, accepted, ..] = words;
        if session != 0 && session == accepted {
            return;
        }
        if Instant::now() >= end {
            let state =
                "ethtool -S direct0; cat /proc/loadavg /proc/interrupts; dmesg | tail -n 30";
            let states = vms.map(|vm| format!("{}: {}", vm.name(), sh(vm, state)));
            panic!("no session begins: {words:x?}\n{}", states.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Fills the ring from `a` to `b` with packets that are partly in, and partly beyond, the sender's memory,
/// while `b` takes other packets from `c`. A packet that `b` refuses ends the session.
fn packets_at_the_edge(window: &File, b: &Vm, c: &Vm) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let refused = counter(b, "rx_nonsense");
    let sending = c.start("exec ping -f 10.97.0.2").unwrap();
    // Each round takes a second: if `b` refuses a packet before the sender knows of the session, the next
    // attempt starts no sooner.
    for _ in 0..6 {
        until_session(window, [b, c]);
        let packets: Vec<u8> = (0..512).flat_map(|_| at_the_edge(&mut random)).collect();
        window
            .write_all_at(&packets, layout::ring(0, 1) + PAGE)
            .unwrap();
        let before = word(window, CONSUMED);
        let count = 2 * random.u32(1..64);
        until("some to be taken or refused", || {
            // When a session begins, its sender resets the word of what it has produced.
            if word(window, PRODUCED) == before {
                advance(window, PRODUCED, count);
            }
            word(window, CONSUMED) != before || word(window, ACCEPTED) != word(window, SESSION)
        });
    }
    sending.kill().unwrap();
    assert!(counter(b, "rx_nonsense") > refused + 2);
}

/// Writes random words to the ring from `a` to `b` while packets are in flight.
fn nonsense(window: &File, a: &Vm, b: &Vm) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rounds = 0;
    let ring = layout::ring(0, 1);
    let before = counter(b, "rx_nonsense");
    let sending = a.start("exec ping -f -s 1400 10.97.0.2").unwrap();
    while counter(b, "rx_nonsense") < before + 5 {
        rounds += 1;
        for _ in 0..50 {
            window
                .write_all_at(
                    &random.u64(..).to_le_bytes(),
                    ring + random.u64(..RING / 8) * 8,
                )
                .unwrap();
        }
        // The words for produced and consumed entries, and now and then those of the sessions.
        for word in [PRODUCED, 8, CONSUMED, SESSION, ACCEPTED] {
            if !matches!(word, SESSION | ACCEPTED) || rounds % 8 == 0 {
                let value = random.u32(..) >> random.u32(..32);
                window
                    .write_all_at(&value.to_le_bytes(), ring + word)
                    .unwrap();
            }
        }
    }
    sending.kill().unwrap();
}

/// Opens the group's control window, which the daemon holds.
fn window(rig: &Rig) -> File {
    let entries = fs::read_dir(format!("/proc/{}/fd", rig.pid())).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let link = fs::read_link(path).unwrap_or_default();
        link.to_string_lossy().starts_with("/memfd:vicinity-direct")
    };
    let path = paths.find(is_it).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// Returns the sessions in which `a` and `b` send to each other.
fn sessions(window: &File) -> [u32; 2] {
    [(0, 1), (1, 0)].map(|(from, to)| word_at(window, layout::ring(from, to) + SESSION))
}

/// Kills the group's process, so that the daemon starts it again. The new process finds all members
/// in their present state.
fn kill_process_of(rig: &Rig, group: &str) {
    let name = format!("direct-{group}");
    let killed = rig.daemon().signal_process(&name, Signal::KILL);
    until("another process", || {
        rig.daemon().process(&name).is_some_and(|id| id != killed)
    });
}

/// Makes a guest release all views and windows, as its administrator can.
fn release_all(vm: &Vm) {
    let release = "\
        for slot in /sys/bus/pci/slots/*; do \
            device=/sys/bus/pci/devices/$(cat $slot/address).0/device; \
            if test -e $device && grep -q 0x1110 $device; then echo 0 >$slot/power; fi; \
        done";
    sh(vm, release);
}

#[test]
fn vms_of_a_group_see_each_others_memory() {
    let mut rig = with_module(Rig::new(Some(&(config(&["a", "b", "c"]) + PAIR))));
    let [a, b, c] = rig.boot([member(&rig, "a"), member(&rig, "b"), leaving_vm(&rig, 0)]);

    step("the devices are plugged in while the guests run");
    for (number, vm) in (1..).zip([&a, &b, &c]) {
        until_devices(vm, 3);
        load(vm, number);
    }
    for vm in [&a, &b, &c] {
        until_peers(vm, 2);
    }
    guest::ping(&a, &ip(3));
    guest::ping(&c, &ip(2));

    step("TCP in both directions, and a file whose bytes are compared");
    guest::serve_iperf(&b);
    guest::tcp_both_ways(&a, &ip(2), 64);
    guest::copy_file(&a, &b, &ip(2), 16);
    guest::copy_file(&b, &a, &ip(1), 16);
    for vm in [&a, &b] {
        for name in ["tx_copied", "tx_nonsense", "rx_nonsense"] {
            assert_eq!(counter(vm, name), 0, "{name} in {}", vm.name());
        }
    }

    let features = sh(&a, "ethtool --show-features direct0");
    for feature in FEATURES {
        assert!(features.contains(&format!("{feature}: on")), "{features}");
    }

    step("backpressure stops a sender of unpaced UDP");
    udp_holds_its_sender_back(&a);

    step("short packets use the switch while the host is short of CPUs");
    short_packets_while_cpus_are_short(&a, &c);

    step("packets that a member does not take in time are retransmitted");
    let window = window(&rig);
    what_is_not_taken_is_sent_again(&window, &a, &b);

    step("CPUs are free again, and short packets use the direct channel");
    let back = format!("until test $({PEERS} | wc -l) = 2; do sleep 0.1; done");
    sh(&a, &back);

    step("members join and leave");
    let mut churn = Churn::begin(&rig, [&a, &b], c);
    // `make soak` has the other ways, too.
    for way in [Way::Leaves, Way::IsKilled] {
        churn.go_on(way);
    }
    let c = churn.end();

    step("the receiver refuses packets that are partly outside the sender's memory");
    packets_at_the_edge(&window, &b, &c);
    until_peers(&c, 2);

    step("one VM powers off");
    drop(c);
    for vm in [&a, &b] {
        until_devices(vm, 2);
        until_peers(vm, 1);
    }

    step("a ring with malformed entries does not affect other members");
    nonsense(&window, &a, &b);
    for vm in [&a, &b] {
        until_peers(vm, 1);
        is_well(vm);
    }
    until_reached(&a, &ip(2));

    step("a guest releases its devices although nothing asked it to, and gets others");
    release_all(&a);
    until_devices(&a, 2);
    until_device(&a);
    address(&a, 1);
    until_peers(&a, 1);
    until_reached(&a, &ip(2));
    is_well(&a);

    step("the group's process is killed under load, without an effect on traffic");
    let sending = flood(&a, &b);
    let before = sessions(&window);
    kill_process_of(&rig, "g");
    until_joined(&rig, &b);
    let at = received(&b, "bytes");
    while received(&b, "bytes") < at + (8 << 20) {}
    assert_eq!(sessions(&window), before);
    assert_eq!([devices(&a), devices(&b)], ["2", "2"]);

    step("at the end the group unplugs all devices, under load");
    rig.end(Signal::TERM);
    for vm in [&a, &b] {
        assert_eq!(devices(vm), "0");
        sh(vm, "rmmod vicinity_direct");
        is_well(vm);
    }
    sending.kill().unwrap();

    step("the QEMUs continue, and another daemon connects to them");
    rig.serve();
    for (number, vm) in (1..).zip([&a, &b]) {
        until_devices(vm, 2);
        load(vm, number);
    }
    guest::ping(&a, &ip(2));
    rig.end(Signal::KILL);
    rig.serve();
    for vm in [&a, &b] {
        until_joined(&rig, vm);
        until_devices(vm, 2);
        is_well(vm);
    }
}
