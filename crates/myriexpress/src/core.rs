//! What a lock guards: an endpoint, and what MX keeps for each of its requests.

use std::collections::HashMap;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use message::{Completion, Endpoint, Pattern, Peer, Request};

use crate::abi::{self, Address, Pointer, UnexpectedHandler};
use crate::codes::{Result, Return, StatusCode};
use crate::condition::Condition;
use crate::handle;
use crate::limits::REQUEST_BITS;

/// What the program calls for messages that no receive waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    pub(crate) function: UnexpectedHandler,
    pub(crate) context: usize,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    /// A connect, and how it ends if it does not succeed and that is known better here.
    Connect(Option<StatusCode>),
    /// A connect that a call waits for; the program does not know of it.
    Hidden,
}

/// What belongs to a request beside what the engine keeps.
#[derive(Clone, Copy, Debug)]
struct Side {
    request: Request,
    kind: Kind,
    /// The program's pointer.
    context: usize,
}

/// What an endpoint counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) connects: u32,
    pub(crate) failed: u32,
}

/// An endpoint and what belongs to it.
#[derive(Debug)]
pub(crate) struct Core {
    number: u16,
    pub(crate) endpoint: Endpoint,
    /// By the request's place.
    sides: Vec<Option<Side>>,
    /// The program's pointers for its peers.
    pub(crate) contexts: HashMap<u64, usize>,
    pub(crate) handler: Option<Handler>,
    /// The thread that is in the handler.
    pub(crate) handling: Option<ThreadId>,
    /// How often progress was turned off and not on again.
    pub(crate) disabled: u32,
    /// A thread sleeps inside the endpoint, or is about to come back.
    pub(crate) working: bool,
    pub(crate) waiting: Vec<(ThreadId, Condition)>,
    /// Calls of `mx_wakeup`.
    pub(crate) wakeups: u64,
    /// How long connects may take that are started from now on.
    pub(crate) limit: Option<Duration>,
    /// Connects that end when their time is over.
    deadlines: Vec<(Instant, Request)>,
    /// Hidden requests that have ended and were in the way.
    stash: Vec<(Request, Completion)>,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn new(number: u16, endpoint: Endpoint) -> Self {
        Self {
            number,
            endpoint,
            sides: Vec::new(),
            contexts: HashMap::new(),
            handler: None,
            handling: None,
            disabled: 0,
            working: false,
            waiting: Vec::new(),
            wakeups: 0,
            limit: None,
            deadlines: Vec::new(),
            stash: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Whether progress may be made now.
    pub(crate) fn may_work(&self) -> bool {
        self.disabled == 0 && self.handling.is_none()
    }

    /// Remember a request; returns what the program knows it as. The engine's place and uses of
    /// it, cut to 24 bits each, behind the number of the endpoint.
    pub(crate) fn note(
        &mut self,
        request: Request,
        kind: Kind,
        context: Pointer,
    ) -> Result<abi::Request> {
        let (place, handle) = split(request.bits());
        let Ok(index) = usize::try_from(place) else {
            return Err(Return::NO_RESOURCES);
        };
        if place >> REQUEST_BITS != 0 {
            self.endpoint.forget(request)?;
            return Err(Return::NO_RESOURCES);
        }
        if self.sides.len() <= index {
            self.sides.resize(index + 1, None);
        }
        if let Some(side) = self.sides.get_mut(index) {
            *side = Some(Side {
                request,
                kind,
                context: context.keep(),
            });
        }
        Ok(abi::Request(u64::from(self.number) << 48 | handle))
    }

    /// The request that the program means, and what it is.
    pub(crate) fn find(&mut self, request: abi::Request) -> Result<(Request, Kind)> {
        let side = self.side(request).ok_or(Return::BAD_REQUEST)?;
        // One whose result was taken is none any more.
        self.endpoint.is_ended(side.request)?;
        Ok((side.request, side.kind))
    }

    fn side(&self, request: abi::Request) -> Option<Side> {
        let place = request.0 >> REQUEST_BITS & ((1 << REQUEST_BITS) - 1);
        let side = (*self.sides.get(usize::try_from(place).ok()?)?)?;
        let (_, handle) = split(side.request.bits());
        let known = u64::from(self.number) << 48 | handle;
        (known == request.0).then_some(side)
    }

    /// The program's pointer of a request.
    pub(crate) fn context(&mut self, request: abi::Request) -> Result<Pointer> {
        self.find(request)?;
        let side = self.side(request).ok_or(Return::BAD_REQUEST)?;
        Ok(Pointer::kept(side.context))
    }

    /// What the program knows a request of the engine as.
    pub(crate) fn name(&self, request: Request) -> abi::Request {
        let (_, handle) = split(request.bits());
        abi::Request(u64::from(self.number) << 48 | handle)
    }

    /// The request of the program that ended first, of those with a fitting match value.
    pub(crate) fn oldest(&mut self, pattern: &Pattern) -> Option<Request> {
        loop {
            let request = self.endpoint.oldest(pattern)?;
            let side = self.side(self.name(request))?;
            if side.kind != Kind::Hidden {
                return Some(request);
            }
            let completion = self.endpoint.take(request)?;
            self.stash.push((request, completion));
        }
    }

    /// The result of a hidden request.
    pub(crate) fn take_hidden(&mut self, request: Request) -> Option<Completion> {
        let place = self.stash.iter().position(|(other, _)| *other == request);
        match place {
            Some(place) => Some(self.stash.swap_remove(place).1),
            None => self.endpoint.take(request),
        }
    }

    /// The peer that an address of the program means.
    pub(crate) fn peer(&self, address: Address) -> Result<Peer> {
        let peer = Peer::from_bits(address.peer);
        let own = address == self.address(peer);
        let known = own && self.endpoint.address_of(peer).is_some();
        known.then_some(peer).ok_or(Return::BAD_ENDPOINT)
    }

    /// The address of a peer.
    pub(crate) fn address(&self, peer: Peer) -> Address {
        handle::address(self.number, peer.bits())
    }

    /// The result of a request that has ended, as the program wants it.
    pub(crate) fn status(&mut self, request: Request, completion: &Completion) -> abi::Status {
        let side = self.side(self.name(request));
        let status = &completion.status;
        let mut code = StatusCode::from(status.code);
        if let Some(Kind::Connect(Some(better))) = side.map(|side| side.kind) {
            code = match code {
                StatusCode::SUCCESS => code,
                _ => better,
            };
        }
        if code != StatusCode::SUCCESS {
            self.counters.failed = self.counters.failed.wrapping_add(1);
        }
        abi::Status {
            code,
            source: status
                .peer
                .map_or(Address::default(), |peer| self.address(peer)),
            match_info: status.value,
            msg_length: length(status.length),
            xfer_length: length(status.taken),
            context: Pointer::kept(side.map_or(0, |side| side.context)),
        }
    }

    /// What a message that was looked for is.
    pub(crate) fn probed(&self, status: &message::Status) -> abi::Status {
        abi::Status {
            code: StatusCode::from(status.code),
            source: status
                .peer
                .map_or(Address::default(), |peer| self.address(peer)),
            match_info: status.value,
            msg_length: length(status.length),
            xfer_length: length(status.taken),
            context: Pointer::NULL,
        }
    }

    /// Give a connect a time; none is as long as it takes.
    pub(crate) fn set_limit(&mut self, request: Request, limit: Option<Duration>) {
        self.deadlines.retain(|(_, other)| *other != request);
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(end) = end {
            self.deadlines.push((end, request));
        }
    }

    /// End the connects whose time is over.
    pub(crate) fn expire(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        let ends = std::mem::take(&mut self.deadlines).into_iter();
        let (over, later) = ends.partition::<Vec<_>, _>(|(end, _)| *end <= now);
        self.deadlines = later;
        for (_, request) in over {
            self.give_up(request);
        }
    }

    fn give_up(&mut self, request: Request) {
        if self.endpoint.is_ended(request).unwrap_or(true) {
            return;
        }
        let side = self.side(self.name(request));
        if let (Some(side), Ok(true)) = (side, self.endpoint.cancel(request)) {
            let kind = Kind::Connect(Some(StatusCode::TIMEOUT));
            // It has a place in the list already.
            let _ = self.note(request, kind, Pointer::kept(side.context));
        }
    }

    /// How long to sleep, so that no connect is ended late.
    pub(crate) fn nearest(&self, left: Option<Duration>) -> Option<Duration> {
        let ends = self.deadlines.iter().map(|(end, _)| *end);
        let Some(first) = ends.min() else {
            return left;
        };
        let until = first.saturating_duration_since(Instant::now());
        Some(left.map_or(until, |left| left.min(until)))
    }
}

/// A request's place, and its place and uses in 24 bits each.
fn split(bits: u64) -> (u64, u64) {
    let mask = (1 << REQUEST_BITS) - 1;
    let (place, uses) = (bits & u64::from(u32::MAX), bits >> 32);
    (place, (place & mask) << REQUEST_BITS | uses & mask)
}

/// Lengths above 4 GiB cannot be said; no message of this interface is as long.
fn length(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
