//! An endpoint: the calls.

use std::collections::VecDeque;
use std::time::Duration;

use window::attach::Listener;
use window::heap::{Buffer, Heap};
use window::waiter::{Waiter, Waker};
use window::yielding::{Awaited, Courtesy};

use crate::address::{Address, Board, random};
use crate::engine::{Arrival, Copies, Engine, Posted};
use crate::error::{Code, Error};
use crate::ids::{Peer, Request, SELF};
use crate::limits::{ENDPOINTS, HEAP, MEDIUM, SPIN};
use crate::matching::{Contexts, Pattern};
use crate::memory::Memory;
use crate::peer::Peers;
use crate::pending_connects::Handshakes;
use crate::request::State;
use crate::status::{Completion, Status};
use crate::token::Token;

/// How an endpoint is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Its number; without one, the first that is free.
    pub endpoint: Option<u32>,
    /// What others must know to connect.
    pub key: u32,
    /// Which bits of match values are context ids.
    pub contexts: Contexts,
    /// Bytes of its heap. Only what is written takes memory.
    pub heap: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: None,
            key: 0,
            contexts: Contexts::default(),
            heap: HEAP,
        }
    }
}

/// An address in the message plane, open for messages. Dropping it closes it: its peers are told,
/// and its requests are no more.
///
/// It works while it is called: any call that waits, and [`progress`](Self::progress), takes what
/// arrived, answers who connects, and sends what had no room.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) board: Board,
    pub(crate) address: Address,
    pub(crate) session: u64,
    pub(crate) key: u32,
    contexts: Contexts,
    pub(crate) engine: Engine,
    pub(crate) peers: Peers,
    pub(crate) handshakes: Handshakes,
    pub(crate) listener: Listener,
    pub(crate) waiter: Waiter,
    pub(crate) woken: bool,
    pub(crate) looks: u32,
    pub(crate) lost: VecDeque<Peer>,
    /// How long a waiter looks before it sleeps.
    pub(crate) patience: Duration,
    pub(crate) courtesy: Courtesy,
    /// Whoever passes on what far peers send.
    pub(crate) relay: Awaited,
}

impl Endpoint {
    /// Open one on a board.
    ///
    /// # Errors
    /// The number is taken, or this host lacks memory or descriptors.
    pub fn open(board: &Board, options: &Options) -> Result<Self, Error> {
        let (endpoint, listener) = bind(board, options.endpoint)?;
        let waiter = Waiter::new()?;
        waiter.add(&listener, Token::Listener.encode())?;
        let address = Address {
            nic: board.nic(),
            endpoint,
        };
        let session = random()?;
        let heap = Heap::new(options.heap)?;
        Ok(Self {
            board: board.clone(),
            address,
            session,
            key: options.key,
            contexts: options.contexts,
            engine: Engine::new(options.contexts, heap),
            peers: Peers::new(address, session, options.key),
            handshakes: Handshakes::default(),
            listener,
            waiter,
            woken: false,
            looks: 0,
            lost: VecDeque::new(),
            patience: SPIN,
            courtesy: Courtesy::default(),
            relay: Awaited::default(),
        })
    }

    /// Where others find it.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// This endpoint as a peer of itself.
    #[must_use]
    pub fn own(&self) -> Peer {
        SELF
    }

    /// A handle that ends a wait of this endpoint from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Memory on the endpoint's heap: large messages from there to peers of this board are copied
    /// once. All of those can read it. `None` when the heap is full.
    #[must_use]
    pub fn allocate(&self, length: usize) -> Option<Buffer> {
        self.engine.heap.allocate(length)
    }

    /// Memory from which a message of this length is copied as seldom as can be on its way to this peer, and into
    /// which one of this peer is copied fastest. For a large message that is memory that the peer can write, too: on
    /// this board no one else, in a trust group all VMs of it. Else it is memory of the endpoint's heap. It may be
    /// used for any peer: if that cannot read it, the message is streamed. `None` when both heaps are full.
    #[must_use]
    pub fn allocate_for(&mut self, peer: Peer, length: usize) -> Option<Memory> {
        let link = self.peers.link(peer).filter(|_| length as u64 > MEDIUM);
        let stretch = link.and_then(|link| link.reach.as_mut()?.lend(length));
        match stretch {
            Some(stretch) => Some(Memory::Stretch(Box::new(stretch))),
            None => self.allocate(length).map(Memory::Window),
        }
    }

