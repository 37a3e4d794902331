//! The conditions of the [detector](super::detector): what is wrong in one interval, in a sentence, with the command that
//! helps.

use observe::report::Vm;

use super::names::{printable, shell_word};
use super::{LivePort, ProblemKind};
use crate::status::{GroupStatus, Kind, MessageStatus, NetworkStatus, SpaceStatus, State};

/// Milliseconds after which a receiver that takes no frames is stuck.
const STUCK_MS: u64 = 1000;
/// Seconds for which writes to a space wait.
const SPACE_WAIT: f64 = 1.0;
/// Part of a CPU that a set of threads waits for, and for how many seconds.
const WAIT: f64 = 0.2;
const WAIT_FOR: f64 = 10.0;
/// Part of the time in which a cap holds a control group back.
const THROTTLED: f64 = 0.05;

/// A condition that holds in this interval.
pub(super) struct Condition {
    pub(super) kind: ProblemKind,
    pub(super) network: Option<String>,
    pub(super) vm: Option<String>,
    /// Seconds for which it must hold.
    pub(super) least: f64,
    /// Seconds for which it holds already, if the source says so.
    pub(super) already: f64,
    pub(super) text: String,
    pub(super) remedy: Option<String>,
}

impl Condition {
    fn new(kind: ProblemKind, text: String) -> Self {
        Self {
            kind,
            network: None,
            vm: None,
            least: 0.0,
            already: 0.0,
            text,
            remedy: None,
        }
    }

    pub(super) fn of_network(kind: ProblemKind, network: &str, text: String) -> Self {
        Self {
            network: Some(network.to_owned()),
            ..Self::new(kind, text)
        }
    }

    fn of_port(kind: ProblemKind, port: &LivePort, text: String) -> Self {
        Self {
            vm: Some(port.vm.clone()),
            ..Self::of_network(kind, &port.network, text)
        }
    }

    fn of_vm(kind: ProblemKind, vm: &str, text: String) -> Self {
        Self {
            vm: Some(vm.to_owned()),
            ..Self::new(kind, text)
        }
    }
}

/// Finds the networks, and the message plane, whose process does not run.
pub(super) fn of_planes(
    networks: &[NetworkStatus],
    messages: Option<&MessageStatus>,
) -> Vec<Condition> {
    let log = || Some("journalctl -u vicinity -n 50".to_owned());
    let down = networks.iter().filter(|network| !network.up);
    let mut conditions: Vec<_> = down
        .map(|network| {
            let reason = network
                .reason
                .as_deref()
                .unwrap_or("the log has the reason");
            let text = format!(
                "The data plane of network {} does not run: {}.",
                network.name,
                sentence(reason)
            );
            Condition {
                remedy: log(),
                ..Condition::of_network(ProblemKind::NetworkDown, &network.name, text)
            }
        })
        .collect();
    if let Some(plane) = messages.filter(|plane| !plane.up) {
        let reason = plane.reason.as_deref().unwrap_or("the log has the reason");
        let text = format!("The message plane does not run: {}.", sentence(reason));
        conditions.push(Condition {
            remedy: log(),
            ..Condition::new(ProblemKind::MessagePlaneDown, text)
        });
    }
    conditions
}

/// Finds what a port's state says: a VM that is refused, or that takes no frames.
pub(super) fn of_port(port: &LivePort) -> Option<Condition> {
    let reason = sentence(port.reason.as_deref().unwrap_or("the log has the reason"));
    let vm = printable(&port.vm);
    let (kind, text) = match port.state {
        State::Quarantined if reason.contains("share=on") => (
            ProblemKind::PrivateMemory,
            format!(
                "The memory of {vm} is private to its QEMU, so the switch cannot forward its frames: {reason}. Start \
                 the VM with the options that this command prints."
            ),
        ),
        State::Quarantined => (
            ProblemKind::Quarantined,
            format!("The supervisor refuses {vm} for a while: {reason}."),
        ),
        State::Down if port.kind == Kind::Uplink => (
            ProblemKind::PortDown,
            format!("The uplink {vm} does not work: {reason}."),
        ),
        State::Running | State::Migrating if port.stuck_ms >= STUCK_MS => (
            ProblemKind::ReceiverStuck,
            format!(
                "{vm} has taken no frame for {}, although frames wait for it: its guest's driver has stopped, or its \
                 vCPUs do not run. See the port's counters, then the guest's console.",
                duration(port.stuck_ms)
            ),
        ),
        _ => return None,
    };
    let remedy = match kind {
        ProblemKind::PrivateMemory => qemu_args(port),
        ProblemKind::PortDown => words(&["ip", "link", "show", &port.vm]),
        _ => words(&["vicinity", "port", "show", &port.network, &port.vm]),
    };
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of a fault")]
    let already = match kind {
        ProblemKind::ReceiverStuck => port.stuck_ms as f64 / 1e3,
        _ => 0.0,
    };
    Some(Condition {
        remedy,
        already,
        ..Condition::of_port(kind, port, text)
    })
}

