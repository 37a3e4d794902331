//! Progress and waiting.

use std::time::{Duration, Instant};

use window::attach::Message;
use window::doorbell;
use window::waiter::WaitResult;

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::ids::{Peer, Request};
use crate::limits::{POLLS_PER_CLOCK_READ, POLLS_PER_CONNECT_CHECK, POLLS_PER_SOCKET_CHECK};
use crate::matching::Pattern;
use crate::status::{Completion, Status};
use crate::token::Token;
use crate::wait_policy::{HostConditions, Step, Wait};

/// The longest sleep of an endpoint whose wake-ups may be lost.
const UNFENCED_SLEEP: Duration = Duration::from_millis(1);

impl Endpoint {
    /// Takes what arrived and sends what had no room. Every [`POLLS_PER_SOCKET_CHECK`] calls it
    /// also accepts connects and detects ended peers.
    #[inline]
    pub fn progress(&mut self) {
        self.polls += 1;
        if self.polls >= POLLS_PER_SOCKET_CHECK {
            self.poll_sockets();
        }
        self.poll_plane();
        let mut position = 0;
        while let Some(peer) = self.peers.active(position) {
            position += 1;
            let Some(link) = self.peers.link(peer) else {
                continue;
            };
            if let Err(fault) = self.engine.serve(link, peer) {
                self.fail_peer(peer, fault.code());
            }
        }
    }

    /// Makes progress of the plane of this process, if there is one. Without a peer by it, the plane has only connects, and a poll of it
    /// takes as long as a short message.
    #[inline(always)]
    pub(crate) fn poll_plane(&self) {
        if let Some(plane) = &self.plane {
            if self.uses_plane || self.polls % POLLS_PER_CONNECT_CHECK == 0 {
                plane.poll();
            }
        }
    }

    /// Checks the sockets, without sleeping.
    #[cold]
    pub(crate) fn poll_sockets(&mut self) {
        self.polls = 0;
        // It fails only for lack of memory, and the next call tries again.
        if let Ok(woken) = self.waiter.wait(Some(Duration::ZERO)) {
            self.handle_events(&woken);
        }
    }

    /// Handles the events of the sockets.
    fn handle_events(&mut self, woken: &WaitResult) {
        self.woken |= woken.by_waker;
        // Before the other sockets, which may become readable by that.
        if let Some(plane) = &self.plane {
            let token = Token::Plane.encode();
            if woken.tokens.contains(&token) {
                plane.serve();
            }
        }
        for token in &woken.tokens {
            match Token::decode(*token) {
                Some(Token::Listener) => self.accept(),
                Some(Token::Incoming(id)) => self.handle_incoming(id),
                Some(Token::Outgoing(id)) => self.handle_outgoing(id),
                Some(Token::Peer(index)) => self.handle_peer_socket(index),
                Some(Token::Plane) | None => {}
            }
        }
        self.retry_connects();
    }

    /// Returns the peer with a link at an address, unless it has ended since this side polled last: another endpoint may have the address now.
    pub(crate) fn find_present(&mut self, address: Address) -> Option<Peer> {
        let peer = self.peers.find_linked(address)?;
        self.handle_peer_socket(peer.index());
        self.peers.find_linked(address)
    }

    /// Handles wake-ups, or the end, of a peer.
    pub(crate) fn handle_peer_socket(&mut self, index: u32) {
        let Some(peer) = self.peers.with_index(index) else {
            return;
        };
        for _ in 0..window::limits::WAKEUPS_PER_READ {
            let Some(link) = self.peers.link(peer) else {
                return;
            };
            match link.channel.receive() {
                Ok(None) => return,
                Ok(Some(Message::Wake)) => {}
                Ok(Some(Message::Answer {
                    accepted: false, ..
                })) if link.remote => return self.fail_unreachable(peer),
                Ok(Some(_)) => return self.fail_peer(peer, Code::Unreachable),
                Err(window::attach::AttachError::Disconnected) => {
                    return self.fail_peer(peer, Code::Closed);
                }
                Err(_) => return self.fail_peer(peer, Code::Unreachable),
            }
        }
    }

