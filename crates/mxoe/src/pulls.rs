//! The pulls of an endpoint: which blocks each has requested, and when it repeats the requests.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::block::Block;
use crate::context::Context;
use crate::event::{Code, Event, Offer, PartnerId};
use crate::limits::{
    PULL_BLOCKS, PULL_BLOCKS_LARGE, PULL_BLOCKS_UDP, PULL_TIMEOUT, PULL_TIMEOUT_MIN, PULLS,
    REPLIES_PER_REQUEST,
};
use crate::partner::{Partner, Path};
use crate::wire::{self, Packet, Reply};

/// The dialect combines the endpoint's number with this value; each reply returns the result.
pub(crate) const MAGIC: u32 = 0x2107_1980;

/// The low bits of a handle are its slot; the other bits count the uses of the slot.
const SLOT_BITS: u32 = 10;

/// A block that was requested.
#[derive(Debug)]
pub(crate) struct RequestedBlock {
    pub(crate) block: Block,
    pub(crate) data: Vec<u8>,
    /// One bit for each missing frame.
    pub(crate) missing: u8,
    /// Whether it was requested again because a later block was completed.
    pub(crate) repeated: bool,
    /// When it was first requested.
    pub(crate) requested_at: Duration,
}

#[derive(Debug)]
pub(crate) struct PullState {
    pub(crate) handle: u32,
    pub(crate) id: PartnerId,
    pub(crate) offer: Offer,
    /// Number of bytes that the program wants.
    pub(crate) length: u32,
    pub(crate) requested: VecDeque<RequestedBlock>,
    /// Start of the next block to request.
    pub(crate) next: u32,
    pub(crate) token: u64,
    /// When to repeat the requests, and how often they were repeated without success.
    pub(crate) retry_at: Duration,
    pub(crate) retries: u32,
}

/// All pulls of an endpoint.
#[derive(Debug)]
pub(crate) struct Pulls {
    pub(crate) magic: u32,
    pub(crate) slots: Vec<(u32, Option<PullState>)>,
    /// The slot that last had its turn to request a block, and whether a pull has ended since whose blocks others may request now.
    pub(crate) turn: usize,
    pub(crate) must_share: bool,
}

impl Pulls {
    pub(crate) fn new(endpoint: u8) -> Self {
        Self {
            magic: u32::from(endpoint) ^ MAGIC,
            slots: Vec::new(),
            turn: 0,
            must_share: false,
        }
    }

    /// Returns the endpoint that the replies with this magic are for.
    pub(crate) fn endpoint(magic: u32) -> Option<u8> {
        u8::try_from(magic ^ MAGIC).ok()
    }

    pub(crate) fn find(&self, handle: u32) -> Option<&PullState> {
        let (_, state) = self.slots.get(handle as usize % PULLS)?;
        state.as_ref().filter(|state| state.handle == handle)
    }

    pub(crate) fn get(&mut self, handle: u32) -> Option<&mut PullState> {
        let slot = handle as usize % PULLS;
        let (_, state) = self.slots.get_mut(slot)?;
        state.as_mut().filter(|state| state.handle == handle)
    }

    /// Returns a handle for a free slot.
    pub(crate) fn handle(&mut self) -> Option<u32> {
        let free = self.slots.iter().position(|(_, state)| state.is_none());
        let slot = free.unwrap_or(self.slots.len());
        if slot >= PULLS {
            return None;
        }
        if slot == self.slots.len() {
            self.slots.push((0, None));
        }
        let (uses, _) = self.slots.get_mut(slot)?;
        *uses = uses.wrapping_add(1);
        Some(*uses << SLOT_BITS | u32::try_from(slot).ok()?)
    }

    pub(crate) fn take(&mut self, handle: u32) -> Option<PullState> {
        let slot = handle as usize % PULLS;
        let (_, state) = self.slots.get_mut(slot)?;
        state.take_if(|state| state.handle == handle)
    }

    /// Ends all pulls from a partner with events.
    pub(crate) fn fail(&mut self, id: PartnerId, code: Code, context: &mut Context<'_>) {
        for (_, slot) in &mut self.slots {
            if let Some(state) = slot.take_if(|state| state.id == id) {
                context.out.events.push_back(state.end(code));
            }
        }
    }

    /// Ends all pulls from a partner without events.
    pub(crate) fn end_from(&mut self, id: PartnerId) {
        for (_, slot) in &mut self.slots {
            let ended = slot.take_if(|state| state.id == id);
            self.must_share |= ended.is_some();
        }
    }

    /// Repeats the requests of pulls whose timeout has passed.
    pub(crate) fn tick(
        &mut self,
        partners: &BTreeMap<PartnerId, Partner>,
        context: &mut Context<'_>,
    ) {
        let magic = self.magic;
        for (_, slot) in &mut self.slots {
            let due = |state: &&mut PullState| state.is_waiting() && state.retry_at <= context.now;
            let Some(state) = slot.as_mut().filter(due) else {
                continue;
            };
            if let Some(partner) = partners.get(&state.id) {
                state.retries = state.retries.saturating_add(1);
                state.start_timer(partner, context.now);
                for requested in state
                    .requested
                    .iter()
                    .filter(|requested| requested.missing != 0)
                {
                    state.request(&requested.block, magic, partner, context);
                    context.out.counters.asked_again += 1;
                }
            }
        }
    }

