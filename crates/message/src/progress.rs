//! Making things happen, and waiting for them.

use std::time::{Duration, Instant};

use window::attach::Message;
use window::doorbell;
use window::waiter::Woken;

use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::ids::Request;
use crate::limits::{FAR_TRANSFER_SPIN, LOOKS, SPIN, TRANSFER_SPIN};
use crate::matching::Pattern;
use crate::status::{Completion, Status};
use crate::token::Token;

/// Longest sleep of an endpoint that its peers may forget.
const NAP: Duration = Duration::from_millis(1);

/// A waiter with peers that are far lets others of its processor run between its looks after so
/// long: a few of the longest ways between two processors.
const YIELD: Duration = Duration::from_micros(2);

/// Rounds between two looks at the clock.
const CLOCK: u32 = 32;

impl Endpoint {
    /// Take what arrived and send what had no room. Now and then also look who connects and who
    /// is gone.
    #[inline]
    pub fn progress(&mut self) {
        self.looks += 1;
        if self.looks >= LOOKS {
            self.look_outside();
        }
        let mut place = 0;
        while let Some(peer) = self.peers.active(place) {
            place += 1;
            let Some(link) = self.peers.link(peer) else {
                continue;
            };
            if let Err(fault) = self.engine.serve(link, peer) {
                self.lose(peer, fault.code());
            }
        }
    }

    /// Ask the kernel, without sleeping.
    #[cold]
    fn look_outside(&mut self) {
        self.looks = 0;
        // It fails only for lack of memory, and is tried again.
        if let Ok(woken) = self.waiter.wait(Some(Duration::ZERO)) {
            self.attend(&woken);
        }
    }

    /// Do what the sockets ask for.
    fn attend(&mut self, woken: &Woken) {
        self.woken |= woken.by_waker;
        for token in &woken.tokens {
            match Token::decode(*token) {
                Some(Token::Listener) => self.accept(),
                Some(Token::Incoming(id)) => self.hear_incoming(id),
                Some(Token::Outgoing(id)) => self.hear_outgoing(id),
                Some(Token::Peer(index)) => self.hear_peer(index),
                None => {}
            }
        }
        self.insist();
    }

    /// A peer woke this side, or went.
    pub(crate) fn hear_peer(&mut self, index: u32) {
        let Some(peer) = self.peers.with_index(index) else {
            return;
        };
        for _ in 0..window::limits::WAKES {
            let Some(link) = self.peers.link(peer) else {
                return;
            };
            match link.channel.receive() {
                Ok(None) => return,
                Ok(Some(Message::Wake)) => {}
                Ok(Some(Message::Answer {
                    accepted: false, ..
                })) if link.far => return self.abandon(peer),
                Ok(Some(_)) => return self.lose(peer, Code::Unreachable),
                Err(window::attach::AttachError::Gone) => return self.lose(peer, Code::Closed),
                Err(_) => return self.lose(peer, Code::Unreachable),
            }
        }
    }

    /// Work until `ready` has something, the time is over, or a [`Waker`](window::waiter::Waker)
    /// ends it. `ready` is asked each time that something may have changed; it should only look,
    /// see [`is_ended`](Self::is_ended) and its like.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn until<T>(
        &mut self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        // What is there already, or comes within a few looks, costs no look at the clock.
        if let Some(found) = self.look(&mut ready) {
            return Ok(Some(found));
        }
        if self.hinders() {
            // Before looks at the clock: they would be in the message's way.
            self.courtesy.give_way();
        }
        // Without an end, or one so far away that no clock has it.
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

    /// Look a few times.
    #[inline]
    fn look<T>(&mut self, ready: &mut impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        let looks = match self.hinders() {
            true => 1,
            false => CLOCK,
        };
        for _ in 0..looks {
            self.progress();
            let found = ready(self);
            if found.is_some() {
                self.relay.came(&self.courtesy);
            }
            self.courtesy.looked();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether the relay waits for this processor, so that to look on is in vain.
    #[inline(always)]
    fn hinders(&self) -> bool {
        self.patience > SPIN && self.courtesy.is_crowded() && self.relay.shares()
    }

    /// Look for a while.
    #[inline]
    fn spin<T>(
        &mut self,
        end: Option<Instant>,
        ready: &mut impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let start = Instant::now();
        let far = self.patience > SPIN;
        let transfer = match far {
            true => FAR_TRANSFER_SPIN,
            false => TRANSFER_SPIN,
        };
        loop {
            if let Some(found) = self.look(ready) {
                return Some(found);
            }
            let now = Instant::now();
            let looked = now - start;
            let over = looked >= self.patience && (looked >= transfer || !self.is_owed());
            if over || end.is_some_and(|end| now >= end) {
                return None;
            }
            if looked >= SPIN || far && (looked >= YIELD || self.courtesy.is_crowded()) {
                // A relay or a gateway may wait for this processor.
                self.courtesy.give_way();
            }
        }
    }

    /// Whether a peer is to answer something.
    fn is_owed(&mut self) -> bool {
        self.peers.links().any(|link| link.expects > 0)
    }

    /// Tell everybody, look once more, then sleep.
    fn sleep(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        for link in self.peers.links() {
            link.sleeper.prepare_to_wait();
        }
        let due = self.handshakes.due();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let nap = (!doorbell::settle()).then_some(NAP);
        let limit = [limit, due, nap].into_iter().flatten().min();
        let slept = match self.has_work() {
            true => Ok(Woken::default()),
            false => self.waiter.wait(limit),
        };
        for link in self.peers.links() {
            link.sleeper.finish_wait();
        }
        self.attend(&slept?);
        Ok(())
    }

    /// Whether a round would find something to do. A peer's fault is something.
    fn has_work(&mut self) -> bool {
        let engine = &mut self.engine;
        let mut links = self.peers.links();
        links.any(|link| link.has_record() || engine.could_flush(link).unwrap_or(true))
    }

    /// The result of a request, when it has ended; `None` when the time is over or the wait was
    /// ended: the request goes on then. Without a time, as long as it takes.
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

    /// Work until a request has ended or the time is over.
    #[inline(never)]
    fn wait_for(&mut self, request: Request, limit: Option<Duration>) -> Result<(), Error> {
        let found = self.until(limit, |endpoint| {
            let ended = endpoint.engine.requests.ended(request);
            ended.unwrap_or(true).then_some(())
        });
        found.map(drop)
    }

    /// As [`test_any`](Self::test_any), when there is one.
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

    /// As [`ipeek`](Self::ipeek), when there is one.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn peek(&mut self, limit: Option<Duration>) -> Result<Option<Request>, Error> {
        self.until(limit, |endpoint| {
            endpoint.engine.requests.oldest(&Pattern::ANY)
        })
    }

    /// As [`iprobe`](Self::iprobe), when there is one.
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
