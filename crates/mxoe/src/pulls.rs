//! The pulls of an endpoint: a few blocks at a time, each asked for until all of it is there.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::block::Block;
use crate::event::{Code, Event, Offer, Partner as Who};
use crate::hosts::World;
use crate::limits::{BLOCKS, PULL, PULL_FIRST, PULLS, REPLIES};
use crate::partner::Partner;
use crate::wire::{self, Packet, Reply};

/// What the endpoint's number is mixed with, to be sent back with each reply.
const MAGIC: u32 = 0x2107_1980;

/// Bits of a handle that are its place; the others are how often that was used.
const PLACE_BITS: u32 = 10;

/// A block that is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) block: Block,
    pub(crate) data: Vec<u8>,
    /// A bit for each frame.
    pub(crate) missing: u8,
    /// It was asked for once more since a later one was done.
    pub(crate) hurried: bool,
    /// When it was asked for first.
    pub(crate) since: Duration,
}

#[derive(Debug)]
pub(crate) struct Pulling {
    pub(crate) handle: u32,
    pub(crate) who: Who,
    pub(crate) offer: Offer,
    /// Bytes that are wanted.
    pub(crate) length: u32,
    pub(crate) asked: VecDeque<Asked>,
    /// Where the next block begins.
    pub(crate) next: u32,
    pub(crate) token: u64,
    /// When to ask again, and how often that was done in vain.
    pub(crate) again: Duration,
    pub(crate) tries: u32,
}

/// All pulls of an endpoint.
#[derive(Debug)]
pub(crate) struct Pulls {
    pub(crate) magic: u32,
    pub(crate) places: Vec<(u32, Option<Pulling>)>,
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

    pub(crate) fn get(&mut self, handle: u32) -> Option<&mut Pulling> {
        let place = handle as usize % PULLS;
        let (_, pulling) = self.places.get_mut(place)?;
        pulling.as_mut().filter(|pulling| pulling.handle == handle)
    }

    /// A free place's handle.
    pub(crate) fn handle(&mut self) -> Option<u32> {
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

    pub(crate) fn take(&mut self, handle: u32) -> Option<Pulling> {
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
    pub(crate) fn end(self, code: Code) -> Event {
        Event::Pulled {
            token: self.token,
            code,
        }
    }

    /// Wait for what was asked for.
    pub(crate) fn rest(&mut self, partner: &Partner, now: Duration) {
        self.again = now + partner.pulls.wait(self.tries, (PULL_FIRST, PULL));
    }

    /// Whether something that was asked for is missing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.asked.iter().any(|asked| asked.missing != 0)
    }

    pub(crate) fn ask(&self, block: &Block, magic: u32, partner: &Partner, world: &mut World<'_>) {
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
    pub(crate) fn go_on(&mut self, magic: u32, partner: &Partner, world: &mut World<'_>) {
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
    pub(crate) fn put(&mut self, reply: &Reply<'_>) -> Option<Option<usize>> {
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
