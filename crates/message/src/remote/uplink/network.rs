//! The network of an uplink: frames of an interface ([`Port`]), and in programs datagrams of UDP ([`Datagrams`]).
//!
//! A program that serves its interface takes replies to its pulls in datagrams. A program without an interface takes all frames in datagrams.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mxoe::{Config, Datagrams, Filter, Node, Port};
use rustix::io::Errno;
use window::waiter::{Token, Waiter};

use super::wire_member::WireMember;

/// Turns between two looks for datagrams while no pull waits for any. A look is a system call, and only probes of the path can come beside an
/// interface.
const TURNS: u32 = 64;

/// Reads of the socket in a look, at most.
const READS: usize = 16;

/// Turns in which datagrams are expected after one has arrived. Such a turn that finds none looks once more before the program goes on, if it has one
/// partner's program: so a datagram waits less for its look. With more partners' programs, of which each has a socket, what else a turn does would wait too long.
const EXPECTING: u32 = 512;

#[derive(Debug)]
pub(super) struct Network {
    port: Option<Port>,
    datagrams: Option<Datagrams>,
    started: Instant,
    /// Turns since the last look for datagrams.
    turns: u32,
    /// How much the last look has found.
    found: Found,
    /// Further turns in which datagrams are expected.
    expecting: u32,
    has_one_partner: bool,
}

/// What a look for datagrams has found. Each read of the socket is a system call, also one that finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// After a look that had found nothing: it has read no more.
    One,
    /// More may have come since the look before.
    Many,
}

impl Network {
    pub(super) fn new(port: Option<Port>, datagrams: Option<Datagrams>) -> Self {
        Self {
            port,
            datagrams,
            started: Instant::now(),
            turns: TURNS,
            found: Found::Many,
            expecting: 0,
            has_one_partner: false,
        }
    }

    /// Returns the time for the calls of nodes.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn has_interface(&self) -> bool {
        self.port.is_some()
    }

    /// Enters what a node has to know.
    pub(super) fn configure(&self, config: &mut Config) {
        config.udp = self.datagrams.as_ref().map(Datagrams::address);
        config.only_datagrams = !self.has_interface();
        if config.only_datagrams {
            config.receive_buffer = self.datagrams.as_ref().map(Datagrams::receive_buffer);
        }
    }

    /// From now on, what arrives makes the waiter's descriptor readable.
    pub(super) fn begin_wakeups(&self, waiter: &Waiter, token: Token) -> Result<(), Errno> {
        if let Some(port) = &self.port {
            waiter.add(port, token)?;
        }
        let mut sockets = self.datagrams.iter().flat_map(Datagrams::sockets);
        sockets.try_for_each(|socket| waiter.add(socket, token))
    }

    /// Ends that.
    pub(super) fn end_wakeups(&mut self, waiter: &Waiter) {
        if let Some(port) = &self.port {
            waiter.remove(port);
        }
        for socket in self.datagrams.iter().flat_map(Datagrams::sockets) {
            waiter.remove(socket);
        }
        self.look_next_turn();
    }

    /// The next turn looks for datagrams: one has arrived, or may have.
    pub(super) fn look_next_turn(&mut self) {
        self.turns = TURNS;
        self.found = Found::Many;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.look_everywhere();
        }
    }

    /// Connects sockets to partners' programs, see [`Datagrams::connect_to`].
    pub(super) fn connect_to(&mut self, programs: &[SocketAddr]) {
        self.has_one_partner = programs.len() == 1;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.connect_to(programs);
        }
    }

    /// Returns whether the next turn may leave out its look for datagrams, because there is something to be sent: then the answer to a message that
    /// came alone is not sent one system call later.
    pub(super) fn may_skip_look(&self) -> bool {
        self.port.is_none() && self.found == Found::One
    }

    /// The turn leaves it out.
    pub(super) fn skip_look(&mut self) {
        self.found = Found::Nothing;
    }

    /// Passes each received frame to the nodes that it is for, if `accepts` returns true for it. Returns whether there was any.
    pub(super) fn receive(
        &mut self,
        now: Duration,
        wire_members: &mut BTreeMap<u64, WireMember>,
        mut accepts: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let port = self.port.as_mut();
        let frames = port.map_or(0, |port| {
            port.receive(|frame| {
                if !accepts(frame) {
                    return;
                }
                for wire_member in wire_members.values_mut() {
                    if wire_member.accepts_frame(frame) {
                        wire_member.node.receive(now, frame);
                    }
                }
            })
        });
        let some = self.receive_datagrams(now, wire_members);
        frames > 0 || some
    }

    fn receive_datagrams(
        &mut self,
        now: Duration,
        wire_members: &mut BTreeMap<u64, WireMember>,
    ) -> bool {
        let mut nodes = wire_members.values().map(|wire_member| &wire_member.node);
        self.turns = self.turns.saturating_add(1);
        if self.turns < TURNS && !nodes.any(Node::awaits_datagrams) {
            return false;
        }
        self.turns = 0;
        let expects = self.has_one_partner && self.expecting > 0;
        let found = self.look(now, wire_members) || expects && self.look(now, wire_members);
        self.expecting = match found {
            true => EXPECTING,
            false => self.expecting.saturating_sub(1),
        };
        found
    }

    /// Looks for datagrams. Returns whether there was any.
    fn look(&mut self, now: Duration, wire_members: &mut BTreeMap<u64, WireMember>) -> bool {
        let Some(datagrams) = &mut self.datagrams else {
            return false;
        };
        let most = match self.found {
            Found::Nothing if self.port.is_none() => 1,
            _ => READS,
        };
        let count = datagrams.receive(most, |from, frame| {
            for wire_member in wire_members.values_mut() {
                if wire_member.accepts_frame(frame) {
                    wire_member.node.receive_datagram(now, from, frame);
                }
            }
        });
        for program in datagrams.refused() {
            for wire_member in wire_members.values_mut() {
                wire_member.node.program_ended(now, program);
            }
        }
        self.found = match (count, self.found) {
            (0, _) => Found::Nothing,
            (_, Found::Nothing) => Found::One,
            _ => Found::Many,
        };
        count > 0
    }

    /// Sends all frames that the node has ready. Returns false if the network accepts no more for now.
    pub(super) fn send(&mut self, node: &mut Node) -> io::Result<bool> {
        let frames = match &mut self.port {
            Some(port) => port.send(node)?,
            None => true,
        };
        let datagrams = self.datagrams.as_mut();
        Ok(datagrams.is_none_or(|datagrams| datagrams.send(node)) && frames)
    }

    /// Checks whether the interface is still usable, see [`Port::check`].
    pub(super) fn check(&self) -> io::Result<()> {
        self.port.as_ref().map_or(Ok(()), Port::check)
    }

    /// Returns how many frames were lost since the last call, see [`Port::lost`].
    pub(super) fn lost(&self) -> io::Result<u32> {
        self.port.as_ref().map_or(Ok(0), Port::lost)
    }

    /// Receives only the frames that pass a filter, from now on.
    pub(super) fn filter(&self, filter: &Filter) -> io::Result<()> {
        let port = self.port.as_ref();
        port.map_or(Ok(()), |port| port.filter(filter))
    }
}