    /// Returns the partners whose frames pulls wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = PartnerId> {
        let all = self.slots.iter().filter_map(|(_, slot)| slot.as_ref());
        all.filter(|state| state.is_waiting()).map(|state| state.id)
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let all = self.slots.iter().filter_map(|(_, slot)| slot.as_ref());
        let waiting = all.filter(|state| state.is_waiting());
        let retries = waiting.map(|state| state.retry_at);
        let at_once = self.must_share.then_some(Duration::ZERO);
        retries.chain(at_once).min()
    }
}

impl PullState {
    pub(crate) fn end(self, code: Code) -> Event {
        Event::Pulled {
            token: self.token,
            code,
        }
    }

    /// Starts the timeout of the requested blocks.
    pub(crate) fn start_timer(&mut self, partner: &Partner, now: Duration) {
        self.retry_at = now
            + partner
                .pull_time
                .timeout(self.retries, (PULL_TIMEOUT_MIN, PULL_TIMEOUT));
    }

    /// Whether a frame of a requested block is missing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.missing_blocks() > 0
    }

    /// Returns the number of requested blocks of which a frame is missing.
    pub(crate) fn missing_blocks(&self) -> usize {
        let missing = |requested: &&RequestedBlock| requested.missing != 0;
        self.requested.iter().filter(missing).count()
    }

    pub(crate) fn request(
        &self,
        block: &Block,
        magic: u32,
        partner: &Partner,
        context: &mut Context<'_>,
    ) {
        let ends = partner.ends();
        let route = context.route(ends.from, self.id);
        let (Some(session), Some(route)) = (partner.session, route) else {
            return;
        };
        let short = |number: u32| u16::try_from(number).unwrap_or_default();
        let pull = wire::Pull {
            ends,
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
        context.out.send(route, Packet::Pull(pull));
    }

    /// Requests further blocks, up to the limit of blocks in flight with the partner. A limit for all pulls together has
    /// [`Pulls::share_blocks`].
    pub(crate) fn request_blocks(
        &mut self,
        magic: u32,
        partner: &Partner,
        context: &mut Context<'_>,
    ) {
        if context.pull_blocks.is_none() {
            while self.request_next(magic, partner, context) {}
        }
    }

    /// Requests the next block. Returns false if there is none, or too many are in flight with the partner.
    pub(crate) fn request_next(
        &mut self,
        magic: u32,
        partner: &Partner,
        context: &mut Context<'_>,
    ) -> bool {
        let takes_datagrams = context.only_datagrams() || partner.paths.udp_address().is_some();
        let most = match (takes_datagrams, &partner.paths.large) {
            (true, _) => PULL_BLOCKS_UDP,
            (false, Path::Unknown) => PULL_BLOCKS,
            (false, _) => PULL_BLOCKS_LARGE,
        };
        if self.requested.len() >= most || self.is_requested() {
            return false;
        }
        let block = Block::at(self.next, self.length, self.offer.offset);
        self.next = block.end();
        self.request(&block, magic, partner, context);
        self.requested.push_back(RequestedBlock {
            block,
            data: context.out.buffers.take(block.length as usize),
            missing: bits(0..block.frames()),
            repeated: false,
            requested_at: context.now,
        });
        true
    }

    /// Whether all blocks were requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.next >= self.length
    }

    /// Stores a reply. Returns `None` for a duplicate and for a reply that no block expects; else
    /// the index of the block that it completed, if any.
    pub(crate) fn store(&mut self, reply: &Reply<'_>) -> Option<Option<usize>> {
        let length = u32::try_from(reply.data.len()).ok()?;
        let found = self
            .requested
            .iter_mut()
            .enumerate()
            .find_map(|(at, requested)| {
                let numbers = requested.block.frame_numbers(reply.offset, length)?;
                Some((at, numbers, requested))
            });
        let (at, numbers, requested) = found?;
        let frame = requested.block.frame.wrapping_add(numbers.start);
        // Of a large reply, one frame may have arrived before in a short one.
        let carried = bits(numbers);
        if frame & 0xff != u32::from(reply.frame) || requested.missing & carried == 0 {
            return None;
        }
        let from = reply.offset.checked_sub(requested.block.start)? as usize;
        let slot = requested
            .data
            .get_mut(from..)?
            .get_mut(..reply.data.len())?;
        slot.copy_from_slice(reply.data);
        requested.missing &= !carried;
        Some((requested.missing == 0).then_some(at))
    }
}

/// Returns one bit for each of these frames of a block, which has at most eight.
fn bits(frames: Range<u32>) -> u8 {
    frames
        .filter(|number| *number < REPLIES_PER_REQUEST)
        .fold(0, |all, number| all | 1 << number)
}
