//! Records from a peer: messages go into receives or into the unexpected queue, control records to
//! the requests that they name.

use std::mem;

use crate::engine::{Arrival, Body, Engine, Offered, Posted};
use crate::error::Code;
use crate::ids::{Peer, Request, SELF};
use crate::limits::{EAGER, MEDIUM, MEDIUM_WITH_CREDIT, UNEXPECTED_OVERHEAD};
use crate::peer::{Fault, Link};
use crate::remote_memory;
use crate::request::State;
use crate::wire::{self, Control, Envelope, Handle, Source, Target};
use window::lane::{Consumer, Record};

impl Engine {
    /// Takes the next record of the message lane; false if there is none.
    #[inline]
    pub(crate) fn take_message(&mut self, link: &mut Link, peer: Peer) -> Result<bool, Fault> {
        let lane = &mut link.messages_in;
        let Some(tag) = lane.tag() else {
            return Ok(false);
        };
        // An eager message is copied from the slot into the receive, without a copy in between.
        if let Some(length) = wire::eager_length(tag) {
            self.arrive_eager(link, peer, length);
            link.messages_in.step();
            return Ok(true);
        }
        let record = lane.take(tag);
        self.arrive(link, peer, &record)?;
        Ok(true)
    }

    /// Takes an eager message of at most [`EAGER`] bytes from its slot.
    #[inline(always)]
    fn arrive_eager(&mut self, link: &mut Link, peer: Peer, length: usize) {
        let lane = &link.messages_in;
        let value = lane.first();
        let copied = || copy_eager(lane, length);
        if let Some(request) = self.match_posted(value) {
            let message = (peer, value, length as u64);
            self.requests.end_receive(request, message, |memory| {
                let Some(room) = memory.piece_mut() else {
                    return memory.put(0, copied().get(..length).unwrap_or_default());
                };
                let taken = room.len().min(length);
                lane.bytes(room.get_mut(..taken).unwrap_or_default());
                taken as u64
            });
        } else {
            let body = Body::Eager(copied());
            self.store_unexpected(link, peer, value, length as u64, body);
        }
    }

