//! An endpoint: its partners, the messages that it offers, and its pulls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connecting::{Connecting, Probe};
use crate::context::Context;
use crate::event::{Address, Code, Event, Message, Offer, PartnerId};
use crate::limits::{MAX_MEDIUM, PARTNERS, REGIONS, REPLACE_INTERVAL};
use crate::partner::{Body, Content, Notification, Outgoing, Partner, Received};
use crate::pulls::Pulls;
use crate::region::{Bytes, Region, Slot};

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) number: u8,
    /// `None` if the program has ended, and connections of it are left.
    pub(crate) key: Option<u32>,
    pub(crate) session: u32,
    pub(crate) partners: BTreeMap<PartnerId, Partner>,
    pub(crate) regions: Vec<Slot>,
    pub(crate) pulls: Pulls,
    pub(crate) connecting: Vec<Connecting>,
    pub(crate) connects: u8,
    /// When a new partner may next replace an unused one.
    replace_at: Duration,
}

impl Endpoint {
    pub(crate) fn new(number: u8, key: u32, session: u32) -> Self {
        Self {
            number,
            key: Some(key),
            session,
            partners: BTreeMap::new(),
            regions: (0..REGIONS).map(|_| Slot::default()).collect(),
            pulls: Pulls::new(number),
            connecting: Vec::new(),
            connects: 0,
            replace_at: Duration::ZERO,
        }
    }

    /// Returns a partner, which it makes if there is none yet. If there are too many, the new
    /// partner replaces the unused one whose last connect is the oldest. Returns `None` if all are
    /// in use.
    pub(crate) fn partner(
        &mut self,
        now: Duration,
        id: PartnerId,
        at: Address,
    ) -> Option<&mut Partner> {
        if self.partners.len() >= PARTNERS && !self.partners.contains_key(&id) {
            // The search costs more than the frame of an unknown host, so its rate is limited.
            if now < self.replace_at {
                return None;
            }
            self.replace_at = now + REPLACE_INTERVAL;
            let unused = self.partners.iter().filter(|entry| !self.is_in_use(entry));
            let oldest = unused
                .min_by_key(|(_, partner)| partner.last_connect)
                .map(|(id, _)| *id)?;
            self.partners.remove(&oldest);
        }
        let number = self.number;
        let fresh = || Partner::new(at, number);
        let partner = self.partners.entry(id).or_insert_with(fresh);
        partner.last_connect = now;
        Some(partner)
    }

    /// Returns the indices of the hosts with partners in use.
    pub(crate) fn hosts_in_use(&self) -> impl Iterator<Item = u16> {
        let used = self.partners.iter().filter(|entry| self.is_in_use(entry));
        used.map(|(id, _)| id.0)
    }

    /// Whether a connection is that of an earlier program with this endpoint.
    pub(crate) fn is_former(&self, connection: &Partner) -> bool {
        self.key.is_none() || connection.own_session != self.session
    }

    /// Whether a partner is in use.
    pub(crate) fn uses(&self, id: PartnerId) -> bool {
        let entry = self.partners.get_key_value(&id);
        entry.is_some_and(|entry| self.is_in_use(&entry))
    }

    /// Whether a partner is connected, is being connected to, or has messages to be sent.
    fn is_in_use(&self, (id, partner): &(&PartnerId, &Partner)) -> bool {
        let connecting = || {
            self.connecting
                .iter()
                .any(|connecting| connecting.id == **id)
        };
        partner.session.is_some() || !partner.is_idle() || connecting()
    }

    /// Sends waiting messages as far as the send window allows.
    pub(crate) fn flush(&mut self, id: PartnerId, context: &mut Context<'_>) {
        let waiting = |partner: &&mut Partner| !partner.waiting.is_empty();
        let Some(partner) = self.partners.get_mut(&id).filter(waiting) else {
            return;
        };
        let Some(route) = context.route(self.number, id) else {
            return;
        };
        while let Some(next) = partner.waiting.front().filter(|_| partner.has_room()) {
            let slot = match next.is_large() {
                true => match free_slot(&mut self.regions) {
                    Some(slot) => Some(slot),
                    // The message waits until another large message has ended.
                    None => return,
                },
                false => None,
            };
            let Some(outgoing) = partner.waiting.pop_front() else {
                return;
            };
            let body = match slot {
                Some((number, slot)) => {
                    partner.open_transfers += 1;
                    slot.offer(number, id, outgoing)
                }
                None => outgoing.into_message(),
            };
            partner.send(context.now, route, body, context.out);
        }
    }

    /// Takes the next message of a partner, in the order of its sends.
    pub(crate) fn next_message(
        &mut self,
        id: PartnerId,
        context: &mut Context<'_>,
    ) -> Option<Message> {
        let partner = self.partners.get_mut(&id)?;
        Some(match partner.take(context.now)? {
            Received::Message { value, data } | Received::Partial { value, data, .. } => {
                Message::Whole { value, data }
            }
            Received::Offer {
                value,
                length,
                region,
                generation,
                offset,
            } => Message::Offered {
                value,
                length,
                offer: Offer {
                    partner: id,
                    session: partner.session.unwrap_or_default(),
                    region,
                    generation,
                    offset,
                    length,
                },
            },
            // The endpoint handled the notification when it arrived.
            Received::NotificationHandled => return None,
        })
    }

