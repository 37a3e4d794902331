//! How endpoints become peers.
//!
//! The one that connects makes a window and offers it at the other's socket; the other answers.
//! The link is the same for both afterwards, so a second connect, from either side, finds it. Two
//! that connect to each other at the same time make two windows; the one with the lower address
//! keeps its own and refuses the other's, and the other one waits for that ([`crate::simultaneous_connect`]).
//!
//! An endpoint of another NIC is reached through the board's gateway ([`crate::remote`]): what is said
//! is the same, but the window comes from the gateway, to both; with it, where they sit in its region.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use window::attach::{Channel, Message, Place};
use window::doorbell;
use window::layout::Layout;
use window::region::{self, List};
use window::{Side, Window, WindowError};

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::handshake::{
    ACCEPTED, BAD_KEY, CLOSED, CROSSED, FULL, Hello, Seats, UNKNOWN, UNREACHABLE, Welcome,
};
use crate::ids::{Peer, Request};
use crate::limits::{CONTROL, FAR_SPIN, INCOMING, MESSAGES};
use crate::peer::Link;
use crate::pending_connects::{Offer, Outgoing};
use crate::remote_memory::{CREATOR, GUEST, RemoteMemory};
use crate::request::State;
use crate::token::Token;

/// The layout of every link.
pub(crate) fn layout() -> Result<Layout, WindowError> {
    Ok(Layout::new([MESSAGES, CONTROL])?)
}

