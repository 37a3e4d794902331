//! Pulling what a partner offers: a few blocks at a time, each asked for until all of it is there,
//! and taken in their order. What is not taken holds the partner back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::block::Block;
use crate::endpoint::{Endpoint, World};
use crate::event::{Code, Event, Offer, Partner as Who, Pull};
use crate::limits::{BLOCKS, PULL, PULL_FIRST, PULLS, REPLIES};
use crate::partner::{Body, Partner};
use crate::wire::{self, Packet, Reply};

/// What the endpoint's number is mixed with, to be sent back with each reply.
const MAGIC: u32 = 0x2107_1980;

/// Bits of a handle that are its place; the others are how often that was used.
const PLACE_BITS: u32 = 10;

/// A block that is asked for.
#[derive(Debug)]
struct Asked {
    block: Block,
    data: Vec<u8>,
    /// A bit for each frame.
    missing: u8,
    /// It was asked for once more since a later one was done.
    hurried: bool,
    /// When it was asked for first.
    since: Duration,
}

#[derive(Debug)]
struct Pulling {
    handle: u32,
    who: Who,
    offer: Offer,
    /// Bytes that are wanted.
    length: u32,
    asked: VecDeque<Asked>,
    /// Where the next block begins.
    next: u32,
    token: u64,
    /// When to ask again, and how often that was done in vain.
    again: Duration,
    tries: u32,
}

/// All pulls of an endpoint.
#[derive(Debug)]
pub(crate) struct Pulls {
    magic: u32,
    places: Vec<(u32, Option<Pulling>)>,
}

impl Pulls {
    pub(crate) fn new(endpoint: u8) -> Self {
        Self {
            magic: u32::from(endpoint) ^ MAGIC,
            places: Vec::new(),
        }
    }

    /// Whose endpoint the replies with this magic are for.
    pub(crate) fn endpoint(magic: u32) -> Option<u8> {
        u8::try_from(magic ^ MAGIC).ok()
    }

    fn get(&mut self, handle: u32) -> Option<&mut Pulling> {
        let place = handle as usize % PULLS;
        let (_, pulling) = self.places.get_mut(place)?;
        pulling.as_mut().filter(|pulling| pulling.handle == handle)
    }

    /// A free place's handle.
    fn handle(&mut self) -> Option<u32> {
        let free = self
            .places
            .iter()
            .position(|(_, pulling)| pulling.is_none());
        let place = free.unwrap_or(self.places.len());
        if place >= PULLS {
            return None;
        }
        if place == self.places.len() {
            self.places.push((0, None));
        }
        let (uses, _) = self.places.get_mut(place)?;
        *uses = uses.wrapping_add(1);
        Some(*uses << PLACE_BITS | u32::try_from(place).ok()?)
    }

    fn take(&mut self, handle: u32) -> Option<Pulling> {
        let place = handle as usize % PULLS;
        let (_, pulling) = self.places.get_mut(place)?;
        pulling.take_if(|pulling| pulling.handle == handle)
    }

    /// End all from a partner.
    pub(crate) fn fail(&mut self, who: Who, code: Code, world: &mut World<'_>) {
        for (_, place) in &mut self.places {
            if let Some(pulling) = place.take_if(|pulling| pulling.who == who) {
                world.out.events.push_back(pulling.end(code));
            }
        }
    }

    /// End all from a partner, and say nothing of it.
    pub(crate) fn forget(&mut self, who: Who) {
        for (_, place) in &mut self.places {
            let _ended = place.take_if(|pulling| pulling.who == who);
        }
    }

