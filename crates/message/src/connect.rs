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
//! members that the two belong to. Two programs of different hosts may then connect by datagrams ([`crate::introductions`]).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use window::attach::{Channel, Message, WindowLocation};
use window::doorbell;
use window::layout::Layout;
use window::region::{self, UnitAllocator};
use window::{Side, Window, WindowError};

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::handshake::{
    BAD_KEY, CLOSED, Hello, HelloReply, INTRODUCED, MemberPair, SIMULTANEOUS, UNKNOWN, UNREACHABLE,
};
use crate::ids::{Peer, Request};
use crate::limits::{CONTROL, MESSAGES};
use crate::peer::Link;
use crate::pending_connects::{Offer, Outgoing, Stage};
use crate::process_memory::ProcessMemory;
use crate::remote_memory::{AS_ATTACHER, AS_CREATOR, RemoteMemory};
use crate::request::State;
use crate::token::Token;

/// What is known of the other end of a new link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherEnd {
    pub(crate) address: Address,
    pub(crate) fences: bool,
    pub(crate) process_memory: bool,
    pub(crate) other_host: bool,
    pub(crate) members: Option<MemberPair>,
}

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
        let stage = match self.may_introduce(address) {
            true => Stage::Introduction,
            false => Stage::Link,
        };
        let offer = match self.offer(id, address, key, stage) {
            Err(Error::Connection(code)) => {
                self.end_connect(request, code);
                return Ok(());
            }
            other => other?,
        };
        let outgoing = Outgoing {
            address,
            key,
            stage,
            offer: Some(offer),
            retry_at: None,
            requests: vec![(request, key)],
        };
        self.handshakes.outgoing.insert(id, outgoing);
        Ok(())
    }

    /// Returns whether the plane of this program carries the link of a channel. The plane reads what the program writes, see [`crate::plane`].
    fn is_by_plane(&self, channel: &Channel, peer: Address) -> bool {
        let remote = peer.nic != self.address.nic;
        remote && self.plane.is_some() && ProcessMemory::is_this_process(channel)
    }

    /// Sends an offer to an endpoint. [`Error::Connection`] if it is refused at once.
    pub(crate) fn offer(
        &self,
        id: u32,
        address: Address,
        key: u32,
        stage: Stage,
    ) -> Result<Offer, Error> {
        let remote = address.nic != self.address.nic;
        let path = match (remote, stage) {
            (true, Stage::Datagrams) => self.program_gateway()?,
            (true, _) => self.board.gateway_to(address.nic),
            (false, _) => self.board.socket(address.endpoint),
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
            program: match stage {
                Stage::Introduction => self.board.program_address(),
                Stage::Link | Stage::Datagrams => None,
            },
            members: (!remote).then_some(AS_ATTACHER),
        };
        let heap = (!remote).then(|| self.engine.heap.as_fd());
        let offered = channel.offer(window.as_ref(), heap, &hello.encode());
        offered.map_err(|_| Error::Connection(Code::Closed))?;
        self.waiter.add(&channel, Token::Outgoing(id).encode())?;
        Ok((channel, window))
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
            self.connect_failed(id, Code::Closed);
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
                let near = address.nic == self.address.nic;
                let other = OtherEnd {
                    address,
                    fences: reply.fences,
                    process_memory: reply.process_memory,
                    other_host: reply.other_host,
                    members: near.then_some(AS_CREATOR).or(reply.members),
                };
                let link = window
                    .and_then(|window| self.link(&window, Side::Creator, channel, heap, other));
                match link {
                    Ok(link) => self.add_link(address, reply.session, Some(key), link),
                    Err(_) => self.fail_connect(id, Code::NoResources),
                }
            }
            (false, Some(reply)) => match reply.verdict {
                SIMULTANEOUS => self.await_peer_offer(id),
                BAD_KEY => self.end_wrong_keys(id),
                INTRODUCED => self.introduced(id, reply.program),
                CLOSED => self.connect_failed(id, Code::Closed),
                UNREACHABLE => self.connect_failed(id, Code::Unreachable),
                UNKNOWN => self.connect_failed(id, Code::Unknown),
                _ => self.connect_failed(id, Code::NoResources),
            },
            (_, None) => self.connect_failed(id, Code::Unreachable),
        }
    }

    /// Makes a link with a window, of which this side has one end.
    pub(crate) fn link(
        &mut self,
        window: &Window,
        side: Side,
        channel: Channel,
        heap: Option<OwnedFd>,
        other: OtherEnd,
    ) -> Result<Link, WindowError> {
        let mut ends = window.ends(side)?;
        let by_plane = self.is_by_plane(&channel, other.address);
        if by_plane {
            ends.keep_in_cache();
        }
        let mut link = Link::new(ends, channel, heap, other.fences);
        let near = other.address.nic == self.address.nic;
        link.remote_memory = self.remote_memory_of(window, other.members, other.address);
        link.process = self.process_of(&link.channel, near && other.process_memory);
        link.other_host = other.other_host;
        self.uses_plane |= by_plane;
        link.by_datagrams = by_plane && self.board.program_plane.is_some();
        if link.by_datagrams {
            link.program = self.handshakes.expected.remove(&other.address);
        }
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
    pub(crate) fn is_in_its_process(&self) -> bool {
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
    pub(crate) fn add_link(
        &mut self,
        address: Address,
        session: u64,
        key: Option<u32>,
        mut link: Link,
    ) {
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
pub(crate) fn attach(place: WindowLocation) -> Result<Window, WindowError> {
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
