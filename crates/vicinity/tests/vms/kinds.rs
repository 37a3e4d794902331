//! Guests whose drivers and devices have negotiated different features exchange frames with a guest
//! that has negotiated all of them.

use vm_harness::vm::{Link, Nic, Spec, Vm};

use crate::counters::Counters;
use crate::guest::{received, serve_iperf, sh, stack_counter, tcp_both_ways};
use crate::rig::{Rig, step};

/// A NIC: its port, QEMU's properties, and their effect on frames to the NIC.
struct Kind {
    port: &'static str,
    properties: &'static str,
    /// The switch must segment frames to this NIC.
    cut: bool,
}

const KINDS: [Kind; 6] = [
    Kind {
        port: "unmerged",
        properties: "mrg_rxbuf=off",
        cut: false,
    },
    Kind {
        port: "plain",
        properties: "guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_uso4=off,guest_uso6=off,\
                     csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_uso=off",
        cut: true,
    },
    Kind {
        port: "direct",
        properties: "indirect_desc=off,guest_tso4=off,guest_tso6=off,guest_uso4=off,guest_uso6=off",
        cut: true,
    },
    Kind {
        port: "flags",
        properties: "event_idx=off,indirect_desc=off",
        cut: false,
    },
    Kind {
        port: "short",
        properties: "rx_queue_size=256,tx_queue_size=256",
        cut: false,
    },
    Kind {
        port: "legacy",
        properties: "disable-modern=on,disable-legacy=off,mrg_rxbuf=off",
        cut: false,
    },
];

const FULL: &str = "full";

fn config() -> String {
    let ports = KINDS.iter().map(|kind| kind.port).chain([FULL]);
    let ports: String = ports
        .map(|port| format!("[[network.port]]\nvm = \"{port}\"\n"))
        .collect();
    format!("[[network]]\nname = \"lan\"\n{ports}")
}

/// Returns the VM with a NIC of every kind. NIC number N, from 1, is `ethN-1` and has the address
/// `10.97.N.2`.
fn motley(rig: &Rig) -> Spec {
    let mut spec = rig.bare("motley");
    for (number, kind) in (1_u8..).zip(&KINDS) {
        spec = spec.nic(Nic {
            link: Link::VhostUser {
                socket: rig.daemon().path(&format!("lan/{}.sock", kind.port)),
                qemu_listens: false,
            },
            mac: format!("52:54:00:00:97:{number:02x}"),
            address: Some(format!("10.97.{number}.2/24")),
            properties: vec![kind.properties.to_owned()],
        });
    }
    spec
}

/// Configures the addresses of every NIC on both sides, and disables ARP answers for the addresses
/// of other NICs.
fn set_up(full: &Vm, motley: &Vm) {
    sh(full, "ip link set eth0 up");
    for (number, _) in (1..).zip(&KINDS) {
        let device = number - 1;
        sh(
            full,
            &format!(
                "ip addr add 10.97.{number}.1/24 dev eth0; ip addr add fd97:{number}::1/64 dev eth0 nodad"
            ),
        );
        sh(
            motley,
            &format!("ip addr add fd97:{number}::2/64 dev eth{device} nodad"),
        );
    }
    for vm in [full, motley] {
        sh(
            vm,
            "sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=0",
        );
    }
    serve_iperf(motley);
}

#[test]
fn guests_of_every_kind() {
    let rig = Rig::new(Some(&config()));
    let [full, motley] = rig.boot([rig.spec(FULL), motley(&rig)]);
    set_up(&full, &motley);
    for (number, kind) in (1..).zip(&KINDS) {
        rig.until_state(kind.port, "running");
        negotiated(&rig, kind);
        exchange(&rig, &full, &motley, number, kind);
    }
    for vm in [&full, &motley] {
        for counter in [
            "TcpInCsumErrors",
            "TcpInErrs",
            "UdpInCsumErrors",
            "IcmpInCsumErrors",
        ] {
            assert_eq!(stack_counter(vm, counter), 0, "{counter} in {}", vm.name());
        }
    }
    offloads_switched_off_in_the_guest(&rig, &full, &motley);
}

/// Asserts that the port's features are those of its kind. Otherwise the test would prove nothing.
fn negotiated(rig: &Rig, kind: &Kind) {
    let features = rig.daemon().port(kind.port)["features"].as_u64().unwrap();
    let bits = [
        ("mrg_rxbuf", 15),
        ("guest_csum", 1),
        ("guest_tso4", 7),
        ("host_tso4", 11),
        ("indirect_desc", 28),
        ("event_idx", 29),
    ];
    for (name, bit) in bits {
        let off = kind
            .properties
            .split(',')
            .any(|p| p == format!("{name}=off"));
        assert_eq!(
            features >> bit & 1 == 0,
            off,
            "{name} of {}: {features:#x}",
            kind.port
        );
    }
    let legacy = kind.properties.contains("disable-modern=on");
    assert_eq!(
        features >> 32 & 1 == 0,
        legacy,
        "VERSION_1 of {}",
        kind.port
    );
}

/// Exchanges data by TCP over IPv4 and IPv6 in both directions, and checks what the switch had to
/// do for it.
fn exchange(rig: &Rig, full: &Vm, motley: &Vm, number: u8, kind: &Kind) {
    let counters = || Counters::of(rig.daemon(), [kind.port, FULL]);
    let device = format!("eth{}", number - 1);
    let (before, got) = (counters(), received(motley, &device));
    for to in [format!("10.97.{number}.2"), format!("fd97:{number}::2")] {
        step(&format!("{}: TCP with {to}", kind.port));
        tcp_both_ways(full, &to, 6);
    }
    let (after, got_now) = (counters(), received(motley, &device));
    let grown = |which: usize, name| after[which].grown(&before[which], name);
    let mean = (got_now[0] - got[0]) / (got_now[1] - got[1]);
    assert_eq!(mean <= 1514, kind.cut, "{}: mean frame {mean}", kind.port);
    assert_eq!(grown(0, "segmented") > 0, kind.cut, "{}", kind.port);
    let sums = kind.properties.contains("guest_csum=off");
    assert_eq!(grown(0, "checksummed") > 0, sums, "{}", kind.port);
    for name in ["segmented", "checksummed"] {
        assert_eq!(grown(1, name), 0, "{name} for the VM that takes all");
    }
}

fn offloads_switched_off_in_the_guest(rig: &Rig, full: &Vm, motley: &Vm) {
    let mean_sent = |options: &str| {
        step(&format!("ethtool -K {options}"));
        sh(full, &format!("ethtool -K eth0 {options}"));
        let [before] = Counters::of(rig.daemon(), [FULL]);
        tcp_both_ways(full, "10.97.5.2", 6);
        let [after] = Counters::of(rig.daemon(), [FULL]);
        after.grown(&before, "tx_bytes") / after.grown(&before, "tx_frames")
    };
    let off = mean_sent("tso off gso off tx off");
    assert!(off <= 1514, "mean frame {off} without TSO");
    let on = mean_sent("tx on gso on tso on");
    assert!(on > 1514, "mean frame {on} with TSO");
    step("receive offloads off and on");
    for options in ["gro off", "rx-gro-hw off", "gro on"] {
        // Not every device can switch each of these offloads. Traffic must continue in either case.
        sh(motley, &format!("ethtool -K eth4 {options} || true"));
        tcp_both_ways(full, "10.97.5.2", 6);
    }
    assert_eq!(stack_counter(full, "TcpInCsumErrors"), 0);
    assert_eq!(stack_counter(motley, "TcpInCsumErrors"), 0);
}
