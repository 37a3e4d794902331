//! Events of the nodes, and the links that they begin and end.

use std::net::SocketAddr;

use mxoe::{Address, Code, Event};
use window::Side;

use super::Uplink;
use super::link::{EndpointPair, Link};
use super::state::State;
use crate::address;
use crate::error::Error;
use crate::handshake::{ACCEPTED, BAD_KEY, CLOSED, FULL, Hello, INTRODUCED, UNREACHABLE};
use crate::peer::Fault;
use crate::program_address::ProgramAddress;
use crate::remote::control_message::{ControlMessage, LinkId, OtherEnd};
use crate::remote::directory::NamedNic;
use crate::wire::halves;

/// What a connect of another host has that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    key: u32,
    session: u32,
    program: Option<ProgramAddress>,
}

impl Uplink {
    /// Handles the nodes' events; returns whether there were any.
    pub(super) fn handle_node_events(&mut self) -> Result<bool, Error> {
        let mut events = Vec::new();
        for (&nic, wire_member) in &mut self.wire_members {
            while let Some(event) = wire_member.node.event() {
                events.push((nic, event));
            }
        }
        let some = !events.is_empty();
        for (nic, event) in events {
            self.handle_node_event(nic, event).map_err(super::broken)?;
        }
        Ok(some)
    }

    fn handle_node_event(&mut self, nic: u64, event: Event) -> Result<(), Fault> {
        match event {
            Event::Host { host, name } => {
                let nic = host.nic();
                let name = name.strip_suffix(":0").unwrap_or(&name).to_owned();
                self.name(&NamedNic { nic, name })
            }
            Event::Connected { token, code } => self.connected(halves(token).0, code),
            Event::Introduced { token, program } => self.introduced(halves(token).0, program),
            Event::ConnectRequest {
                endpoint,
                from,
                session,
                key,
                peer_key,
                program,
            } => match self.is_foreign(endpoint) {
                // No program has the endpoint, and this one answers for the host.
                true => {
                    self.refuse_closed(nic, endpoint, from);
                    Ok(())
                }
                false => {
                    let asked = Asked {
                        key,
                        session,
                        program: program.and_then(ProgramAddress::new),
                    };
                    self.offer(nic, endpoint, from, peer_key, Some(asked))
                }
            },
            Event::PeerConnected {
                endpoint,
                from,
                peer_key,
            } => self.offer(nic, endpoint, from, peer_key, None),
            Event::Disconnected {
                endpoint,
                from: peer,
                code,
            } => {
                let pair = EndpointPair {
                    nic,
                    endpoint,
                    peer,
                };
                let up = |id: &LinkId| !matches!(self.links.get(id), Some(State::Dialing { .. }));
                if let Some(id) = self.pairs.get(&pair).copied().filter(up) {
                    // The node has removed the partner, and may have connected with it again since.
                    self.drop_link(id);
                    if code == Code::Unreachable {
                        self.control.send(ControlMessage::Lost { link: id })?;
                    }
                    self.control.send(ControlMessage::Close { link: id })?;
                }
                Ok(())
            }
            Event::PullRequest {
                token,
                source,
                total,
                ..
            } => {
                if let Some(link) = self.link(halves(token).1) {
                    link.handle_pull_request(token, source, total);
                }
                Ok(())
            }
            Event::Sent {
                token,
                code: Code::Success,
                taken,
            } => {
                if let Some(link) = self.link(halves(token).1) {
                    link.sent(token, taken);
                }
                Ok(())
            }
            // The last piece was the end of it.
            Event::Pulled {
                code: Code::Success,
                ..
            } => Ok(()),
            // Without that message, the endpoint cannot go on with this peer.
            Event::Pulled { token, .. } => self.cut(halves(token).1),
            // The peer is lost, which is an event of its own.
            Event::Sent { .. } => Ok(()),
        }
    }

