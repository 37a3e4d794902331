//! Which guest may connect to which port of which other guest.
//!
//! Every guest may exchange connections with the host. A guest may connect to another one only if both
//! are in a common group and the other one offers the port. A permitted connection carries data in both
//! directions; the rules apply to who initiates it.
//!
//! Some ports belong to `vicinity-agent`, which carries TCP connections (docs/sockets-tcp.md): its own port, and one for
//! each TCP port of each address. A guest offers those TCP ports that its rules list.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The port of `vicinity-agent` in each guest, and of the directory at the host. Only root can bind it.
pub const AGENT_PORT: u32 = 1014;

/// The first byte of ports that stand for TCP ports. The second one is the number of an address.
const TCP_PREFIX: u32 = 0x56;

/// The largest TCP port.
pub const MAX_TCP_PORT: u32 = 0xffff;

/// Returns the TCP port for which a port stands, if it stands for one.
fn tcp_port(port: u32) -> Option<u32> {
    (port >> 24 == TCP_PREFIX).then_some(port & MAX_TCP_PORT)
}

/// The rules of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The groups that the guest is in, by name; without a group it talks to the host alone.
    pub groups: Vec<String>,
    /// The ports to which guests of its groups may connect; `None` is every port.
    pub ports: Option<Vec<RangeInclusive<u32>>>,
}

impl Rules {
    /// Returns whether a guest with these rules may connect to `port` of a guest with the rules `to`.
    #[must_use]
    pub fn may_connect(&self, to: &Self, port: u32) -> bool {
        let lists = |port| {
            let ports = to.ports.as_ref();
            ports.map(|all| all.iter().any(|ports| ports.contains(&port)))
        };
        let is_offered = match tcp_port(port) {
            // Without a list the guest has not said that its TCP servers may be reached so.
            Some(tcp) => lists(tcp) == Some(true),
            None if port == AGENT_PORT => to.ports.as_ref().is_none_or(|ports| !ports.is_empty()),
            None => lists(port) != Some(false),
        };
        self.shares_group(to) && is_offered
    }

    /// Returns whether guests with these rules have a common group.
    #[must_use]
    pub fn shares_group(&self, other: &Self) -> bool {
        self.groups.iter().any(|group| other.groups.contains(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(groups: &[&str], ports: Option<Vec<RangeInclusive<u32>>>) -> Rules {
        Rules {
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ports,
        }
    }

    #[test]
    fn guests_talk_in_a_common_group_and_to_offered_ports_only() {
        let alone = rules(&[], None);
        let client = rules(&["shop", "monitored"], Some(Vec::new()));
        let server = rules(&["shop"], Some(vec![22..=22, 5000..=5010]));
        for (from, to, port, allowed) in [
            (&alone, &alone, 22, false),
            (&alone, &server, 22, false),
            (&server, &alone, 22, false),
            (&client, &server, 22, true),
            (&client, &server, 23, false),
            (&client, &server, 5010, true),
            (&server, &client, 22, false),
            (&client, &rules(&["other"], None), 22, false),
            (&client, &rules(&["monitored"], None), u32::MAX, true),
            (&client, &server, AGENT_PORT, true),
            (&alone, &server, AGENT_PORT, false),
            (&server, &client, AGENT_PORT, false),
            (&client, &server, 0x5600_0016, true),
            (&client, &server, 0x56ff_0016, true),
            (&client, &server, 0x5600_0017, false),
            (&client, &rules(&["monitored"], None), 0x5600_0016, false),
            (&client, &server, 0x5700_0016, false),
        ] {
            assert_eq!(
                from.may_connect(to, port),
                allowed,
                "{from:?} {to:?} {port}"
            );
        }
    }
}
