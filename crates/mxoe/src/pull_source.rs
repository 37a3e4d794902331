//! The sender's side of a pull: messages that an endpoint offers, and replies to the receiver's
//! requests. Each request is self-contained, so the sender keeps no state of a pull except the
//! requests that wait for bytes from the program.

use std::collections::VecDeque;

use crate::block::Block;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::event::{Event, PartnerId, StreamedSend};
use crate::limits::{
    LARGE_FRAGMENT, LARGE_PIPELINE, LARGE_REPEATS, PENDING_REQUESTS, PIPELINE, STREAM_BUFFER,
};
use crate::outgoing_datagram::DataOfReply;
use crate::partner::Paths;
use crate::region::{Bytes, Region, Slot};
use crate::wire::{Packet, Pull, Reply};

/// Offset of the offered data in its first page: this side always offers from the start of a page.
const OFFSET: u16 = 0;

/// Returns the block that a request asks for, if the request is valid.
fn requested_block(pull: &Pull, length: u32) -> Option<Block> {
    let total = pull.total.min(length);
    let block = Block::requested(pull.frame, pull.first, pull.length, total, OFFSET);
    block.filter(|_| pull.offset == OFFSET)
}

/// Returns an offered message.
fn find(regions: &mut [Slot], region: u8, generation: u8) -> Option<&mut Region> {
    let place = regions.get_mut(usize::from(region));
    let place = place.filter(|place| place.generation == generation);
    place.and_then(|place| place.region.as_mut())
}

impl Endpoint {
    /// Returns the data of a reply that waits to be sent, if the message and these bytes of it are still there.
    pub(crate) fn data_of(&self, data: &DataOfReply) -> Option<&[u8]> {
        let slot = self.regions.get(usize::from(data.region))?;
        let slot = Some(slot).filter(|slot| slot.generation == data.generation)?;
        slot.region.as_ref()?.get(data.start, data.length)
    }

    /// Replies to a request, now or when the program has supplied the bytes. Returns false if no
    /// offered message matches the request.
    pub(crate) fn serve_pull(
        &mut self,
        id: PartnerId,
        pull: &Pull,
        context: &mut Context<'_>,
    ) -> bool {
        let endpoint = self.number;
        let region = find(&mut self.regions, pull.region, pull.generation);
        let Some(region) = region.filter(|region| region.id == id) else {
            return false;
        };
        let Some(block) = requested_block(pull, region.length) else {
            return false;
        };
        let Some(partner) = self.partners.get_mut(&id) else {
            return false;
        };
        if region.note_request(&block) >= LARGE_REPEATS {
            partner.paths.doubt(context.now);
        }
        if let (Bytes::Stream(stream), Some(token)) = (&mut region.bytes, region.token) {
            if stream.ring.is_empty() {
                stream.total = pull.total.min(region.length);
                let length = stream.total.min(STREAM_BUFFER) as usize;
                stream.ring = context.out.buffers.take(length);
                let source = StreamedSend {
                    region: pull.region,
                    generation: pull.generation,
                };
                context.out.events.push_back(Event::PullRequest {
                    endpoint,
                    token,
                    source,
                    total: stream.total,
                });
            }
            if block.end() > stream.total {
                return false;
            }
            stream.last_requested = stream.last_requested.max(block.start);
            if block.start < stream.base() {
                // An old request, which was answered before.
                return true;
            }
            if block.end() > stream.filled {
                if stream.pending.len() < PENDING_REQUESTS && !stream.pending.contains(pull) {
                    stream.pending.push_back(*pull);
                }
                return true;
            }
        }
        reply(endpoint, (region, pull), block, &partner.paths, context);
        true
    }

    /// Returns the free part of the buffer of a streamed message. It is empty if the buffer is full
    /// or the send has ended.
    pub(crate) fn send_buffer(&mut self, source: StreamedSend) -> &mut [u8] {
        match find(&mut self.regions, source.region, source.generation) {
            Some(Region {
                bytes: Bytes::Stream(stream),
                ..
            }) => stream.free_part(),
            _ => &mut [],
        }
    }

    /// Notes that the program wrote `count` bytes, and replies to the requests that waited for
    /// them.
    pub(crate) fn commit(&mut self, source: StreamedSend, count: usize, context: &mut Context<'_>) {
        let Some(region) = find(&mut self.regions, source.region, source.generation) else {
            return;
        };
        let Some(partner) = self.partners.get(&region.id) else {
            return;
        };
        let Bytes::Stream(stream) = &mut region.bytes else {
            return;
        };
        let count = count.min(stream.free_part().len());
        stream.filled = stream
            .filled
            .saturating_add(u32::try_from(count).unwrap_or_default());
        let filled = stream.filled;
        let waiting = std::mem::take(&mut stream.pending);
        let mut still_waiting = VecDeque::new();
        for pull in waiting {
            match requested_block(&pull, region.length) {
                Some(block) if block.end() <= filled => {
                    reply(self.number, (region, &pull), block, &partner.paths, context);
                }
                _ => still_waiting.push_back(pull),
            }
        }
        if let Bytes::Stream(stream) = &mut region.bytes {
            stream.pending = still_waiting;
        }
    }
}

/// Sends a block whose bytes are available, in replies that end at multiples of the longest fragment.
fn reply(
    endpoint: u8,
    (region, pull): (&Region, &Pull),
    block: Block,
    paths: &Paths,
    context: &mut Context<'_>,
) {
    let Some(route) = context.route(endpoint, region.id) else {
        return;
    };
    let udp = route.datagrams.or_else(|| paths.open_udp());
    let pipeline = udp.map_or(paths.pipeline(), |_| LARGE_PIPELINE);
    let fragment = 1u32 << pipeline;
    let mut start = block.start;
    while start < block.end() {
        let length = (fragment - start % fragment).min(block.end() - start);
        let place = DataOfReply {
            endpoint,
            region: pull.region,
            generation: pull.generation,
            start,
            length,
        };
        let data = region.get(start, length).unwrap_or_default();
        let reply = Reply {
            // The low eight bits of the number of the first frame, which is that of the page: see `OFFSET`.
            frame: (start >> PIPELINE & 0xff) as u8,
            offset: start,
            handle: pull.handle,
            magic: pull.magic,
            data,
        };
        let out = &mut context.out;
        match udp {
            Some(address) => out.send_reply_datagram(address, route, &reply, place),
            None => out.send(route, Packet::Reply(reply)),
        }
        start += length;
    }
}

const _: () = assert!(
    STREAM_BUFFER as usize % LARGE_FRAGMENT == 0,
    "replies do not wrap around the ring"
);
