//! A host on the network: what comes in, what is asked of it, what goes out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::endpoint::{Endpoint, World};
use crate::event::{Address, Event, Offer, SendError};
use crate::hosts::{Hosts, Out};
use crate::limits::{ENDPOINTS, NACKS, TRIES};
use crate::partner::Outgoing;
use crate::wire::Mac;

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its address: the source of every frame.
    pub mac: Mac,
    /// What it says when it is asked for its name.
    pub name: String,
    /// Another number each time it starts.
    pub serial: u32,
    /// How often something is sent before a peer is given up.
    pub tries: u32,
}

impl Config {
    /// The usual number of tries.
    #[must_use]
    pub fn new(mac: Mac, name: &str, serial: u32) -> Self {
        Self {
            mac,
            name: name.to_owned(),
            serial,
            tries: TRIES,
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
    pub(crate) out: Out,
    /// Refusals that may be sent until the time beside.
    pub(crate) nacks: u32,
    pub(crate) nacks_again: Duration,
}

impl Node {
    /// A node without endpoints that knows nobody.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            hosts: Hosts::new(config.serial),
            endpoints: BTreeMap::new(),
            out: Out::new(config.mac),
            nacks: NACKS,
            nacks_again: Duration::ZERO,
            config,
        }
    }

    /// Say that this node is there, now and from time to time.
    pub fn announce(&mut self, now: Duration) {
        self.hosts.announce(now);
        self.tick(now);
    }

    /// Open an endpoint. `session` is another, random number for each opening. False when it is
    /// open already, or there is no such number.
    pub fn open(&mut self, endpoint: u8, key: u32, session: u32) -> bool {
        let free = endpoint < ENDPOINTS && !self.endpoints.contains_key(&endpoint);
        if free {
            let opened = Endpoint::new(endpoint, key, session);
            self.endpoints.insert(endpoint, opened);
        }
        free
    }

    /// Close an endpoint. Nothing is said of what was under way on it.
    pub fn close(&mut self, endpoint: u8) {
        self.endpoints.remove(&endpoint);
    }

    /// The next frame to be sent.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.out.frames.pop_front()
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
            tries: self.config.tries,
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
            tries: self.config.tries,
        };
        let endpoint = self.endpoints.get_mut(&endpoint)?;
        Some(act(endpoint, &mut world))
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
        let host = self.hosts.add(now, to.host).ok_or(SendError::NoHost)?;
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
        let host = self.hosts.find(to.host).ok_or(SendError::NotConnected)?;
        let who = (host, to.endpoint);
        let (value, data) = message;
        u32::try_from(data.len()).map_err(|_| SendError::TooLong)?;
        let sent = self.at(now, endpoint, |at, world| {
            let partner = at.partners.get_mut(&who)?;
            partner.next_send?;
            partner.waiting.push_back(Outgoing {
                value,
                data,
                synchronous,
                token,
            });
            at.flush(who, world);
            Some(())
        });
        sent.ok_or(SendError::NotOpen)?
            .ok_or(SendError::NotConnected)
    }

    /// Pull the first `wanted` bytes of what was offered; ends with [`Event::Pulled`] of this
    /// token. Of none, its sender is told just that.
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
    ) -> Result<(), SendError> {
        let begun = self.at(now, endpoint, |at, world| {
            at.pull(offer, wanted, token, world)
        });
        begun.ok_or(SendError::NotOpen)?.ok_or(SendError::Busy)
    }
}
