//! What the host says, and what follows for links.

use mxoe::wire::Mac;
use mxoe::{Address, Code, Node};
use window::Side;

use super::link::{Far, Link, Pair};
use super::wire_member::WireMember;
use super::{State, Uplink};
use crate::address::random;
use crate::handshake::{ACCEPTED, BAD_KEY, CLOSED, CROSSED, FULL, Hello, UNKNOWN};
use crate::peer::Fault;
use crate::remote::control_message::{ControlMessage, LinkId};
use crate::remote::directory::Face;
use crate::remote::limits::BURST;
use crate::remote::names;
use crate::wire::halves;

impl Uplink {
    /// Do what the host says; whether it said anything.
    pub(super) fn hear_host(&mut self) -> Result<bool, Fault> {
        for count in 0..BURST {
            let Some(note) = self.trunk.hear()? else {
                return Ok(count > 0);
            };
            match note {
                ControlMessage::Connect {
                    link,
                    window,
                    hello,
                    ..
                } => {
                    if let Err(verdict) = self.dial(link, window, &hello) {
                        self.trunk.say(answer(link, verdict, 0))?;
                    }
                }
                ControlMessage::Answer {
                    link,
                    window,
                    verdict,
                    ..
                } => self.answered(link, window, verdict)?,
                // Its window is looked at anyway.
                ControlMessage::Ring { .. } => {}
                ControlMessage::Close { link } => self.closed(link)?,
                ControlMessage::Member { nic, here } => self.member(nic, here),
                // The end says the same; and names come from here.
                ControlMessage::Lost { .. } | ControlMessage::Name { .. } => {}
            }
        }
        Ok(true)
    }

    /// A member has come, or is gone.
    fn member(&mut self, nic: u64, here: bool) {
        let now = self.port.now();
        if !here {
            if let Some(resident) = self.residents.get_mut(&nic) {
                resident.leave(now);
            }
            return;
        }
        let Some(face) = self.members.iter().find(|face| face.nic == nic) else {
            return;
        };
        let (serial, _) = halves(random().unwrap_or_default());
        if let Some(resident) = WireMember::new(now, face, serial, self.patience) {
            if let Some(last) = self.residents.insert(nic, resident) {
                let wire = &mut self.counters.wire;
                *wire = wire.plus(last.node.counters());
            }
        }
    }

    pub(super) fn node(&mut self, nic: u64) -> Option<&mut Node> {
        Some(&mut self.residents.get_mut(&nic)?.node)
    }

    /// An endpoint here connects to one on another host; the verdict when that cannot be.
    fn dial(&mut self, id: LinkId, window: u32, hello: &Hello) -> Result<(), u32> {
        let host = Mac::from_nic(hello.to.nic).ok_or(UNKNOWN)?;
        let peer = u8::try_from(hello.to.endpoint).map_err(|_| CLOSED)?;
        let pair = Pair {
            nic: hello.from.nic,
            endpoint: u8::try_from(hello.from.endpoint).map_err(|_| FULL)?,
            peer: Address {
                host,
                endpoint: peer,
            },
        };
        let now = self.port.now();
        let crossing = self.pairs.get(&pair).copied();
        if crossing.is_some_and(|id| matches!(self.links.get(&id), Some(State::Up(_)))) {
            return Err(FULL);
        }
        // The endpoint judges what was offered to it by the same rule.
        if crossing.is_some() && hello.to < hello.from {
            return Err(CROSSED);
        }
        let resident = self.residents.get_mut(&pair.nic);
        let resident = resident.filter(|resident| resident.is_here());
        let node = &mut resident.ok_or(FULL)?.node;
        if !node.knows(host) {
            return Err(UNKNOWN);
        }
        let (session, _) = halves(random().map_err(|_| FULL)?);
        if node.key(pair.endpoint).is_none() {
            node.open(now, pair.endpoint, hello.own_key, session);
        }
        let (key, token) = (hello.key, u64::from(id));
        let begun = node.connect(now, pair.endpoint, pair.peer, key, token);
        begun.map_err(|_| FULL)?;
        self.leaving.retain(|leaving| *leaving != pair);
        self.links.insert(id, State::Dialing { pair, window });
        self.pairs.insert(pair, id);
        Ok(())
    }

