//! The protocols: what is between calls on one side and records on the other.

use std::collections::VecDeque;

use window::heap::Heap;
use window::lane::Producer;

use crate::error::Code;
use crate::ids::{Peer, Request};
use crate::limits::{BURST, CHUNK, CHUNKS, EAGER, MEDIUM};
use crate::matching::{Contexts, Pattern, Queues};
use crate::memory::Memory;
use crate::peer::{Fault, Link};
use crate::request::{Entry, Requests, State};
use crate::wire::{self, Control, Handle, Source};

/// A receive that waits.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    pub(crate) request: Request,
}

/// A message that nobody waits for.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) peer: Peer,
    pub(crate) value: u64,
    pub(crate) length: u64,
    pub(crate) body: Body,
}

/// What is there of it.
#[derive(Debug)]
pub(crate) enum Body {
    /// All.
    Eager([u8; EAGER]),
    /// All. With a handle, its sender wants to know when it is received.
    Bytes(Vec<u8>, Option<Handle>),
    /// Nothing yet.
    Offer(Offered),
    /// A send of this endpoint to itself.
    Own(Request),
}

/// A message that its sender keeps until it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) sender: Handle,
    pub(crate) source: Source,
}

/// Requests, and what is matched with what.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) requests: Requests,
    pub(crate) posted: Queues<Posted>,
    pub(crate) unexpected: Queues<Arrival>,
    /// What goes there only after the program has seen it, if it wants to.
    pub(crate) shown: Option<VecDeque<Arrival>>,
    pub(crate) heap: Heap,
    pub(crate) copies: Copies,
}

/// How large messages were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Those that were copied from the sender's heap, or that of its VM: once.
    pub once: u64,
    /// Those of them of which the sender copied a part.
    pub shared: u64,
    /// Those that were streamed.
    pub streamed: u64,
}

impl Engine {
    pub(crate) fn new(contexts: Contexts, heap: Heap) -> Self {
        Self {
            requests: Requests::new(),
            posted: Queues::new(contexts),
            unexpected: Queues::new(contexts),
            shown: None,
            heap,
            copies: Copies::default(),
        }
    }

    /// Look after one peer: take what it sent, send what had no room.
    #[inline(always)]
    pub(crate) fn serve(&mut self, link: &mut Link, peer: Peer) -> Result<(), Fault> {
        if link.has_record() {
            self.take_records(link, peer)?;
        }
        if link.has_backlog() {
            self.flush(link)?;
        }
        if link.told {
            link.wake();
        }
        Ok(())
    }

    #[inline]
    fn take_records(&mut self, link: &mut Link, peer: Peer) -> Result<(), Fault> {
        let mut left = BURST;
        while left > 0 && link.listens() && self.take_message(link, peer)? {
            left -= 1;
            // To look at the next slot is to wait for its line, and what comes there now would be
            // copied twice. The program is faster.
            if self.posted.is_idle() {
                break;
            }
        }
        while left > 0 && link.expects > 0 {
            let Some(record) = link.control_in.pop() else {
                break;
            };
            self.control(link, peer, &record)?;
            left -= 1;
        }
        // Whoever waits for room may be asleep.
        link.told |= link.messages_in.release() | link.control_in.release();
        Ok(())
    }

    /// Take everything a peer left when it went.
    pub(crate) fn drain(&mut self, link: &mut Link, peer: Peer) -> Result<(), Fault> {
        while let Some(record) = link.control_in.pop() {
            match self.control(link, peer, &record) {
                Ok(()) | Err(Fault::Withdrawn) => {}
                other => return other,
            }
        }
        // The ring ends: its producer is no more.
        loop {
            match self.take_message(link, peer) {
                Ok(true) | Err(Fault::Withdrawn) => {}
                other => return other.map(drop),
            }
        }
    }

