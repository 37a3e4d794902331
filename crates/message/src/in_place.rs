//! Unexpected messages that the program reads where they arrived, in the shared memory.
//!
//! A program with a matching of its own, such as an MPI library, posts no receives, so all its
//! messages are unexpected. The [handler](crate::unexpected) gets a copy of each. A program that reads
//! them in place saves that copy: a message that matches no receive stays in its lane until the program
//! asks for it, and its data stays there until the program asks for the next one. Until then no further
//! message of this peer is taken, and a peer whose lane is full waits.
//!
//! The peer can change the data meanwhile. So the endpoint gives out the address, and no reference.

use std::ptr::NonNull;

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body, Engine, Offered};
use crate::ids::Peer;
use crate::limits::POLLS_PER_SOCKET_CHECK;
use crate::peer::{Fault, Link};
use crate::receive::{copy_eager, copy_medium};
use crate::unexpected::Unexpected;
use crate::wire::{self, Envelope};

impl Engine {
    /// Returns whether the next message may be taken out of the lane: in place, only a message that
    /// matches a receive.
    #[inline(always)]
    pub(crate) fn may_take(&self, link: &Link) -> bool {
        !self.in_place || self.has_receive(link)
    }

    fn has_receive(&self, link: &Link) -> bool {
        if link.reading || self.posted.is_idle() || !link.messages_in.has_record() {
            return false;
        }
        // The peer may change the value. Then the message matches nothing, and is queued.
        let value = link.messages_in.first();
        self.posted.has(value, |posted| posted.pattern.fits(value))
    }

    /// Returns whether a call of [`serve`](Self::serve) would take a record.
    pub(crate) fn could_take(&self, link: &Link) -> bool {
        match self.in_place {
            false => link.has_record(),
            true => {
                link.accepts_messages() && self.has_receive(link)
                    || link.awaited_replies > 0 && link.control_in.has_record()
            }
        }
    }

    /// Returns the peer's next message, if it matches no receive, and the offset of its data, if that
    /// stays where it is.
    #[inline]
    fn next_in_place(
        &self,
        link: &mut Link,
        peer: Peer,
    ) -> Result<Option<(Arrival, Option<u32>)>, Fault> {
        let Some(tag) = link.messages_in.tag() else {
            return Ok(None);
        };
        // It may have arrived after the endpoint served the peer. The next call serves it.
        if self.has_receive(link) {
            return Ok(None);
        }
        let lane = &mut link.messages_in;
        if let Some(length) = wire::eager_length(tag) {
            let value = lane.first();
            let body = Body::Eager(copy_eager(lane, length));
            lane.step();
            let arrival = arrival(peer, value, length as u64, body);
            return Ok(Some((arrival, None)));
        }
        let record = lane.peek(tag);
        match Envelope::decode(&record).ok_or(Fault::Malformed)? {
            // The tag was none of an eager message when it was read first: the peer has changed it.
            Envelope::Eager { .. } => Err(Fault::Malformed),
            Envelope::Medium {
                value,
                offset,
                length,
                sender,
            } => {
                if let Some(sender) = sender {
                    let bytes = copy_medium(lane, offset, length)?;
                    lane.step();
                    let body = Body::Bytes(bytes, Some(sender));
                    return Ok(Some((arrival(peer, value, u64::from(length), body), None)));
                }
                let address = lane.data_address(u64::from(offset), length as usize);
                address.ok_or(Fault::Malformed)?;
                link.reading = true;
                let body = Body::Bytes(Vec::new(), None);
                let arrival = arrival(peer, value, u64::from(length), body);
                Ok(Some((arrival, Some(offset))))
            }
            Envelope::Offer {
                value,
                length,
                sender,
                source,
            } => {
                lane.step();
                let body = Body::Offer(Offered { sender, source });
                Ok(Some((arrival(peer, value, length, body), None)))
            }
        }
    }
}

