//! A node: the state machine of one host on the network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::Config;
use crate::context::{self, Context};
use crate::counters::Counters;
use crate::endpoint::Endpoint;
use crate::event::{Address, Event, Message, Offer, PartnerId, Pull, SendError, StreamedSend};
use crate::hosts::Hosts;
use crate::limits::{ENDPOINTS, NACKS_PER_SECOND, PULL_BLOCK, REPLACE_INTERVAL};
use crate::output::{Output, Route};
use crate::partner::{Content, Outgoing, Partner};
use crate::programs::Programs;
use crate::wire::{Connect, Mac};

/// A host on the network. The caller chooses the epoch of all times; no call may pass an earlier
/// time than the call before it.
#[derive(Debug)]
pub struct Node {
    pub(crate) config: Config,
    pub(crate) hosts: Hosts,
    pub(crate) endpoints: BTreeMap<u8, Endpoint>,
    /// The partners' programs, if all frames travel in datagrams.
    pub(crate) programs: Option<Programs>,
    /// Connect requests for endpoints that are not open, and introductions, until the program answers them.
    pub(crate) pending_connects: BTreeMap<(u8, Address), Connect>,
    pub(crate) out: Output,
    /// Refusals that the node may still send before `nacks_refill_at`.
    pub(crate) nacks_left: u32,
    pub(crate) nacks_refill_at: Duration,
    /// When a new host may next replace an entry of the full table.
    replace_at: Duration,
}

