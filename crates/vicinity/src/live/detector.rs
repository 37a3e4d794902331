//! Finds the problems: the one definition of what is wrong, for `top`, `doctor`, the page and the alerts.
//!
//! | kind | condition | holds for |
//! |---|---|---|
//! | network down, message plane down, space down | the process does not run | 0 s |
//! | private memory, quarantined, port down | the port's state | 0 s |
//! | receiver stuck | the guest has posted no buffer for a frame that waits | 1 s |
//! | duplicate address | the switch saw two ports use an address | 0 s |
//! | space waits | a write of the VM waits for slots | 1 s |
//! | direct left | a member left its group, or cannot join | 0 s |
//! | data plane restarted | within the last 60 s | 0 s |
//! | guest waits, back-end waits | threads wait for a CPU 20 % of the time or more | 10 s |
//! | throttled | a cap holds the control group back 5 % of the time or more | 0 s |
//!
//! Durations are sums of intervals, so a wall clock that jumps changes no decision. `since` is the wall clock at the
//! beginning of the condition.

use std::collections::HashMap;

use observe::report::Report;

use super::condition::{self, Condition, sentence};
use super::{LivePort, Problem, ProblemKind};
use crate::status::{GroupStatus, MessageStatus, NetworkStatus, SpaceStatus};

/// Seconds for which a restart of a data plane is shown.
const RESTART_SHOWN: f64 = 60.0;
/// The most conditions that a detector remembers: hostile recordings have many names.
const MAX_CONDITIONS: usize = 65_536;

/// The state in which problems are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    /// The end of the interval, in seconds since 1970.
    pub(crate) at: f64,
    /// What the host's CPUs did in the interval.
    pub(crate) report: &'a Report,
    /// The networks.
    pub(crate) networks: &'a [NetworkStatus],
    /// Their ports.
    pub(crate) ports: &'a [LivePort],
    /// The trust groups.
    pub(crate) direct: &'a [GroupStatus],
    /// The spaces.
    pub(crate) spaces: &'a [SpaceStatus],
    /// The message plane.
    pub(crate) messages: Option<&'a MessageStatus>,
}

/// A condition: its kind, network and VM.
type Key = (ProblemKind, String, String);

/// A condition that holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: f64,
    /// The sum of the intervals in which it held.
    seconds: f64,
}

/// Remembers since when each condition holds.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    held: HashMap<Key, Held>,
    /// Restarts of each network's data plane, and for how many more seconds the last one is shown.
    restarts: HashMap<String, (u64, f64, f64)>,
}

impl Detector {
    /// Returns the problems at the end of an interval, the worst first.
    pub(crate) fn problems(&mut self, observed: &Observed<'_>) -> Vec<Problem> {
        let mut conditions = condition::of_planes(observed.networks, observed.messages);
        conditions.extend(observed.ports.iter().filter_map(condition::of_port));
        conditions.extend(observed.ports.iter().flat_map(condition::duplicates));
        conditions.extend(observed.spaces.iter().filter_map(condition::of_space));
        conditions.extend(observed.direct.iter().flat_map(condition::of_group));
        conditions.extend(observed.report.vms.iter().flat_map(condition::of_vm));
        conditions.extend(self.restarted(observed));
        conditions.truncate(MAX_CONDITIONS);
        self.hold(conditions, observed)
    }

    /// Updates for how long each condition has held, and returns those that have held for long enough.
    fn hold(&mut self, conditions: Vec<Condition>, observed: &Observed<'_>) -> Vec<Problem> {
        let seconds = observed.report.seconds.max(0.0);
        let mut before = std::mem::take(&mut self.held);
        let mut problems = Vec::new();
        for condition in conditions {
            let name = |name: &Option<String>| name.clone().unwrap_or_default();
            let key = (
                condition.kind,
                name(&condition.network),
                name(&condition.vm),
            );
            let held = match before.remove(&key) {
                Some(held) => Held {
                    seconds: held.seconds + seconds,
                    ..held
                },
                None => {
                    let seconds = seconds.max(condition.already);
                    Held {
                        since: observed.at - seconds,
                        seconds,
                    }
                }
            };
            self.held.insert(key, held);
            if held.seconds >= condition.least {
                problems.push(Problem {
                    kind: condition.kind,
                    severity: condition.kind.severity(),
                    vm: condition.vm,
                    network: condition.network,
                    since: held.since,
                    text: condition.text,
                    remedy: condition.remedy,
                });
            }
        }
        problems.sort_by(|a, b| {
            let order = |problem: &Problem| (problem.severity, problem.kind);
            let names = |problem: &Problem| (problem.network.clone(), problem.vm.clone());
            (order(a).cmp(&order(b)))
                .then(a.since.total_cmp(&b.since))
                .then_with(|| names(a).cmp(&names(b)))
        });
        problems
    }

    /// Returns the networks whose data plane was started again in the last minute.
    fn restarted(&mut self, observed: &Observed<'_>) -> Vec<Condition> {
        let networks = observed.networks;
        self.restarts
            .retain(|name, _| networks.iter().any(|network| network.name == *name));
        let mut conditions = Vec::new();
        for network in networks {
            let known = self.restarts.entry(network.name.clone());
            let (restarts, left, elapsed) = known.or_insert((network.restarts, 0.0, 0.0));
            *elapsed += observed.report.seconds;
            *left -= observed.report.seconds;
            if network.restarts > *restarts {
                (*left, *elapsed) = (RESTART_SHOWN, 0.0);
            }
            *restarts = network.restarts;
            if *left > 0.0 && network.up {
                let reason = network
                    .reason
                    .as_deref()
                    .unwrap_or("the log has the reason");
                conditions.push(Condition {
                    already: *elapsed,
                    remedy: Some("journalctl -u vicinity --since -5min".to_owned()),
                    ..Condition::of_network(
                        ProblemKind::DataPlaneRestarted,
                        &network.name,
                        format!(
                            "The supervisor restarted the data plane of network {}: {}.",
                            network.name,
                            sentence(reason)
                        ),
                    )
                });
            }
        }
        conditions
    }
}