    /// An endpoint here lets somebody in, or does not.
    fn answered(&mut self, id: LinkId, window: u32, verdict: u32) -> Result<(), Fault> {
        let Some(State::Offered { pair, met, key }) = self.links.get(&id) else {
            // It is gone since, and the host was told.
            return Ok(());
        };
        let (pair, met, key) = (*pair, *met, *key);
        let now = self.port.now();
        let window = self.region.link(window);
        let ends = window.and_then(|window| window.ends(Side::Creator).ok());
        let Some(resident) = self.residents.get_mut(&pair.nic) else {
            return Ok(());
        };
        let node = &mut resident.node;
        if let (ACCEPTED, Some(ends)) = (verdict, ends) {
            if !met && node.key(pair.endpoint).is_none() {
                let (session, _) = halves(random().unwrap_or_default());
                node.open(now, pair.endpoint, key, session);
            }
            let link = Box::new(Link::new(id, pair, ends));
            self.links.insert(id, State::Up(link));
            return Ok(());
        }
        self.links.remove(&id);
        if verdict == CROSSED {
            // The endpoint's own connect is on its way, or here.
            self.pairs.retain(|_, current| *current != id);
            return Ok(());
        }
        if self.pairs.get(&pair) == Some(&id) {
            self.pairs.remove(&pair);
            let code = match verdict {
                BAD_KEY => Some(Code::BadKey),
                CLOSED => Some(Code::Closed),
                // There may be room later.
                _ => None,
            };
            node.refuse(now, pair.endpoint, pair.peer, code);
            if met {
                node.forget(pair.endpoint, pair.peer);
            }
        }
        Ok(())
    }

    /// An endpoint here is closed, or its link.
    fn closed(&mut self, id: LinkId) -> Result<(), Fault> {
        let now = self.port.now();
        if let Some(State::Up(link)) = self.links.get_mut(&id) {
            if let Some(resident) = self.residents.get_mut(&link.pair.nic) {
                let node = &mut resident.node;
                // Nonsense at the end of a lane ends it.
                let _end = link.drain(&mut Far { node, now });
            }
        }
        self.drop_link(id);
        // The window is not touched any more.
        self.trunk.say(ControlMessage::Close { link: id })
    }

    /// End a link because of the endpoint or the peer.
    pub(super) fn cut(&mut self, id: LinkId) -> Result<(), Fault> {
        if let Some(pair) = self.links.get(&id).map(State::pair) {
            if let Some(node) = self.node(pair.nic) {
                node.forget(pair.endpoint, pair.peer);
            }
            self.drop_link(id);
            self.trunk.say(ControlMessage::Close { link: id })?;
        }
        Ok(())
    }

    pub(super) fn drop_link(&mut self, id: LinkId) {
        let Some(pair) = self.links.remove(&id).map(|state| state.pair()) else {
            return;
        };
        if self.pairs.get(&pair) == Some(&id) {
            self.pairs.remove(&pair);
            self.leaving.push(pair);
        }
    }

    /// Let go of partners whose link is over, once they have all that was sent, and of endpoints
    /// without any.
    pub(super) fn see_off(&mut self) {
        for at in (0..self.leaving.len()).rev() {
            let Some(&pair) = self.leaving.get(at) else {
                continue;
            };
            let Some(resident) = self.residents.get_mut(&pair.nic) else {
                self.leaving.swap_remove(at);
                continue;
            };
            if !resident.node.is_idle(pair.endpoint, pair.peer) {
                continue;
            }
            resident.node.forget(pair.endpoint, pair.peer);
            self.leaving.swap_remove(at);
            let mut others = self.leaving.iter().chain(self.pairs.keys());
            let same = |other: &Pair| (other.nic, other.endpoint) == (pair.nic, pair.endpoint);
            if !others.any(same) {
                resident.node.close(pair.endpoint);
            }
        }
    }

    /// Tell all members a name; each member's node hears it.
    pub(super) fn name(&mut self, face: &Face) -> Result<(), Fault> {
        for note in names::notes(face) {
            if let ControlMessage::Name { nic, part, text } = note {
                if self.names.hear(nic, part, text) {
                    self.trunk.say(note)?;
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

pub(super) fn answer(link: LinkId, verdict: u32, session: u64) -> ControlMessage {
    ControlMessage::Answer {
        link,
        window: 0,
        verdict,
        session,
        seat: None,
    }
}
