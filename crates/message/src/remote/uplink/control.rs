//! Control messages of the host, and the links that they begin and end.

use mxoe::wire::Mac;
use mxoe::{Address, Code, Config, Node};
use window::Side;

use super::Uplink;
use super::link::{EndpointPair, Link, NodeContext};
use super::state::{State, WaitingDial};
use super::wire_member::WireMember;
use crate::address::random;
use crate::handshake::{ACCEPTED, BAD_KEY, CLOSED, FULL, Hello, INTRODUCED, SIMULTANEOUS, UNKNOWN};
use crate::peer::Fault;
use crate::program_address::ProgramAddress;
use crate::remote::control_message::{ControlMessage, LinkId};
use crate::remote::directory::NamedNic;
use crate::remote::limits::BURST;
use crate::remote::names;
use crate::remote::shared_interface::SharedInterface;
use crate::wire::halves;

impl Uplink {
    /// Handles messages of the host; returns whether there were any.
    pub(super) fn handle_host_messages(&mut self) -> Result<bool, Fault> {
        for count in 0..BURST {
            let Some(message) = self.control.receive()? else {
                return Ok(count > 0);
            };
            match message {
                ControlMessage::Connect {
                    link,
                    window,
                    hello,
                    ..
                } => {
                    if let Err(verdict) = self.dial(link, window, &hello) {
                        self.control.send(ControlMessage::refusal(link, verdict))?;
                    }
                }
                ControlMessage::Answer {
                    link,
                    window,
                    verdict,
                    session,
                    program,
                    ..
                } => self.answered((link, session), window, (verdict, program))?,
                // The uplink polls the link's window anyway.
                ControlMessage::Ring { .. } => {}
                ControlMessage::Close { link } => self.closed(link)?,
                ControlMessage::Member { nic, here } => self.member(nic, here),
                // A *close* follows a *lost*, and names come from here.
                ControlMessage::Lost { .. } | ControlMessage::Name { .. } => {}
            }
        }
        Ok(true)
    }

    /// Handles a member that has joined or left.
    fn member(&mut self, nic: u64, here: bool) {
        let now = self.network.now();
        if !here {
            if let Some(wire_member) = self.wire_members.get_mut(&nic) {
                wire_member.leave(now);
            }
            return;
        }
        let Some(named_nic) = self.members.iter().find(|named_nic| named_nic.nic == nic) else {
            return;
        };
        let sharing = self.sharing.as_ref();
        let sharing = sharing.filter(|shared| shared.nic() == nic);
        let serial = sharing
            .and_then(SharedInterface::serial)
            .unwrap_or_else(|| halves(random().unwrap_or_default()).0);
        let timeout = self.peer_timeout;
        let numbers = (serial, timeout);
        let configure = |config: &mut Config| self.network.configure(config);
        let wire_member = WireMember::new(now, named_nic, numbers, configure, sharing);
        if let Some(wire_member) = wire_member {
            if let Some(last) = self.wire_members.insert(nic, wire_member) {
                let wire = &mut self.counters.wire;
                *wire = wire.plus(last.node.counters());
            }
        }
    }

    pub(super) fn node(&mut self, nic: u64) -> Option<&mut Node> {
        Some(&mut self.wire_members.get_mut(&nic)?.node)
    }

    /// Returns the session of the endpoint here that has the link of a pair.
    fn linked_session(&self, pair: EndpointPair) -> Option<u64> {
        match self.links.get(self.pairs.get(&pair)?)? {
            State::Up(link) => Some(link.session),
            State::Dialing { .. } | State::Offered { .. } => None,
        }
    }

    /// Repeats the connect of an endpoint in the next turn.
    fn wait(&mut self, id: LinkId, window: u32, hello: &Hello) -> Result<(), u32> {
        let hello = *hello;
        self.waiting.push(WaitingDial { id, window, hello });
        Ok(())
    }

    /// Connects for an endpoint here to one on another host; returns the verdict if that fails.
    pub(super) fn dial(&mut self, id: LinkId, window: u32, hello: &Hello) -> Result<(), u32> {
        let host = Mac::from_nic(hello.to.nic).ok_or(UNKNOWN)?;
        let peer = u8::try_from(hello.to.endpoint).map_err(|_| CLOSED)?;
        let pair = EndpointPair {
            nic: hello.from.nic,
            endpoint: u8::try_from(hello.from.endpoint).map_err(|_| FULL)?,
            peer: Address {
                host,
                endpoint: peer,
            },
        };
        if self.is_foreign(pair.endpoint) {
            // The endpoint has closed since.
            return Err(FULL);
        }
        if !self.hold(pair.nic, pair.endpoint) {
            // A program that had the endpoint before still waits for acknowledgements.
            return self.wait(id, window, hello);
        }
        let linked = self.linked_session(pair);
        let reopened = linked.is_some_and(|session| session != hello.session);
        // The close of the link of a program that had the endpoint before may come later than this connect.
        if reopened || self.has_former_program(pair, hello.own_key) || !self.finish_close(pair) {
            return self.wait(id, window, hello);
        }
        let now = self.network.now();
        if linked.is_some() {
            return Err(FULL);
        }
        // The endpoint applies the same rule to the offer that it received.
        if self.pairs.contains_key(&pair) && hello.to < hello.from {
            return Err(SIMULTANEOUS);
        }
        let wire_member = self.wire_members.get_mut(&pair.nic);
        let wire_member = wire_member.filter(|wire_member| wire_member.has_joined());
        let wire_member = wire_member.ok_or(FULL)?;
        let discovers = wire_member.discovers(now);
        let node = &mut wire_member.node;
        if !node.has_host(host) {
            return match discovers {
                true => self.wait(id, window, hello),
                false => Err(UNKNOWN),
            };
        }
        let (session, _) = halves(random().map_err(|_| FULL)?);
        if node.key(pair.endpoint).is_none() {
            let own_key = hello.own_key.ok_or(FULL)?;
            node.open(now, pair.endpoint, own_key, session);
        }
        let (key, token) = (hello.key, u64::from(id));
        let program = hello.program.map(ProgramAddress::socket_address);
        let begun = match program {
            Some(program) => node.introduce(now, pair.endpoint, pair.peer, key, token, program),
            None => node.connect(now, pair.endpoint, pair.peer, key, token),
        };
        begun.map_err(|_| FULL)?;
        self.links.insert(
            id,
            State::Dialing {
                pair,
                session: hello.session,
                window,
            },
        );
        self.pairs.insert(pair, id);
        Ok(())
    }