impl Node {
    /// Makes a node without endpoints that knows no other host.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            // Programs of one host have one address, and tables of their own.
            hosts: Hosts::new(config.serial, config.shared || config.only_datagrams),
            programs: config.only_datagrams.then(Programs::default),
            endpoints: BTreeMap::new(),
            pending_connects: BTreeMap::new(),
            out: Output::new(config.mac),
            nacks_left: NACKS_PER_SECOND,
            nacks_refill_at: Duration::ZERO,
            replace_at: Duration::ZERO,
            config,
        }
    }

    /// Starts to announce this node, and to answer for the host: every second at first, later every 180 s.
    pub fn announce(&mut self, now: Duration) {
        self.hosts.announce(now);
        self.tick(now);
    }

    /// Stops announcing this node and closes all endpoints. The node still answers queries.
    pub fn stop_announcing(&mut self) {
        self.hosts.stop_announcing();
        self.endpoints.clear();
    }

    /// Leaves the announcements and the answers for the host to another node with the same address ([`Config::shared`]).
    pub fn stop_answering(&mut self) {
        self.hosts.stop_answering();
    }

    /// Opens an endpoint for every host that presents its key. `session` is a random number,
    /// different for each opening. Returns false if the endpoint is already open or its number is
    /// not valid.
    pub fn open(&mut self, now: Duration, endpoint: u8, key: u32, session: u32) -> bool {
        let free = endpoint < ENDPOINTS && self.key(endpoint).is_none();
        if free {
            let fresh = || Endpoint::new(endpoint, key, session);
            let opened = self.endpoints.entry(endpoint).or_insert_with(fresh);
            (opened.key, opened.session) = (Some(key), session);
            self.accept_pending(now, endpoint);
        }
        free
    }

    /// Returns the key of an open endpoint.
    #[must_use]
    pub fn key(&self, endpoint: u8) -> Option<u32> {
        self.endpoints.get(&endpoint)?.key
    }

    /// Closes an endpoint, without events for its sends and pulls in progress.
    pub fn close(&mut self, endpoint: u8) {
        self.endpoints.remove(&endpoint);
    }

    /// Returns the next frame to be sent.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.out.transmit()
    }

    /// Returns whether frames may be on their way in datagrams: because the program pulls a message, or always, if all frames travel so.
    #[must_use]
    pub fn awaits_datagrams(&self) -> bool {
        self.config.only_datagrams || self.endpoints.values().any(Endpoint::awaits_datagrams)
    }

    /// Recycles the memory of a frame that was sent.
    pub fn reuse(&mut self, frame: Vec<u8>) {
        self.out.reuse(frame);
    }

    /// Returns the counters since the node was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.out.counters
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.out.events.pop_front()
    }

    /// Returns when [`tick`](Self::tick) must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let endpoints = self.endpoints.values().filter_map(Endpoint::deadline);
        let hosts = self.hosts.deadline().filter(|_| self.programs.is_none());
        endpoints.chain(hosts).min()
    }

    /// Runs all timers that are due.
    pub fn tick(&mut self, now: Duration) {
        let nic = self.config.mac.nic();
        // Without a network of frames, no other host hears announcements and queries.
        if self.programs.is_none() {
            self.hosts.tick(now, nic, &mut self.out);
        }
        self.for_each_endpoint(now, |endpoint, context| endpoint.tick(context));
    }

    fn for_each_endpoint(
        &mut self,
        now: Duration,
        mut act: impl FnMut(&mut Endpoint, &mut Context<'_>),
    ) {
        let (endpoints, mut context) = self.split(now);
        for endpoint in endpoints.values_mut() {
            act(endpoint, &mut context);
        }
    }

    pub(crate) fn endpoint(&self, number: u8) -> Option<&Endpoint> {
        self.endpoints.get(&number)
    }

    /// Runs `act` on one endpoint. Returns `None` if the endpoint is not open.
    pub(crate) fn with_endpoint<T>(
        &mut self,
        now: Duration,
        endpoint: u8,
        act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let (endpoints, mut context) = self.split(now);
        let endpoint = endpoints.get_mut(&endpoint)?;
        Some(act(endpoint, &mut context))
    }

    /// Returns the endpoints, and what each of them needs from the node.
    fn split(&mut self, now: Duration) -> (&mut BTreeMap<u8, Endpoint>, Context<'_>) {
        // The memory that the kernel counts for a frame may be twice as long as the frame. Each endpoint has its share.
        let shares = self.endpoints.len().max(1);
        let blocks = |bytes: usize| (bytes / 2 / PULL_BLOCK as usize / shares).max(1);
        let context = Context {
            now,
            hosts: &self.hosts,
            programs: self.programs.as_ref(),
            out: &mut self.out,
            peer_timeout: self.config.peer_timeout,
            udp: self.config.udp,
            pull_blocks: match self.config.only_datagrams {
                true => self.config.receive_buffer.map(blocks),
                false => None,
            },
        };
        (&mut self.endpoints, context)
    }

    /// Returns where frames from an endpoint to a partner go.
    pub(crate) fn route(&self, endpoint: u8, partner: PartnerId) -> Option<Route> {
        context::route(&self.hosts, self.programs.as_ref(), endpoint, partner)
    }

    /// Returns the index of a host. If the table is full, a new host replaces an unused entry.
    pub(crate) fn host(&mut self, now: Duration, mac: Mac) -> Option<u16> {
        if self.hosts.is_full(mac) && now >= self.replace_at {
            // The search costs more than the frame of an unknown host, so its rate is limited.
            self.replace_at = now + REPLACE_INTERVAL;
            let endpoints = self.endpoints.values();
            let used = endpoints.flat_map(Endpoint::hosts_in_use);
            let connecting = self
                .pending_connects
                .keys()
                .filter_map(|(_, at)| self.hosts.find(at.host));
            let used: BTreeSet<u16> = used.chain(connecting).collect();
            if let Some(place) = self.hosts.replace(now, mac, &used) {
                for endpoint in self.endpoints.values_mut() {
                    endpoint.partners.retain(|id, _| id.0 != place);
                }
            }
        }
        self.hosts.add(now, mac)
    }

    /// Sends a message. With a token, the send ends with an [`Event::Sent`] that has it. The receiver
    /// always pulls a synchronous message.
    ///
    /// # Errors
    /// The endpoint is not open, the peer is not connected, or the message is too long.
    pub fn send(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        message: (u64, Vec<u8>),
        synchronous: bool,
        token: impl Into<Option<u64>>,
    ) -> Result<(), SendError> {
        let (value, data) = message;
        u32::try_from(data.len()).map_err(|_| SendError::TooLong)?;
        let outgoing = Outgoing {
            value,
            content: Content::Buffered(data),
            synchronous,
            token: token.into(),
        };
        self.submit(now, endpoint, to, outgoing)
    }

    /// Returns memory of this length for the data of [`send`](Self::send), with any content: that of an earlier message if possible,
    /// which need not be filled with zeros.
    pub fn message_buffer(&mut self, length: usize) -> Vec<u8> {
        self.out.message_buffers.take(length)
    }

    /// Sends a message of `length` bytes that the program supplies in pieces, once
    /// [`Event::PullRequest`] reports that the receiver pulls it. The send ends with an [`Event::Sent`]
    /// that has this token.
    ///
    /// # Errors
    /// The endpoint is not open, or the peer is not connected.
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
            content: Content::Streamed(length),
            synchronous: true,
            token: Some(token),
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
        let id = (host, to.endpoint);
        let sent = self.with_endpoint(now, endpoint, |endpoint, context| {
            let partner = endpoint.partners.get_mut(&id)?;
            partner.next_send?;
            partner.waiting.push_back(outgoing);
            endpoint.flush(id, context);
            Some(())
        });
        sent.ok_or(SendError::NotOpen)?
            .ok_or(SendError::NotConnected)
    }

    /// Returns the free part of the buffer of an offered message. It is empty while the buffer is
    /// full, and after the send has ended. The program fills it from the front and calls
    /// [`commit`](Self::commit).
    pub fn send_buffer(&mut self, endpoint: u8, source: StreamedSend) -> &mut [u8] {
        let endpoint = self.endpoints.get_mut(&endpoint);
        endpoint.map_or(&mut [], |endpoint| endpoint.send_buffer(source))
    }

    /// Tells the node that the program wrote `count` bytes into the [`send_buffer`](Self::send_buffer) of an
    /// offered message.
    pub fn commit(&mut self, now: Duration, endpoint: u8, source: StreamedSend, count: usize) {
        self.with_endpoint(now, endpoint, |endpoint, context| {
            endpoint.commit(source, count, context);
        });
    }

    /// Takes the next message of a peer, in the order of the peer's sends. The node acknowledges a
    /// message when the program takes it; a peer with too many unacknowledged messages waits.
    pub fn next_message(&mut self, now: Duration, endpoint: u8, from: Address) -> Option<Message> {
        let id = (self.hosts.find(from.host)?, from.endpoint);
        self.with_endpoint(now, endpoint, |endpoint, context| {
            endpoint.next_message(id, context)
        })?
    }

    /// Starts to pull the first `wanted` bytes of an offered message. The pull ends with an
    /// [`Event::Pulled`] that has this token. With `wanted` 0, the node only notifies the sender
    /// that 0 bytes were taken.
    ///
    /// # Errors
    /// The endpoint is not open, or it already pulls as many messages as it may.
    pub fn pull(
        &mut self,
        now: Duration,
        endpoint: u8,
        offer: Offer,
        wanted: u32,
        token: u64,
    ) -> Result<Pull, SendError> {
        let started = self.with_endpoint(now, endpoint, |endpoint, context| {
            endpoint.pull(offer, wanted, token, context)
        });
        started.ok_or(SendError::NotOpen)?.ok_or(SendError::Busy)
    }

    /// Whether an endpoint can start one more pull.
    #[must_use]
    pub fn can_pull(&self, endpoint: u8) -> bool {
        self.endpoints
            .get(&endpoint)
            .is_some_and(Endpoint::can_pull)
    }

    /// Returns whether [`next_piece`](Self::next_piece) would return a piece.
    #[must_use]
    pub fn has_piece(&self, endpoint: u8, pull: Pull) -> bool {
        self.endpoints
            .get(&endpoint)
            .is_some_and(|endpoint| endpoint.has_piece(pull))
    }

    /// Takes the next piece of a pull, in the order of the message. The node requests more of the
    /// message as the program takes pieces, and notifies the sender when the program takes the last
    /// one.
    pub fn next_piece(&mut self, now: Duration, endpoint: u8, pull: Pull) -> Option<Vec<u8>> {
        self.with_endpoint(now, endpoint, |endpoint, context| {
            endpoint.next_piece(pull, context)
        })?
    }

    /// Keeps the memory of a [piece](Self::next_piece) for further pieces.
    pub fn recycle(&mut self, piece: Vec<u8>) {
        self.out.buffers.give(piece);
    }

    fn partner(&self, endpoint: u8, at: Address) -> Option<&Partner> {
        let id = (self.hosts.find(at.host)?, at.endpoint);
        self.endpoints.get(&endpoint)?.partners.get(&id)
    }

    /// Returns the session of a connected peer's endpoint.
    #[must_use]
    pub fn session(&self, endpoint: u8, peer: Address) -> Option<u32> {
        self.partner(endpoint, peer)?.session
    }

    /// Whether a message to this peer would be sent at once.
    #[must_use]
    pub fn has_room(&self, endpoint: u8, peer: Address) -> bool {
        let partner = self.partner(endpoint, peer);
        partner.is_some_and(|partner| partner.waiting.is_empty() && partner.has_room())
    }

    /// Whether [`next_message`](Self::next_message) would return a message of this peer.
    #[must_use]
    pub fn has_message(&self, endpoint: u8, peer: Address) -> bool {
        self.partner(endpoint, peer)
            .is_some_and(Partner::has_message)
    }

    /// Whether a peer has acknowledged every message. True if the peer is not connected.
    #[must_use]
    pub fn is_idle(&self, endpoint: u8, peer: Address) -> bool {
        self.partner(endpoint, peer).is_none_or(Partner::is_idle)
    }

    /// Ends the connection to a peer, without events for its sends and pulls in progress. The node
    /// refuses what the peer sends on that connection from now on.
    pub fn disconnect(&mut self, now: Duration, endpoint: u8, peer: Address) {
        if let Some(host) = self.hosts.find(peer.host) {
            let id = (host, peer.endpoint);
            self.with_endpoint(now, endpoint, |endpoint, context| {
                endpoint.disconnect(id, context);
            });
        }
    }

    /// Adds a host that the program knows otherwise than by its announcements, and asks for its name.
    pub fn add_host(&mut self, now: Duration, host: Mac) {
        self.hosts.add(now, host);
        self.tick(now);
    }

    /// Whether the table has this host.
    #[must_use]
    pub fn has_host(&self, host: Mac) -> bool {
        self.hosts.find(host).is_some()
    }
}
