//! The protocol engine: turns API calls into records, and records into completions.

use std::collections::VecDeque;

use window::heap::Heap;
use window::lane::{Producer, Room};

use crate::error::Code;
use crate::ids::{Peer, Request};
use crate::limits::{BURST, CHUNK, CHUNKS, EAGER, MEDIUM};
use crate::matching::{Contexts, Pattern, Queues};
use crate::memory::Memory;
use crate::peer::{Fault, Link};
use crate::published::Published;
use crate::request::{Entry, Requests, State};
use crate::wire::{self, Control, Handle, Source};

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    pub(crate) request: Request,
}

/// A message that matched no posted receive.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) peer: Peer,
    pub(crate) value: u64,
    pub(crate) length: u64,
    pub(crate) body: Body,
}

/// What has arrived of an unexpected message.
#[derive(Debug)]
pub(crate) enum Body {
    /// The whole message, in the record.
    Eager([u8; EAGER]),
    /// The whole message. With a handle, its sender waits until it is received.
    Bytes(Vec<u8>, Option<Handle>),
    /// Only the offer.
    Offer(Offered),
    /// A send of this endpoint to itself; the message is in that request.
    Own(Request),
}

/// A message that its sender has offered and keeps until it is requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) sender: Handle,
    pub(crate) source: Source,
}

/// The requests of an endpoint, and the queues that messages and receives are matched by.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) requests: Requests,
    pub(crate) posted: Queues<Posted>,
    pub(crate) unexpected: Queues<Arrival>,
    /// Unexpected messages for the program's handler; `None` without a handler. They enter
    /// `unexpected` after the handler has seen them.
    pub(crate) handler_queue: Option<VecDeque<Arrival>>,
    /// Messages that match no receive stay in the lane, see [`crate::in_place`].
    pub(crate) in_place: bool,
    pub(crate) heap: Heap,
    pub(crate) copies: Copies,
    /// The id of the process that opened the endpoint.
    pub(crate) process: u32,
}

/// How large messages were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Messages copied once: from the sender's heap, that of its VM, or the memory of its process.
    pub once: u64,
    /// Those of them of which the sender copied a part.
    pub shared: u64,
    /// Messages streamed in chunks, or sent with a credit.
    pub streamed: u64,
}

impl Engine {
    pub(crate) fn new(contexts: Contexts, heap: Heap) -> Self {
        Self {
            requests: Requests::new(),
            posted: Queues::new(contexts),
            unexpected: Queues::new(contexts),
            handler_queue: None,
            in_place: false,
            heap,
            copies: Copies::default(),
            process: std::process::id(),
        }
    }

    /// Serves one peer: takes its records, and sends what had no room.
    #[inline(always)]
    pub(crate) fn serve(&mut self, link: &mut Link, peer: Peer) -> Result<(), Fault> {
        if self.could_take(link) {
            self.take_records(link, peer)?;
        }
        if !link.fetches.is_empty() {
            self.serve_fetches(link)?;
        }
        if link.has_backlog() {
            self.flush(link)?;
        }
        link.wake_for_published();
        Ok(())
    }

    #[inline]
    fn take_records(&mut self, link: &mut Link, peer: Peer) -> Result<(), Fault> {
        let mut left = BURST;
        while left > 0
            && link.accepts_messages()
            && self.may_take(link)
            && self.take_message(link, peer)?
        {
            left -= 1;
            // Polling the next slot means waiting for its cache line, and a message that arrives
            // there before the program posts a receive would be copied twice. Returning to the
            // program first is faster.
            if self.posted.is_idle() {
                break;
            }
        }
        while left > 0 && link.awaited_replies > 0 {
            let Some(record) = link.control_in.pop() else {
                break;
            };
            self.control(link, peer, &record)?;
            link.published.add_room(link.control_in.release());
            left -= 1;
        }
        // The peer may sleep until it has room.
        link.published
            .add_room(!link.reading && link.messages_in.release());
        Ok(())
    }

    /// Takes all records that a peer left when it ended.
    pub(crate) fn drain(&mut self, link: &mut Link, peer: Peer) -> Result<(), Fault> {
        while let Some(record) = link.control_in.pop() {
            match self.control(link, peer, &record) {
                Ok(()) | Err(Fault::Revoked) => {}
                other => return other,
            }
        }
        // The loop ends: the ring's producer is gone.
        loop {
            match self.take_message(link, peer) {
                Ok(true) | Err(Fault::Revoked) => {}
                other => return other.map(drop),
            }
        }
    }

    /// Sends what had no room before, as far as there is room now.
    fn flush(&mut self, link: &mut Link) -> Result<(), Fault> {
        while let Some(control) = link.control.front() {
            if !link.control_out.has_room()? {
                return Ok(());
            }
            link.control_out.push(&control.encode());
            link.control.pop_front();
            link.published = Published::Records;
        }
        while let Some(&request) = link.streams.front() {
            if !self.stream(link, request)? {
                break;
            }
            link.streams.pop_front();
        }
        while let Some(&request) = link.sends.front() {
            if !self.post(link, request)? {
                break;
            }
            link.sends.pop_front();
        }
        Ok(())
    }

