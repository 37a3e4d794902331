//! Tests of the definitions of problems, and what other tests make figures with.

use observe::energy::Provenance;
use observe::reading::Channel;
use observe::report::{Activity, Group, Host, Report, Vm};
use serde_json::json;

use super::detector::Observed;
use super::*;
use crate::status::{Kind, PortStatus, State};

/// Returns figures of a host on which these VMs use this many CPUs.
pub(crate) fn live(vms: &[(&str, f64)]) -> Live {
    let vm = |(pid, (name, used)): (u32, &(&str, f64))| Vm {
        name: (*name).to_owned(),
        pid,
        accelerator: None,
        guest: Activity {
            threads: 1.0,
            r#use: *used,
            ..Activity::default()
        },
        backend: Activity::default(),
        backend_in_vicinity: 0.0,
        switches_between: None,
        halt_poll: None,
        traffic: None,
        memory: None,
        watts: None,
        cgroup: None,
        threads: Vec::new(),
        notes: Vec::new(),
    };
    Live {
        version: VERSION,
        program: "0.0.0".to_owned(),
        at: 1_000_000.0,
        report: Report {
            seconds: 1.0,
            host: Host {
                cpus: 4,
                busy: Some(1.0),
                interrupts: None,
                stolen: None,
                pressure: None,
                memory: None,
                memory_available: None,
                watts: None,
                energy: Provenance::Modelled,
                own: 0.0,
            },
            vicinity: None,
            vms: (1..).zip(vms).map(vm).collect(),
            pairs: Vec::new(),
            switches: None,
            cannot_read: Vec::new(),
        },
        problems: Vec::new(),
        networks: Vec::new(),
        ports: Vec::new(),
        remote_peers: Vec::new(),
        direct: Vec::new(),
        spaces: Vec::new(),
        messages: None,
    }
}

/// Returns this many problems, which began 90 s before `at`.
pub(crate) fn problems(count: usize, at: f64) -> Vec<Problem> {
    let problem = |number| Problem {
        kind: ProblemKind::ReceiverStuck,
        severity: Severity::Critical,
        vm: Some(format!("vm{number}")),
        network: Some("lan".to_owned()),
        since: at - 90.0,
        text: format!("vm{number} takes no frame"),
        remedy: Some(format!("vicinity port show lan vm{number}")),
    };
    (0..count).map(problem).collect()
}

/// Returns a port in this state.
pub(crate) fn port(vm: &str, state: State) -> PortStatus {
    serde_json::from_value(json!({
        "network": "lan", "vm": vm, "kind": Kind::Vm, "state": state, "mode": "server",
        "socket": "/run/lan/x.sock", "mac": null, "rules": switch::guard::Rules::default(), "residents": 1,
        "features": 0, "mtu": 0, "connections": 1, "quarantines": 0, "quarantine_left_ms": null, "reason": null,
        "counters": switch::control::Counters::default(),
    }))
    .unwrap()
}

fn network(up: bool, restarts: u64) -> NetworkStatus {
    serde_json::from_value(json!({
        "name": "lan", "up": up, "restarts": restarts, "reason": "it was killed", "uplink": null,
        "folder": "/run/lan", "accept": false, "gather_us": 0, "ports": 2, "attached": 2,
        "worker": switch::control::WorkerReport::default(),
    }))
    .unwrap()
}

pub(super) fn space(up: bool, waiting: u64) -> SpaceStatus {
    let figures = memory_plane::Figures {
        slots: 8,
        used: 8,
        waiting,
        ..memory_plane::Figures::default()
    };
    let status = SpaceStatus {
        vm: "web".to_owned(),
        up,
        restarts: 0,
        reason: None,
        listen: None,
        tls: false,
        rate: None,
        push: None,
        figures,
    };
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
}

/// A host whose figures a test changes, a second at a time.
struct Bed {
    live: Live,
    networks: Vec<NetworkStatus>,
    detector: Detector,
}

impl Bed {
    fn new() -> Self {
        Self {
            live: live(&[("web", 0.5)]),
            networks: vec![network(true, 3)],
            detector: Detector::default(),
        }
    }

    fn ports(&mut self, ports: &[PortStatus]) {
        self.live.ports = sampler::live_ports(ports, &[], 1.0);
    }

