//! What comes from a peer: messages into receives or into the queue of those nobody waits for,
//! control into the requests it is for.

use std::mem;

use crate::engine::{Arrival, Body, Engine, Offered, Posted};
use crate::error::Code;
use crate::ids::{Peer, Request, SELF};
use crate::limits::{ARRIVAL, EAGER};
use crate::peer::{Fault, Link};
use crate::remote_memory;
use crate::request::State;
use crate::wire::{self, Control, Envelope, Handle, Source};
use window::lane::Record;

impl Engine {
    /// The next record of the lane of messages; false when there is none.
    #[inline]
    pub(crate) fn take_message(&mut self, link: &mut Link, peer: Peer) -> Result<bool, Fault> {
        let lane = &mut link.messages_in;
        let Some(tag) = lane.tag() else {
            return Ok(false);
        };
        // Eager ones go from the slot to where they belong, without a copy in between.
        if let Some(length) = wire::eager_length(tag) {
            self.arrive_eager(link, peer, length);
            link.messages_in.step();
            return Ok(true);
        }
        let Some(record) = lane.pop() else {
            return Ok(false);
        };
        self.arrive(link, peer, &record)?;
        Ok(true)
    }

    /// An eager message of at most [`EAGER`] bytes, in the slot.
    #[inline(always)]
    fn arrive_eager(&mut self, link: &mut Link, peer: Peer, length: usize) {
        let lane = &link.messages_in;
        let value = lane.first();
        let copied = || {
            let mut copy = [0; EAGER];
            lane.bytes(copy.get_mut(..length).unwrap_or_default());
            copy
        };
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
            self.keep(link, peer, value, length as u64, body);
        }
    }

    /// Any other record of the lane of messages.
    fn arrive(&mut self, link: &mut Link, peer: Peer, record: &Record) -> Result<(), Fault> {
        match Envelope::decode(record).ok_or(Fault::Nonsense)? {
            // It was none when its tag was looked at.
            Envelope::Eager { .. } => return Err(Fault::Nonsense),
            Envelope::Medium {
                value,
                offset,
                length,
                sender,
            } => {
                let at = u64::from(offset);
                match self.match_posted(value) {
                    Some(request) => {
                        let taken = self.take_medium(link, request, peer, value, at, length)?;
                        if let Some(sender) = sender {
                            link.say(Control::Done { sender, taken })?;
                        }
                    }
                    None => {
                        let mut bytes = vec![0; length as usize];
                        let read = link.messages_in.read(at, &mut bytes);
                        read.ok_or(Fault::Nonsense)?;
                        let body = Body::Bytes(bytes, sender);
                        self.keep(link, peer, value, u64::from(length), body);
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
                    None => self.keep(link, peer, value, length, Body::Offer(offered)),
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

    /// Nobody waits for it yet.
    fn keep(&mut self, link: &mut Link, peer: Peer, value: u64, length: u64, body: Body) {
        let arrival = Arrival {
            peer,
            value,
            length,
            body,
        };
        link.unexpected += arrival.cost();
        self.put_aside(arrival);
    }

    /// A receive is posted for what arrived before. The link is none for a message to oneself, or
    /// when the peer is gone.
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
                    self.take_bytes(request, peer, value, short(&bytes, length));
                }
                Body::Bytes(bytes, _) => {
                    self.take_bytes(request, peer, value, &bytes);
                }
                Body::Own(sender) => self.take_own(request, value, sender),
                Body::Offer(_) => self.requests.end(request, Code::Closed, 0),
            }
            return Ok(());
        };
        link.unexpected = link.unexpected.saturating_sub(arrival.cost());
        match arrival.body {
            Body::Eager(bytes) => {
                self.take_bytes(request, peer, value, short(&bytes, length));
            }
            Body::Bytes(bytes, sender) => {
                let taken = self.take_bytes(request, peer, value, &bytes);
                if let Some(sender) = sender {
                    link.say(Control::Done { sender, taken })?;
                }
            }
            Body::Offer(offered) => self.pull(link, request, peer, value, length, offered)?,
            Body::Own(sender) => self.take_own(request, value, sender),
        }
        Ok(())
    }

    /// A whole message; returns how much of it there was room for.
    fn take_bytes(&mut self, request: Request, peer: Peer, value: u64, bytes: &[u8]) -> u64 {
        let message = (peer, value, bytes.len() as u64);
        self.requests
            .end_receive(request, message, |memory| memory.put(0, bytes))
    }

    /// A whole message in the data area; returns how much of it there was room for.
    fn take_medium(
        &mut self,
        link: &mut Link,
        request: Request,
        peer: Peer,
        value: u64,
        mut at: u64,
        length: u32,
    ) -> Result<u64, Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Nonsense)?;
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
            return Err(Fault::Nonsense);
        }
        self.requests.end_with(request, taken);
        Ok(taken)
    }

    /// Get an offered message: at once from the sender's heap, or have it streamed.
    fn pull(
        &mut self,
        link: &mut Link,
        request: Request,
        peer: Peer,
        value: u64,
        length: u64,
        offered: Offered,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Nonsense)?;
        let wanted = length.min(entry.memory.length());
        entry.status.peer = Some(peer);
        entry.status.value = value;
        entry.status.length = length;
        // From here on the peer's end ends it.
        entry.state = State::Filling { got: 0, wanted };
        let sender = offered.sender;
        let lent = matches!(offered.source, Source::Lent(_)) && link.peer_heap().is_some();
        match offered.source {
            _ if wanted == 0 => {}
            Source::Heap(mut at) => {
                let heap = link.heap()?;
                let read = entry.memory.fill(0, wanted, |piece| {
                    heap.read(at, piece)?;
                    at = at.checked_add(piece.len() as u64)?;
                    Some(())
                });
                read.ok_or(Fault::Nonsense)?;
                self.copies.once += 1;
            }
            Source::Lent(place) if lent && link.can_share(&entry.memory, wanted) => {
                return self.share(link, request, sender, place, wanted);
            }
            Source::Lent(place) if lent => {
                let heap = link.peer_heap().ok_or(Fault::Nonsense)?;
                let copied = remote_memory::copy(heap, place, &mut entry.memory, wanted);
                if !copied.ok_or(Fault::Nonsense)? {
                    return Err(Fault::Withdrawn);
                }
                self.copies.once += 1;
            }
            // Also what cannot be reached from here.
            Source::Stream | Source::Lent(_) => {
                link.expects += 1;
                let receiver = request.handle();
                return link.say(Control::Pull {
                    sender,
                    receiver,
                    wanted,
                    confirmed: false,
                });
            }
        }
        self.received(link, request, sender, wanted)
    }

    /// A message to oneself.
    pub(crate) fn take_own(&mut self, request: Request, value: u64, sender: Request) {
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
            // It refuses nothing: what has no room is cut.
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

    /// A record of the lane of control.
    pub(crate) fn control(
        &mut self,
        link: &mut Link,
        peer: Peer,
        record: &Record,
    ) -> Result<(), Fault> {
        match Control::decode(record).ok_or(Fault::Nonsense)? {
            Control::Done { sender, taken } => {
                let found = self.requests.of_peer(sender, peer);
                let (request, entry) = found.ok_or(Fault::Nonsense)?;
                let awaited = matches!(entry.state, State::Offered | State::Sharing);
                if !awaited || taken > entry.status.length {
                    return Err(Fault::Nonsense);
                }
                link.expects = link.expects.saturating_sub(1);
                self.requests.end_with(request, taken);
            }
            Control::Pull {
                sender,
                receiver,
                wanted,
                confirmed,
            } => {
                let found = self.requests.of_peer(sender, peer);
                let (request, entry) = found.ok_or(Fault::Nonsense)?;
                let sane = wanted > 0 && wanted <= entry.status.length;
                if entry.state != State::Offered || !sane {
                    return Err(Fault::Nonsense);
                }
                entry.state = State::Streaming {
                    sent: 0,
                    wanted,
                    receiver,
                    confirmed,
                };
                link.streams.push_back(request);
            }
            Control::Chunk {
                receiver,
                offset,
                length,
            } => self.take_chunk(link, peer, receiver, u64::from(offset), u64::from(length))?,
            Control::Share(share) => self.join_copy(link, peer, share)?,
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
        let (request, entry) = found.ok_or(Fault::Nonsense)?;
        let State::Filling { got, wanted } = entry.state else {
            return Err(Fault::Nonsense);
        };
        if length == 0 || length > wanted - got {
            return Err(Fault::Nonsense);
        }
        let lane = &mut link.control_in;
        let read = entry.memory.fill(got, length, |piece| {
            lane.read(at, piece)?;
            at += piece.len() as u64;
            Some(())
        });
        read.ok_or(Fault::Nonsense)?;
        let got = got + length;
        entry.state = State::Filling { got, wanted };
        if got == wanted {
            link.expects = link.expects.saturating_sub(1);
            self.requests.end_with(request, wanted);
            self.copies.streamed += 1;
        }
        Ok(())
    }
}

/// The message among the bytes that one could have had.
pub(crate) fn short(bytes: &[u8; EAGER], length: u64) -> &[u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    bytes.get(..length).unwrap_or_default()
}

impl Arrival {
    /// What it counts against its sender.
    pub(crate) fn cost(&self) -> u64 {
        let bytes = match &self.body {
            Body::Bytes(bytes, _) => bytes.len() as u64,
            Body::Eager(_) | Body::Offer(_) | Body::Own(_) => 0,
        };
        bytes + ARRIVAL
    }
}
