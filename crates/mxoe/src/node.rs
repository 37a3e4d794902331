//! A host on the network: what comes in, what is asked of it, what goes out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::counters::Counters;
use crate::endpoint::Endpoint;
use crate::event::{Address, Event, Message, Offer, Pull, SendError, Source};
use crate::hosts::{Hosts, Out, World};
use crate::limits::{ENDPOINTS, NACKS, PATIENCE, REPLACE};
use crate::partner::{Content, Outgoing, Partner};
use crate::wire::{Connect, Mac};

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its address: the source of every frame.
    pub mac: Mac,
    /// What it says when it is asked for its name.
    pub name: String,
    /// Another number each time it starts.
    pub serial: u32,
    /// How long a peer may be silent before it is given up.
    pub patience: Duration,
}

impl Config {
    /// The usual patience.
    #[must_use]
    pub fn new(mac: Mac, name: &str, serial: u32) -> Self {
        Self {
            mac,
            name: name.to_owned(),
            serial,
            patience: PATIENCE,
        }
    }
}

/// A host on the network. Times are since some moment of the caller's; each call's is no earlier
/// than the one before.
#[derive(Debug)]
pub struct Node {
    pub(crate) config: Config,
    pub(crate) hosts: Hosts,
    endpoints: BTreeMap<u8, Endpoint>,
    /// Connects to endpoints that are not open.
    pub(crate) asked: BTreeMap<(u8, Address), Connect>,
    pub(crate) out: Out,
    /// Refusals that may be sent until the time beside.
    pub(crate) nacks: u32,
    pub(crate) nacks_again: Duration,
    /// When a host may lose its place to another again.
    replace_again: Duration,
}