    /// Handles an endpoint's answer to a connect from another host.
    fn answered(
        &mut self,
        (id, session): (LinkId, u64),
        window: u32,
        (verdict, program): (u32, Option<ProgramAddress>),
    ) -> Result<(), Fault> {
        let Some(State::Offered {
            pair,
            is_connected,
            key,
        }) = self.links.get(&id)
        else {
            // The link was removed since, and the host was notified.
            return Ok(());
        };
        let (pair, is_connected, key) = (*pair, *is_connected, *key);
        let verdict = match verdict {
            ACCEPTED if !self.hold(pair.nic, pair.endpoint) => {
                self.control.send(ControlMessage::Close { link: id })?;
                FULL
            }
            other => other,
        };
        let now = self.network.now();
        let window = self.region.link(window);
        let ends = window.and_then(|window| window.ends(Side::Creator).ok());
        let Some(wire_member) = self.wire_members.get_mut(&pair.nic) else {
            return Ok(());
        };
        let node = &mut wire_member.node;
        if let (ACCEPTED, Some(ends)) = (verdict, ends) {
            if !is_connected {
                let (session, _) = halves(random().unwrap_or_default());
                node.open(now, pair.endpoint, key, session);
                node.accept(now, pair.endpoint, pair.peer);
            }
            let mut link = Box::new(Link::new(id, session, pair, ends));
            if self.in_process {
                link.stay_in_process();
            }
            self.links.insert(id, State::Up(link));
            return Ok(());
        }
        self.links.remove(&id);
        if verdict == SIMULTANEOUS {
            // The endpoint's own connect is pending, or has succeeded.
            if !is_connected {
                node.refuse(now, pair.endpoint, pair.peer, None);
            }
            self.pairs.retain(|_, current| *current != id);
            return Ok(());
        }
        if self.pairs.get(&pair) == Some(&id) {
            self.pairs.remove(&pair);
            if let (INTRODUCED, false, Some(program)) = (verdict, is_connected, program) {
                let program = program.socket_address();
                node.answer_introduction(pair.endpoint, pair.peer, program);
                return Ok(());
            }
            let code = match verdict {
                BAD_KEY => Some(Code::BadKey),
                CLOSED => Some(Code::Closed),
                // There may be room later.
                _ => None,
            };
            node.refuse(now, pair.endpoint, pair.peer, code);
            if is_connected {
                node.disconnect(now, pair.endpoint, pair.peer);
                if code.is_some() {
                    // The node has accepted the connect by the key of a program that has ended.
                    self.retire_unused(pair);
                }
            }
        }
        Ok(())
    }

    /// Handles the close of an endpoint here, or of its link.
    fn closed(&mut self, id: LinkId) -> Result<(), Fault> {
        let now = self.network.now();
        if let Some(State::Up(link)) = self.links.get_mut(&id) {
            if let Some(wire_member) = self.wire_members.get_mut(&link.pair.nic) {
                let node = &mut wire_member.node;
                // A malformed record ends the lane.
                let _end = link.drain(&mut NodeContext { node, now });
            }
        }
        if let Some(pair) = self.drop_link(id) {
            self.retire_unused(pair);
        }
        self.waiting.retain(|dial| dial.id != id);
        // The uplink does not access the window any more.
        self.control.send(ControlMessage::Close { link: id })
    }

    /// Ends a link because of a fault of the endpoint or of the peer.
    pub(super) fn cut(&mut self, id: LinkId) -> Result<(), Fault> {
        if let Some(pair) = self.links.get(&id).map(State::pair) {
            let now = self.network.now();
            if let Some(node) = self.node(pair.nic) {
                node.disconnect(now, pair.endpoint, pair.peer);
            }
            self.drop_link(id);
            self.control.send(ControlMessage::Close { link: id })?;
        }
        Ok(())
    }

    /// Removes a link, if there is one; returns its ends. Their connection ends when everything is acknowledged.
    pub(super) fn drop_link(&mut self, id: LinkId) -> Option<EndpointPair> {
        let pair = self.links.remove(&id)?.pair();
        if self.pairs.get(&pair) == Some(&id) {
            self.pairs.remove(&pair);
            self.closing.push(pair);
        }
        Some(pair)
    }

    /// Reports a name to all members. Each member's node learns it by itself.
    pub(super) fn name(&mut self, named_nic: &NamedNic) -> Result<(), Fault> {
        for message in names::messages(named_nic) {
            if let ControlMessage::Name { nic, part, text } = message {
                if self.names.update(nic, part, text) {
                    self.control.send(message)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        match self.links.get_mut(&id)? {
            State::Up(link) => Some(link),
            _ => None,
        }
    }
}
