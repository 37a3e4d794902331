//! Unexpected messages that the program reads where they arrived, in the shared memory.
//!
//! A program with a matching of its own, such as an MPI library, posts no receives, so all its
//! messages are unexpected. The [handler](crate::unexpected) gets a copy of each. A program that reads
//! them in place saves that copy: a message that matches no receive stays in its lane until the program
//! asks for it. The program reads several messages of a peer together, and they stay there until it asks
//! for the next ones. Until then no further message of this peer is taken, and a peer whose lane is full
//! waits.
//!
//! The peer can change the data meanwhile. So the endpoint gives out the address, and no reference.

use window::lane::{Place, SHORT_BYTES};

use crate::endpoint::Endpoint;
use crate::engine::{Arrival, Body, Engine, Offered};
use crate::ids::Peer;
use crate::limits::{EAGER, MEDIUM_WITH_CREDIT, POLLS_PER_SOCKET_CHECK};
use crate::peer::{Fault, Link};
use crate::reading::{InPlace, Reading, Unexpected};
use crate::receive::copy_medium;
use crate::wire::{self, Envelope};

impl Engine {
    /// Returns whether the next message may be taken out of the lane: in place, only a message that
    /// matches a receive.
    #[inline(always)]
    pub(crate) fn may_take(&self, link: &mut Link) -> bool {
        !self.in_place || self.has_receive(link)
    }

    #[inline(always)]
    fn has_receive(&self, link: &mut Link) -> bool {
        self.may_have_receive(link) && self.has_posted_receive(link)
    }

    /// Returns whether any receive may match the next message. This does not change while the program reads.
    #[inline(always)]
    fn may_have_receive(&self, link: &Link) -> bool {
        !link.reading && !self.posted.is_idle()
    }

    #[inline(never)]
    fn has_posted_receive(&self, link: &mut Link) -> bool {
        if link.messages_in.tag().is_none() {
            return false;
        }
        // The peer may change the value. Then the message matches nothing, and is queued.
        let value = link.messages_in.first();
        self.posted.has(value, |posted| posted.pattern.fits(value))
    }

    /// Returns whether a call of [`serve`](Self::serve) would take a record.
    #[inline(always)]
    pub(crate) fn could_take(&self, link: &mut Link) -> bool {
        match self.in_place {
            false => link.has_record(),
            true => {
                link.accepts_messages() && self.has_receive(link)
                    || link.awaited_replies > 0 && link.control_in.has_record()
            }
        }
    }

    /// Begins to read the peer's next messages, up to one that matches a receive.
    #[inline(always)]
    fn read_next(&self, link: &mut Link, most: usize, reading: &mut Reading) -> Result<(), Fault> {
        let may_have_receive = self.may_have_receive(link);
        if !may_have_receive && !read_short(link, most, reading) {
            return Ok(());
        }
        while reading.count < most {
            let Some(tag) = link.messages_in.tag() else {
                break;
            };
            // It may have arrived after the endpoint served the peer. The next call serves it.
            if may_have_receive && self.has_posted_receive(link) {
                break;
            }
            let Some(length) = wire::eager_length(tag) else {
                match read_longer(link, tag, reading)? {
                    true => continue,
                    false => break,
                }
            };
            let (value, place) = (link.messages_in.first(), link.messages_in.place());
            read(link, (value, length), place, reading)?;
        }
        Ok(())
    }
}

/// Begins to read the next messages that share a cache line with another one. Returns whether there may be further ones.
#[inline(always)]
fn read_short(link: &mut Link, most: usize, reading: &mut Reading) -> bool {
    let published = link
        .messages_in
        .read_short(most, |tag, value, place, address| {
            let Some(length) = wire::eager_length(tag).filter(|length| *length <= SHORT_BYTES)
            else {
                return false;
            };
            reading.push(InPlace {
                value,
                // At most 24 bytes.
                length: u32::try_from(length).unwrap_or_default(),
                address: address.as_ptr().expose_provenance(),
                place,
            });
            true
        });
    published && reading.count < most
}

/// Begins to read the next message, which is not in a slot. Returns whether it is in place.
#[inline]
fn read_longer(link: &mut Link, tag: u32, reading: &mut Reading) -> Result<bool, Fault> {
    let lane = &mut link.messages_in;
    let record = lane.peek(tag);
    let envelope = Envelope::decode(&record, MEDIUM_WITH_CREDIT).ok_or(Fault::Malformed)?;
    let (value, length, body) = match envelope {
        // The tag was none of an eager message when it was read first: the peer has changed it.
        Envelope::Eager { .. } => return Err(Fault::Malformed),
        Envelope::Medium {
            value,
            offset,
            length,
            sender: None,
        } => {
            let message = (value, length as usize);
            read(link, message, Place::Data(offset.into()), reading)?;
            return Ok(true);
        }
        // The program reads it alone.
        _ if reading.count > 0 => return Ok(false),
        Envelope::Medium {
            value,
            offset,
            length,
            sender,
        } => {
            let bytes = copy_medium(lane, offset, length)?;
            (value, u64::from(length), Body::Bytes(bytes, sender))
        }
        Envelope::Offer {
            value,
            length,
            sender,
            source,
        } => (value, length, Body::Offer(Offered { sender, source })),
    };
    let arrival = Arrival {
        peer: reading.peer,
        value,
        length,
        body,
    };
    link.unexpected += arrival.cost();
    link.messages_in.step();
    if link.messages_in.release() {
        link.wake_for_room();
    }
    reading.other = Some(Box::new(Unexpected::new(arrival)));
    Ok(false)
}

