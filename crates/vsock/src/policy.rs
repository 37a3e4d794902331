//! Which guest may connect to which port of which other guest.
//!
//! Every guest may exchange connections with the host. A guest may connect to another one only if both
//! are in a common group and the other one offers the port. A permitted connection carries data in both
//! directions; the rules apply to who initiates it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

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
        let common = |group: &String| to.groups.contains(group);
        let offered =
            |ports: &Vec<RangeInclusive<u32>>| ports.iter().any(|ports| ports.contains(&port));
        self.groups.iter().any(common) && to.ports.as_ref().is_none_or(offered)
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
        ] {
            assert_eq!(
                from.may_connect(to, port),
                allowed,
                "{from:?} {to:?} {port}"
            );
        }
    }
}