    /// How large messages came to this endpoint.
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.engine.copies
    }

    /// Connect to an endpoint; `None` for the time waits as long as it takes.
    ///
    /// # Errors
    /// Nobody is there, the key is wrong, or the time is over.
    pub fn connect(
        &mut self,
        address: Address,
        key: u32,
        limit: Option<Duration>,
    ) -> Result<Peer, Error> {
        let request = self.iconnect(address, key, 0)?;
        let Some(completion) = self.wait(request, limit)? else {
            self.engine.requests.forget(request)?;
            return Err(Error::Timeout);
        };
        match completion.status {
            Status {
                code: Code::Success,
                peer: Some(peer),
                ..
            } => Ok(peer),
            Status { code, .. } => Err(Error::Connection(code)),
        }
    }

    /// Begin to connect; the request's status has the peer. `value` is the request's match value.
    ///
    /// # Errors
    /// The address is not of this host, or this host lacks memory or descriptors.
    pub fn iconnect(&mut self, address: Address, key: u32, value: u64) -> Result<Request, Error> {
        let requests = &mut self.engine.requests;
        let request = requests.add(State::Connecting, Memory::Empty, None, value);
        let known = match address == self.address {
            true => Some(SELF),
            false => self.peers.linked(address),
        };
        let Some(peer) = known else {
            if let Err(error) = self.begin(request, address, key) {
                self.engine.requests.forget(request)?;
                self.engine.requests.end(request, Code::NoResources, 0);
                return Err(error);
            }
            return Ok(request);
        };
        match self.peers.get(peer).map(|known| known.key) == Some(key) {
            true => self.connected(request, peer),
            false => self.engine.requests.end(request, Code::BadKey, 0),
        }
        Ok(request)
    }

    /// A peer's address; `None` when it is gone for long.
    #[must_use]
    pub fn address_of(&self, peer: Peer) -> Option<Address> {
        self.peers.get(peer).map(|known| known.address)
    }

    /// Which opening of its endpoint a peer is.
    #[must_use]
    pub fn session_of(&self, peer: Peer) -> Option<u64> {
        self.peers.get(peer).map(|known| known.session)
    }

    /// Receive the first message that fits.
    ///
    /// # Errors
    /// The pattern does not name one context.
    #[inline(always)]
    pub fn irecv(&mut self, pattern: Pattern, memory: impl Into<Memory>) -> Result<Request, Error> {
        if !self.contexts.covered_by(&pattern) {
            return Err(Error::ContextMask);
        }
        let engine = &mut self.engine;
        let requests = &mut engine.requests;
        let request = requests.add(State::Posted, memory.into(), None, pattern.value());
        let fits = |arrival: &Arrival| pattern.fits(arrival.value);
        let Some(arrival) = engine.unexpected.take(pattern.value(), fits) else {
            engine
                .posted
                .push(pattern.value(), Posted { pattern, request });
            return Ok(request);
        };
        self.deliver(request, arrival);
        Ok(request)
    }

    /// Give what was put aside to a receive.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, request: Request, arrival: Arrival) {
        let peer = arrival.peer;
        let link = self.peers.link(peer);
        let taken = self.engine.take_arrival(link, request, arrival);
        match (taken, self.peers.link(peer)) {
            (Err(fault), _) => self.lose(peer, fault.code()),
            // Its sender may sleep until it is received, and this side need not call again.
            (Ok(()), Some(link)) if link.told => link.wake(),
            (Ok(()), _) => {}
        }
    }

    /// The result of a request, if it has ended. The request is gone then.
    ///
    /// # Errors
    /// There is no such request.
    #[inline]
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, Error> {
        if !self.engine.requests.ended(request)? {
            self.progress();
        }
        Ok(self.engine.requests.take(request))
    }

    /// The result of the request that ended first of those with a fitting match value: sends,
    /// receives and connects.
    pub fn test_any(&mut self, pattern: Pattern) -> Option<(Request, Completion)> {
        self.progress();
        let request = self.engine.requests.oldest(&pattern)?;
        Some((request, self.engine.requests.take(request)?))
    }

    /// The request that ended first. Its result stays.
    pub fn ipeek(&mut self) -> Option<Request> {
        self.progress();
        self.engine.requests.oldest(&Pattern::ANY)
    }

    /// The first message that fits and that nobody waits for. It stays.
    pub fn iprobe(&mut self, pattern: Pattern) -> Option<Status> {
        self.progress();
        self.probed(&pattern)
    }

    pub(crate) fn probed(&self, pattern: &Pattern) -> Option<Status> {
        let fits = |arrival: &Arrival| pattern.fits(arrival.value);
        let arrival = self.engine.unexpected.find(pattern, fits)?;
        Some(Status {
            code: Code::Success,
            peer: Some(arrival.peer),
            value: arrival.value,
            length: arrival.length,
            taken: arrival.length,
        })
    }

    /// Take back a receive that matched nothing yet, or a connect that is not answered; it ends
    /// with [`Code::Cancelled`]. False when it is too late.
    ///
    /// # Errors
    /// It is a send, or there is no such request.
    pub fn cancel(&mut self, request: Request) -> Result<bool, Error> {
        let requests = &mut self.engine.requests;
        let entry = requests.get(request).ok_or(Error::BadRequest)?;
        match entry.state {
            State::Posted => {
                let value = entry.status.value;
                requests.end(request, Code::Cancelled, 0);
                let is = |posted: &Posted| posted.request == request;
                Ok(self.engine.posted.take(value, is).is_some())
            }
            State::Connecting => {
                requests.end(request, Code::Cancelled, 0);
                Ok(true)
            }
            State::Ended | State::Filling { .. } | State::Shared { .. } => Ok(false),
            _ => Err(Error::CannotCancel),
        }
    }

    /// Never ask for this request's result. Its memory is dropped when it ends.
    ///
    /// # Errors
    /// There is no such request.
    pub fn forget(&mut self, request: Request) -> Result<(), Error> {
        self.engine.requests.forget(request)
    }
}

fn bind(board: &Board, endpoint: Option<u32>) -> Result<(u32, Listener), Error> {
    let ids = match endpoint {
        Some(id) => id..=id,
        None => 0..=ENDPOINTS - 1,
    };
    for id in ids {
        match Listener::bind(&board.socket(id)) {
            Ok(listener) => return Ok((id, listener)),
            Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Busy)
}