    /// Streams chunks of a send while there is room, at most one peer's share; returns true when
    /// all chunks are sent.
    fn stream(&mut self, link: &mut Link, request: Request) -> Result<bool, Fault> {
        for _ in 0..CHUNKS {
            let Some(entry) = self.requests.get(request) else {
                return Ok(true);
            };
            let State::Streaming {
                sent,
                wanted,
                receiver,
                confirmed,
            } = entry.state
            else {
                return Ok(true);
            };
            let left = wanted - sent;
            let length = u32::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let Some(room) = link.control_out.room(length)? else {
                return Ok(false);
            };
            let mut at = u64::from(room.offset);
            let lane = &mut link.control_out;
            let written = entry.memory.read(sent, u64::from(length), |piece| {
                lane.write(at, piece)?;
                at += piece.len() as u64;
                Some(())
            });
            written.ok_or(Fault::Malformed)?;
            let chunk = Control::Chunk {
                receiver,
                offset: room.offset,
                length,
            };
            link.control_out.push_with_data(&chunk.encode(), room);
            // The peer is woken now, not at the end: it works while the next chunk is copied.
            link.wake();
            let sent = sent + u64::from(length);
            if sent < wanted {
                entry.state = State::Streaming {
                    sent,
                    wanted,
                    receiver,
                    confirmed,
                };
                continue;
            }
            // The state changes with the last chunk, because the receiver may reply at once.
            match confirmed {
                // The transfer to another host is still going on: the receiver's *done* ends the
                // send.
                true => entry.state = State::Offered,
                false => {
                    link.awaited_replies = link.awaited_replies.saturating_sub(1);
                    self.requests.end_with(request, wanted);
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Sends a message that fits into a slot, after [`Link::can_send_inline`]; the request has
    /// ended when this returns.
    #[inline(always)]
    pub(crate) fn send_now(
        &mut self,
        link: &mut Link,
        peer: Peer,
        value: u64,
        memory: Memory,
    ) -> Request {
        push_eager(&mut link.messages_out, value, &memory);
        link.wake();
        self.requests.add_sent(memory, peer, value)
    }

    /// Starts a send. The request has ended already if the message is buffered and has room.
    pub(crate) fn send(
        &mut self,
        link: &mut Link,
        peer: Peer,
        value: u64,
        memory: Memory,
        synchronous: bool,
    ) -> Result<Request, Fault> {
        let length = memory.length();
        let has_credit = length > MEDIUM && !synchronous && link.use_credit(&self.requests, length);
        let request = self.requests.add(State::Queued, memory, Some(peer), value);
        if let Some(entry) = self.requests.get(request) {
            entry.synchronous = synchronous;
            entry.has_credit = has_credit;
        }
        if !link.sends.is_empty() || !self.post(link, request)? {
            link.sends.push_back(request);
        }
        link.wake_for_published();
        Ok(request)
    }

    /// Pushes the record of a send into the message lane; false if there is no room.
    fn post(&mut self, link: &mut Link, request: Request) -> Result<bool, Fault> {
        let Some(entry) = self.requests.get(request) else {
            return Ok(true);
        };
        let Entry { status, memory, .. } = entry;
        let (value, length) = (status.value, status.length);
        if length > MEDIUM && !entry.has_credit {
            return self.offer(link, request);
        }
        if length <= EAGER as u64 && !entry.synchronous {
            if !link.messages_out.has_room()? {
                return Ok(false);
            }
            push_eager(&mut link.messages_out, value, memory);
        } else {
            // At most 64 KiB.
            let short = u32::try_from(length).unwrap_or_default();
            let Some(room) = link.messages_out.room(short)? else {
                return Ok(false);
            };
            let sender = entry.synchronous.then(|| request.handle());
            push_medium(
                &mut link.messages_out,
                (value, length),
                memory,
                sender,
                room,
            )?;
        }
        link.published = Published::Records;
        if entry.synchronous {
            entry.state = State::Offered;
            link.awaited_replies += 1;
        } else {
            self.requests.end(request, Code::Success, length);
        }
        Ok(true)
    }

    /// Returns whether something that waits for room would find it.
    pub(crate) fn could_flush(&mut self, link: &mut Link) -> Result<bool, Fault> {
        let control = !link.control.is_empty() && link.control_out.has_room()?;
        let stream = !link.streams.is_empty() && link.control_out.room(CHUNK)?.is_some();
        let Some(&request) = link.sends.front() else {
            return Ok(control || stream);
        };
        let entry = self.requests.get(request);
        // Offers have no data.
        let sent = entry.filter(|entry| entry.status.length <= MEDIUM || entry.has_credit);
        let data = sent.map_or(0, |entry| entry.status.length);
        let data = u32::try_from(data).unwrap_or_default();
        Ok(control || stream || link.messages_out.room(data)?.is_some())
    }
}

/// Publishes a message of at most [`EAGER`] bytes. There must be room.
#[inline(always)]
fn push_eager(lane: &mut Producer, value: u64, memory: &Memory) {
    let gathered;
    let bytes = match memory.piece() {
        Some(bytes) => bytes,
        None => {
            gathered = gather(memory);
            &gathered
        }
    };
    // It fits: callers checked the length.
    let tag = wire::eager_tag(u8::try_from(bytes.len()).unwrap_or_default());
    lane.push_pieces(tag, value, &[bytes], bytes.len());
}

/// Publishes a medium message, a match value and a length, in this room.
pub(crate) fn push_medium(
    lane: &mut Producer,
    (value, length): (u64, u64),
    memory: &Memory,
    sender: Option<Handle>,
    room: Room,
) -> Result<(), Fault> {
    let mut at = u64::from(room.offset);
    let written = memory.read(0, length, |piece| {
        lane.write(at, piece)?;
        at += piece.len() as u64;
        Some(())
    });
    written.ok_or(Fault::Malformed)?;
    // At most 64 KiB.
    let length = u32::try_from(length).unwrap_or_default();
    let record = wire::medium(value, room.offset, length, sender);
    lane.push_with_data(&record, room);
    Ok(())
}

/// Copies the segments of a short message into one buffer.
fn gather(memory: &Memory) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(EAGER);
    // The closure always continues.
    let _all = memory.read(0, EAGER as u64, |piece| {
        bytes.extend_from_slice(piece);
        Some(())
    });
    bytes
}

#[cfg(test)]
mod tests;
