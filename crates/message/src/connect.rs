//! Connecting endpoints.
//!
//! The endpoint that connects creates a window and offers it at the other's socket; the other
//! answers. The link is symmetric afterwards, so a second connect, from either side, finds it. Two
//! endpoints that connect to each other at the same time create two windows. The endpoint with the
//! lower address keeps its own and refuses the other's, and the other one waits for that
//! ([`crate::simultaneous_connect`]).
//!
//! An endpoint connects to one of another NIC through the board's gateway ([`crate::remote`]). The
//! handshake is the same, but the gateway gives the window to both, and with it the region's
//! members that the two belong to.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use window::attach::{Channel, Message, WindowLocation};
use window::doorbell;
use window::layout::Layout;
use window::region::{self, UnitAllocator};
use window::{Ends, Side, Window, WindowError};

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::handshake::{
    ACCEPTED, BAD_KEY, CLOSED, FULL, Hello, HelloReply, MemberPair, SIMULTANEOUS, UNKNOWN,
    UNREACHABLE,
};
use crate::ids::{Peer, Request};
use crate::limits::{CONTROL, INCOMING, MESSAGES};
use crate::peer::Link;
use crate::pending_connects::{Offer, Outgoing};
use crate::process_memory::ProcessMemory;
use crate::remote_memory::{AS_ATTACHER, AS_CREATOR, RemoteMemory};
use crate::request::State;
use crate::token::Token;

/// Returns the layout of every link's window.
pub(crate) fn layout() -> Result<Layout, WindowError> {
    Ok(Layout::new([MESSAGES, CONTROL])?)
}

impl Endpoint {
    /// Starts a connect for a request. The request ends at once if it cannot succeed.
    pub(crate) fn begin_connect(
        &mut self,
        request: Request,
        address: Address,
        key: u32,
    ) -> Result<(), Error> {
        if let Some(id) = self.handshakes.outgoing_to(address) {
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
            retry_at: None,
            requests: vec![(request, key)],
        };
        self.handshakes.outgoing.insert(id, outgoing);
        Ok(())
    }

    /// The plane of this program reads what it writes to another host's endpoint, see [`crate::plane`].
    fn keep_in_cache(&self, ends: &mut Ends, peer: Address) {
        if self.board.is_reached_in_process(peer.nic) {
            ends.keep_in_cache();
        }
    }

    /// Sends an offer to an endpoint. [`Error::Connection`] if it is refused at once.
    pub(crate) fn offer(&self, id: u32, address: Address, key: u32) -> Result<Offer, Error> {
        let remote = address.nic != self.address.nic;
        let path = match remote {
            true => self.board.gateway_to(address.nic),
            false => self.board.socket(address.endpoint),
        };
        let channel = match Channel::connect(&path) {
            Ok(channel) => channel,
            Err(Errno::NOENT | Errno::CONNREFUSED) if remote => {
                return Err(Error::UnknownNic(address.nic));
            }
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(Error::Connection(Code::Closed)),
            Err(Errno::AGAIN) => return Err(Error::Connection(Code::NoResources)),
            Err(error) => return Err(error.into()),
        };
        let window = match remote {
            true => None,
            false => Some(region::endpoint_pair(layout()?)?),
        };
        let hello = Hello {
            from: self.address,
            to: address,
            session: self.session,
            own_key: Some(self.key),
            key,
            fences: doorbell::register_membarrier(),
            process_memory: !remote && self.is_in_its_process(),
            other_host: false,
            members: (!remote).then_some(AS_ATTACHER),
        };
        let heap = (!remote).then(|| self.engine.heap.as_fd());
        let offered = channel.offer(window.as_ref(), heap, &hello.encode());
        offered.map_err(|_| Error::Connection(Code::Closed))?;
        self.waiter.add(&channel, Token::Outgoing(id).encode())?;
        Ok((channel, window))
    }

    /// Accepts connections.
    pub(crate) fn accept(&mut self) {
        for _ in 0..INCOMING {
            // Without free descriptors, connections stay in the backlog and are accepted later.
            let Ok(Some(channel)) = self.listener.accept() else {
                return;
            };
            if self.handshakes.incoming.len() >= INCOMING {
                self.evict_oldest_incoming();
            }
            let id = self.handshakes.id();
            let token = Token::Incoming(id).encode();
            if self.waiter.add(&channel, token).is_ok() {
                self.handshakes.incoming.insert(id, channel);
            }
        }
    }

