//! The data behind an endpoint's lock: the engine's endpoint, and what MX adds to each request.

use std::collections::HashMap;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use message::{Completion, Endpoint, Pattern, Peer, Request};

use crate::abi::{self, Address, Pointer, UnexpectedHandler};
use crate::codes::{Result, Return, StatusCode};
use crate::condition::Condition;
use crate::handle;
use crate::limits::REQUEST_BITS;

/// The program's handler for messages that match no receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    pub(crate) function: UnexpectedHandler,
    pub(crate) context: usize,
    /// Bytes of the longest message that the handler gets with its data.
    pub(crate) data: u64,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    /// A connect. The code, if any, replaces the engine's code when the connect fails.
    Connect(Option<StatusCode>),
    /// A connect of `mx_connect`, whose request the program never sees.
    Hidden,
}

/// What this library keeps for a request in addition to the engine.
#[derive(Clone, Copy, Debug)]
struct Entry {
    request: Request,
    kind: Kind,
    /// The context pointer of the program.
    context: usize,
}

/// Counters of an endpoint.
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
    pub(crate) number: u16,
    pub(crate) endpoint: Endpoint,
    /// By the slot of the request.
    entries: Vec<Option<Entry>>,
    /// The context pointers of the program for its peers.
    pub(crate) contexts: HashMap<u64, usize>,
    pub(crate) handler: Option<Handler>,
    /// For handlers that the program will register, see [`Handler::data`].
    pub(crate) handler_data: u64,
    /// The thread that runs the handler.
    pub(crate) handler_thread: Option<ThreadId>,
    /// Whether the handler has taken a message since the last poll of the program, which then found something.
    pub(crate) handled: bool,
    /// Number of `mx_disable_progression` calls without a matching `mx_reenable_progression`.
    pub(crate) disabled: u32,
    /// Whether a thread sleeps inside the engine, or has woken and not yet got the lock back.
    pub(crate) has_leader: bool,
    pub(crate) waiting: Vec<(ThreadId, Condition)>,
    /// Number of calls of `mx_wakeup`.
    pub(crate) wakeups: u64,
    /// The timeout of future connects.
    pub(crate) connect_timeout: Option<Duration>,
    /// Connects with a timeout, and when they time out.
    deadlines: Vec<(Instant, Request)>,
    /// Results of hidden requests that `oldest` had to skip.
    hidden_results: Vec<(Request, Completion)>,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn new(number: u16, endpoint: Endpoint, handler_data: u64) -> Self {
        Self {
            number,
            endpoint,
            entries: Vec::new(),
            contexts: HashMap::new(),
            handler: None,
            handler_data,
            handler_thread: None,
            handled: false,
            disabled: 0,
            has_leader: false,
            waiting: Vec::new(),
            wakeups: 0,
            connect_timeout: None,
            deadlines: Vec::new(),
            hidden_results: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Whether the engine may make progress now.
    pub(crate) fn may_progress(&self) -> bool {
        self.disabled == 0 && self.handler_thread.is_none()
    }

    /// Whether there is a message for the handler.
    pub(crate) fn must_handle(&self) -> bool {
        self.handler.is_some() && self.endpoint.has_unexpected()
    }

    /// Registers a request, and returns its handle for the program: the number of the endpoint, and
    /// behind it the engine's slot and its use count, cut to 24 bits each.
    pub(crate) fn register(
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
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Some(Entry {
                request,
                kind,
                context: context.expose(),
            });
        }
        Ok(abi::Request(u64::from(self.number) << 48 | handle))
    }

    /// Returns the request and its kind for a handle of the program.
    pub(crate) fn find(&mut self, request: abi::Request) -> Result<(Request, Kind)> {
        let entry = self.entry(request).ok_or(Return::BAD_REQUEST)?;
        // Fails if the result of the request was already taken.
        self.endpoint.is_ended(entry.request)?;
        Ok((entry.request, entry.kind))
    }

    fn entry(&self, request: abi::Request) -> Option<Entry> {
        let place = request.0 >> REQUEST_BITS & ((1 << REQUEST_BITS) - 1);
        let entry = (*self.entries.get(usize::try_from(place).ok()?)?)?;
        let (_, handle) = split(entry.request.bits());
        let known = u64::from(self.number) << 48 | handle;
        (known == request.0).then_some(entry)
    }

    /// Returns the context pointer of a request.
    pub(crate) fn context(&mut self, request: abi::Request) -> Result<Pointer> {
        self.find(request)?;
        let entry = self.entry(request).ok_or(Return::BAD_REQUEST)?;
        Ok(Pointer::from_exposed(entry.context))
    }

    /// Returns the program's handle of a request of the engine.
    pub(crate) fn handle(&self, request: Request) -> abi::Request {
        let (_, handle) = split(request.bits());
        abi::Request(u64::from(self.number) << 48 | handle)
    }

    /// Returns the request with a matching value that completed first, without hidden requests.
    pub(crate) fn oldest(&mut self, pattern: &Pattern) -> Option<Request> {
        loop {
            let request = self.endpoint.oldest(pattern)?;
            let entry = self.entry(self.handle(request))?;
            if entry.kind != Kind::Hidden {
                return Some(request);
            }
            let completion = self.endpoint.take(request)?;
            self.hidden_results.push((request, completion));
        }
    }

    /// Returns whether the condition holds for the program, which hidden requests do not concern.
    pub(crate) fn holds(&mut self, condition: &Condition) -> bool {
        match condition {
            Condition::AnyCompleted(pattern) => self.oldest(pattern).is_some(),
            other => other.holds(&mut self.endpoint),
        }
    }

    /// Takes the result of a hidden request.
    pub(crate) fn take_hidden(&mut self, request: Request) -> Option<Completion> {
        let place = self
            .hidden_results
            .iter()
            .position(|(other, _)| *other == request);
        match place {
            Some(place) => Some(self.hidden_results.swap_remove(place).1),
            None => self.endpoint.take(request),
        }
    }

    /// Returns the peer for an address of the program.
    pub(crate) fn peer(&self, address: Address) -> Result<Peer> {
        let peer = self.own_peer(address)?;
        let known = self.endpoint.address_of(peer).is_some();
        known.then_some(peer).ok_or(Return::BAD_ENDPOINT)
    }

    /// Returns the peer for an address of this endpoint; the peer may be none that it knows.
    #[inline(always)]
    pub(crate) fn own_peer(&self, address: Address) -> Result<Peer> {
        let peer = Peer::from_bits(address.peer);
        let own = address == self.address(peer);
        own.then_some(peer).ok_or(Return::BAD_ENDPOINT)
    }

    /// Returns the address of a peer.
    pub(crate) fn address(&self, peer: Peer) -> Address {
        handle::address(self.number, peer.bits())
    }

    /// Converts the result of a completed request to `mx_status_t`.
    pub(crate) fn status(&mut self, request: Request, completion: &Completion) -> abi::Status {
        let entry = self.entry(self.handle(request));
        let status = &completion.status;
        let mut code = StatusCode::from(status.code);
        if let Some(Kind::Connect(Some(better))) = entry.map(|entry| entry.kind) {
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
            context: Pointer::from_exposed(entry.map_or(0, |entry| entry.context)),
        }
    }

    /// Converts the status of an unexpected message to `mx_status_t`.
    pub(crate) fn unexpected_status(&self, status: &message::Status) -> abi::Status {
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

    /// Sets the timeout of a connect; `None` means no timeout.
    pub(crate) fn set_timeout(&mut self, request: Request, limit: Option<Duration>) {
        self.deadlines.retain(|(_, other)| *other != request);
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(end) = end {
            self.deadlines.push((end, request));
        }
    }

    /// Ends the connects whose timeout has passed.
    #[inline(always)]
    pub(crate) fn expire(&mut self) {
        if !self.deadlines.is_empty() {
            self.expire_deadlines();
        }
    }

    #[cold]
    fn expire_deadlines(&mut self) {
        let now = Instant::now();
        let ends = std::mem::take(&mut self.deadlines).into_iter();
        let (over, later) = ends.partition::<Vec<_>, _>(|(end, _)| *end <= now);
        self.deadlines = later;
        for (_, request) in over {
            self.time_out(request);
        }
    }

    fn time_out(&mut self, request: Request) {
        if self.endpoint.is_ended(request).unwrap_or(true) {
            return;
        }
        let entry = self.entry(self.handle(request));
        if let (Some(entry), Ok(true)) = (entry, self.endpoint.cancel(request)) {
            let kind = Kind::Connect(Some(StatusCode::TIMEOUT));
            // Cannot fail: the request already has an entry.
            let _ = self.register(request, kind, Pointer::from_exposed(entry.context));
        }
    }

    /// Returns how long a thread may sleep, at most `left`, before the next connect times out.
    pub(crate) fn sleep_limit(&self, left: Option<Duration>) -> Option<Duration> {
        let ends = self.deadlines.iter().map(|(end, _)| *end);
        let Some(first) = ends.min() else {
            return left;
        };
        let until = first.saturating_duration_since(Instant::now());
        Some(left.map_or(until, |left| left.min(until)))
    }
}

/// Returns a request's slot, and its slot and use count in 24 bits each.
fn split(bits: u64) -> (u64, u64) {
    let mask = (1 << REQUEST_BITS) - 1;
    let (place, uses) = (bits & u64::from(u32::MAX), bits >> 32);
    (place, (place & mask) << REQUEST_BITS | uses & mask)
}

/// `mx_status_t` has 32 bits for a length, and no message of this interface is longer.
fn length(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