    /// Ask again where nothing comes.
    pub(crate) fn tick(&mut self, partners: &BTreeMap<Who, Partner>, world: &mut World<'_>) {
        let magic = self.magic;
        for (_, place) in &mut self.places {
            let due = |pulling: &&mut Pulling| pulling.is_waiting() && pulling.again <= world.now;
            let Some(pulling) = place.as_mut().filter(due) else {
                continue;
            };
            if let Some(partner) = partners.get(&pulling.who) {
                pulling.tries = pulling.tries.saturating_add(1);
                pulling.rest(partner, world.now);
                for asked in pulling.asked.iter().filter(|asked| asked.missing != 0) {
                    pulling.ask(&asked.block, magic, partner, world);
                    world.out.counters.asked_again += 1;
                }
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let all = self.places.iter().filter_map(|(_, place)| place.as_ref());
        let waiting = all.filter(|pulling| pulling.is_waiting());
        waiting.map(|pulling| pulling.again).min()
    }
}

impl Pulling {
    fn end(self, code: Code) -> Event {
        Event::Pulled {
            token: self.token,
            code,
        }
    }

    /// Wait for what was asked for.
    fn rest(&mut self, partner: &Partner, now: Duration) {
        self.again = now + partner.pulls.wait(self.tries, (PULL_FIRST, PULL));
    }

    /// Whether something that was asked for is missing.
    fn is_waiting(&self) -> bool {
        self.asked.iter().any(|asked| asked.missing != 0)
    }

    fn ask(&self, block: &Block, magic: u32, partner: &Partner, world: &mut World<'_>) {
        let (Some(session), Some(route)) = (partner.session, world.hosts.route(self.who.0)) else {
            return;
        };
        let short = |number: u32| u16::try_from(number).unwrap_or_default();
        let pull = wire::Pull {
            ends: partner.ends(),
            session,
            total: self.length,
            region: self.offer.region,
            generation: self.offer.generation,
            offset: self.offer.offset,
            handle: self.handle,
            magic,
            first: short(block.first),
            length: short(block.length),
            frame: block.frame,
        };
        world.out.send(route, Packet::Pull(pull));
    }

    /// Ask for as many blocks as may be under way.
    fn go_on(&mut self, magic: u32, partner: &Partner, world: &mut World<'_>) {
        while self.asked.len() < BLOCKS && self.next < self.length {
            let block = Block::at(self.next, self.length, self.offer.offset);
            self.next = block.end();
            self.ask(&block, magic, partner, world);
            self.asked.push_back(Asked {
                block,
                data: vec![0; block.length as usize],
                // Up to eight frames.
                missing: u8::try_from((1u32 << block.frames().min(REPLIES)) - 1).unwrap_or(u8::MAX),
                hurried: false,
                since: world.now,
            });
        }
    }

    /// Put a piece into its place. `None` when it has none, or is there already; else which block
    /// is complete with it, if one is.
    fn put(&mut self, reply: &Reply<'_>) -> Option<Option<usize>> {
        let length = u32::try_from(reply.data.len()).ok()?;
        let found = self.asked.iter_mut().enumerate().find_map(|(at, asked)| {
            let number = asked.block.number(reply.offset, length)?;
            Some((at, number, asked))
        });
        let (at, number, asked) = found?;
        let frame = asked.block.frame.wrapping_add(number);
        if frame & 0xff != u32::from(reply.frame) || asked.missing & 1 << number == 0 {
            return None;
        }
        let from = reply.offset.checked_sub(asked.block.start)? as usize;
        let place = asked.data.get_mut(from..)?.get_mut(..reply.data.len())?;
        place.copy_from_slice(reply.data);
        asked.missing &= !(1 << number);
        Some((asked.missing == 0).then_some(at))
    }
}

impl Endpoint {
    /// Begin to pull the first `wanted` bytes of what is offered. `None` when there are too many
    /// pulls.
    pub(crate) fn pull(
        &mut self,
        offer: Offer,
        wanted: u32,
        token: u64,
        world: &mut World<'_>,
    ) -> Option<Pull> {
        let who = offer.partner;
        let handle = self.pulls.handle()?;
        let mut pulling = Pulling {
            handle,
            who,
            offer,
            length: wanted.min(offer.length),
            asked: VecDeque::new(),
            next: 0,
            token,
            again: world.now + PULL,
            tries: 0,
        };
        let partner = self.partners.get_mut(&who);
        match partner.filter(|partner| partner.session == Some(offer.session)) {
            // Who offered it is no more.
            None => world.out.events.push_back(pulling.end(Code::BadSession)),
            Some(_) if pulling.length == 0 => self.finish(pulling, world),
            Some(partner) => {
                partner.owing += 1;
                pulling.go_on(self.pulls.magic, partner, world);
                pulling.rest(partner, world.now);
                let (_, place) = self.pulls.places.get_mut(handle as usize % PULLS)?;
                *place = Some(pulling);
            }
        }
        Some(Pull(handle))
    }

    /// Whether one more pull can be begun.
    pub(crate) fn can_pull(&self) -> bool {
        self.pulls.places.len() < PULLS || self.pulls.places.iter().any(|(_, p)| p.is_none())
    }

    /// The next block of a pull, once all of it is here. With the last one, the partner is told.
    pub(crate) fn piece(&mut self, pull: Pull, world: &mut World<'_>) -> Option<Vec<u8>> {
        let magic = self.pulls.magic;
        let pulling = self.pulls.get(pull.0)?;
        let front = pulling.asked.front()?;
        if front.missing != 0 {
            return None;
        }
        let piece = pulling.asked.pop_front()?.data;
        let partner = self.partners.get_mut(&pulling.who)?;
        pulling.go_on(magic, partner, world);
        pulling.rest(partner, world.now);
        if pulling.asked.is_empty() {
            partner.owing = partner.owing.saturating_sub(1);
            if let Some(pulling) = self.pulls.take(pull.0) {
                self.finish(pulling, world);
            }
        }
        Some(piece)
    }

    /// All of it was taken: say so.
    fn finish(&mut self, pulling: Pulling, world: &mut World<'_>) {
        let notify = Body::Notify {
            total: pulling.length,
            region: pulling.offer.region,
            generation: pulling.offer.generation,
        };
        let who = pulling.who;
        world.out.events.push_back(pulling.end(Code::Success));
        let route = world.hosts.route(who.0);
        if let (Some(partner), Some(route)) = (self.partners.get_mut(&who), route) {
            // Notifications are not held back by the window: the other side takes them ahead of
            // what it misses, see `limits::WINDOW`.
            partner.send(world.now, route, notify, world.out);
        }
    }

    /// A piece of what this endpoint pulls. The host is the one it came from.
    pub(crate) fn hear_reply_to_pull(
        &mut self,
        host: u16,
        reply: &Reply<'_>,
        world: &mut World<'_>,
    ) {
        let magic = self.pulls.magic;
        let pulling = self.pulls.get(reply.handle);
        let Some(pulling) = pulling.filter(|pulling| pulling.who.0 == host) else {
            return;
        };
        let (Some(done), Some(partner)) = (pulling.put(reply), self.partners.get_mut(&pulling.who))
        else {
            return;
        };
        partner.heard();
        pulling.tries = 0;
        if let Some(asked) = done.and_then(|done| pulling.asked.get(done)) {
            partner
                .pulls
                .answered(world.now.saturating_sub(asked.since));
        }
        pulling.rest(partner, world.now);
        let Some(done) = done else {
            return;
        };
        // Whatever was asked for earlier was lost, or is late.
        let mut late = Vec::new();
        let earlier = pulling.asked.iter_mut().take(done);
        for asked in earlier.filter(|asked| asked.missing != 0 && !asked.hurried) {
            asked.hurried = true;
            late.push(asked.block);
        }
        for block in late {
            pulling.ask(&block, magic, partner, world);
            world.out.counters.asked_again += 1;
        }
    }

    /// A pull was refused.
    pub(crate) fn pull_refused(
        &mut self,
        who: Who,
        handle: u32,
        code: Code,
        world: &mut World<'_>,
    ) {
        let ours = self.pulls.get(handle).filter(|pulling| pulling.who == who);
        if ours.is_none() {
            return;
        }
        if let Some(partner) = self.partners.get_mut(&who) {
            partner.owing = partner.owing.saturating_sub(1);
        }
        if let Some(pulling) = self.pulls.take(handle) {
            world.out.events.push_back(pulling.end(code));
        }
    }
}
