//! An endpoint: its partners, what it offers, and what it pulls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connecting::Connecting;
use crate::event::{Address, Code, Event, Message, Offer, Partner as Who};
use crate::hosts::World;
use crate::limits::{MEDIUM, PARTNERS, REGIONS, REPLACE};
use crate::partner::{Arrived, Body, Content, Notified, Outgoing, Partner};
use crate::pulls::Pulls;
use crate::region::{Place, Region};

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) number: u8,
    pub(crate) key: u32,
    pub(crate) session: u32,
    pub(crate) partners: BTreeMap<Who, Partner>,
    pub(crate) regions: Vec<Place>,
    pub(crate) pulls: Pulls,
    pub(crate) connecting: Vec<Connecting>,
    pub(crate) connects: u8,
    /// When the place of a partner may be given to another one again.
    replace_again: Duration,
}

impl Endpoint {
    pub(crate) fn new(number: u8, key: u32, session: u32) -> Self {
        Self {
            number,
            key,
            session,
            partners: BTreeMap::new(),
            regions: (0..REGIONS).map(|_| Place::default()).collect(),
            pulls: Pulls::new(number),
            connecting: Vec::new(),
            connects: 0,
            replace_again: Duration::ZERO,
        }
    }

    /// The partner, made if there is none yet, in the place of the one that nobody has had to do with for
    /// longest; `None` when there are too many in use.
    pub(crate) fn partner(&mut self, now: Duration, who: Who, at: Address) -> Option<&mut Partner> {
        if self.partners.len() >= PARTNERS && !self.partners.contains_key(&who) {
            // To look for one costs more than a stranger's frame.
            if now < self.replace_again {
                return None;
            }
            self.replace_again = now + REPLACE;
            let unused = self.partners.iter().filter(|entry| !self.uses(entry));
            let oldest = unused
                .min_by_key(|(_, partner)| partner.met)
                .map(|(who, _)| *who)?;
            self.partners.remove(&oldest);
        }
        let number = self.number;
        let fresh = || Partner::new(at, number);
        let partner = self.partners.entry(who).or_insert_with(fresh);
        partner.met = now;
        Some(partner)
    }

    /// The places of hosts with partners in use.
    pub(crate) fn hosts_in_use(&self) -> impl Iterator<Item = u16> {
        let used = self.partners.iter().filter(|entry| self.uses(entry));
        used.map(|(who, _)| who.0)
    }

    /// Whether a partner is connected, is being connected to, or has something to be sent.
    fn uses(&self, (who, partner): &(&Who, &Partner)) -> bool {
        let connecting = || {
            self.connecting
                .iter()
                .any(|connecting| connecting.who == **who)
        };
        partner.session.is_some() || !partner.is_idle() || connecting()
    }

    /// Send what waits, as far as there is room.
    pub(crate) fn flush(&mut self, who: Who, world: &mut World<'_>) {
        let (Some(partner), Some(route)) = (self.partners.get_mut(&who), world.hosts.route(who.0))
        else {
            return;
        };
        while let Some(next) = partner.waiting.front().filter(|_| partner.has_room()) {
            let place = match next.is_large() {
                true => match free(&mut self.regions) {
                    Some(place) => Some(place),
                    // Until another large message is through.
                    None => return,
                },
                false => None,
            };
            let Some(outgoing) = partner.waiting.pop_front() else {
                return;
            };
            let body = match place {
                Some((number, place)) => {
                    partner.owing += 1;
                    place.offer(number, who, outgoing)
                }
                None => outgoing.into_message(),
            };
            partner.send(world.now, route, body, world.out);
        }
    }

    /// The next message of a partner, in the order they were sent.
    pub(crate) fn take(&mut self, who: Who, world: &mut World<'_>) -> Option<Message> {
        let partner = self.partners.get_mut(&who)?;
        Some(match partner.take(world.now)? {
            Arrived::Message { value, data } | Arrived::Partial { value, data, .. } => {
                Message::Whole { value, data }
            }
            Arrived::Offer {
                value,
                length,
                region,
                generation,
                offset,
            } => Message::Offered {
                value,
                length,
                offer: Offer {
                    partner: who,
                    session: partner.session.unwrap_or_default(),
                    region,
                    generation,
                    offset,
                    length,
                },
            },
            // Passed when it came.
            Arrived::Heeded => return None,
        })
    }

    /// A partner pulled a message from here.
    pub(crate) fn notified(&mut self, who: Who, notified: Notified, world: &mut World<'_>) {
        let place = (notified.region, notified.generation);
        let Some(region) = self.free_region(who, place) else {
            return;
        };
        world.out.events.push_back(Event::Sent {
            token: region.token,
            code: Code::Success,
            taken: notified.total.min(region.length),
        });
        // Others may have waited for the place.
        let all: Vec<_> = self.partners.keys().copied().collect();
        for who in all {
            self.flush(who, world);
        }
    }

