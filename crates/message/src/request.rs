//! Requests: their states, and the list of those that have ended.

use crate::copy_choice::Flow;
use crate::error::{Code, Error};
use crate::ids::{Peer, Request};
use crate::matching::Pattern;
use crate::memory::Memory;
use crate::status::{Completion, Status};
use crate::wire::Handle;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing: the entry is free.
    Free,
    /// A receive: for a message.
    Posted,
    /// A receive: for the rest of a streamed message.
    Filling { got: u64, wanted: u64 },
    /// A receive: for its turn to be copied from the sender's process.
    Fetching,
    /// A receive: for the pieces that the sender copies.
    Shared {
        left: u32,
        wanted: u64,
        sender: Handle,
        /// This side has copied the other pieces; otherwise the sender is to stream the message afterwards.
        complete: bool,
    },
    /// A send: for room in the message lane.
    Queued,
    /// A send: for the receiver's reply to the offer.
    Offered,
    /// A send: for the receiver to confirm that both sides have copied the message.
    Sharing,
    /// A send: for room for the rest of a streamed message.
    Streaming {
        sent: u64,
        wanted: u64,
        receiver: Handle,
        /// The send ends when the receiver confirms it.
        confirmed: bool,
    },
    /// A connect: for the answer.
    Connecting,
    /// Nothing: its result is available.
    Ended,
}

/// An entry of the request table.
#[derive(Debug)]
pub(crate) struct Entry {
    generation: u32,
    pub(crate) state: State,
    /// The send ends only when it is received.
    pub(crate) synchronous: bool,
    /// The result is dropped when the request ends.
    forgotten: bool,
    /// The time of its copy counts ([`CopyChoice`](crate::copy_choice::CopyChoice)).
    pub(crate) timed: bool,
    /// Of an offer of memory in a process.
    pub(crate) flow: Flow,
    /// The send has used a credit: it is no offer.
    pub(crate) has_credit: bool,
    pub(crate) memory: Memory,
    pub(crate) status: Status,
    /// Neighbours in the list of ended requests, oldest first; in the list of free entries, only
    /// `next`.
    previous: u32,
    next: u32,
}

/// No neighbour.
const NONE: u32 = u32::MAX;

/// All requests of an endpoint.
///
/// Functions that run for each message are always inlined: results are large, and a caller that
/// reads two fields of one should not have it copied.
#[derive(Debug)]
pub(crate) struct Requests {
    entries: Vec<Entry>,
    free: u32,
    oldest: u32,
    newest: u32,
}