    /// Send what had no room, as far as there is now.
    fn flush(&mut self, link: &mut Link) -> Result<(), Fault> {
        while let Some(control) = link.control.front() {
            if !link.control_out.has_room()? {
                return Ok(());
            }
            link.control_out.push(&control.encode());
            link.control.pop_front();
            link.told = true;
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

    /// Stream chunks of a send while there is room, as many as is one peer's turn; true when all
    /// of it was.
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
            if left == 0 && confirmed {
                // On its way to another host.
                entry.state = State::Offered;
                return Ok(true);
            }
            if left == 0 {
                link.expects = link.expects.saturating_sub(1);
                self.requests.end_with(request, wanted);
                return Ok(true);
            }
            let length = u32::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let Some(room) = link.control_out.room(length)? else {
                return Ok(false);
            };
            let mut at = u64::from(room.offset);
            let lane = &link.control_out;
            let written = entry.memory.read(sent, u64::from(length), |piece| {
                lane.write(at, piece)?;
                at += piece.len() as u64;
                Some(())
            });
            written.ok_or(Fault::Nonsense)?;
            entry.state = State::Streaming {
                sent: sent + u64::from(length),
                wanted,
                receiver,
                confirmed,
            };
            let chunk = Control::Chunk {
                receiver,
                offset: room.offset,
                length,
            };
            link.control_out.push_with(&chunk.encode(), room);
            // Now, not at the end: the receiver works while the next chunk is copied.
            link.wake();
        }
        Ok(false)
    }

    /// A send that is over at once, because it [is taken](Link::takes_now).
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

    /// Start a send. It is over at once if the message is buffered and has room.
    pub(crate) fn send(
        &mut self,
        link: &mut Link,
        peer: Peer,
        value: u64,
        memory: Memory,
        synchronous: bool,
    ) -> Result<Request, Fault> {
        let request = self.requests.add(State::Queued, memory, Some(peer), value);
        if let Some(entry) = self.requests.get(request) {
            entry.synchronous = synchronous;
        }
        if !link.sends.is_empty() || !self.post(link, request)? {
            link.sends.push_back(request);
        }
        if link.told {
            link.wake();
        }
        Ok(request)
    }

    /// Put a send into the lane of messages, if there is room.
    fn post(&mut self, link: &mut Link, request: Request) -> Result<bool, Fault> {
        let heap = &self.heap;
        let Some(entry) = self.requests.get(request) else {
            return Ok(true);
        };
        let Entry { status, memory, .. } = entry;
        let (value, length) = (status.value, status.length);
        let buffered = length <= MEDIUM;
        if length <= EAGER as u64 && !entry.synchronous {
            if !link.messages_out.has_room()? {
                return Ok(false);
            }
            push_eager(&mut link.messages_out, value, memory);
        } else if buffered {
            // At most 32 KiB.
            let short = u32::try_from(length).unwrap_or_default();
            let Some(room) = link.messages_out.room(short)? else {
                return Ok(false);
            };
            let mut at = u64::from(room.offset);
            let lane = &link.messages_out;
            let written = memory.read(0, length, |piece| {
                lane.write(at, piece)?;
                at += piece.len() as u64;
                Some(())
            });
            written.ok_or(Fault::Nonsense)?;
            let sender = entry.synchronous.then(|| request.handle());
            let record = wire::medium(value, room.offset, short, sender);
            link.messages_out.push_with(&record, room);
        } else {
            if !link.messages_out.has_room()? {
                return Ok(false);
            }
            let source = link.source(heap, memory);
            let record = wire::offer(value, length, request.handle(), source);
            link.messages_out.push(&record);
        }
        link.told = true;
        if buffered && !entry.synchronous {
            self.requests.end(request, Code::Success, length);
        } else {
            entry.state = State::Offered;
            link.expects += 1;
        }
        Ok(true)
    }

    /// Whether something that waits for room would find it.
    pub(crate) fn could_flush(&mut self, link: &mut Link) -> Result<bool, Fault> {
        let control = !link.control.is_empty() && link.control_out.has_room()?;
        let stream = !link.streams.is_empty() && link.control_out.room(CHUNK)?.is_some();
        let Some(&request) = link.sends.front() else {
            return Ok(control || stream);
        };
        let length = self.requests.get(request).map_or(0, |e| e.status.length);
        // Larger ones are offered, without data.
        let data = if length <= MEDIUM { length } else { 0 };
        let data = u32::try_from(data).unwrap_or_default();
        Ok(control || stream || link.messages_out.room(data)?.is_some())
    }
}

/// Publish a message of at most [`EAGER`] bytes. There must be room.
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
    // It fits: callers look at its length.
    let length = u8::try_from(bytes.len()).unwrap_or_default();
    lane.push_bytes(wire::eager_tag(length), value, bytes);
}

/// The pieces of a short message, one behind the other.
fn gather(memory: &Memory) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(EAGER);
    // It refuses nothing.
    let _all = memory.read(0, EAGER as u64, |piece| {
        bytes.extend_from_slice(piece);
        Some(())
    });
    bytes
}