    /// Take a region away, if it is the partner's and of this generation.
    pub(crate) fn free_region(&mut self, who: Who, place: (u8, u8)) -> Option<Region> {
        let found = self.regions.get_mut(usize::from(place.0))?;
        let is = found.generation == place.1 && found.region.as_ref()?.who == who;
        if !is {
            return None;
        }
        found.generation = found.generation.wrapping_add(1);
        if let Some(partner) = self.partners.get_mut(&who) {
            partner.owing = partner.owing.saturating_sub(1);
        }
        found.region.take()
    }

    /// Bodies that a partner has: sends that are over with that.
    pub(crate) fn acknowledged(&mut self, who: Who, bodies: Vec<Body>, world: &mut World<'_>) {
        if bodies.is_empty() {
            return;
        }
        for body in bodies {
            if let Body::Message { data, token, .. } = body {
                world.out.events.push_back(Event::Sent {
                    token,
                    code: Code::Success,
                    taken: u32::try_from(data.len()).unwrap_or(u32::MAX),
                });
            }
        }
        self.flush(who, world);
    }

    /// Give a partner up: all that has to do with it ends.
    pub(crate) fn fail(&mut self, who: Who, code: Code, world: &mut World<'_>) {
        let Some(partner) = self.partners.get_mut(&who) else {
            return;
        };
        let (connected, from) = (partner.session.is_some(), partner.at);
        let (bodies, waiting) = partner.reset();
        let mut tokens: Vec<u64> = waiting.into_iter().map(|waits| waits.token).collect();
        for body in bodies {
            if let Body::Message { token, .. } = body {
                tokens.push(token);
            }
        }
        for place in &mut self.regions {
            if let Some(Region { token, .. }) = place.region.take_if(|region| region.who == who) {
                place.generation = place.generation.wrapping_add(1);
                tokens.push(token);
            }
        }
        for token in tokens {
            world.out.events.push_back(Event::Sent {
                token,
                code,
                taken: 0,
            });
        }
        self.pulls.fail(who, code, world);
        if connected {
            let endpoint = self.number;
            world.out.events.push_back(Event::Lost {
                endpoint,
                from,
                code,
            });
        }
    }

    /// Drop a partner, and say nothing of it.
    pub(crate) fn forget(&mut self, who: Who) {
        if let Some(partner) = self.partners.get_mut(&who) {
            drop(partner.reset());
        }
        for place in &mut self.regions {
            if place.region.take_if(|region| region.who == who).is_some() {
                place.generation = place.generation.wrapping_add(1);
            }
        }
        self.connecting.retain(|connecting| connecting.who != who);
        self.pulls.forget(who);
    }

    /// Send what is due.
    pub(crate) fn tick(&mut self, world: &mut World<'_>) {
        self.pulls.tick(&self.partners, world);
        let mut lost = Vec::new();
        let mut silent = Vec::new();
        for (who, partner) in &mut self.partners {
            let Some(route) = world.hosts.route(who.0) else {
                continue;
            };
            partner.tick(world.now, route, world.out);
            if partner.must_probe(world.now) {
                silent.push(*who);
            }
            if partner.is_lost(world.now, world.patience) {
                lost.push(*who);
            }
        }
        for who in silent {
            self.probe(who, world);
        }
        for who in lost {
            self.fail(who, Code::Unreachable, world);
        }
        self.tick_connects(world);
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let partners = self.partners.values().filter_map(Partner::deadline);
        let connects = self.connecting.iter().map(|connecting| connecting.again);
        partners.chain(connects).chain(self.pulls.deadline()).min()
    }
}

/// A place without a region.
fn free(regions: &mut [Place]) -> Option<(u8, &mut Place)> {
    let mut all = (0u8..).zip(regions);
    all.find(|(_, place)| place.region.is_none())
}

impl Content {
    pub(crate) fn length(&self) -> u32 {
        match self {
            // No longer than that, see `Node::send`.
            Self::Here(data) => u32::try_from(data.len()).unwrap_or(u32::MAX),
            Self::Later(length) => *length,
        }
    }
}

impl Outgoing {
    fn is_large(&self) -> bool {
        match &self.content {
            Content::Here(data) => self.synchronous || data.len() > MEDIUM,
            Content::Later(_) => true,
        }
    }

    fn into_message(self) -> Body {
        Body::Message {
            value: self.value,
            data: match self.content {
                Content::Here(data) => data,
                // Never: it is large.
                Content::Later(_) => Vec::new(),
            },
            token: self.token,
        }
    }
}
