//! Pairs of VMs on the direct channel and on the message plane, and of VMs and remote peers, in Prometheus' text format.
//!
//! The number of series is bounded: a group has 16 members, a member of the message plane has
//! [`MAX_PEERS`](message::remote::MAX_PEERS), and a network has
//! [`MAX_REPORTED_REMOTE_PEERS`](switch::limits::MAX_REPORTED_REMOTE_PEERS).

use observe::prometheus::{Labels, Text};

use crate::serve::network::message::Answer;
use crate::status::{GroupStatus, MessageStatus, RemotePeerStatus, SentTo};

/// Names and help texts of a channel's two series.
type Names = [(&'static str, &'static str); 2];

const DIRECT: Names = [
    (
        "vicinity_direct_pair_packets_total",
        "Packets from one VM of a trust group to another through shared memory, as the sender's guest counts them",
    ),
    (
        "vicinity_direct_pair_bytes_total",
        "Bytes from one VM of a trust group to another through shared memory, as the sender's guest counts them",
    ),
];

const MESSAGE: Names = [
    (
        "vicinity_message_pair_messages_total",
        "Messages that the relay copied from one member to another, for the 16 receivers with the most bytes",
    ),
    (
        "vicinity_message_pair_bytes_total",
        "Bytes that the relay copied from one member to another, for the 16 receivers with the most bytes",
    ),
];

/// Names and help texts of the series of remote peers, and the functions that read sent and received.
type RemoteSeries = (
    &'static str,
    &'static str,
    [fn(&RemotePeerStatus) -> u64; 2],
);

const REMOTE: [RemoteSeries; 2] = [
    (
        "vicinity_remote_peer_frames_total",
        "Frames between a port and a MAC address behind the uplink, for the addresses with the most bytes: 64 of each port \
         and 1024 of each network",
        [|peer| peer.sent_frames, |peer| peer.received_frames],
    ),
    (
        "vicinity_remote_peer_bytes_total",
        "Bytes between a port and a MAC address behind the uplink, for the addresses with the most bytes: 64 of each port \
         and 1024 of each network",
        [|peer| peer.sent_bytes, |peer| peer.received_bytes],
    ),
];

/// Returns the text.
pub(super) fn text(
    networks: &[Answer],
    groups: &[GroupStatus],
    messages: Option<&MessageStatus>,
) -> String {
    let mut text = Text::default();
    remote(&mut text, networks);
    let groups = groups.iter().flat_map(|group| {
        let members = group.members.iter();
        members.flat_map(|member| {
            let labels = |to: &SentTo| {
                Labels::new(&[("group", &group.name), ("from", &member.vm), ("to", &to.vm)])
            };
            member.sent_to.iter().map(move |to| (labels(to), to))
        })
    });
    pairs(&mut text, &DIRECT, &groups.collect::<Vec<_>>());
    let members = messages.iter().flat_map(|plane| &plane.members);
    let members = members.flat_map(|member| {
        let labels = |to: &SentTo| Labels::new(&[("from", &member.name), ("to", &to.vm)]);
        member.sent_to.iter().map(move |to| (labels(to), to))
    });
    pairs(&mut text, &MESSAGE, &members.collect::<Vec<_>>());
    text.finish()
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus' values are floats")]
fn remote(text: &mut Text, networks: &[Answer]) {
    let ports = networks.iter().flat_map(|answer| &answer.ports);
    let peers = ports.flat_map(|port| port.remote_peers.iter().map(move |peer| (port, peer)));
    let peers: Vec<_> = peers
        .map(|(port, peer)| {
            let (mac, vlan) = (peer.mac.to_string(), peer.vlan.to_string());
            let labels = Labels::new(&[
                ("network", &port.network),
                ("vm", &port.vm),
                ("peer", &mac),
                ("vlan", &vlan),
            ]);
            (labels, peer)
        })
        .collect();
    for (name, help, [sent, received]) in REMOTE {
        text.head(name, "counter", help);
        for (labels, peer) in &peers {
            text.line_with(name, labels, ("direction", "sent"), sent(peer) as f64);
            let figure = received(peer) as f64;
            text.line_with(name, labels, ("direction", "received"), figure);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus' values are floats")]
fn pairs(text: &mut Text, names: &Names, all: &[(Labels, &SentTo)]) {
    let [(frames, help), (bytes, bytes_help)] = *names;
    text.head(frames, "counter", help);
    for (labels, to) in all {
        text.line(frames, labels, to.frames as f64);
    }
    text.head(bytes, "counter", bytes_help);
    for (labels, to) in all {
        text.line(bytes, labels, to.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pairs_of_both_channels_have_their_labels() {
        let sent = json!([{ "vm": "db", "frames": 3, "bytes": 4500 }]);
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
        let group: GroupStatus = serde_json::from_value(group).unwrap();
        let plane: MessageStatus = serde_json::from_value(plane).unwrap();
        let text = text(&[], &[group], Some(&plane));
        for line in [
            "vicinity_direct_pair_packets_total{group=\"shop\",from=\"web\",to=\"db\"} 3",
            "vicinity_direct_pair_bytes_total{group=\"shop\",from=\"web\",to=\"db\"} 4500",
            "vicinity_message_pair_messages_total{from=\"web\",to=\"db\"} 3",
            "vicinity_message_pair_bytes_total{from=\"web\",to=\"db\"} 4500",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
