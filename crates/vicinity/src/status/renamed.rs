//! The new names of fields in the control API. For one release, an answer has each of these fields under both names.
//!
//! The structures of other crates serialize these fields under the old names, so this module adds the new names.

use memory_plane::Figures;
use serde::{Serialize, Serializer};
use space::estimator::Window;
use switch::control::{Counters, WorkerReport};

/// Serializes a port's counters.
pub(super) fn counters<S: Serializer>(counters: &Counters, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        #[serde(flatten)]
        counters: &'a Counters,
        backpressured: u64,
        multicast_without_members: u64,
    }
    let named = Named {
        counters,
        backpressured: counters.backpressured,
        multicast_without_members: counters.multicast_without_members,
    };
    named.serialize(to)
}

/// Serializes the figures of a network's workers.
pub(super) fn worker<S: Serializer>(worker: &WorkerReport, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        #[serde(flatten)]
        worker: &'a WorkerReport,
        fdb_entries: u32,
    }
    let named = Named {
        worker,
        fdb_entries: worker.fdb_entries,
    };
    named.serialize(to)
}

/// Serializes the figures of a space.
pub(super) fn figures<S: Serializer>(figures: &Figures, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        #[serde(flatten)]
        figures: &'a Figures,
        invalid_requests: u64,
        refused_clients: u64,
        push_error: Option<&'a str>,
    }
    let named = Named {
        figures,
        invalid_requests: figures.invalid_requests,
        refused_clients: figures.refused_clients,
        push_error: figures.push_error.as_deref(),
    };
    named.serialize(to)
}

/// Serializes the measurements of a space.
pub(super) fn window<S: Serializer>(window: &Window, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        #[serde(flatten)]
        window: &'a Window,
        retained: u32,
    }
    let named = Named {
        window,
        retained: window.retained,
    };
    named.serialize(to)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use switch::guard::Rules;

    use super::super::*;

    /// Asserts that a value has each pair of an old and a new name with the same value.
    fn has_both(value: &impl Serialize, pairs: &[(&str, &str, Value)]) {
        let value = serde_json::to_value(value).unwrap();
        for (old, new, expected) in pairs {
            for name in [old, new] {
                assert_eq!(value.pointer(name), Some(expected), "{name} in {value}");
            }
        }
    }

    fn port() -> PortStatus {
        let counters = Counters {
            backpressured: 7,
            multicast_without_members: 8,
            ..Counters::default()
        };
        serde_json::from_value(json!({
            "network": "lan", "vm": "web", "kind": "vm", "state": "running", "mode": "server",
            "socket": null, "mac": null, "rules": Rules::default(), "residents": 3, "fdb_entries": 3,
            "features": 0, "mtu": 0, "connections": 1, "quarantines": 0, "quarantine_left_ms": null,
            "reason": null, "counters": counters,
        }))
        .unwrap()
    }

    #[test]
    fn every_renamed_field_has_both_names() {
        has_both(
            &port(),
            &[
                ("/residents", "/fdb_entries", json!(3)),
                ("/counters/held", "/counters/backpressured", json!(7)),
                (
                    "/counters/unheard",
                    "/counters/multicast_without_members",
                    json!(8),
                ),
            ],
        );
        let network: NetworkStatus = serde_json::from_value(json!({
            "name": "lan", "up": true, "restarts": 0, "reason": null, "uplink": null,
            "folder": "/run/lan", "accept": false, "gather_us": 5, "moderation_us": 5, "look_ups": 6,
            "fdb_lookups": 6, "ports": 2, "attached": 2,
            "worker": WorkerReport { fdb_entries: 9, ..WorkerReport::default() },
        }))
        .unwrap();
        has_both(
            &network,
            &[
                ("/gather_us", "/moderation_us", json!(5)),
                ("/look_ups", "/fdb_lookups", json!(6)),
                ("/worker/residents", "/worker/fdb_entries", json!(9)),
            ],
        );
        let space = SpaceStatus {
            vm: "db".to_owned(),
            up: true,
            restarts: 0,
            reason: None,
            listen: None,
            tls: false,
            rate: None,
            push: None,
            figures: memory_plane::Figures {
                invalid_requests: 1,
                refused_clients: 2,
                push_error: Some("no route".to_owned()),
                ..memory_plane::Figures::default()
            },
        };
        has_both(
            &space,
            &[
                ("/nonsense", "/invalid_requests", json!(1)),
                ("/turned_away", "/refused_clients", json!(2)),
                ("/push_trouble", "/push_error", json!("no route")),
                ("/used", "/used", json!(0)),
            ],
        );
        let controlled = ControlledStatus {
            vm: "db".to_owned(),
            slots: 8,
            reason: None,
            bottleneck: None,
            predicted: None,
            window: ::space::estimator::Window {
                retained: 4,
                ..::space::estimator::Window::default()
            },
        };
        has_both(
            &controlled,
            &[("/window/held", "/window/retained", json!(4))],
        );
    }

    #[test]
    fn the_message_planes_renamed_fields_have_both_names() {
        let wire = mxoe::Counters {
            asked_again: 5,
            ..mxoe::Counters::default()
        };
        let uplink = UplinkStatus::from(uplink::Counters { wire, lost: 0 });
        has_both(&uplink, &[("/asked_again", "/repeated_pulls", json!(5))]);
        let member = MemberStatus {
            name: "web".to_owned(),
            group: None,
            nic: String::new(),
            connected: true,
            joined: true,
            polling: false,
            silent: false,
            links: 1,
            joins: 1,
            linked: 6,
            links_total: 6,
            messages: 0,
            bytes: 0,
            faults: 2,
            protocol_errors: 2,
            sent_to: Vec::new(),
        };
        has_both(
            &member,
            &[
                ("/linked", "/links_total", json!(6)),
                ("/faults", "/protocol_errors", json!(2)),
            ],
        );
    }

    #[test]
    fn an_answer_with_both_names_is_read() {
        let text = serde_json::to_string(&port()).unwrap();
        let read: PortStatus = serde_json::from_str(&text).unwrap();
        assert_eq!((read.residents, read.counters.backpressured), (3, 7));
    }
}
