//! Reads counters from `vicinity port list --json`.

use serde_json::Value;

use crate::common::{Daemon, vicinity};

/// A port's counters at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Counters(Value);

impl Counters {
    /// Reads the counters of several ports from one answer. The data plane reports between two
    /// bursts, so a frame that its sender's counters include is also in those of its receiver.
    pub(crate) fn of<const N: usize>(daemon: &Daemon, vms: [&str; N]) -> [Self; N] {
        let mut command = vicinity();
        command.args(["port", "list", "--json", "--runtime-dir"]);
        let output = command.arg(daemon.path("")).output().unwrap();
        let ports: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        vms.map(|vm| {
            let port = ports.iter().find(|port| port["vm"] == vm);
            Self(port.unwrap()["counters"].clone())
        })
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("{name}"))
    }

    fn drops(&self, names: &[&str]) -> u64 {
        let one = |name: &&str| self.0["drops"][*name].as_u64().unwrap();
        names.iter().map(one).sum()
    }

    /// Returns the number of lost frames that this port sent.
    fn lost_by_sender(&self) -> u64 {
        self.drops(&[
            "receiver_stuck",
            "receiver_down",
            "sender_gone",
            "bad_length",
            "hairpin",
            "untranslatable",
            "uplink",
            "broadcast_limit",
            "multicast_limit",
            "unknown_limit",
        ])
    }

    /// Returns the number of lost frames that were addressed to this port.
    pub(crate) fn lost_by_receiver(&self) -> u64 {
        self.drops(&["receiver_full", "receiver_small", "receive_limit"])
    }

    /// Returns the number of frames lost for any reason.
    pub(crate) fn lost(&self) -> u64 {
        let drops = self.0["drops"].as_object().unwrap();
        drops.values().filter_map(Value::as_u64).sum()
    }

    /// Returns how much a counter has grown since `before`.
    pub(crate) fn grown(&self, before: &Self, name: &str) -> u64 {
        self.get(name) - before.get(name)
    }
}

/// Asserts, on a network of two ports that forward frames unchanged, that every frame that one port
/// has sent since `before` was received by the other port, or is counted as lost.
pub(crate) fn assert_nothing_vanished(before: &[Counters; 2], after: &[Counters; 2]) {
    for [sender, receiver] in [[0, 1], [1, 0]] {
        let sent = after[sender].grown(&before[sender], "tx_frames");
        let received = after[receiver].grown(&before[receiver], "rx_frames");
        // Messages of guests to multicast routers, on a network without any.
        let unheard = after[sender].grown(&before[sender], "unheard");
        let lost = after[sender].lost_by_sender() - before[sender].lost_by_sender()
            + after[receiver].lost_by_receiver()
            - before[receiver].lost_by_receiver();
        assert!(sent > 0, "nothing was sent");
        assert_eq!(sent, received + unheard + lost, "{before:?}\n{after:?}");
    }
}