    /// Returns the problems after another second.
    fn second(&mut self) -> Vec<Problem> {
        self.live.at += 1.0;
        let live = &self.live;
        let problems = self.detector.problems(&Observed {
            at: live.at,
            report: &live.report,
            networks: &self.networks,
            ports: &live.ports,
            direct: &live.direct,
            spaces: &live.spaces,
            messages: live.messages.as_ref(),
        });
        for remedy in problems.iter().filter_map(|it| it.remedy.as_deref()) {
            assert_is_command(remedy);
        }
        problems
    }

    /// Returns the only problem after another second.
    fn only(&mut self, kind: ProblemKind) -> Problem {
        let problems = self.second();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].kind, kind);
        problems[0].clone()
    }

    /// Asserts that there is no problem until this many seconds have passed, and one then.
    fn appears_after(&mut self, seconds: u32, kind: ProblemKind) -> Problem {
        for second in 1..seconds {
            assert_eq!(self.second(), [], "after {second} s");
        }
        self.only(kind)
    }
}

/// Asserts that a remedy of this program is a command line that the program accepts.
fn assert_is_command(remedy: &str) {
    use clap::Parser;

    let words = shlex::split(remedy).unwrap();
    if words[0] == "vicinity" {
        let parsed = crate::cli::Cli::try_parse_from(&words);
        assert!(parsed.is_ok(), "{remedy}: {parsed:?}");
    }
}

#[test]
fn nothing_is_stuck_on_a_healthy_host() {
    let mut bed = Bed::new();
    bed.ports(&[port("web", State::Running), port("off", State::Waiting)]);
    bed.live.spaces = vec![space(true, 0)];
    for _ in 0..100 {
        assert_eq!(bed.second(), []);
    }
}

#[test]
fn a_receiver_is_stuck_when_frames_wait_for_a_second() {
    let mut bed = Bed::new();
    let stuck = |stuck_ms| PortStatus {
        stuck_ms,
        ..port("web", State::Running)
    };
    bed.ports(&[stuck(999)]);
    assert_eq!(bed.second(), []);
    bed.ports(&[stuck(4000)]);
    let problem = bed.only(ProblemKind::ReceiverStuck);
    assert_eq!(problem.since, bed.live.at - 4.0);
    assert_eq!(
        problem.remedy.as_deref(),
        Some("vicinity port show lan web")
    );
    bed.ports(&[stuck(5000)]);
    assert_eq!(bed.only(ProblemKind::ReceiverStuck).since, problem.since);
    bed.ports(&[stuck(0)]);
    assert_eq!(bed.second(), []);
    // A port without a running guest has no receiver.
    bed.ports(&[PortStatus {
        stuck_ms: 4000,
        ..port("web", State::Connected)
    }]);
    assert_eq!(bed.second(), []);
}

#[test]
fn quarantine_private_memory_and_a_failed_uplink_are_told_from_each_other() {
    let mut bed = Bed::new();
    let refused = |reason: &str| PortStatus {
        reason: Some(reason.to_owned()),
        ..port("web", State::Quarantined)
    };
    bed.ports(&[refused("bad ring.")]);
    assert!(
        bed.only(ProblemKind::Quarantined)
            .text
            .contains("bad ring.")
    );
    bed.ports(&[refused(
        "its ring is not in guest memory; start the VM with shared memory (QEMU: share=on)",
    )]);
    let problem = bed.only(ProblemKind::PrivateMemory);
    assert_eq!(
        problem.remedy.as_deref(),
        Some("vicinity qemu-args --network lan web")
    );
    bed.ports(&[PortStatus {
        kind: Kind::Uplink,
        ..port("vic0", State::Down)
    }]);
    let problem = bed.only(ProblemKind::PortDown);
    assert_eq!(problem.remedy.as_deref(), Some("ip link show vic0"));
}

#[test]
fn an_address_of_two_ports_is_told_for_each() {
    let mut bed = Bed::new();
    let duplicate = |vm: &str, other: &str| PortStatus {
        duplicates: vec![crate::status::Duplicate {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            vlan: 0,
            vm: other.to_owned(),
            moves: 7,
        }],
        ..port(vm, State::Running)
    };
    bed.ports(&[duplicate("web", "db"), duplicate("db", "web")]);
    let problems = bed.second();
    assert_eq!(problems.len(), 2);
    let vms: Vec<_> = problems.iter().map(|it| it.vm.as_deref()).collect();
    assert_eq!(vms, [Some("db"), Some("web")]);
    assert!(problems[0].text.contains("52:54:00:00:00:01"));
}

