//! What the nodes say, and what follows for links.

use mxoe::{Address, Code, Event};
use window::Side;

use super::control::answer;
use super::link::{Link, Pair};
use super::{State, Uplink};
use crate::address;
use crate::error::Error;
use crate::handshake::{ACCEPTED, BAD_KEY, CLOSED, FULL, Hello, UNREACHABLE};
use crate::peer::Fault;
use crate::remote::control_message::{ControlMessage, LinkId};
use crate::remote::directory::Face;
use crate::wire::halves;

impl Uplink {
    /// Do what the nodes say; whether they said anything.
    pub(super) fn hear_nodes(&mut self) -> Result<bool, Error> {
        let mut events = Vec::new();
        for (&nic, resident) in &mut self.residents {
            while let Some(event) = resident.node.event() {
                events.push((nic, event));
            }
        }
        let some = !events.is_empty();
        for (nic, event) in events {
            self.hear_node(nic, event).map_err(super::broken)?;
        }
        Ok(some)
    }

    fn hear_node(&mut self, nic: u64, event: Event) -> Result<(), Fault> {
        match event {
            Event::Host { host, name } => {
                let nic = host.nic();
                let name = name.strip_suffix(":0").unwrap_or(&name).to_owned();
                self.name(&Face { nic, name })
            }
            Event::Connected { token, code } => self.connected(halves(token).0, code),
            Event::Asked {
                endpoint,
                from,
                session,
                key,
            } => self.offer(nic, endpoint, from, Some((key, session))),
            Event::Met { endpoint, from } => self.offer(nic, endpoint, from, None),
            Event::Lost {
                endpoint,
                from: peer,
                code,
            } => {
                let pair = Pair {
                    nic,
                    endpoint,
                    peer,
                };
                let up = |id: &LinkId| !matches!(self.links.get(id), Some(State::Dialing { .. }));
                if let Some(id) = self.pairs.get(&pair).copied().filter(up) {
                    // The node has let go of it, and may have met it again since.
                    self.drop_link(id);
                    if code == Code::Unreachable {
                        self.trunk.say(ControlMessage::Lost { link: id })?;
                    }
                    self.trunk.say(ControlMessage::Close { link: id })?;
                }
                Ok(())
            }
            Event::Wanted {
                token,
                source,
                total,
                ..
            } => {
                if let Some(link) = self.link(halves(token).1) {
                    link.wanted(token, source, total);
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
            // Its end was told with its last piece.
            Event::Pulled {
                code: Code::Success,
                ..
            } => Ok(()),
            // Without what it waits for, the endpoint cannot go on with this peer.
            Event::Pulled { token, .. } => self.cut(halves(token).1),
            // The peer is lost: that is told on its own.
            Event::Sent { .. } => Ok(()),
        }
    }

    /// A connect of this host is answered.
    fn connected(&mut self, id: LinkId, code: Code) -> Result<(), Fault> {
        let Some(State::Dialing { pair, window }) = self.links.get(&id) else {
            return Ok(());
        };
        let (pair, window) = (*pair, *window);
        let node = self.node(pair.nic);
        let session = node.and_then(|node| node.session(pair.endpoint, pair.peer));
        let ends = self
            .region
            .link(window)
            .and_then(|window| window.ends(Side::Guest).ok());
        let verdict = match (code, session, ends) {
            (Code::Success, Some(session), Some(ends)) => {
                let link = Box::new(Link::new(id, pair, ends));
                self.links.insert(id, State::Up(link));
                return self.trunk.say(answer(id, ACCEPTED, session.into()));
            }
            (Code::BadKey, ..) => BAD_KEY,
            (Code::Closed | Code::BadEndpoint, ..) => CLOSED,
            (Code::Unreachable, ..) => UNREACHABLE,
            _ => FULL,
        };
        self.drop_link(id);
        self.trunk.say(answer(id, verdict, 0))
    }

    /// Pass on that somebody there connects to an endpoint here. With a key, the endpoint is not
    /// open on the wire.
    fn offer(
        &mut self,
        nic: u64,
        endpoint: u8,
        peer: Address,
        asked: Option<(u32, u32)>,
    ) -> Result<(), Fault> {
        let pair = Pair {
            nic,
            endpoint,
            peer,
        };
        if self.pairs.contains_key(&pair) {
            return Ok(());
        }
        self.leaving.retain(|leaving| *leaving != pair);
        let Some(node) = self.node(nic) else {
            return Ok(());
        };
        let met = asked.is_none();
        let (key, session) = match asked {
            Some(asked) => asked,
            None => (
                node.key(endpoint).unwrap_or_default(),
                node.session(endpoint, peer).unwrap_or_default(),
            ),
        };
        let link = self.number();
        self.links.insert(link, State::Offered { pair, met, key });
        self.pairs.insert(pair, link);
        let address = |nic, endpoint: u8| address::Address {
            nic,
            endpoint: endpoint.into(),
        };
        let hello = Hello {
            from: address(peer.host.nic(), peer.endpoint),
            to: address(nic, endpoint),
            session: session.into(),
            // What it was opened with is not said; most programs have one key.
            own_key: key,
            key,
            fences: false,
            seats: None,
        };
        let window = 0;
        self.trunk.say(ControlMessage::Connect {
            link,
            window,
            hello,
            seat: None,
        })
    }
}