    /// Handles the answer to a connect of this host.
    fn connected(&mut self, id: LinkId, code: Code) -> Result<(), Fault> {
        let Some(State::Dialing {
            pair,
            session: own_session,
            window,
        }) = self.links.get(&id)
        else {
            return Ok(());
        };
        let (pair, own_session, window) = (*pair, *own_session, *window);
        let node = self.node(pair.nic);
        let session = node.and_then(|node| node.session(pair.endpoint, pair.peer));
        let ends = self
            .region
            .link(window)
            .and_then(|window| window.ends(Side::Attacher).ok());
        let verdict = match (code, session, ends) {
            (Code::Success, Some(session), Some(ends)) => {
                let mut link = Box::new(Link::new(id, own_session, pair, ends));
                if self.in_process {
                    link.stay_in_process();
                }
                self.links.insert(id, State::Up(link));
                return self.answer(id, ACCEPTED, session.into(), None);
            }
            (Code::BadKey, ..) => BAD_KEY,
            (Code::Closed | Code::BadEndpoint, ..) => CLOSED,
            (Code::Unreachable, ..) => UNREACHABLE,
            _ => FULL,
        };
        self.drop_link(id);
        self.control.send(ControlMessage::refusal(id, verdict))
    }

    /// Handles the answer of a program that takes datagrams.
    fn introduced(&mut self, id: LinkId, program: SocketAddr) -> Result<(), Fault> {
        if !matches!(self.links.get(&id), Some(State::Dialing { .. })) {
            return Ok(());
        }
        self.drop_link(id);
        let program = ProgramAddress::new(program);
        // Without a usable address, the endpoint fails as with a host that does not answer.
        self.answer(id, INTRODUCED, 0, program)
    }

    /// Answers a connect of an endpoint here.
    fn answer(
        &mut self,
        link: LinkId,
        verdict: u32,
        session: u64,
        program: Option<ProgramAddress>,
    ) -> Result<(), Fault> {
        self.control.send(ControlMessage::Answer {
            link,
            window: 0,
            verdict,
            session,
            other_end: OtherEnd::default(),
            program,
        })
    }

    /// Passes on a connect from another host to an endpoint here. If it is `asked`, the node waits for the answer; otherwise it has
    /// accepted the connect.
    fn offer(
        &mut self,
        nic: u64,
        endpoint: u8,
        peer: Address,
        peer_key: Option<u32>,
        asked: Option<Asked>,
    ) -> Result<(), Fault> {
        let pair = EndpointPair {
            nic,
            endpoint,
            peer,
        };
        if let Some(link) = self.pairs.get(&pair) {
            let is_dialing = matches!(self.links.get(link), Some(State::Dialing { .. }));
            let is_lower = (peer.host.nic(), peer.endpoint) < (nic, endpoint);
            let introduces = asked.is_some_and(|asked| asked.program.is_some());
            // Two that connect to each other at the same time: the endpoint with the lower address keeps its own connect.
            if !(introduces && is_dialing && is_lower) {
                let now = self.network.now();
                if let (Some(_), Some(node)) = (asked, self.node(nic)) {
                    // The node asks again when the peer repeats its connect.
                    node.refuse(now, endpoint, peer, None);
                }
                return Ok(());
            }
        }
        self.closing.retain(|closing| *closing != pair);
        let (now, is_connected) = (self.network.now(), asked.is_none());
        let Some(node) = self.node(nic) else {
            return Ok(());
        };
        if !is_connected {
            // The other end of a connection that an ended program has left has ended, too.
            node.disconnect(now, endpoint, peer);
        }
        let accepted = node.key(endpoint).map(|key| Asked {
            key,
            session: node.session(endpoint, peer).unwrap_or_default(),
            program: None,
        });
        let Some(Asked {
            key,
            session,
            program,
        }) = asked.or(accepted)
        else {
            // The program whose key the connect had has ended since.
            node.disconnect(now, endpoint, peer);
            return Ok(());
        };
        let link = self.number();
        self.links.insert(
            link,
            State::Offered {
                pair,
                is_connected,
                key,
            },
        );
        self.pairs.insert(pair, link);
        let address = |nic, endpoint: u8| address::Address {
            nic,
            endpoint: endpoint.into(),
        };
        let hello = Hello {
            from: address(peer.host.nic(), peer.endpoint),
            to: address(nic, endpoint),
            session: session.into(),
            own_key: peer_key,
            key,
            fences: false,
            process_memory: false,
            other_host: false,
            program,
            members: None,
        };
        let window = 0;
        self.control.send(ControlMessage::Connect {
            link,
            window,
            hello,
            other_end: OtherEnd::default(),
        })
    }
}