#[test]
fn waits_count_from_a_fifth_of_a_cpu_for_ten_seconds() {
    for (guest, kind) in [
        (true, ProblemKind::GuestWaits),
        (false, ProblemKind::BackendWaits),
    ] {
        let mut bed = Bed::new();
        let vm = &mut bed.live.report.vms[0];
        let set = if guest {
            &mut vm.guest
        } else {
            &mut vm.backend
        };
        set.wait = 0.2;
        let problem = bed.appears_after(10, kind);
        assert_eq!(problem.since, bed.live.at - 10.0);
        bed.live.report.vms[0].guest.wait = 0.19;
        bed.live.report.vms[0].backend.wait = 0.19;
        assert_eq!(bed.second(), []);
        // It begins anew.
        bed.live.report.vms[0].guest.wait = if guest { 0.5 } else { 0.0 };
        bed.live.report.vms[0].backend.wait = if guest { 0.0 } else { 0.5 };
        bed.appears_after(10, kind);
    }
}

#[test]
fn a_clock_that_jumps_changes_no_decision() {
    let mut bed = Bed::new();
    bed.live.report.vms[0].guest.wait = 0.5;
    for _ in 0..9 {
        assert_eq!(bed.second(), []);
        bed.live.at += 3600.0;
    }
    bed.only(ProblemKind::GuestWaits);
}

#[test]
fn a_cap_counts_from_a_twentieth_of_the_time_and_names_its_unit() {
    let mut bed = Bed::new();
    let capped = |throttled, path: &str| {
        Some(Group {
            path: path.to_owned(),
            version: 2,
            weight: Some(100),
            throttled: Some(throttled),
        })
    };
    bed.live.report.vms[0].cgroup = capped(0.04, "/machine.slice/web.scope");
    assert_eq!(bed.second(), []);
    bed.live.report.vms[0].cgroup = capped(0.05, "/machine.slice/web.scope");
    let remedy = bed.only(ProblemKind::Throttled).remedy.unwrap();
    let words = shlex::split(&remedy).unwrap();
    assert_eq!(
        words,
        [
            "systemctl",
            "set-property",
            "--runtime",
            "web.scope",
            "CPUQuota="
        ]
    );
    // A hostile path cannot put a command into the remedy.
    bed.live.report.vms[0].cgroup = capped(0.5, "/x; reboot.scope");
    let remedy = bed.only(ProblemKind::Throttled).remedy.unwrap();
    assert_eq!(shlex::split(&remedy).unwrap()[3], "x; reboot.scope");
}

#[test]
fn writes_to_a_space_count_from_a_second() {
    let mut bed = Bed::new();
    bed.live.report.seconds = 0.4;
    bed.live.spaces = vec![space(true, 1)];
    assert_eq!(bed.second(), []);
    assert_eq!(bed.second(), []);
    let problem = bed.only(ProblemKind::SpaceWaits);
    assert_eq!(
        problem.remedy.as_deref(),
        Some("vicinity space set web slots=16")
    );
    bed.live.spaces = vec![space(false, 0)];
    bed.only(ProblemKind::SpaceDown);
}

#[test]
fn a_member_that_left_its_group_is_named() {
    let mut bed = Bed::new();
    let group = |state: &str, reason: Option<&str>| {
        let group = json!({
            "name": "shop", "up": true, "restarts": 0, "reason": null,
            "members": [{"vm": "web", "state": state, "reason": reason}],
        });
        serde_json::from_value(group).unwrap()
    };
    for (state, reason) in [("joined", None), ("absent", None)] {
        bed.live.direct = vec![group(state, reason)];
        assert_eq!(bed.second(), [], "{state}");
    }
    for (state, reason) in [("out", None), ("absent", Some("no QMP"))] {
        bed.live.direct = vec![group(state, reason)];
        let problem = bed.only(ProblemKind::DirectLeft);
        assert_eq!(problem.remedy.as_deref(), Some("vicinity direct join web"));
    }
}

