//! Pulling what a partner offers: a few blocks at a time, each asked for until all of it is there.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::block::Block;
use crate::endpoint::{Endpoint, World};
use crate::event::{Code, Event, Offer, Partner as Who};
use crate::limits::{BLOCKS, PULL, PULLS};
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
    /// A bit for each frame.
    missing: u8,
    /// It was asked for once more since a later one was done.
    hurried: bool,
}

#[derive(Debug)]
struct Pulling {
    handle: u32,
    who: Who,
    offer: Offer,
    data: Vec<u8>,
    asked: VecDeque<Asked>,
    /// Where the next block begins.
    next: u32,
    token: u64,
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

    /// Ask again where nothing comes. Returns the partners that do not answer any more.
    pub(crate) fn tick(
        &mut self,
        partners: &BTreeMap<Who, Partner>,
        world: &mut World<'_>,
    ) -> Vec<Who> {
        let mut lost = Vec::new();
        let magic = self.magic;
        for pulling in self
            .places
            .iter_mut()
            .filter_map(|(_, pulling)| pulling.as_mut())
        {
            if pulling.again > world.now {
                continue;
            }
            pulling.again = world.now + PULL;
            pulling.tries += 1;
            if pulling.tries >= world.tries {
                lost.push(pulling.who);
                continue;
            }
            if let Some(partner) = partners.get(&pulling.who) {
                for asked in &pulling.asked {
                    pulling.ask(&asked.block, magic, partner, world);
                }
            }
        }
        lost
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let all = self
            .places
            .iter()
            .filter_map(|(_, pulling)| pulling.as_ref());
        all.map(|pulling| pulling.again).min()
    }
}

impl Pulling {
    fn end(self, code: Code) -> Event {
        Event::Pulled {
            token: self.token,
            code,
            data: self.data,
        }
    }

    fn ask(&self, block: &Block, magic: u32, partner: &Partner, world: &mut World<'_>) {
        let (Some(session), Some(route)) = (partner.session, world.hosts.route(self.who.0)) else {
            return;
        };
        let short = |number: u32| u16::try_from(number).unwrap_or_default();
        let pull = wire::Pull {
            ends: partner.ends(),
            session,
            total: self.length(),
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

    fn length(&self) -> u32 {
        u32::try_from(self.data.len()).unwrap_or(u32::MAX)
    }

    /// Ask for as many blocks as may be under way.
    fn go_on(&mut self, magic: u32, partner: &Partner, world: &mut World<'_>) {
        while self.asked.len() < BLOCKS && self.next < self.length() {
            let block = Block::at(self.next, self.length(), self.offer.offset);
            self.next = block.end();
            self.ask(&block, magic, partner, world);
            self.asked.push_back(Asked {
                block,
                // Up to eight frames.
                missing: u8::try_from((1u32 << block.frames()) - 1).unwrap_or(u8::MAX),
                hurried: false,
            });
        }
    }

    /// Put a piece into its place. `None` when it has none, or is there already; else whether all
    /// is there now.
    fn take_piece(&mut self, reply: &Reply<'_>) -> Option<Option<usize>> {
        let length = u32::try_from(reply.data.len()).ok()?;
        let found = self.asked.iter().enumerate().find_map(|(at, asked)| {
            let number = asked.block.number(reply.offset, length)?;
            Some((at, number, asked.block.frame + number))
        });
        let (at, number, frame) = found?;
        let asked = self.asked.get_mut(at)?;
        if frame & 0xff != u32::from(reply.frame) || asked.missing & 1 << number == 0 {
            return None;
        }
        let from = reply.offset as usize;
        let place = self.data.get_mut(from..from + reply.data.len())?;
        place.copy_from_slice(reply.data);
        asked.missing &= !(1 << number);
        Some((asked.missing == 0).then_some(at))
    }
}

impl Endpoint {
    /// Begin to pull the first `wanted` bytes of what is offered.
    pub(crate) fn pull(
        &mut self,
        offer: Offer,
        wanted: u32,
        token: u64,
        world: &mut World<'_>,
    ) -> Option<()> {
        let who = offer.partner;
        let current = self.partners.get(&who).and_then(|partner| partner.session);
        if current != Some(offer.session) {
            let code = Code::BadSession;
            let data = Vec::new();
            world
                .out
                .events
                .push_back(Event::Pulled { token, code, data });
            return Some(());
        }
        let wanted = wanted.min(offer.length);
        let handle = self.pulls.handle()?;
        let mut pulling = Pulling {
            handle,
            who,
            offer,
            data: vec![0; wanted as usize],
            asked: VecDeque::new(),
            next: 0,
            token,
            again: world.now + PULL,
            tries: 0,
        };
        if wanted == 0 {
            self.finish(pulling, world);
            return Some(());
        }
        let partner = self.partners.get(&who)?;
        pulling.go_on(self.pulls.magic, partner, world);
        let (_, place) = self.pulls.places.get_mut(handle as usize % PULLS)?;
        *place = Some(pulling);
        Some(())
    }

    /// All of it is here: say so.
    fn finish(&mut self, pulling: Pulling, world: &mut World<'_>) {
        let notify = Body::Notify {
            total: pulling.length(),
            region: pulling.offer.region,
            generation: pulling.offer.generation,
        };
        let who = pulling.who;
        world.out.events.push_back(pulling.end(Code::Success));
        let route = world.hosts.route(who.0);
        if let (Some(partner), Some(route)) = (self.partners.get_mut(&who), route) {
            // Notifications are not held back by the window: pulls are fewer than it is wide in
            // any peer's sense, and each ends a region there.
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
        let Some(pulling) = self.pulls.get(reply.handle) else {
            return;
        };
        if pulling.who.0 != host {
            return;
        }
        let (Some(done), Some(partner)) =
            (pulling.take_piece(reply), self.partners.get(&pulling.who))
        else {
            return;
        };
        pulling.again = world.now + PULL;
        pulling.tries = 0;
        let Some(done) = done else {
            return;
        };
        pulling.asked.remove(done);
        // Whatever was asked for earlier was lost, or is late.
        let mut late = Vec::new();
        for asked in pulling
            .asked
            .iter_mut()
            .take(done)
            .filter(|asked| !asked.hurried)
        {
            asked.hurried = true;
            late.push(asked.block);
        }
        for block in late {
            pulling.ask(&block, magic, partner, world);
        }
        pulling.go_on(magic, partner, world);
        if pulling.asked.is_empty() {
            if let Some(pulling) = self.pulls.take(reply.handle) {
                self.finish(pulling, world);
            }
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
        let ours = self
            .pulls
            .get(handle)
            .is_some_and(|pulling| pulling.who == who);
        if let Some(pulling) = ours.then(|| self.pulls.take(handle)).flatten() {
            world.out.events.push_back(pulling.end(code));
        }
    }
}
