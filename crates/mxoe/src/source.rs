//! Answering pulls of what this side offered. Nothing is remembered of a pull: each request says
//! all that is needed.

use crate::block::Block;
use crate::endpoint::{Endpoint, World};
use crate::event::Partner as Who;
use crate::limits::FRAGMENT;
use crate::wire::{Packet, Pull, Reply};

/// Where offered data begins in its page: this side has no pages to speak of.
const OFFSET: u16 = 0;

impl Endpoint {
    /// Send what a pull asks for. False when it is of nothing that is offered.
    pub(crate) fn answer(&mut self, who: Who, pull: &Pull, world: &mut World<'_>) -> bool {
        let place = self.regions.get(usize::from(pull.region));
        let place = place.filter(|place| place.generation == pull.generation);
        let region = place.and_then(|place| place.region.as_ref());
        let Some(region) = region.filter(|region| region.who == who) else {
            return false;
        };
        let total = u32::try_from(region.data.len()).unwrap_or(u32::MAX);
        let block = Block::asked(pull.frame, pull.first, pull.length, total, OFFSET);
        let (Some(block), Some(route)) = (block, world.hosts.route(who.0)) else {
            return false;
        };
        if pull.offset != OFFSET {
            return false;
        }
        for number in 0..block.frames() {
            let (start, length) = block.piece(number);
            let from = start as usize;
            let data = region.data.get(from..from + length as usize);
            debug_assert!(length as usize <= FRAGMENT, "a frame's worth");
            let reply = Reply {
                // Modulo 256.
                frame: ((block.frame + number) & 0xff) as u8,
                offset: start,
                handle: pull.handle,
                magic: pull.magic,
                data: data.unwrap_or_default(),
            };
            world.out.send(route, Packet::Reply(reply));
        }
        true
    }
}
