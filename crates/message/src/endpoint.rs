//! The calls of an endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use window::attach::Listener;
use window::calibration::Thresholds;
use window::heap::{Buffer, Heap};
use window::steal::StealMonitor;
use window::waiter::{Waiter, Waker};
use window::yielding::{AwaitedPeer, Yielder};

use crate::address::{Address, Board, random};
use crate::engine::{Arrival, Copies, Engine, Posted};
use crate::error::{Code, Error};
use crate::ids::{Peer, Request, SELF};
use crate::limits::{ENDPOINTS, HEAP, MEDIUM};
use crate::matching::{Contexts, Pattern};
use crate::memory::Memory;
use crate::peer::{Link, Peers};
use crate::pending_connects::Handshakes;
use crate::plane::{Claim, Plane};
use crate::poll_sleeps::PollSleeps;
use crate::reading::Reading;
use crate::request::State;
use crate::status::{Completion, Status};
use crate::token::Token;
use crate::wait_policy::EmptyPolls;

/// How an endpoint is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The endpoint id; without one, the first free id.
    pub endpoint: Option<u32>,
    /// The key that connecting endpoints must give.
    pub key: u32,
    /// The bits of match values that are context ids.
    pub contexts: Contexts,
    /// Bytes of its heap. Only pages that are written take memory.
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

/// An open address in the message plane. Dropping it closes it: its peers are notified, and its
/// requests are gone.
///
/// It makes progress only inside calls: any call that waits, and [`progress`](Self::progress),
/// takes what arrived, answers connects, and sends what had no room.
#[derive(Debug)]
pub struct Endpoint {
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
    pub(crate) polls: u32,
    pub(crate) lost: VecDeque<Peer>,
    /// There was a remote peer: a wake-up may pass gateways.
    pub(crate) remote: bool,
    /// The plane of this process that reaches peers, if there is one.
    pub(crate) plane: Option<Arc<dyn Plane>>,
    /// It has reached any.
    pub(crate) uses_plane: bool,
    pub(crate) thresholds: &'static Thresholds,
    pub(crate) steal: StealMonitor,
    pub(crate) yielder: Yielder,
    /// The relay that forwards the messages of remote peers.
    pub(crate) relay: AwaitedPeer,
    pub(crate) empty_polls: EmptyPolls,
    pub(crate) poll_sleeps: PollSleeps,
    /// The messages that the program reads, see [`crate::in_place`].
    pub(crate) reading: Reading,
    /// The link of its peer, if the peer has ended meanwhile.
    pub(crate) lost_link: Option<Box<Link>>,
    /// The position of the peer whose messages are read in place next.
    pub(crate) next_peer: usize,
    /// Dropped after the links and the listener: another process may open the endpoint then.
    _claim: Claim,
    /// Dropped last: the end of its plane sends what the links still hold.
    pub(crate) board: Board,
}

impl Endpoint {
    /// Opens an endpoint on a board.
    ///
    /// # Errors
    /// The id is in use, or this host has no memory or descriptors left.
    pub fn open(board: &Board, options: &Options) -> Result<Self, Error> {
        let (endpoint, claim, listener) = bind(board, options.endpoint)?;
        let waiter = Waiter::new()?;
        waiter.add(&listener, Token::Listener.encode())?;
        if let Some(plane) = &board.plane {
            plane.watch(&waiter, Token::Plane.encode())?;
        }
        let address = Address {
            nic: board.nic(),
            endpoint,
        };
        let session = random()?;
        let heap = Heap::new(options.heap)?;
        Ok(Self {
            address,
            session,
            key: options.key,
            contexts: options.contexts,
            engine: Engine::new(options.contexts, heap),
            reading: Reading::new(SELF),
            peers: Peers::new(address, session, options.key),
            handshakes: Handshakes::default(),
            listener,
            waiter,
            woken: false,
            polls: 0,
            lost: VecDeque::new(),
            remote: false,
            plane: board.plane.clone(),
            uses_plane: false,
            thresholds: Thresholds::of_this_process(),
            steal: StealMonitor::default(),
            yielder: Yielder::default(),
            relay: AwaitedPeer::default(),
            empty_polls: EmptyPolls::default(),
            poll_sleeps: PollSleeps::new(),
            lost_link: None,
            next_peer: 0,
            _claim: claim,
            board: board.clone(),
        })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Returns this endpoint as a peer of itself.
    #[must_use]
    pub fn own(&self) -> Peer {
        SELF
    }

    /// Returns a handle that ends a wait of this endpoint from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Allocates memory on the endpoint's heap: large messages from there to peers of this board
    /// are copied once. All of these peers can read the heap. `None` if it is full.
    #[must_use]
    pub fn allocate(&self, length: usize) -> Option<Buffer> {
        self.engine.heap.allocate(length)
    }

    /// Allocates memory from which a message of this length is copied the fewest times on its way
    /// to this peer, and into which a message of this peer is copied fastest. For a large message
    /// that is memory that the peer can write, too: on this board no other program can; in a trust
    /// group, all its VMs can. Otherwise it is on the endpoint's heap. The memory may be used for
    /// any peer: the endpoint streams the message to a peer that cannot read it. `None` if both
    /// heaps are full.
    #[must_use]
    pub fn allocate_for(&mut self, peer: Peer, length: usize) -> Option<Memory> {
        let link = self.peers.link(peer).filter(|_| length as u64 > MEDIUM);
        let buffer = link.and_then(|link| link.remote_memory.as_mut()?.allocate(length));
        match buffer {
            Some(buffer) => Some(Memory::SharedBuffer(Box::new(buffer))),
            None => self.allocate(length).map(Memory::Window),
        }
    }

    /// Returns how large messages came to this endpoint.
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.engine.copies
    }