    /// Makes progress until `ready` returns a value, the limit has passed, or a
    /// [`Waker`](window::waiter::Waker) ends the wait. `ready` is called each time that something
    /// may have changed; it should inspect only, see [`is_ended`](Self::is_ended) and similar
    /// calls.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn until<T>(
        &mut self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        // A result that is there already, or arrives within a few polls, costs no read of the
        // clock.
        if let Some(found) = self.poll::<false, T>(&mut ready) {
            return Ok(Some(found));
        }
        if self.relay_needs_cpu() {
            // Before reads of the clock, which would delay the message.
            self.yielder.yield_now();
        }
        // No end, or one beyond the range of the clock, means no limit.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if let Some(found) = self.spin(end, &mut ready) {
                return Ok(Some(found));
            }
            if std::mem::take(&mut self.woken) {
                return Ok(None);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    /// Polls a few times, with or without a `PAUSE` after each poll, see [`Wait::pauses`].
    #[inline]
    fn poll<const PAUSE: bool, T>(
        &mut self,
        ready: &mut impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let polls = match self.relay_needs_cpu() {
            true => 1,
            false => POLLS_PER_CLOCK_READ,
        };
        for _ in 0..polls {
            self.progress();
            let found = ready(self);
            if found.is_some() {
                self.relay.arrived(&self.yielder);
            }
            self.yielder.polled();
            if found.is_some() {
                return found;
            }
            if PAUSE {
                std::hint::spin_loop();
            }
        }
        None
    }

    /// Returns whether the relay needs this processor, so that polling cannot succeed.
    #[inline(always)]
    pub(crate) fn relay_needs_cpu(&self) -> bool {
        self.remote && self.yielder.is_contended() && self.relay.shares_cpu()
    }

    /// Polls until the wait is to sleep, as [`Wait`] decides.
    #[inline]
    fn spin<T>(
        &mut self,
        end: Option<Instant>,
        ready: &mut impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let mut wait = Wait::begin(Instant::now());
        loop {
            let found = match wait.pauses(self.thresholds) {
                true => self.poll::<true, T>(ready),
                false => self.poll::<false, T>(ready),
            };
            if found.is_some() {
                return found;
            }
            let now = Instant::now();
            let conditions = self.host_conditions();
            let step = wait.next(now, self.thresholds, conditions, || self.awaits_reply());
            if end.is_some_and(|end| now >= end) {
                return None;
            }
            match step {
                Step::Poll => {}
                Step::Yield => wait.yielded(self.yielder.yield_now()),
                Step::Sleep => {
                    self.steal.update(now);
                    return None;
                }
            }
        }
    }

    /// Returns the conditions that decide how long a wait polls.
    #[inline]
    pub(crate) fn host_conditions(&self) -> HostConditions {
        HostConditions {
            remote: self.remote,
            contended: self.yielder.is_contended(),
            overcommitted: self.steal.is_overcommitted(),
        }
    }

    /// Returns whether a request waits for a peer's reply.
    pub(crate) fn awaits_reply(&mut self) -> bool {
        self.peers.links().any(|link| link.awaited_replies > 0)
    }

    /// Announces the sleep to all peers, checks for work once more, then sleeps.
    fn sleep(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        for link in self.peers.links() {
            let needs_room = link.needs_room();
            link.sleeper.prepare_to_wait(needs_room);
        }
        let retry = self.handshakes.next_retry();
        let retry = retry.map(|retry| retry.saturating_duration_since(Instant::now()));
        let unfenced = (!doorbell::wait_fence()).then_some(UNFENCED_SLEEP);
        let plane = self.plane.as_ref().map(|plane| plane.begin_sleep());
        let limit = [limit, retry, unfenced, plane].into_iter().flatten().min();
        let slept = match self.has_work() {
            true => Ok(WaitResult::default()),
            false => self.waiter.wait(limit),
        };
        if let Some(plane) = &self.plane {
            plane.end_sleep();
        }
        for link in self.peers.links() {
            link.sleeper.finish_wait();
        }
        self.handle_events(&slept?);
        Ok(())
    }

    /// Returns whether a call of `progress` would find something to do. A peer's fault counts.
    fn has_work(&mut self) -> bool {
        let engine = &mut self.engine;
        let mut links = self.peers.links();
        links.any(|link| {
            engine.could_take(link)
                || !link.fetches.is_empty()
                || engine.could_flush(link).unwrap_or(true)
                || link.has_room_again()
        })
    }

    /// Returns the result of a request when it has ended; `None` if the limit has passed or a waker
    /// ended the wait: the request goes on then. `None` as limit waits for any time.
    ///
    /// # Errors
    /// There is no such request, or the kernel refuses to wait.
    #[inline(always)]
    pub fn wait(
        &mut self,
        request: Request,
        limit: Option<Duration>,
    ) -> Result<Option<Completion>, Error> {
        if !self.engine.requests.ended(request)? {
            self.wait_for(request, limit)?;
        }
        Ok(self.engine.requests.take(request))
    }

    /// Makes progress until a request has ended or the limit has passed.
    #[inline(never)]
    fn wait_for(&mut self, request: Request, limit: Option<Duration>) -> Result<(), Error> {
        let found = self.until(limit, |endpoint| {
            let ended = endpoint.engine.requests.ended(request);
            ended.unwrap_or(true).then_some(())
        });
        found.map(drop)
    }

    /// Waits for what [`test_any`](Self::test_any) returns.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait_any(
        &mut self,
        pattern: Pattern,
        limit: Option<Duration>,
    ) -> Result<Option<(Request, Completion)>, Error> {
        self.until(limit, |endpoint| {
            let request = endpoint.engine.requests.oldest(&pattern)?;
            Some((request, endpoint.engine.requests.take(request)?))
        })
    }

    /// Waits for what [`ipeek`](Self::ipeek) returns.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn peek(&mut self, limit: Option<Duration>) -> Result<Option<Request>, Error> {
        self.until(limit, |endpoint| {
            endpoint.engine.requests.oldest(&Pattern::ANY)
        })
    }

    /// Waits for what [`iprobe`](Self::iprobe) returns.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn probe(
        &mut self,
        pattern: Pattern,
        limit: Option<Duration>,
    ) -> Result<Option<Status>, Error> {
        self.until(limit, |endpoint| endpoint.probed(&pattern))
    }
}
