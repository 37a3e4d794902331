//! Pulling what a partner offers: a few blocks at a time, each asked for until all of it is there,
//! and taken in their order. What is not taken holds the partner back.

use std::collections::VecDeque;

use crate::endpoint::Endpoint;
use crate::event::{Code, Offer, Partner as Who, Pull};
use crate::hosts::World;
use crate::limits::{PULL, PULLS};
use crate::partner::Body;
use crate::pulls::Pulling;
use crate::wire::Reply;

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