/// Begins to read the next message, with a value and a length, where it is.
#[inline(always)]
fn read(
    link: &mut Link,
    (value, length): (u64, usize),
    place: Place,
    reading: &mut Reading,
) -> Result<(), Fault> {
    let address = link.messages_in.read_in_place(place, length);
    let address = address.ok_or(Fault::Malformed)?;
    reading.push(InPlace {
        value,
        // At most 64 KiB.
        length: u32::try_from(length).unwrap_or_default(),
        address: address.as_ptr().expose_provenance(),
        place,
    });
    // Its place is released when the program has read it.
    link.messages_in.step();
    Ok(())
}

impl Endpoint {
    /// Leaves messages that match no receive where they arrive, for
    /// [`read_next`](Self::read_next). No receive matches them before that call.
    pub fn leave_in_place(&mut self) {
        self.show_unexpected(true);
        self.engine.in_place = true;
    }

    /// Makes progress, and begins to read the next messages that match no receive, after it consumed the
    /// last ones: up to `most` messages of one peer in place, or another one. Returns whether there is one.
    #[inline]
    pub fn read_next(&mut self, most: usize) -> bool {
        self.consume_read();
        self.polls += 1;
        if self.polls >= POLLS_PER_SOCKET_CHECK {
            self.poll_sockets();
        }
        self.poll_plane();
        // Messages of this endpoint itself, and of peers that have ended.
        if most > 0 && self.has_unexpected() {
            return self.read_queued();
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
            self.read_next_of(peer, most);
            if self.reading.count > 0 || self.reading.other.is_some() {
                return true;
            }
        }
        false
    }

    fn read_queued(&mut self) -> bool {
        self.reading.other = self.next_unexpected().map(Box::new);
        self.reading.other.is_some()
    }

    /// Serves a peer, and begins to read its next messages that match no receive.
    #[inline(always)]
    fn read_next_of(&mut self, peer: Peer, most: usize) {
        let Some(link) = self.peers.link(peer) else {
            return;
        };
        self.reading.peer = peer;
        let served = self.engine.serve(link, peer);
        let read = served.and_then(|()| match link.accepts_messages() {
            true => self.engine.read_next(link, most, &mut self.reading),
            false => Ok(()),
        });
        link.reading = self.reading.count > 0;
        if let Err(fault) = read {
            self.fail_peer(peer, fault.code());
        }
    }

    /// Returns the messages that are read.
    #[inline(always)]
    #[must_use]
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Drops the messages that were read: their peer may overwrite them.
    #[inline(always)]
    pub fn consume_read(&mut self) {
        if self.reading.count > 0 {
            self.reading.count = 0;
            self.reading.kept = 0;
            match self.peers.link(self.reading.peer) {
                Some(link) => {
                    link.reading = false;
                    if link.messages_in.release() {
                        link.wake_for_room();
                    }
                }
                None => self.lost_link = None,
            }
        }
        if let Some(message) = self.reading.other.take() {
            self.consume(*message);
        }
    }

    /// Copies one of the messages that are read, by its number from 0, out of the lane: it completes a
    /// receive posted meanwhile, or is queued for a later one.
    pub fn keep_read(&mut self, number: usize) {
        if let Some(message) = self.reading.keep(number) {
            self.keep_in_place(&message);
        } else if number == 0
            && let Some(message) = self.reading.other.take()
        {
            self.keep(*message);
        }
    }

    fn keep_in_place(&mut self, message: &InPlace) {
        let peer = self.reading.peer;
        let lost = self.lost_link.as_deref();
        let link = self.peers.link(peer).map(|link| &*link).or(lost);
        let Some(link) = link else {
            return;
        };
        let mut bytes = [0; EAGER];
        let length = message.length as usize;
        let body = match bytes.get_mut(..length) {
            // The place was checked when the message was taken.
            Some(room) => {
                let _inside = link.messages_in.copy_out(message.place, room);
                Body::Eager(bytes)
            }
            None => {
                let mut bytes = vec![0; length];
                let _inside = link.messages_in.copy_out(message.place, &mut bytes);
                Body::Bytes(bytes, None)
            }
        };
        let arrival = Arrival {
            peer,
            value: message.value,
            length: message.length.into(),
            body,
        };
        if let Some(link) = self.peers.link(peer) {
            link.unexpected += arrival.cost();
        }
        self.keep(Unexpected::new(arrival));
    }
}
