//! Whether the host can wake the gateways of the message plane, on the host and inside a VM.
//!
//! A VM gets interrupts of its region only by the module `vicinity_wake`. Without the module its gateway polls: while the
//! VM is idle, 100 times a second.

use std::path::Path;

use window::pci;

use super::check::{Check, Purpose};
use crate::client;
use crate::status::MessageStatus;

const NAME: &str = "gateways";

/// What polling costs: `poll_backoff` of the crate `message`.
const COST: &str = "up to 100 wake-ups of the idle VM a second, up to 1 % of a processor after traffic, and up to \
                    10 ms until the VM sees the first message after a pause";

const REMEDY: &str = "install the package vicinity-guest in the VM, or build `guest/wake` there; then \
                      `modprobe vicinity_wake`, and join again";

/// Checks the members of the daemon of `runtime_dir`; none if the daemon serves no message plane.
pub(super) fn of_members(runtime_dir: &Path) -> Vec<Check> {
    match client::get::<Option<MessageStatus>>(runtime_dir, "/v1/messages") {
        Ok(Some(plane)) => members(&plane),
        // Another check says that no daemon answers.
        _ => Vec::new(),
    }
}

fn members(plane: &MessageStatus) -> Vec<Check> {
    let joined = plane.members.iter().filter(|member| member.joined);
    let polling = joined.filter(|member| member.polling);
    let checks: Vec<_> = polling
        .map(|member| {
            let found = format!(
                "{}'s gateway polls, without interrupts: {COST}",
                member.name
            );
            Check::warn(NAME, found, REMEDY)
        })
        .collect();
    match checks.is_empty() {
        true => vec![Check::ok(NAME, "the host can wake all that have joined")],
        false => checks,
    }
}

/// Checks the region's device of this VM; none on a machine without such a device.
pub(super) fn of_this_vm() -> Option<Check> {
    let has_driver = pci::has_driver()?;
    let check = match has_driver {
        true => Check::ok(NAME, "this VM's region has the driver vicinity_wake"),
        false => {
            let found = format!(
                "this VM's region has no driver vicinity_wake, so its gateway polls: {COST}; and where the processor \
                 obeys the guest (KVM on AMD), the region is uncached and messages are many times slower"
            );
            Check::warn(NAME, found, REMEDY)
        }
    };
    Some(check.needed_for(Purpose::Running))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check::Verdict;
    use super::*;

    fn plane(joined: bool, polling: bool) -> MessageStatus {
        let member = |name, joined, polling| {
            json!({
                "name": name, "group": null, "nic": "000000000001", "connected": true, "joined": joined,
                "polling": polling, "links": 0, "joins": 1, "linked": 0, "messages": 0, "bytes": 0, "faults": 0,
            })
        };
        serde_json::from_value(json!({
            "up": true, "restarts": 0, "reason": null, "gateway_restarts": null, "gateway_reason": null,
            "uplink_restarts": null, "uplink_reason": null, "uplink": null, "members": [member("db", true, false), member("web", joined, polling)],
        }))
        .unwrap()
    }

    #[test]
    fn a_gateway_that_polls_is_named_with_the_cost_and_the_remedy() {
        let checks = members(&plane(true, true));
        assert_eq!(checks.len(), 1, "{checks:?}");
        assert_eq!(checks[0].verdict, Verdict::Warn);
        assert!(checks[0].found.contains("web's") && checks[0].found.contains("100 wake-ups"));
        assert!(checks[0].remedy.as_ref().unwrap().contains("vicinity_wake"));
    }

    #[test]
    fn members_that_are_woken_or_absent_are_not_named() {
        for (joined, polling) in [(true, false), (false, true)] {
            let checks = members(&plane(joined, polling));
            assert_eq!((checks.len(), checks[0].verdict), (1, Verdict::Ok));
        }
    }
}