    /// Handles a notification: a partner has pulled a message of this endpoint.
    pub(crate) fn receive_notification(
        &mut self,
        id: PartnerId,
        notification: Notification,
        context: &mut Context<'_>,
    ) {
        let slot = (notification.region, notification.generation);
        let Some(region) = self.free_region(id, slot) else {
            return;
        };
        let taken = notification.total.min(region.length);
        context.out.end_send(region.token, Code::Success, taken);
        if let Bytes::Stream(stream) = region.bytes {
            context.out.buffers.give(stream.ring);
        }
        // Messages to other partners may wait for a free region.
        let all: Vec<_> = self.partners.keys().copied().collect();
        for id in all {
            self.flush(id, context);
        }
    }

    /// Removes a region if it belongs to this partner and has this generation.
    pub(crate) fn free_region(&mut self, id: PartnerId, slot: (u8, u8)) -> Option<Region> {
        let found = self.regions.get_mut(usize::from(slot.0))?;
        let matches = found.generation == slot.1 && found.region.as_ref()?.id == id;
        if !matches {
            return None;
        }
        found.generation = found.generation.wrapping_add(1);
        if let Some(partner) = self.partners.get_mut(&id) {
            partner.open_transfers = partner.open_transfers.saturating_sub(1);
        }
        found.region.take()
    }

    /// Gives a partner up: ends its sends, pulls and connection with events.
    pub(crate) fn fail(&mut self, id: PartnerId, code: Code, context: &mut Context<'_>) {
        let Some(partner) = self.partners.get_mut(&id) else {
            return;
        };
        // The program does not know of an unconfirmed connection.
        let connected = partner.session.is_some() && partner.unconfirmed.is_none();
        let from = partner.address;
        let (bodies, waiting) = partner.reset();
        let mut tokens: Vec<_> = waiting.into_iter().map(|waits| waits.token).collect();
        for body in bodies {
            if let Body::Message { token, .. } = body {
                tokens.push(token);
            }
        }
        for slot in &mut self.regions {
            if let Some(Region { token, .. }) = slot.region.take_if(|region| region.id == id) {
                slot.generation = slot.generation.wrapping_add(1);
                tokens.push(token);
            }
        }
        for token in tokens {
            context.out.end_send(token, code, 0);
        }
        self.pulls.fail(id, code, context);
        if connected {
            let endpoint = self.number;
            context.out.events.push_back(Event::Disconnected {
                endpoint,
                from,
                code,
            });
        }
    }

    /// Ends the connection to a partner without events. The partner's program may wait for the acknowledgement of what this side has taken.
    pub(crate) fn disconnect(&mut self, id: PartnerId, context: &mut Context<'_>) {
        if let Some(partner) = self.partners.get_mut(&id) {
            if let Some(route) = context.route(self.number, id) {
                partner.acknowledge_now(route, context.out);
            }
            drop(partner.reset());
        }
        for slot in &mut self.regions {
            if slot.region.take_if(|region| region.id == id).is_some() {
                slot.generation = slot.generation.wrapping_add(1);
            }
        }
        self.connecting.retain(|connecting| connecting.id != id);
        self.pulls.end_from(id);
    }

    /// Runs the timers of all partners, pulls and connects.
    pub(crate) fn tick(&mut self, context: &mut Context<'_>) {
        self.pulls.tick(&self.partners, context);
        let mut lost = Vec::new();
        let mut silent = Vec::new();
        let mut probes = Vec::new();
        for (id, partner) in &mut self.partners {
            let Some(route) = context.route(self.number, *id) else {
                continue;
            };
            partner.tick(context.now, route, context.out);
            if partner.must_probe(context.now) {
                silent.push(*id);
            }
            if partner.paths.large.must_probe(context.now) {
                probes.push((*id, Probe::LargeFrame));
            }
            if partner.paths.udp.must_probe(context.now) {
                probes.push((*id, Probe::Datagram));
            }
            if partner.is_lost(context.now, context.peer_timeout) {
                lost.push(*id);
            }
        }
        for id in silent {
            self.probe(id, context);
        }
        for (id, probe) in probes {
            self.probe_path(id, probe, context);
        }
        for id in lost {
            self.fail(id, Code::Unreachable, context);
        }
        self.tick_connects(context);
        self.pulls.share_blocks(&self.partners, context);
    }

    /// Returns whether a pull waits for frames of a partner that may send datagrams.
    pub(crate) fn awaits_datagrams(&self) -> bool {
        let partner = |id| self.partners.get(&id);
        let mut awaited = self.pulls.awaited().filter_map(partner);
        awaited.any(|partner| partner.paths.udp_address().is_some())
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let partners = self.partners.values().filter_map(Partner::deadline);
        let connects = self.connecting.iter().map(|connecting| connecting.retry_at);
        partners.chain(connects).chain(self.pulls.deadline()).min()
    }
}

/// Returns a slot without a region.
fn free_slot(regions: &mut [Slot]) -> Option<(u8, &mut Slot)> {
    let mut all = (0u8..).zip(regions);
    all.find(|(_, slot)| slot.region.is_none())
}

impl Outgoing {
    fn is_large(&self) -> bool {
        match &self.content {
            Content::Buffered(data) => self.synchronous || data.len() > MAX_MEDIUM,
            Content::Streamed(_) => true,
        }
    }

    fn into_message(self) -> Body {
        Body::Message {
            value: self.value,
            data: match self.content {
                Content::Buffered(data) => data,
                // Unreachable: a streamed message is large.
                Content::Streamed(_) => Vec::new(),
            },
            token: self.token,
        }
    }
}
