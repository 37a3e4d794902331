//! Replies to pulls that travel in datagrams ([`Datagrams`]), between programs that serve their interfaces.

use std::collections::BTreeMap;
use std::time::Duration;

use mxoe::{Datagrams, Node};

use super::wire_member::WireMember;

/// Turns between two looks for datagrams while no pull waits for any. A look is a system call, and only probes of the path can come.
const TURNS: u32 = 64;

/// The socket of a program.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    pub(super) datagrams: Datagrams,
    /// Turns since the last look.
    turns: u32,
}

impl DatagramSocket {
    pub(super) fn new(datagrams: Datagrams) -> Self {
        Self {
            datagrams,
            turns: TURNS,
        }
    }

    /// The next turn looks for datagrams: one has arrived, or may have.
    pub(super) fn look_next_turn(&mut self) {
        self.turns = TURNS;
    }

    /// Passes each frame that arrived in a datagram to the member that it is for; returns their number.
    pub(super) fn receive(
        &mut self,
        now: Duration,
        wire_members: &mut BTreeMap<u64, WireMember>,
    ) -> usize {
        let mut nodes = wire_members.values().map(|wire_member| &wire_member.node);
        self.turns = self.turns.saturating_add(1);
        if self.turns < TURNS && !nodes.any(Node::awaits_datagrams) {
            return 0;
        }
        self.turns = 0;
        self.datagrams.receive(|from, frame| {
            for wire_member in wire_members.values_mut() {
                if wire_member.accepts_frame(frame) {
                    wire_member.node.receive_datagram(now, from, frame);
                }
            }
        })
    }
}
