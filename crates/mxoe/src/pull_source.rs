//! What an endpoint offers, and the answers to pulls of it. Of a pull nothing is remembered but
//! what it asked for before that was there: each request says all that is needed.

use std::collections::VecDeque;

use crate::block::Block;
use crate::endpoint::Endpoint;
use crate::event::{Event, Partner as Who, Source};
use crate::hosts::World;
use crate::limits::{FRAGMENT, PIPELINE, STREAM, WANTING};
use crate::region::{Bytes, Region};
use crate::wire::{Packet, Pull, Reply};

/// Where offered data begins in its page: this side has no pages to speak of.
const OFFSET: u16 = 0;

/// What a pull asks for, if it makes sense.
fn block_of(pull: &Pull, length: u32) -> Option<Block> {
    let total = pull.total.min(length);
    let block = Block::asked(pull.frame, pull.first, pull.length, total, OFFSET);
    block.filter(|_| pull.offset == OFFSET)
}

impl Endpoint {
    fn region(&mut self, region: u8, generation: u8) -> Option<&mut Region> {
        let place = self.regions.get_mut(usize::from(region));
        let place = place.filter(|place| place.generation == generation);
        place.and_then(|place| place.region.as_mut())
    }

    /// Send what a pull asks for, now or when it is there. False when it is of nothing that is
    /// offered.
    pub(crate) fn answer(&mut self, who: Who, pull: &Pull, world: &mut World<'_>) -> bool {
        let endpoint = self.number;
        let region = self.region(pull.region, pull.generation);
        let Some(region) = region.filter(|region| region.who == who) else {
            return false;
        };
        let Some(block) = block_of(pull, region.length) else {
            return false;
        };
        if let Bytes::Stream(stream) = &mut region.bytes {
            if stream.ring.is_empty() {
                stream.ring = vec![0; STREAM as usize];
                stream.total = pull.total.min(region.length);
                let source = Source {
                    region: pull.region,
                    generation: pull.generation,
                };
                world.out.events.push_back(Event::Wanted {
                    endpoint,
                    token: region.token,
                    source,
                    total: stream.total,
                });
            }
            if block.end() > stream.total {
                return false;
            }
            stream.asked = stream.asked.max(block.start);
            if block.start < stream.base() {
                // An old request, which was answered.
                return true;
            }
            if block.end() > stream.fed {
                if stream.wanting.len() < WANTING && !stream.wanting.contains(pull) {
                    stream.wanting.push_back(*pull);
                }
                return true;
            }
        }
        reply(region, pull, block, world);
        true
    }

    /// Where the next bytes of a message belong that is sent piece by piece; empty when there is
    /// no room, or the send is over.
    pub(crate) fn space(&mut self, source: Source) -> &mut [u8] {
        match self.region(source.region, source.generation) {
            Some(Region {
                bytes: Bytes::Stream(stream),
                ..
            }) => stream.space(),
            _ => &mut [],
        }
    }

    /// So many bytes were put there: answer who waits for them.
    pub(crate) fn fed(&mut self, source: Source, count: usize, world: &mut World<'_>) {
        let Some(region) = self.region(source.region, source.generation) else {
            return;
        };
        let Bytes::Stream(stream) = &mut region.bytes else {
            return;
        };
        let count = count.min(stream.space().len());
        stream.fed = stream
            .fed
            .saturating_add(u32::try_from(count).unwrap_or_default());
        let fed = stream.fed;
        let all = std::mem::take(&mut stream.wanting);
        let mut later = VecDeque::new();
        for pull in all {
            match block_of(&pull, region.length) {
                Some(block) if block.end() <= fed => reply(region, &pull, block, world),
                _ => later.push_back(pull),
            }
        }
        if let Bytes::Stream(stream) = &mut region.bytes {
            stream.wanting = later;
        }
    }
}

/// Send the frames of a block that is here.
fn reply(region: &Region, pull: &Pull, block: Block, world: &mut World<'_>) {
    let Some(route) = world.hosts.route(region.who.0) else {
        return;
    };
    for number in 0..block.frames() {
        let Some((start, length)) = block.piece(number) else {
            return;
        };
        debug_assert!(length as usize <= FRAGMENT, "a frame's worth");
        let data = match &region.bytes {
            Bytes::Here(data) => {
                let from = start as usize;
                data.get(from..from + length as usize).unwrap_or_default()
            }
            Bytes::Stream(stream) => stream.get(start, length),
        };
        let reply = Reply {
            // Modulo 256.
            frame: (block.frame.wrapping_add(number) & 0xff) as u8,
            offset: start,
            handle: pull.handle,
            magic: pull.magic,
            data,
        };
        world.out.send(route, Packet::Reply(reply));
    }
}

const _: () = assert!(STREAM % (1 << PIPELINE) == 0, "frames do not go round");