#[test]
fn a_restart_of_a_data_plane_is_shown_for_a_minute() {
    let mut bed = Bed::new();
    assert_eq!(
        bed.second(),
        [],
        "restarts before the first look are history"
    );
    bed.networks = vec![network(false, 3)];
    bed.only(ProblemKind::NetworkDown);
    bed.networks = vec![network(true, 4)];
    let first = bed.only(ProblemKind::DataPlaneRestarted);
    for _ in 1..60 {
        let problem = bed.only(ProblemKind::DataPlaneRestarted);
        assert_eq!(problem.since, first.since);
    }
    assert_eq!(bed.second(), []);
}

#[test]
fn the_worst_problem_is_first() {
    let mut bed = Bed::new();
    bed.live.spaces = vec![space(true, 1)];
    bed.ports(&[port("web", State::Quarantined)]);
    bed.networks = vec![network(false, 3)];
    let kinds: Vec<_> = bed.second().iter().map(|problem| problem.kind).collect();
    assert_eq!(
        kinds,
        [
            ProblemKind::NetworkDown,
            ProblemKind::Quarantined,
            ProblemKind::SpaceWaits
        ]
    );
}

#[test]
fn a_name_that_no_command_line_can_have_gets_no_remedy() {
    let mut bed = Bed::new();
    bed.ports(&[port("a\nreboot", State::Quarantined)]);
    let problem = bed.only(ProblemKind::Quarantined);
    assert_eq!(problem.remedy, None);
    assert!(!problem.text.contains('\n'), "{problem:?}");
}

#[test]
fn pairs_of_every_channel_are_told() {
    let sent = json!([{ "vm": "db", "frames": 3, "bytes": 4500 }]);
    let mut port = port("web", State::Running);
    port.sent_to = serde_json::from_value(sent.clone()).unwrap();
    let group = json!({
        "name": "shop", "up": true, "restarts": 0, "reason": null,
        "members": [{ "vm": "web", "state": "joined", "reason": null, "sent_to": sent }],
    });
    let plane = json!({
        "up": true, "restarts": 0, "reason": null, "gateway_restarts": null, "gateway_reason": null,
        "uplink_restarts": null, "uplink_reason": null, "uplink": null,
        "members": [{
            "name": "web", "group": null, "nic": "", "connected": true, "joined": true, "links": 1, "joins": 1,
            "linked": 1, "messages": 3, "bytes": 4500, "faults": 0, "sent_to": sent,
        }],
    });
    let state = ApiState {
        pid: Some(std::process::id()),
        ports: vec![port],
        direct: vec![serde_json::from_value(group).unwrap()],
        messages: serde_json::from_value(plane).unwrap(),
        ..ApiState::default()
    };
    let empty = ApiState {
        pid: state.pid,
        ..ApiState::default()
    };
    let mut sampler = Sampler::new(0.0, false);
    assert!(sampler.next(&empty).is_none());
    let pairs = sampler.next(&state).unwrap().report.pairs;
    let mut channels: Vec<_> = pairs
        .iter()
        .map(|pair| (pair.channel, pair.network.as_str()))
        .collect();
    channels.sort_unstable();
    let expected = [
        (Channel::Switch, "lan"),
        (Channel::Direct, "shop"),
        (Channel::Message, ""),
    ];
    assert_eq!(channels, expected);
}

#[test]
fn the_reason_of_a_wait_is_the_strongest_one() {
    let mut live = live(&[("web", 0.5), ("batch", 3.0)]);
    let of = |live: &Live| explain(&live.report.vms[0], &live.report);
    assert!(of(&live).contains("hardly waits"));
    live.report.vms[0].guest.wait = 0.4;
    assert!(of(&live).contains("host has free ones"), "{}", of(&live));
    live.report.host.busy = Some(3.9);
    let said = of(&live);
    assert!(
        said.contains("vCPUs of web wait for a CPU 40 %") && said.contains("batch uses the most"),
        "{said}"
    );
    live.report.vms[0].backend.wait = 0.6;
    assert!(of(&live).contains("back-end of web waits"));
    live.report.host.stolen = Some(0.5);
    assert!(of(&live).contains("hypervisor below"));
    live.report.vms[0].cgroup = Some(Group {
        path: "/a".to_owned(),
        version: 2,
        weight: None,
        throttled: Some(0.3),
    });
    assert!(of(&live).contains("held back 30 %"));
}