/// Returns the code of a request of which `taken` bytes arrived.
#[inline(always)]
fn code(taken: u64, length: u64) -> Code {
    match taken < length {
        true => Code::Truncated,
        false => Code::Success,
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
        }
    }

    #[inline(always)]
    fn entry(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(index as usize)
    }

    /// Adds a request.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        state: State,
        memory: Memory,
        peer: Option<Peer>,
        value: u64,
    ) -> Request {
        let length = memory.length();
        let status = Status {
            code: Code::Success,
            peer,
            value,
            length,
            taken: 0,
        };
        let index = self.take_free();
        let Some(entry) = self.entry(index) else {
            return Request::NONE;
        };
        entry.state = state;
        entry.memory = memory;
        entry.status = status;
        let generation = entry.generation;
        Request::new(index, generation)
    }

    /// Adds a send that has ended.
    #[inline(always)]
    pub(crate) fn add_sent(&mut self, memory: Memory, peer: Peer, value: u64) -> Request {
        let length = memory.length();
        let status = Status {
            code: Code::Success,
            peer: Some(peer),
            value,
            length,
            taken: length,
        };
        let index = self.take_free();
        let Some(entry) = self.entry(index) else {
            return Request::NONE;
        };
        entry.memory = memory;
        entry.status = status;
        let generation = entry.generation;
        self.finish(index);
        Request::new(index, generation)
    }

    /// Takes a free entry.
    #[inline(always)]
    fn take_free(&mut self) -> u32 {
        let index = self.free;
        match self.entries.get(index as usize) {
            Some(entry) => self.free = entry.next,
            None => return self.grow(),
        }
        index
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.entries.push(Entry {
            generation: 0,
            state: State::Free,
            synchronous: false,
            forgotten: false,
            timed: false,
            flow: Flow::Several,
            has_credit: false,
            memory: Memory::Empty,
            status: Status {
                code: Code::Success,
                peer: None,
                value: 0,
                length: 0,
                taken: 0,
            },
            previous: NONE,
            next: NONE,
        });
        // Four billion requests at a time do not fit into memory.
        u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
    }

    /// Returns the entry of a request whose result was not taken.
    #[inline(always)]
    pub(crate) fn get(&mut self, request: Request) -> Option<&mut Entry> {
        let entry = self.entry(request.index())?;
        (entry.generation == request.generation() && entry.state != State::Free).then_some(entry)
    }

    /// Returns the entry of a request whose result was not taken, to read.
    pub(crate) fn peek(&self, request: Request) -> Option<&Entry> {
        let entry = self.entries.get(request.index() as usize)?;
        (entry.generation == request.generation() && entry.state != State::Free).then_some(entry)
    }

    /// Returns the request that a peer names, if it belongs to that peer.
    pub(crate) fn of_peer(&mut self, handle: Handle, peer: Peer) -> Option<(Request, &mut Entry)> {
        let request = Request::from_handle(handle);
        let entry = self.get(request)?;
        (entry.status.peer == Some(peer)).then_some((request, entry))
    }

    /// Returns whether a request has ended.
    #[inline(always)]
    pub(crate) fn ended(&mut self, request: Request) -> Result<bool, Error> {
        let entry = self.get(request).ok_or(Error::BadRequest)?;
        Ok(entry.state == State::Ended)
    }

    /// Ends a request that has not ended.
    #[inline]
    pub(crate) fn end(&mut self, request: Request, code: Code, taken: u64) {
        let Some(entry) = self.get(request) else {
            return;
        };
        entry.status.code = code;
        entry.status.taken = taken;
        if code != Code::Success {
            // The peer may be copying the memory, and the program is about to reuse it.
            entry.memory.revoke();
        }
        self.finish(request.index());
    }

    /// Ends a receive with a whole message of a peer, a match value and a length. `fill` copies it
    /// and returns how many bytes had room, as this function does.
    #[inline(always)]
    pub(crate) fn end_receive(
        &mut self,
        request: Request,
        (peer, value, length): (Peer, u64, u64),
        fill: impl FnOnce(&mut Memory) -> u64,
    ) -> u64 {
        let Some(entry) = self.get(request) else {
            return 0;
        };
        let taken = fill(&mut entry.memory);
        entry.status = Status {
            code: code(taken, length),
            peer: Some(peer),
            value,
            length,
            taken,
        };
        self.finish(request.index());
        taken
    }

    /// Appends the request to the list of ended ones.
    #[inline(always)]
    fn finish(&mut self, index: u32) {
        let newest = self.newest;
        let Some(entry) = self.entry(index) else {
            return;
        };
        entry.state = State::Ended;
        entry.previous = newest;
        entry.next = NONE;
        let (forgotten, generation) = (entry.forgotten, entry.generation);
        self.newest = index;
        match self.entry(newest) {
            Some(entry) => entry.next = index,
            None => self.oldest = index,
        }
        if forgotten {
            self.discard(Request::new(index, generation));
        }
    }

    #[cold]
    fn discard(&mut self, request: Request) {
        drop(self.take(request));
    }

    /// Ends a send or a receive of which `taken` bytes arrived.
    #[inline]
    pub(crate) fn end_with(&mut self, request: Request, taken: u64) {
        let Some(entry) = self.get(request) else {
            return;
        };
        let code = code(taken, entry.status.length);
        self.end(request, code, taken);
    }

    /// Returns the result of a request that has ended. The request is gone afterwards.
    #[inline(always)]
    pub(crate) fn take(&mut self, request: Request) -> Option<Completion> {
        let free = self.free;
        let entry = self.get(request)?;
        if entry.state != State::Ended {
            return None;
        }
        let (previous, next) = (entry.previous, entry.next);
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.synchronous = false;
        entry.forgotten = false;
        entry.timed = false;
        entry.has_credit = false;
        entry.next = free;
        let completion = Completion {
            status: entry.status,
            memory: std::mem::take(&mut entry.memory),
        };
        self.free = request.index();
        match self.entry(previous) {
            Some(entry) => entry.next = next,
            None => self.oldest = next,
        }
        match self.entry(next) {
            Some(entry) => entry.previous = previous,
            None => self.newest = previous,
        }
        Some(completion)
    }

    /// Discards the result of a request.
    pub(crate) fn forget(&mut self, request: Request) -> Result<(), Error> {
        let entry = self.get(request).ok_or(Error::BadRequest)?;
        entry.forgotten = true;
        if entry.state == State::Ended {
            drop(self.take(request));
        }
        Ok(())
    }

    /// Returns the request that ended first among those whose value matches.
    pub(crate) fn oldest(&self, pattern: &Pattern) -> Option<Request> {
        let mut index = self.oldest;
        while let Some(entry) = self.entries.get(index as usize) {
            if pattern.fits(entry.status.value) {
                let generation = entry.generation;
                return Some(Request::new(index, generation));
            }
            index = entry.next;
        }
        None
    }

    /// Returns the requests that a peer's end leaves without a reply.
    pub(crate) fn bound_to(&self, peer: Peer) -> Vec<Request> {
        let bound = |entry: &&Entry| {
            let waits = !matches!(entry.state, State::Free | State::Ended | State::Posted);
            waits && entry.status.peer == Some(peer)
        };
        let all = (0u32..).zip(&self.entries);
        let hit = all.filter(|(_, entry)| bound(entry));
        hit.map(|(index, entry)| Request::new(index, entry.generation))
            .collect()
    }
}