#[inline(always)]
fn arrival(peer: Peer, value: u64, length: u64, body: Body) -> Arrival {
    Arrival {
        peer,
        value,
        length,
        body,
    }
}

impl Endpoint {
    /// Leaves messages that match no receive where they arrive, for
    /// [`next_in_place`](Self::next_in_place). No receive matches them before that call.
    pub fn leave_in_place(&mut self) {
        self.show_unexpected(true);
        self.engine.in_place = true;
    }

    /// Makes progress, and returns the next message that matches no receive. The program must pass it
    /// to [`consume`](Self::consume) or [`keep`](Self::keep) before the next call.
    #[inline]
    pub fn next_in_place(&mut self) -> Option<Unexpected> {
        self.polls += 1;
        if self.polls >= POLLS_PER_SOCKET_CHECK {
            self.poll_sockets();
        }
        // Messages of this endpoint itself, and of peers that have ended.
        if self.has_unexpected() {
            return self.next_unexpected();
        }
        let count = self.peers.count();
        for _ in 0..count {
            let Some(peer) = self.peers.active(self.next_peer) else {
                self.next_peer = 0;
                continue;
            };
            self.next_peer += 1;
            if self.next_peer >= count {
                self.next_peer = 0;
            }
            let found = self.take_in_place(peer);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Serves a peer, and returns its next message that matches no receive.
    #[inline]
    fn take_in_place(&mut self, peer: Peer) -> Option<Unexpected> {
        let link = self.peers.link(peer)?;
        if let Err(fault) = self.engine.serve(link, peer) {
            self.fail_peer(peer, fault.code());
            return None;
        }
        if link.reading || !link.accepts_messages() {
            return None;
        }
        match self.engine.next_in_place(link, peer) {
            Ok(Some((arrival, place))) => {
                link.unexpected += arrival.cost();
                if place.is_some() {
                    self.reading = Some(peer);
                } else if link.messages_in.release() {
                    link.wake();
                }
                Some(Unexpected::new(arrival, place))
            }
            Ok(None) => None,
            Err(fault) => {
                self.fail_peer(peer, fault.code());
                None
            }
        }
    }

    /// Returns the address of a message that is still where it arrived. It is valid until the message
    /// is passed to [`consume`](Self::consume) or [`keep`](Self::keep). The peer can change the bytes
    /// at any time.
    #[must_use]
    pub fn address_in_place(&mut self, unexpected: &Unexpected) -> Option<NonNull<u8>> {
        let offset = u64::from(unexpected.place?);
        let length = usize::try_from(unexpected.length()).ok()?;
        let lost = self.lost_link.as_deref_mut();
        let link = self.peers.link(unexpected.peer()).or(lost)?;
        link.messages_in.data_address(offset, length)
    }

    /// Ends the reading of a message: its peer may overwrite it.
    #[inline]
    pub(crate) fn release_place(&mut self, peer: Peer) {
        self.reading = None;
        match self.peers.link(peer) {
            Some(link) => {
                link.reading = false;
                link.messages_in.skip();
                link.messages_in.step();
                if link.messages_in.release() {
                    link.wake();
                }
            }
            None => self.lost_link = None,
        }
    }

    /// Copies a message out of the lane.
    #[cold]
    pub(crate) fn copy_out(&mut self, unexpected: &mut Unexpected) {
        let Some(offset) = unexpected.place.take() else {
            return;
        };
        let peer = unexpected.peer();
        let mut bytes = vec![0; usize::try_from(unexpected.length()).unwrap_or_default()];
        let lost = self.lost_link.as_deref_mut();
        if let Some(link) = self.peers.link(peer).or(lost) {
            // The offset was checked when the message was taken.
            let _inside = link.messages_in.read(u64::from(offset), &mut bytes);
        }
        let before = unexpected.arrival.cost();
        unexpected.arrival.body = Body::Bytes(bytes, None);
        let more = unexpected.arrival.cost() - before;
        if let Some(link) = self.peers.link(peer) {
            link.unexpected += more;
        }
        self.release_place(peer);
    }
}