fn qemu_args(port: &LivePort) -> Option<String> {
    words(&[
        "vicinity",
        "qemu-args",
        "--network",
        &port.network,
        &port.vm,
    ])
}

/// Finds an address that this port and another one use.
pub(super) fn duplicates(port: &LivePort) -> Option<Condition> {
    let first = port.duplicates.first()?;
    let text = format!(
        "{} and {} both use the address {}: each loses the other's frames. Give this VM the address that the command \
         prints.",
        printable(&port.vm),
        printable(&first.vm),
        first.mac
    );
    Some(Condition {
        remedy: qemu_args(port),
        ..Condition::of_port(ProblemKind::DuplicateAddress, port, text)
    })
}

/// Finds a space that does not run, or whose writes wait.
pub(super) fn of_space(space: &SpaceStatus) -> Option<Condition> {
    let vm = &space.vm;
    if !space.up {
        let reason = space.reason.as_deref().unwrap_or("the log has the reason");
        let text = format!("The space of {vm} does not run: {}.", sentence(reason));
        return Some(Condition {
            remedy: Some("journalctl -u vicinity -n 50".to_owned()),
            ..Condition::of_vm(ProblemKind::SpaceDown, vm, text)
        });
    }
    let figures = &space.figures;
    if figures.waiting == 0 {
        return None;
    }
    let text = format!(
        "Writes of {vm} wait for slots of its space: {} of {} slots are in use.",
        figures.used, figures.slots
    );
    let more = format!("slots={}", u64::from(figures.slots) * 2);
    Some(Condition {
        least: SPACE_WAIT,
        remedy: words(&["vicinity", "space", "set", vm, &more]),
        ..Condition::of_vm(ProblemKind::SpaceWaits, vm, text)
    })
}

/// Finds members that left a trust group, or cannot join it.
pub(super) fn of_group(group: &GroupStatus) -> Vec<Condition> {
    let left = group.members.iter().filter(|member| {
        let refused = member.state == "absent" && member.reason.is_some();
        matches!(member.state.as_str(), "out" | "leaving") || refused
    });
    left.map(|member| {
        let vm = &member.vm;
        let mut text = format!(
            "{vm} does not share memory with group {}: its traffic takes the switch",
            group.name
        );
        match &member.reason {
            Some(reason) => text += &format!(". {}.", sentence(reason)),
            None => text.push('.'),
        }
        Condition {
            remedy: words(&["vicinity", "direct", "join", vm]),
            ..Condition::of_vm(ProblemKind::DirectLeft, vm, text)
        }
    })
    .collect()
}

/// Finds the waits of a VM for the host's CPUs.
pub(super) fn of_vm(vm: &Vm) -> Vec<Condition> {
    let name = printable(&vm.name);
    let unit = vm.cgroup.as_ref().and_then(|group| {
        let last = group.path.rsplit('/').next()?;
        let is_unit = last.ends_with(".scope") || last.ends_with(".service");
        is_unit.then(|| last.to_owned())
    });
    let set = |unit: Option<&str>, property: &str| {
        unit.and_then(|unit| words(&["systemctl", "set-property", "--runtime", unit, property]))
    };
    let top = || words(&["vicinity", "top", "--once"]);
    let mut conditions = Vec::new();
    if vm.guest.wait >= WAIT {
        let text = format!(
            "The vCPUs of {name} wait for a CPU {:.0} % of the time. A greater weight gives them more of the CPUs.",
            vm.guest.wait * 100.0
        );
        conditions.push(Condition {
            least: WAIT_FOR,
            remedy: set(unit.as_deref(), "CPUWeight=200").or_else(top),
            ..Condition::of_vm(ProblemKind::GuestWaits, &vm.name, text)
        });
    }
    if vm.backend.wait >= WAIT {
        let text = format!(
            "The back-end of {name} waits for a CPU {:.0} % of the time: its frames are late. A greater weight of the \
             daemon gives it more of the CPUs.",
            vm.backend.wait * 100.0
        );
        conditions.push(Condition {
            least: WAIT_FOR,
            remedy: set(Some("vicinity.service"), "CPUWeight=500"),
            ..Condition::of_vm(ProblemKind::BackendWaits, &vm.name, text)
        });
    }
    let throttled = vm.cgroup.as_ref().and_then(|group| group.throttled);
    if let Some(part) = throttled.filter(|part| *part >= THROTTLED) {
        let text = format!(
            "A cap on the control group of {name} holds it back {:.0} % of the time.",
            part * 100.0
        );
        conditions.push(Condition {
            remedy: set(unit.as_deref(), "CPUQuota=").or_else(top),
            ..Condition::of_vm(ProblemKind::Throttled, &vm.name, text)
        });
    }
    conditions
}

/// Returns a command line of these words, or `None` if one of them cannot be in one.
fn words(words: &[&str]) -> Option<String> {
    let words: Option<Vec<_>> = words.iter().map(|word| shell_word(word)).collect();
    words.map(|words| words.join(" "))
}

/// Returns a reason without the full stop at its end.
pub(super) fn sentence(reason: &str) -> String {
    printable(reason).trim_end_matches('.').to_owned()
}

fn duration(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}
