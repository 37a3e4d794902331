//! An endpoint: its partners, what it offers, and what it pulls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connect::Connecting;
use crate::event::{Address, Code, Event, Offer, Partner as Who};
use crate::hosts::{Hosts, Out};
use crate::limits::{PARTNERS, REGIONS};
use crate::partner::{Arrived, Body, Outgoing, Partner};
use crate::pull::Pulls;

/// A message that is offered.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) who: Who,
    pub(crate) data: Vec<u8>,
    pub(crate) token: u64,
}

/// A place for one, and how often it was used.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) generation: u8,
    pub(crate) region: Option<Region>,
}

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
}

/// What an endpoint works with: the time, the hosts, and the way out.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) now: Duration,
    pub(crate) hosts: &'a Hosts,
    pub(crate) out: &'a mut Out,
    pub(crate) tries: u32,
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
        }
    }

    /// The partner, made if there is none yet; `None` when there are too many.
    pub(crate) fn partner(&mut self, who: Who, at: Address) -> Option<&mut Partner> {
        let full = self.partners.len() >= PARTNERS && !self.partners.contains_key(&who);
        let number = self.number;
        (!full).then(|| {
            let fresh = || Partner::new(at, number);
            self.partners.entry(who).or_insert_with(fresh)
        })
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
                Some((number, place)) => place.offer(number, who, outgoing),
                None => outgoing.into_message(),
            };
            partner.send(world.now, route, body, world.out);
        }
    }

    /// Something of a partner's came in its order.
    pub(crate) fn deliver(&mut self, who: Who, arrived: Arrived, world: &mut World<'_>) {
        let Some(partner) = self.partners.get(&who) else {
            return;
        };
        let (endpoint, from) = (self.number, partner.at);
        match arrived {
            Arrived::Message { value, data } | Arrived::Partial { value, data, .. } => {
                world.out.events.push_back(Event::Message {
                    endpoint,
                    from,
                    value,
                    data,
                });
            }
            Arrived::Offer {
                value,
                length,
                region,
                generation,
                offset,
            } => {
                let offer = Offer {
                    partner: who,
                    session: partner.session.unwrap_or_default(),
                    region,
                    generation,
                    offset,
                    length,
                };
                world.out.events.push_back(Event::Offer {
                    endpoint,
                    from,
                    value,
                    length,
                    offer,
                });
            }
            Arrived::Notify {
                total,
                region,
                generation,
            } => self.pulled_there(who, (region, generation), total, world),
        }
    }

    /// A partner pulled a message from here.
    fn pulled_there(&mut self, who: Who, place: (u8, u8), total: u32, world: &mut World<'_>) {
        let Some(region) = self.free_region(who, place) else {
            return;
        };
        let length = u32::try_from(region.data.len()).unwrap_or(u32::MAX);
        world.out.events.push_back(Event::Sent {
            token: region.token,
            code: Code::Success,
            taken: total.min(length),
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
        let (bodies, waiting) = partner.reset();
        let mut tokens: Vec<u64> = waiting.into_iter().map(|waits| waits.token).collect();
        for body in bodies {
            if let Body::Message { token, .. } = body {
                tokens.push(token);
            }
        }
        for place in &mut self.regions {
            if let Some(region) = place.region.take_if(|region| region.who == who) {
                place.generation = place.generation.wrapping_add(1);
                tokens.push(region.token);
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
    }

    /// Send what is due.
    pub(crate) fn tick(&mut self, world: &mut World<'_>) {
        let mut lost = self.pulls.tick(&self.partners, world);
        for (who, partner) in &mut self.partners {
            let Some(route) = world.hosts.route(who.0) else {
                continue;
            };
            if !partner.tick(world.now, route, world.tries, world.out) {
                lost.push(*who);
            }
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

impl Place {
    fn offer(&mut self, number: u8, who: Who, outgoing: Outgoing) -> Body {
        let Outgoing {
            value, data, token, ..
        } = outgoing;
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.region = Some(Region { who, data, token });
        Body::Offer {
            value,
            length,
            region: number,
            generation: self.generation,
        }
    }
}

impl Outgoing {
    fn is_large(&self) -> bool {
        self.synchronous || self.data.len() > crate::limits::MEDIUM
    }

    fn into_message(self) -> Body {
        Body::Message {
            value: self.value,
            data: self.data,
            token: self.token,
        }
    }
}