impl Node {
    /// A node without endpoints that knows nobody.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            hosts: Hosts::new(config.serial),
            endpoints: BTreeMap::new(),
            asked: BTreeMap::new(),
            out: Out::new(config.mac),
            nacks: NACKS,
            nacks_again: Duration::ZERO,
            replace_again: Duration::ZERO,
            config,
        }
    }

    /// Say that this node is there, now and from time to time.
    pub fn announce(&mut self, now: Duration) {
        self.hosts.announce(now);
        self.tick(now);
    }

    /// Announce it no more, and close all endpoints. It still answers.
    pub fn silence(&mut self) {
        self.hosts.silence();
        self.endpoints.clear();
    }

    /// Open an endpoint, for all who have its key. `session` is another, random number for each
    /// opening. False when it is open already, or there is no such number.
    pub fn open(&mut self, now: Duration, endpoint: u8, key: u32, session: u32) -> bool {
        let free = endpoint < ENDPOINTS && !self.endpoints.contains_key(&endpoint);
        if free {
            let opened = Endpoint::new(endpoint, key, session);
            self.endpoints.insert(endpoint, opened);
            self.admit(now, endpoint);
        }
        free
    }

    /// The key of an open endpoint.
    #[must_use]
    pub fn key(&self, endpoint: u8) -> Option<u32> {
        Some(self.endpoints.get(&endpoint)?.key)
    }

    /// Close an endpoint. Nothing is said of what was under way on it.
    pub fn close(&mut self, endpoint: u8) {
        self.endpoints.remove(&endpoint);
    }

    /// The next frame to be sent.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.out.transmit()
    }

    /// A frame was sent: its memory can be used for the next.
    pub fn reuse(&mut self, frame: Vec<u8>) {
        self.out.reuse(frame);
    }

    /// What it has done since it was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.out.counters
    }

    /// The next thing that happened.
    pub fn event(&mut self) -> Option<Event> {
        self.out.events.pop_front()
    }

    /// When [`tick`](Self::tick) has something to do next.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let endpoints = self.endpoints.values().filter_map(Endpoint::deadline);
        endpoints.chain(self.hosts.deadline()).min()
    }

    /// Do what is due.
    pub fn tick(&mut self, now: Duration) {
        let nic = self.config.mac.nic();
        self.hosts.tick(now, nic, &mut self.out);
        self.each(now, |endpoint, world| endpoint.tick(world));
    }

    fn each(&mut self, now: Duration, mut act: impl FnMut(&mut Endpoint, &mut World<'_>)) {
        let mut world = World {
            now,
            hosts: &self.hosts,
            out: &mut self.out,
            patience: self.config.patience,
        };
        for endpoint in self.endpoints.values_mut() {
            act(endpoint, &mut world);
        }
    }

    /// Act on one endpoint; `None` when it is not open.
    pub(crate) fn at<T>(
        &mut self,
        now: Duration,
        endpoint: u8,
        act: impl FnOnce(&mut Endpoint, &mut World<'_>) -> T,
    ) -> Option<T> {
        let mut world = World {
            now,
            hosts: &self.hosts,
            out: &mut self.out,
            patience: self.config.patience,
        };
        let endpoint = self.endpoints.get_mut(&endpoint)?;
        Some(act(endpoint, &mut world))
    }

    /// The host of an address, in the place of another if there is no more room.
    pub(crate) fn host(&mut self, now: Duration, mac: Mac) -> Option<u16> {
        if self.hosts.is_full(mac) && now >= self.replace_again {
            // To look for one costs more than a stranger's frame.
            self.replace_again = now + REPLACE;
            let endpoints = self.endpoints.values();
            let used = endpoints.flat_map(Endpoint::hosts_in_use);
            let asked = self
                .asked
                .keys()
                .filter_map(|(_, at)| self.hosts.find(at.host));
            let used: BTreeSet<u16> = used.chain(asked).collect();
            if let Some(place) = self.hosts.replace(now, mac, &used) {
                for endpoint in self.endpoints.values_mut() {
                    endpoint.partners.retain(|who, _| who.0 != place);
                }
            }
        }
        self.hosts.add(now, mac)
    }

    /// Connect an endpoint to another; ends with [`Event::Connected`] of this token.
    ///
    /// # Errors
    /// The endpoint is not open, or there are too many hosts or partners.
    pub fn connect(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        key: u32,
        token: u64,
    ) -> Result<(), SendError> {
        let host = self.host(now, to.host).ok_or(SendError::NoHost)?;
        let who = (host, to.endpoint);
        let begun = self.at(now, endpoint, |at, world| {
            at.connect(who, to, key, token, world)
        });
        match begun {
            None => Err(SendError::NotOpen),
            Some(false) => Err(SendError::NoHost),
            Some(true) => Ok(()),
        }
    }

    /// Send a message; ends with [`Event::Sent`] of this token. A synchronous one is always pulled.
    ///
    /// # Errors
    /// The endpoint is not open, the peer not connected, or the message too long.
    pub fn send(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        message: (u64, Vec<u8>),
        synchronous: bool,
        token: u64,
    ) -> Result<(), SendError> {
        let (value, data) = message;
        u32::try_from(data.len()).map_err(|_| SendError::TooLong)?;
        let outgoing = Outgoing {
            value,
            content: Content::Here(data),
            synchronous,
            token,
        };
        self.submit(now, endpoint, to, outgoing)
    }

    /// Send a message of so many bytes, which are asked for by [`Event::Wanted`] when it is
    /// pulled; ends with [`Event::Sent`] of this token.
    ///
    /// # Errors
    /// The endpoint is not open, or the peer not connected.
    pub fn offer(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        (value, length): (u64, u32),
        token: u64,
    ) -> Result<(), SendError> {
        let outgoing = Outgoing {
            value,
            content: Content::Later(length),
            synchronous: true,
            token,
        };
        self.submit(now, endpoint, to, outgoing)
    }

    fn submit(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        outgoing: Outgoing,
    ) -> Result<(), SendError> {
        let host = self.hosts.find(to.host).ok_or(SendError::NotConnected)?;
        let who = (host, to.endpoint);
        let sent = self.at(now, endpoint, |at, world| {
            let partner = at.partners.get_mut(&who)?;
            partner.next_send?;
            partner.waiting.push_back(outgoing);
            at.flush(who, world);
            Some(())
        });
        sent.ok_or(SendError::NotOpen)?
            .ok_or(SendError::NotConnected)
    }

    /// Where the next bytes of an offered message belong; empty when there is no room for more, or
    /// it is through. [`fed`](Self::fed) says how many were put there.
    pub fn space(&mut self, endpoint: u8, source: Source) -> &mut [u8] {
        let endpoint = self.endpoints.get_mut(&endpoint);
        endpoint.map_or(&mut [], |endpoint| endpoint.space(source))
    }

    /// So many bytes were put into the [`space`](Self::space) of an offered message.
    pub fn fed(&mut self, now: Duration, endpoint: u8, source: Source, count: usize) {
        self.at(now, endpoint, |at, world| at.fed(source, count, world));
    }

    /// The next message of a peer, in the order they were sent. What is not taken is not
    /// acknowledged, and after some of it the peer waits.
    pub fn take(&mut self, now: Duration, endpoint: u8, from: Address) -> Option<Message> {
        let who = (self.hosts.find(from.host)?, from.endpoint);
        self.at(now, endpoint, |at, world| at.take(who, world))?
    }

    /// Begin to pull the first `wanted` bytes of what was offered; ends with [`Event::Pulled`] of
    /// this token. Of none, its sender is told just that.
    ///
    /// # Errors
    /// The endpoint is not open, or pulls too many at the same time.
    pub fn pull(
        &mut self,
        now: Duration,
        endpoint: u8,
        offer: Offer,
        wanted: u32,
        token: u64,
    ) -> Result<Pull, SendError> {
        let begun = self.at(now, endpoint, |at, world| {
            at.pull(offer, wanted, token, world)
        });
        begun.ok_or(SendError::NotOpen)?.ok_or(SendError::Busy)
    }

    /// Whether an endpoint can pull one more.
    #[must_use]
    pub fn can_pull(&self, endpoint: u8) -> bool {
        self.endpoints
            .get(&endpoint)
            .is_some_and(Endpoint::can_pull)
    }

    /// The next piece of what is pulled, in its order. The pull goes on as pieces are taken, and
    /// its sender is told with the last.
    pub fn piece(&mut self, now: Duration, endpoint: u8, pull: Pull) -> Option<Vec<u8>> {
        self.at(now, endpoint, |at, world| at.piece(pull, world))?
    }

    fn partner(&self, endpoint: u8, at: Address) -> Option<&Partner> {
        let who = (self.hosts.find(at.host)?, at.endpoint);
        self.endpoints.get(&endpoint)?.partners.get(&who)
    }

    /// Which opening of its endpoint a connected peer is.
    #[must_use]
    pub fn session(&self, endpoint: u8, peer: Address) -> Option<u32> {
        self.partner(endpoint, peer)?.session
    }

    /// Whether what is sent to a peer now goes out now.
    #[must_use]
    pub fn has_room(&self, endpoint: u8, peer: Address) -> bool {
        let partner = self.partner(endpoint, peer);
        partner.is_some_and(|partner| partner.waiting.is_empty() && partner.has_room())
    }

    /// Whether a peer has a message that can be taken.
    #[must_use]
    pub fn has_message(&self, endpoint: u8, peer: Address) -> bool {
        self.partner(endpoint, peer)
            .is_some_and(Partner::has_message)
    }

    /// Whether a peer has acknowledged everything. True of one that is not connected.
    #[must_use]
    pub fn is_idle(&self, endpoint: u8, peer: Address) -> bool {
        self.partner(endpoint, peer).is_none_or(Partner::is_idle)
    }

    /// Be connected to a peer no more. Nothing is said of what was under way; what it sends is
    /// refused from now on.
    pub fn forget(&mut self, endpoint: u8, peer: Address) {
        let Some(host) = self.hosts.find(peer.host) else {
            return;
        };
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.forget((host, peer.endpoint));
        }
    }

    /// Whether a host was heard of, or told.
    #[must_use]
    pub fn knows(&self, host: Mac) -> bool {
        self.hosts.find(host).is_some()
    }
}