    /// Connects to an endpoint; `None` as limit waits for any time.
    ///
    /// # Errors
    /// The endpoint is not open, the key is wrong, or the limit has passed.
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

    /// Starts a connect; the status of the request has the peer. `value` is the request's match
    /// value.
    ///
    /// # Errors
    /// The address has no route from this host, or this host has no memory or descriptors left.
    pub fn iconnect(&mut self, address: Address, key: u32, value: u64) -> Result<Request, Error> {
        let requests = &mut self.engine.requests;
        let request = requests.add(State::Connecting, Memory::Empty, None, value);
        let known = match address == self.address {
            true => Some(SELF),
            false => self.find_present(address),
        };
        let Some(peer) = known else {
            if let Err(error) = self.begin_connect(request, address, key) {
                self.engine.requests.forget(request)?;
                self.engine.requests.end(request, Code::NoResources, 0);
                return Err(error);
            }
            return Ok(request);
        };
        match self.peers.has_key(peer, key) {
            true => self.connected(request, peer),
            false => self.engine.requests.end(request, Code::BadKey, 0),
        }
        Ok(request)
    }

    /// Returns a peer's address; `None` if its entry was reused since it was lost.
    #[must_use]
    pub fn address_of(&self, peer: Peer) -> Option<Address> {
        self.peers.get(peer).map(|known| known.address)
    }

    /// Returns a peer's session, which differs each time that its endpoint is opened.
    #[must_use]
    pub fn session_of(&self, peer: Peer) -> Option<u64> {
        self.peers.get(peer).map(|known| known.session)
    }

    /// Starts a receive of the first message that matches.
    ///
    /// # Errors
    /// The pattern does not select one context.
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

    /// Completes a receive with a message that arrived before.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, request: Request, arrival: Arrival) {
        let peer = arrival.peer;
        let link = self.peers.link(peer);
        let taken = self.engine.take_arrival(link, request, arrival);
        match (taken, self.peers.link(peer)) {
            (Err(fault), _) => self.fail_peer(peer, fault.code()),
            // The sender may sleep until the message is received, and this side need not call
            // again.
            (Ok(()), Some(link)) => link.wake_for_published(),
            (Ok(()), None) => {}
        }
    }

    /// Returns the result of a request, if it has ended. The request is gone then.
    ///
    /// # Errors
    /// There is no such request.
    #[inline]
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, Error> {
        if !self.engine.requests.ended(request)? {
            self.progress();
        }
        let completion = self.engine.requests.take(request);
        self.polled(completion.is_some());
        Ok(completion)
    }

    /// Returns the result of the request that ended first among those with a matching value: sends,
    /// receives and connects.
    pub fn test_any(&mut self, pattern: Pattern) -> Option<(Request, Completion)> {
        self.progress();
        let oldest = self.engine.requests.oldest(&pattern);
        self.polled(oldest.is_some());
        let request = oldest?;
        Some((request, self.engine.requests.take(request)?))
    }

    /// Returns the request that ended first. Its result stays.
    pub fn ipeek(&mut self) -> Option<Request> {
        self.progress();
        let oldest = self.engine.requests.oldest(&Pattern::ANY);
        self.polled(oldest.is_some());
        oldest
    }

    /// Returns the first unexpected message that matches. It stays queued.
    pub fn iprobe(&mut self, pattern: Pattern) -> Option<Status> {
        self.progress();
        let found = self.probed(&pattern);
        self.polled(found.is_some());
        found
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

    /// Cancels a receive that has not matched, or a connect that is not answered; it ends with
    /// [`Code::Cancelled`]. Returns false if it is too late.
    ///
    /// # Errors
    /// The request is a send, or there is no such request.
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
            State::Ended | State::Filling { .. } | State::Fetching | State::Shared { .. } => {
                Ok(false)
            }
            _ => Err(Error::CannotCancel),
        }
    }

    /// Discards the result of a request. Its memory is dropped when it ends.
    ///
    /// # Errors
    /// There is no such request.
    pub fn forget(&mut self, request: Request) -> Result<(), Error> {
        self.engine.requests.forget(request)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        while let Some(peer) = self.peers.active(0) {
            if let Some(mut link) = self.peers.unlink(peer) {
                self.engine.withdraw(&mut link, peer, true);
            }
        }
    }
}

fn bind(board: &Board, endpoint: Option<u32>) -> Result<(u32, Claim, Listener), Error> {
    let ids = match endpoint {
        Some(id) => id..=id,
        None => 0..=ENDPOINTS - 1,
    };
    for id in ids {
        // First the socket: programs that use a daemon have no claims.
        let listener = match Listener::bind(&board.socket(id)) {
            Ok(listener) => listener,
            Err(rustix::io::Errno::ADDRINUSE) => continue,
            Err(error) => return Err(error.into()),
        };
        board.admit_clients(&board.socket(id))?;
        if let Some(claim) = Claim::take(board.plane.as_ref(), id)? {
            return Ok((id, claim, listener));
        }
    }
    Err(Error::Busy)
}