    /// Closes the oldest connection without an offer, to make room.
    fn evict_oldest_incoming(&mut self) {
        if let Some((&first, _)) = self.handshakes.incoming.first_key_value() {
            self.handle_incoming(first);
            self.handshakes.incoming.remove(&first);
        }
    }

    /// Handles a message or the end of an accepted connection.
    pub(crate) fn handle_incoming(&mut self, id: u32) {
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
            handshake_data,
        }) = message
        else {
            return;
        };
        let Some(hello) = Hello::decode(&handshake_data) else {
            return;
        };
        let verdict = match self.is_misdirected(&channel, &hello) {
            true => CLOSED,
            false => self.check_hello(&hello),
        };
        let link = match verdict {
            ACCEPTED => self.link_from_offer(window, channel, heap, &hello),
            _ => {
                self.answer(&channel, verdict, false);
                return;
            }
        };
        // An invalid window gets no answer: its creator uses another protocol.
        if let Ok(link) = link {
            let remote = hello.from.nic != self.address.nic;
            if self.answer(&link.channel, ACCEPTED, !remote) {
                self.add_link(hello.from, hello.session, hello.own_key, link);
            }
        }
    }

    /// Returns whether a daemon offers a connection with another host whose frames are this program's. The daemon has received the
    /// other host's connect before the program had the endpoint.
    fn is_misdirected(&self, channel: &Channel, hello: &Hello) -> bool {
        self.board.is_reached_in_process(hello.from.nic) && !ProcessMemory::is_this_process(channel)
    }

    fn check_hello(&mut self, hello: &Hello) -> u32 {
        let from = hello.from;
        if from == self.address {
            return FULL;
        }
        if hello.key != self.key {
            return BAD_KEY;
        }
        let simultaneous = self.handshakes.outgoing_to(from);
        let offered = simultaneous.and_then(|id| self.handshakes.outgoing.get(&id)?.offer.as_ref());
        if offered.is_some() && self.address < from {
            return SIMULTANEOUS;
        }
        // The peer may have closed its last link since this side polled last.
        if let Some(old) = self.peers.find_linked(from) {
            self.handle_peer_socket(old.index());
        }
        if let Some(old) = self.peers.find_linked(from) {
            if self.peers.get(old).map(|known| known.session) == Some(hello.session) {
                return FULL;
            }
            // The peer's socket is bound again, so the endpoint that had the address before has
            // ended.
            self.fail_peer(old, Code::Closed);
        }
        ACCEPTED
    }

    fn answer(&self, channel: &Channel, verdict: u32, with_heap: bool) -> bool {
        let reply = HelloReply {
            verdict,
            session: self.session,
            fences: doorbell::register_membarrier(),
            process_memory: self.is_in_its_process(),
            other_host: false,
            members: None,
        };
        let accepted = verdict == ACCEPTED;
        let heap = with_heap.then(|| self.engine.heap.as_fd());
        let reply = reply.encode();
        channel.answer(accepted, None, heap, &reply).is_ok()
    }

    /// Handles the answer to an offer of this side, or the end of its socket.
    pub(crate) fn handle_outgoing(&mut self, id: u32) {
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
            handshake_data,
        })) = message
        else {
            self.fail_connect(id, Code::Closed);
            return;
        };
        match (accepted, HelloReply::decode(&handshake_data)) {
            (true, Some(reply)) => {
                let (address, key) = (outgoing.address, outgoing.key);
                let window = match (window, place) {
                    (Some(window), None) => Ok(window),
                    (None, Some(place)) => attach(place),
                    _ => Err(WindowError::Unsealed),
                };
                let made = window.and_then(|window| Ok((window.ends(Side::Creator)?, window)));
                match made {
                    Ok((mut ends, window)) => {
                        self.keep_in_cache(&mut ends, address);
                        let mut link = Link::new(ends, channel, heap, reply.fences);
                        let near = address.nic == self.address.nic;
                        let members = near.then_some(AS_CREATOR).or(reply.members);
                        link.remote_memory = self.remote_memory_of(&window, members, address);
                        link.process = self.process_of(&link.channel, near && reply.process_memory);
                        link.other_host = reply.other_host;
                        self.add_link(address, reply.session, Some(key), link);
                    }
                    Err(_) => self.fail_connect(id, Code::NoResources),
                }
            }
            (false, Some(reply)) => match reply.verdict {
                SIMULTANEOUS => self.await_peer_offer(id),
                BAD_KEY => self.end_wrong_keys(id),
                CLOSED => self.fail_connect(id, Code::Closed),
                UNREACHABLE => self.fail_connect(id, Code::Unreachable),
                UNKNOWN => self.fail_connect(id, Code::Unknown),
                _ => self.fail_connect(id, Code::NoResources),
            },
            (_, None) => self.fail_connect(id, Code::Unreachable),
        }
    }

    /// Creates a link from a peer's offer.
    fn link_from_offer(
        &self,
        window: WindowLocation,
        channel: Channel,
        heap: Option<OwnedFd>,
        hello: &Hello,
    ) -> Result<Link, WindowError> {
        let window = attach(window)?;
        let mut ends = window.ends(Side::Attacher)?;
        self.keep_in_cache(&mut ends, hello.from);
        let mut link = Link::new(ends, channel, heap, hello.fences);
        link.remote_memory = self.remote_memory_of(&window, hello.members, hello.from);
        let near = hello.from.nic == self.address.nic;
        link.process = self.process_of(&link.channel, near && hello.process_memory);
        link.other_host = hello.other_host;
        Ok(link)
    }

    /// Returns the peer's process, if it is on this board and both sides can copy from and to each other's memory.
    fn process_of(&self, channel: &Channel, is_offered: bool) -> Option<ProcessMemory> {
        match is_offered && self.is_in_its_process() {
            true => ProcessMemory::of_peer(channel),
            false => None,
        }
    }

    /// Returns whether this is the process that opened the endpoint, and not a child of it: peers know the former's id.
    fn is_in_its_process(&self) -> bool {
        self.engine.process == std::process::id()
    }

    /// Returns the heaps of the region that a window is in, if its ends are members of it.
    fn remote_memory_of(
        &self,
        window: &Window,
        members: Option<MemberPair>,
        peer: Address,
    ) -> Option<RemoteMemory> {
        let allocator = match peer.nic == self.address.nic {
            // This heap belongs to this link alone.
            true => UnitAllocator::in_process(),
            false => self.board.heap_allocator(peer.nic),
        };
        RemoteMemory::new(window, members?, allocator)
    }

    pub(crate) fn fail_connect(&mut self, id: u32, code: Code) {
        let outgoing = self.handshakes.outgoing.remove(&id);
        for (request, _) in outgoing.into_iter().flat_map(|out| out.requests) {
            self.end_connect(request, code);
        }
    }

    /// The offer's key is wrong. Ends the requests with that key; the others connect again with
    /// theirs.
    fn end_wrong_keys(&mut self, id: u32) {
        let Some(outgoing) = self.handshakes.outgoing.remove(&id) else {
            return;
        };
        for (request, key) in outgoing.requests {
            if key == outgoing.key {
                self.end_connect(request, Code::BadKey);
            } else if self.begin_connect(request, outgoing.address, key).is_err() {
                self.end_connect(request, Code::NoResources);
            }
        }
    }

    /// Ends a connect request, unless it was cancelled.
    fn end_connect(&mut self, request: Request, code: Code) {
        let entry = self.engine.requests.get(request);
        if entry.is_some_and(|entry| entry.state == State::Connecting) {
            self.engine.requests.end(request, code, 0);
        }
    }

    /// Adds a link, and ends the requests that wait for it; those with the peer's key succeed.
    fn add_link(&mut self, address: Address, session: u64, key: Option<u32>, mut link: Link) {
        if address.nic != self.address.nic {
            link.remote = true;
            self.remote = true;
        }
        let peer = self.peers.add(address, session, key, link);
        let token = Token::Peer(peer.index()).encode();
        let watched = match self.peers.link(peer) {
            Some(link) => self.waiter.add(&link.channel, token).is_ok(),
            None => false,
        };
        if !watched {
            // The end of the peer would never be detected.
            self.fail_peer(peer, Code::NoResources);
        }
        let Some(id) = self.handshakes.outgoing_to(address) else {
            return;
        };
        let outgoing = self.handshakes.outgoing.remove(&id);
        for (request, wanted) in outgoing.into_iter().flat_map(|out| out.requests) {
            match self.peers.has_key(peer, wanted) {
                true => self.connected(request, peer),
                false => self.end_connect(request, Code::BadKey),
            }
        }
    }

    /// Ends a connect request with its peer.
    pub(crate) fn connected(&mut self, request: Request, peer: Peer) {
        match self.engine.requests.get(request) {
            Some(entry) if entry.state == State::Connecting => entry.status.peer = Some(peer),
            _ => return,
        }
        self.engine.requests.end(request, Code::Success, 0);
    }
}

/// Attaches the window of a link that another process created.
fn attach(place: WindowLocation) -> Result<Window, WindowError> {
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