impl Endpoint {
    /// Begin to connect, for a request. Ends the request at once when that cannot be.
    pub(crate) fn begin(
        &mut self,
        request: Request,
        address: Address,
        key: u32,
    ) -> Result<(), Error> {
        if let Some(id) = self.handshakes.towards(address) {
            if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
                outgoing.requests.push((request, key));
            }
            return Ok(());
        }
        let id = self.handshakes.id();
        let offer = match self.offer(id, address, key) {
            Err(Error::Connection(code)) => {
                self.end_connect(request, code);
                return Ok(());
            }
            other => other?,
        };
        let outgoing = Outgoing {
            address,
            key,
            offer: Some(offer),
            again: None,
            requests: vec![(request, key)],
        };
        self.handshakes.outgoing.insert(id, outgoing);
        Ok(())
    }

    /// Offer an endpoint a link. [`Error::Connection`] when it is refused at once.
    pub(crate) fn offer(&self, id: u32, address: Address, key: u32) -> Result<Offer, Error> {
        let far = address.nic != self.address.nic;
        let path = match far {
            true => self.board.gateway(),
            false => self.board.socket(address.endpoint),
        };
        let channel = match Channel::connect(&path) {
            Ok(channel) => channel,
            Err(Errno::NOENT | Errno::CONNREFUSED) if far => {
                return Err(Error::UnknownNic(address.nic));
            }
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(Error::Connection(Code::Closed)),
            Err(Errno::AGAIN) => return Err(Error::Connection(Code::NoResources)),
            Err(error) => return Err(error.into()),
        };
        let window = match far {
            true => None,
            false => Some(region::pair(layout()?)?),
        };
        let hello = Hello {
            from: self.address,
            to: address,
            session: self.session,
            own_key: self.key,
            key,
            fences: doorbell::fences_all(),
            seats: (!far).then_some(GUEST),
        };
        let heap = (!far).then(|| self.engine.heap.as_fd());
        let offered = channel.offer(window.as_ref(), heap, &hello.encode());
        offered.map_err(|_| Error::Connection(Code::Closed))?;
        self.waiter.add(&channel, Token::Outgoing(id).encode())?;
        Ok((channel, window))
    }

    /// Somebody connects.
    pub(crate) fn accept(&mut self) {
        for _ in 0..INCOMING {
            // Without descriptors nobody can be let in; whoever waits is let in later.
            let Ok(Some(channel)) = self.listener.accept() else {
                return;
            };
            if self.handshakes.incoming.len() >= INCOMING {
                self.make_room();
            }
            let id = self.handshakes.id();
            let token = Token::Incoming(id).encode();
            if self.waiter.add(&channel, token).is_ok() {
                self.handshakes.incoming.insert(id, channel);
            }
        }
    }

    /// Whoever connected first and says nothing gives its place to others.
    fn make_room(&mut self) {
        if let Some((&first, _)) = self.handshakes.incoming.first_key_value() {
            self.hear_incoming(first);
            self.handshakes.incoming.remove(&first);
        }
    }

    /// Somebody who connected says something, or went away.
    pub(crate) fn hear_incoming(&mut self, id: u32) {
        let Some(channel) = self.handshakes.incoming.get(&id) else {
            return;
        };
        let message = match channel.receive() {
            Ok(None) => return,
            Ok(Some(message)) => Some(message),
            Err(_) => None,
        };
        let Some(channel) = self.handshakes.incoming.remove(&id) else {
            return;
        };
        self.waiter.remove(&channel);
        let Some(Message::Offer {
            window: Some(window),
            heap,
            greeting,
        }) = message
        else {
            return;
        };
        let Some(hello) = Hello::decode(&greeting) else {
            return;
        };
        let verdict = self.judge(&hello);
        let link = match verdict {
            ACCEPTED => self.attached(window, channel, heap, &hello),
            _ => {
                self.answer(&channel, verdict, false);
                return;
            }
        };
        // A window that makes no sense gets no answer: its maker speaks something else.
        if let Ok(link) = link {
            let far = hello.from.nic != self.address.nic;
            if self.answer(&link.channel, ACCEPTED, !far) {
                self.join(hello.from, hello.session, hello.own_key, link);
            }
        }
    }

    fn judge(&mut self, hello: &Hello) -> u32 {
        let from = hello.from;
        if from == self.address {
            return FULL;
        }
        if hello.key != self.key {
            return BAD_KEY;
        }
        let crossing = self.handshakes.towards(from);
        let offered = crossing.and_then(|id| self.handshakes.outgoing.get(&id)?.offer.as_ref());
        if offered.is_some() && self.address < from {
            return CROSSED;
        }
        // It may have let go of its last link, and nobody here has looked since.
        if let Some(old) = self.peers.linked(from) {
            self.hear_peer(old.index());
        }
        if let Some(old) = self.peers.linked(from) {
            if self.peers.get(old).map(|known| known.session) == Some(hello.session) {
                return FULL;
            }
            // Its socket is bound again, so whoever had the address is no more.
            self.lose(old, Code::Closed);
        }
        ACCEPTED
    }

    fn answer(&self, channel: &Channel, verdict: u32, with_heap: bool) -> bool {
        let welcome = Welcome {
            verdict,
            session: self.session,
            fences: doorbell::fences_all(),
            seats: None,
        };
        let accepted = verdict == ACCEPTED;
        let heap = with_heap.then(|| self.engine.heap.as_fd());
        let welcome = welcome.encode();
        channel.answer(accepted, None, heap, &welcome).is_ok()
    }

    /// An offer of this side is answered, or its socket ended.
    pub(crate) fn hear_outgoing(&mut self, id: u32) {
        let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) else {
            return;
        };
        let Some((channel, _)) = &outgoing.offer else {
            return;
        };
        let message = channel.receive();
        if matches!(message, Ok(None)) {
            return;
        }
        let Some((channel, window)) = outgoing.offer.take() else {
            return;
        };
        self.waiter.remove(&channel);
        let Ok(Some(Message::Answer {
            accepted,
            window: place,
            heap,
            greeting,
        })) = message
        else {
            self.fail(id, Code::Closed);
            return;
        };
        match (accepted, Welcome::decode(&greeting)) {
            (true, Some(welcome)) => {
                let (address, key) = (outgoing.address, outgoing.key);
                let window = match (window, place) {
                    (Some(window), None) => Ok(window),
                    (None, Some(place)) => attach(place),
                    _ => Err(WindowError::Unsealed),
                };
                let made = window.and_then(|window| Ok((window.ends(Side::Creator)?, window)));
                match made {
                    Ok((ends, window)) => {
                        let mut link = Link::new(ends, channel, heap, welcome.fences);
                        let near = address.nic == self.address.nic;
                        let seats = near.then_some(CREATOR).or(welcome.seats);
                        link.reach = self.reach(&window, seats, address);
                        self.join(address, welcome.session, key, link);
                    }
                    Err(_) => self.fail(id, Code::NoResources),
                }
            }
            (false, Some(welcome)) => match welcome.verdict {
                CROSSED => self.give_way(id),
                BAD_KEY => self.refuse(id),
                CLOSED => self.fail(id, Code::Closed),
                UNREACHABLE => self.fail(id, Code::Unreachable),
                UNKNOWN => self.fail(id, Code::Unknown),
                _ => self.fail(id, Code::NoResources),
            },
            (_, None) => self.fail(id, Code::Unreachable),
        }
    }

    /// A link from what a peer offered.
    fn attached(
        &self,
        window: Place,
        channel: Channel,
        heap: Option<OwnedFd>,
        hello: &Hello,
    ) -> Result<Link, WindowError> {
        let window = attach(window)?;
        let mut link = Link::new(window.ends(Side::Guest)?, channel, heap, hello.fences);
        link.reach = self.reach(&window, hello.seats, hello.from);
        Ok(link)
    }

    /// The way to heaps of the region that a window is of, if its ends sit there.
    fn reach(&self, window: &Window, seats: Option<Seats>, peer: Address) -> Option<RemoteMemory> {
        let list = match peer.nic == self.address.nic {
            // This heap is this link's alone.
            true => List::of_one(),
            false => self.board.lent(),
        };
        RemoteMemory::new(window, seats?, list)
    }

    pub(crate) fn fail(&mut self, id: u32, code: Code) {
        let outgoing = self.handshakes.outgoing.remove(&id);
        for (request, _) in outgoing.into_iter().flat_map(|out| out.requests) {
            self.end_connect(request, code);
        }
    }

    /// The key is wrong. Who has another one tries that.
    fn refuse(&mut self, id: u32) {
        let Some(outgoing) = self.handshakes.outgoing.remove(&id) else {
            return;
        };
        for (request, key) in outgoing.requests {
            if key == outgoing.key {
                self.end_connect(request, Code::BadKey);
            } else if self.begin(request, outgoing.address, key).is_err() {
                self.end_connect(request, Code::NoResources);
            }
        }
    }

    /// End a connect, unless it was cancelled.
    fn end_connect(&mut self, request: Request, code: Code) {
        let entry = self.engine.requests.get(request);
        if entry.is_some_and(|entry| entry.state == State::Connecting) {
            self.engine.requests.end(request, code, 0);
        }
    }

    /// A link is there: whoever waits for it, with the peer's key, has it.
    fn join(&mut self, address: Address, session: u64, key: u32, mut link: Link) {
        if address.nic != self.address.nic {
            link.far = true;
            self.patience = FAR_SPIN;
        }
        let peer = self.peers.add(address, session, key, link);
        let token = Token::Peer(peer.index()).encode();
        let watched = match self.peers.link(peer) {
            Some(link) => self.waiter.add(&link.channel, token).is_ok(),
            None => false,
        };
        if !watched {
            // Its end would never be noticed.
            self.lose(peer, Code::NoResources);
        }
        let Some(id) = self.handshakes.towards(address) else {
            return;
        };
        let outgoing = self.handshakes.outgoing.remove(&id);
        for (request, wanted) in outgoing.into_iter().flat_map(|out| out.requests) {
            match wanted == key {
                true => self.connected(request, peer),
                false => self.end_connect(request, Code::BadKey),
            }
        }
    }

    /// End a connect with its peer.
    pub(crate) fn connected(&mut self, request: Request, peer: Peer) {
        match self.engine.requests.get(request) {
            Some(entry) if entry.state == State::Connecting => entry.status.peer = Some(peer),
            _ => return,
        }
        self.engine.requests.end(request, Code::Success, 0);
    }
}

/// The window of a link that somebody else made.
fn attach(place: Place) -> Result<Window, WindowError> {
    let window = Window::attach(place.file, place.offset)?;
    let expected = layout()?;
    if window.layout() != expected {
        return Err(WindowError::Length {
            got: window.layout().length(),
            expected: expected.length(),
        });
    }
    Ok(window)
}