    /// Takes any other record of the message lane.
    fn arrive(&mut self, link: &mut Link, peer: Peer, record: &Record) -> Result<(), Fault> {
        match Envelope::decode(record, MEDIUM_WITH_CREDIT).ok_or(Fault::Malformed)? {
            // The tag was none of an eager message when it was read first: the peer has changed it.
            Envelope::Eager { .. } => return Err(Fault::Malformed),
            Envelope::Medium {
                value,
                offset,
                length,
                sender,
            } => {
                let at = u64::from(offset);
                self.copies.streamed += u64::from(u64::from(length) > MEDIUM);
                match self.match_posted(value) {
                    Some(request) => {
                        let taken = self.take_medium(link, request, peer, value, at, length)?;
                        if let Some(sender) = sender {
                            link.send_control(Control::Done { sender, taken })?;
                        }
                    }
                    None => {
                        let bytes = copy_medium(&mut link.messages_in, offset, length)?;
                        let body = Body::Bytes(bytes, sender);
                        self.store_unexpected(link, peer, value, u64::from(length), body);
                    }
                }
            }
            Envelope::Offer {
                value,
                length,
                sender,
                source,
            } => {
                let offered = Offered { sender, source };
                match self.match_posted(value) {
                    Some(request) => self.pull(link, request, peer, value, length, offered)?,
                    None => self.store_unexpected(link, peer, value, length, Body::Offer(offered)),
                }
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn match_posted(&mut self, value: u64) -> Option<Request> {
        let posted = self
            .posted
            .take(value, |posted: &Posted| posted.pattern.fits(value));
        posted.map(|posted| posted.request)
    }

    /// Queues a message that no receive matches, and counts it against its peer.
    fn store_unexpected(
        &mut self,
        link: &mut Link,
        peer: Peer,
        value: u64,
        length: u64,
        body: Body,
    ) {
        let arrival = Arrival {
            peer,
            value,
            length,
            body,
        };
        link.unexpected += arrival.cost();
        self.add_unexpected(arrival);
    }

    /// Completes a receive with a message that arrived before. The link is `None` for a message to
    /// the endpoint itself, or if the peer is gone.
    pub(crate) fn take_arrival(
        &mut self,
        link: Option<&mut Link>,
        request: Request,
        arrival: Arrival,
    ) -> Result<(), Fault> {
        let (peer, value, length) = (arrival.peer, arrival.value, arrival.length);
        let Some(link) = link else {
            match arrival.body {
                Body::Eager(bytes) => {
                    self.take_bytes(request, peer, value, eager_bytes(&bytes, length));
                }
                Body::Bytes(bytes, _) => {
                    self.take_bytes(request, peer, value, &bytes);
                }
                Body::Own(sender) => self.receive_from_self(request, value, sender),
                Body::Offer(_) => self.requests.end(request, Code::Closed, 0),
            }
            return Ok(());
        };
        link.unexpected = link.unexpected.saturating_sub(arrival.cost());
        match arrival.body {
            Body::Eager(bytes) => {
                self.take_bytes(request, peer, value, eager_bytes(&bytes, length));
            }
            Body::Bytes(bytes, sender) => {
                let taken = self.take_bytes(request, peer, value, &bytes);
                if let Some(sender) = sender {
                    link.send_control(Control::Done { sender, taken })?;
                }
            }
            Body::Offer(offered) => self.pull(link, request, peer, value, length, offered)?,
            Body::Own(sender) => self.receive_from_self(request, value, sender),
        }
        Ok(())
    }

    /// Completes a receive with a whole message; returns how many bytes of it had room.
    fn take_bytes(&mut self, request: Request, peer: Peer, value: u64, bytes: &[u8]) -> u64 {
        let message = (peer, value, bytes.len() as u64);
        self.requests
            .end_receive(request, message, |memory| memory.put(0, bytes))
    }

    /// Completes a receive with a whole message from the data area; returns how many bytes of it
    /// had room.
    fn take_medium(
        &mut self,
        link: &mut Link,
        request: Request,
        peer: Peer,
        value: u64,
        mut at: u64,
        length: u32,
    ) -> Result<u64, Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        let length = u64::from(length);
        let taken = length.min(entry.memory.length());
        entry.status.peer = Some(peer);
        entry.status.value = value;
        entry.status.length = length;
        link.messages_in.skip();
        let lane = &mut link.messages_in;
        let read = entry.memory.fill(0, taken, |piece| {
            lane.read(at, piece)?;
            at += piece.len() as u64;
            Some(())
        });
        if read.is_none() {
            self.requests.end(request, Code::Unreachable, 0);
            return Err(Fault::Malformed);
        }
        self.requests.end_with(request, taken);
        Ok(taken)
    }

    /// Fetches an offered message: copies it from the sender's heap, or asks the sender to stream
    /// it.
    fn pull(
        &mut self,
        link: &mut Link,
        request: Request,
        peer: Peer,
        value: u64,
        length: u64,
        offered: Offered,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        let wanted = length.min(entry.memory.length());
        entry.status.peer = Some(peer);
        entry.status.value = value;
        entry.status.length = length;
        // From here on, the request ends if the peer does.
        entry.state = State::Filling { got: 0, wanted };
        let sender = offered.sender;
        let is_on_member_heap =
            matches!(offered.source, Source::MemberHeap(_)) && link.peer_heap().is_some();
        match offered.source {
            _ if wanted == 0 => {}
            Source::Heap(mut at) => {
                let heap = link.heap()?;
                let read = entry.memory.fill(0, wanted, |piece| {
                    heap.read(at, piece)?;
                    at = at.checked_add(piece.len() as u64)?;
                    Some(())
                });
                read.ok_or(Fault::Malformed)?;
                self.copies.once += 1;
            }
            Source::MemberHeap(place)
                if is_on_member_heap && link.can_share(&entry.memory, wanted) =>
            {
                return self.share(link, request, sender, place, wanted);
            }
            Source::MemberHeap(place) if is_on_member_heap => {
                let heap = link.peer_heap().ok_or(Fault::Malformed)?;
                let copied = remote_memory::copy(heap, place, &mut entry.memory, wanted);
                if !copied.ok_or(Fault::Malformed)? {
                    return Err(Fault::Revoked);
                }
                self.copies.once += 1;
            }
            // Also if the member's heap cannot be mapped here.
            Source::Stream | Source::MemberHeap(_) => {
                return self.ask_for_stream(link, request, sender, wanted, 0);
            }
            Source::Process {
                address,
                flow,
                credited,
            } => {
                entry.flow = flow;
                let choice = link.copy_choices.of(flow, MEDIUM_WITH_CREDIT);
                choice.sent_with_credits(credited);
                return self.fetch(link, request, sender, address, wanted);
            }
        }
        self.received(link, request, sender, wanted)
    }

    /// Completes a receive with a message of this endpoint to itself.
    pub(crate) fn receive_from_self(&mut self, request: Request, value: u64, sender: Request) {
        let Some(entry) = self.requests.get(sender) else {
            return;
        };
        let length = entry.status.length;
        let memory = mem::take(&mut entry.memory);
        let mut taken = 0;
        if let Some(entry) = self.requests.get(request) {
            entry.status.peer = Some(SELF);
            entry.status.value = value;
            entry.status.length = length;
            // The closure always continues; bytes without room are dropped.
            let _all = memory.read(0, length, |piece| {
                taken += entry.memory.put(taken, piece);
                Some(())
            });
        }
        if let Some(entry) = self.requests.get(sender) {
            entry.memory = memory;
        }
        self.requests.end_with(request, taken);
        self.requests.end_with(sender, taken);
    }

    /// Handles a record of the control lane.
    pub(crate) fn control(
        &mut self,
        link: &mut Link,
        peer: Peer,
        record: &Record,
    ) -> Result<(), Fault> {
        match Control::decode(record).ok_or(Fault::Malformed)? {
            Control::Done { sender, taken } => {
                let found = self.requests.of_peer(sender, peer);
                let (request, entry) = found.ok_or(Fault::Malformed)?;
                let awaited = matches!(entry.state, State::Offered | State::Sharing);
                if !awaited || taken > entry.status.length {
                    return Err(Fault::Malformed);
                }
                link.awaited_replies = link.awaited_replies.saturating_sub(1);
                self.requests.end_with(request, taken);
            }
            Control::Pull {
                sender,
                receiver,
                wanted,
                confirmed,
                credits,
            } => {
                let found = self.requests.of_peer(sender, peer);
                let (request, entry) = found.ok_or(Fault::Malformed)?;
                let sane = wanted > 0 && wanted <= entry.status.length;
                // A receiver that could not copy all of it asks for a stream.
                let awaited = matches!(entry.state, State::Offered | State::Sharing);
                if !awaited || !sane {
                    return Err(Fault::Malformed);
                }
                entry.state = State::Streaming {
                    sent: 0,
                    wanted,
                    receiver,
                    confirmed,
                };
                if entry.status.length <= MEDIUM_WITH_CREDIT {
                    link.credits.grant(entry.flow, credits);
                }
                link.streams.push_back(request);
            }
            Control::Chunk {
                receiver,
                offset,
                length,
            } => self.take_chunk(link, peer, receiver, u64::from(offset), u64::from(length))?,
            Control::Share(share) => match share.target {
                Target::MemberHeap(target) => self.join_copy(link, peer, &share, target)?,
                Target::Process(target) => self.join_process_copy(link, peer, &share, target)?,
            },
            Control::Copied { receiver, pieces } => self.copied(link, peer, receiver, pieces)?,
        }
        Ok(())
    }

    fn take_chunk(
        &mut self,
        link: &mut Link,
        peer: Peer,
        receiver: Handle,
        mut at: u64,
        length: u64,
    ) -> Result<(), Fault> {
        let found = self.requests.of_peer(receiver, peer);
        let (request, entry) = found.ok_or(Fault::Malformed)?;
        let State::Filling { got, wanted } = entry.state else {
            return Err(Fault::Malformed);
        };
        if length == 0 || length > wanted - got {
            return Err(Fault::Malformed);
        }
        let lane = &mut link.control_in;
        let read = entry.memory.fill(got, length, |piece| {
            lane.read(at, piece)?;
            at += piece.len() as u64;
            Some(())
        });
        read.ok_or(Fault::Malformed)?;
        let got = got + length;
        entry.state = State::Filling { got, wanted };
        if got == wanted {
            link.awaited_replies = link.awaited_replies.saturating_sub(1);
            link.end_copy(entry, wanted);
            self.requests.end_with(request, wanted);
            self.copies.streamed += 1;
        }
        Ok(())
    }
}

/// Copies the next record of a lane, an eager message of this length, out of its slot.
#[inline(always)]
pub(crate) fn copy_eager(lane: &Consumer, length: usize) -> [u8; EAGER] {
    let mut copy = [0; EAGER];
    lane.bytes(copy.get_mut(..length).unwrap_or_default());
    copy
}

/// Copies the data of a medium message out of its lane.
///
/// # Errors
/// The data is not all inside the lane's data area.
pub(crate) fn copy_medium(lane: &mut Consumer, offset: u32, length: u32) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; length as usize];
    let read = lane.read(u64::from(offset), &mut bytes);
    read.ok_or(Fault::Malformed)?;
    Ok(bytes)
}

/// Returns the bytes of an eager message.
pub(crate) fn eager_bytes(bytes: &[u8; EAGER], length: u64) -> &[u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    bytes.get(..length).unwrap_or_default()
}

impl Arrival {
    /// Returns the bytes that the message counts against its sender's limit.
    pub(crate) fn cost(&self) -> u64 {
        let bytes = match &self.body {
            Body::Bytes(bytes, _) => bytes.len() as u64,
            Body::Eager(_) | Body::Offer(_) | Body::Own(_) => 0,
        };
        bytes + UNEXPECTED_OVERHEAD
    }
}
