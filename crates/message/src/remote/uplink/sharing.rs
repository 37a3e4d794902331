//! An uplink whose interface other processes serve, too ([`SharedInterface`]).

use std::net::SocketAddr;

use mxoe::{Address, Code};
use rustix::io::Errno;

use super::link::EndpointPair;
use super::{Uplink, WIRE};
use crate::error::Error;
use crate::remote::directory::NamedNic;
use crate::remote::shared_interface::{Answers, SharedInterface};

impl Uplink {
    /// The program that has the endpoints calls this uplink itself, and shares the interface, if it has one.
    pub(in crate::remote) fn stay_in_process(&mut self, sharing: Option<SharedInterface>) {
        self.in_process = true;
        self.sharing = sharing;
        self.end_wakeups();
    }

    /// From now on, each frame that arrives makes the uplink's descriptor readable. The kernel carries that out for each frame, through both levels
    /// of epoll, even if no thread sleeps.
    pub(in crate::remote) fn begin_wakeups(&self) -> Result<(), Errno> {
        self.network.begin_wakeups(&self.waiter, WIRE)
    }

    /// Ends that. Until it begins again, the uplink notices the end of the interface when it sends, which it does at the latest when it
    /// probes a silent partner.
    pub(in crate::remote) fn end_wakeups(&mut self) {
        self.network.end_wakeups(&self.waiter);
    }

    /// Returns whether the network has the first announcements of all members. If another process answers for the host, it has
    /// announced the host before; and without an interface, no host is announced.
    pub(in crate::remote) fn has_announced(&self) -> bool {
        let leaves_answers = |shared: &SharedInterface| !shared.answers();
        let is_silent =
            !self.network.has_interface() || self.sharing.as_ref().is_some_and(leaves_answers);
        let has = |named_nic: &NamedNic| {
            let wire_member = self.wire_members.get(&named_nic.nic);
            wire_member.is_some_and(|member| is_silent || member.node.counters().sent > 0)
        };
        self.sent && self.members.iter().all(has)
    }

    /// Takes an endpoint's number. Returns false if it is in use. Frames for the endpoint arrive from now on.
    pub(in crate::remote) fn claim(&mut self, endpoint: u8) -> Result<bool, Error> {
        let claimed = match &mut self.sharing {
            Some(shared) => shared.claim(endpoint)?,
            None => true,
        };
        self.update_filter()?;
        Ok(claimed)
    }

    /// Expects an endpoint of another host, whose program takes and sends frames at this address. Returns false if there is no room.
    pub(in crate::remote) fn add_partner(
        &mut self,
        endpoint: u8,
        partner: Address,
        program: SocketAddr,
    ) -> bool {
        let now = self.network.now();
        let Some(member) = self.wire_members.values_mut().next() else {
            return false;
        };
        let node = &mut member.node;
        let has_room = node.add_partner(now, endpoint, partner, program);
        self.network.connect_to(&node.partner_programs(now));
        has_room
    }

    /// Gives the number of an endpoint back that the program has closed, as soon as its connections have ended.
    pub(in crate::remote) fn release(&mut self, endpoint: u8) -> Result<(), Error> {
        if let Some(shared) = &mut self.sharing {
            shared.close(endpoint);
        }
        self.release_closed()
    }

    /// Gives the numbers of closed endpoints back whose connections have ended, and replaces the socket's filter if it is old.
    pub(super) fn release_closed(&mut self) -> Result<(), Error> {
        let closed = self.sharing.as_ref().map(SharedInterface::closed);
        // The usual case, in each turn.
        let Some(closed) = closed.filter(|closed| !closed.is_empty()) else {
            return self.update_filter();
        };
        for endpoint in closed.iter() {
            if self.has_links(endpoint) {
                continue;
            }
            for wire_member in self.wire_members.values_mut() {
                wire_member.node.close(endpoint);
            }
            if let Some(shared) = &mut self.sharing {
                shared.release(endpoint);
            }
        }
        self.update_filter()
    }

    /// Looks after other processes that may have ended. Called again and again.
    pub(in crate::remote) fn look_after_others(&mut self) -> Result<(), Error> {
        let now = self.network.now();
        // The program may compute, and make few turns.
        self.network.look_next_turn();
        if let Some(shared) = &mut self.sharing {
            let change = shared.update_answers();
            for wire_member in self.wire_members.values_mut() {
                match change {
                    // Hosts that have asked meanwhile did not get an answer.
                    Some(Answers::Begin) => wire_member.node.announce(now),
                    Some(Answers::End) => wire_member.node.stop_answering(),
                    None => {}
                }
            }
            shared.look_at_others();
        }
        let held = self.sharing.as_ref().map(SharedInterface::held);
        for endpoint in held.unwrap_or_default().iter() {
            self.release_held(endpoint);
        }
        self.update_filter()
    }

    /// Takes the number of an endpoint for a connection of a program that uses this daemon. Returns false if another program has it.
    pub(super) fn hold(&mut self, nic: u64, endpoint: u8) -> bool {
        let shared = self.sharing.as_mut().filter(|shared| shared.nic() == nic);
        shared.is_none_or(|shared| shared.hold(endpoint))
    }

    /// Gives a [held](Self::hold) number back, and closes the endpoint in the node, unless any connection is left.
    pub(super) fn release_held(&mut self, endpoint: u8) {
        let shared = self.sharing.as_ref();
        let Some(nic) = shared
            .filter(|shared| shared.held().contains(endpoint))
            .map(SharedInterface::nic)
        else {
            return;
        };
        if self.has_links(endpoint) {
            return;
        }
        if let Some(node) = self.node(nic) {
            node.close(endpoint);
        }
        if let Some(shared) = &mut self.sharing {
            shared.release(endpoint);
        }
    }

    fn update_filter(&mut self) -> Result<(), Error> {
        let changed = self
            .sharing
            .as_mut()
            .and_then(|shared| shared.changed_filter());
        Ok(changed.map_or(Ok(()), |filter| self.network.filter(&filter))?)
    }

    /// Returns whether any link, connect or connection of an endpoint at the interface's own address is left.
    fn has_links(&self, endpoint: u8) -> bool {
        let nic = self.sharing.as_ref().map(SharedInterface::nic);
        let is_own = |pair: &EndpointPair| (Some(pair.nic), pair.endpoint) == (nic, endpoint);
        let mut waiting = self.waiting.iter().map(|dial| dial.hello.from);
        self.links.values().any(|state| is_own(&state.pair()))
            || self.closing.iter().any(is_own)
            || waiting.any(|from| (Some(from.nic), from.endpoint) == (nic, endpoint.into()))
    }

    /// Returns whether an endpoint is not one of this program, which shares the interface with other programs.
    pub(super) fn is_foreign(&self, endpoint: u8) -> bool {
        let shared = self.sharing.as_ref();
        shared.is_some_and(|shared| shared.is_foreign(endpoint))
    }

    /// Refuses a connect to an endpoint that no process has.
    pub(super) fn refuse_closed(&mut self, nic: u64, endpoint: u8, from: Address) {
        let now = self.network.now();
        if let Some(node) = self.node(nic) {
            node.refuse(now, endpoint, from, Some(Code::Closed));
        }
    }
}
