//! The receiver's side of a pull: it requests a few blocks at a time, repeats requests until every
//! frame has arrived, and returns blocks in order. It requests no more while the program takes
//! none, which holds the sender back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::block::Block;
use crate::endpoint::{Context, Endpoint};
use crate::event::{Code, Event, Offer, PartnerId, Pull};
use crate::limits::{PULL_BLOCKS, PULL_TIMEOUT, PULL_TIMEOUT_MIN, PULLS, REPLIES_PER_REQUEST};
use crate::partner::{Body, Partner};
use crate::wire::{self, Packet, Reply};

/// The dialect combines the endpoint's number with this value; each reply returns the result.
const MAGIC: u32 = 0x2107_1980;

/// The low bits of a handle are its slot; the other bits count the uses of the slot.
const SLOT_BITS: u32 = 10;

/// A block that was requested.
#[derive(Debug)]
struct RequestedBlock {
    block: Block,
    data: Vec<u8>,
    /// One bit for each missing frame.
    missing: u8,
    /// Whether it was requested again because a later block was completed.
    repeated: bool,
    /// When it was first requested.
    requested_at: Duration,
}

#[derive(Debug)]
struct PullState {
    handle: u32,
    id: PartnerId,
    offer: Offer,
    /// Number of bytes that the program wants.
    length: u32,
    requested: VecDeque<RequestedBlock>,
    /// Start of the next block to request.
    next: u32,
    token: u64,
    /// When to repeat the requests, and how often they were repeated without success.
    retry_at: Duration,
    retries: u32,
}

/// All pulls of an endpoint.
#[derive(Debug)]
pub(crate) struct Pulls {
    magic: u32,
    slots: Vec<(u32, Option<PullState>)>,
}

impl Pulls {
    pub(crate) fn new(endpoint: u8) -> Self {
        Self {
            magic: u32::from(endpoint) ^ MAGIC,
            slots: Vec::new(),
        }
    }

    /// Returns the endpoint that the replies with this magic are for.
    pub(crate) fn endpoint(magic: u32) -> Option<u8> {
        u8::try_from(magic ^ MAGIC).ok()
    }

    fn get(&mut self, handle: u32) -> Option<&mut PullState> {
        let slot = handle as usize % PULLS;
        let (_, state) = self.slots.get_mut(slot)?;
        state.as_mut().filter(|state| state.handle == handle)
    }

    /// Returns a handle for a free slot.
    fn handle(&mut self) -> Option<u32> {
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

    fn take(&mut self, handle: u32) -> Option<PullState> {
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
    pub(crate) fn forget(&mut self, id: PartnerId) {
        for (_, slot) in &mut self.slots {
            let _ended = slot.take_if(|state| state.id == id);
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

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let all = self.slots.iter().filter_map(|(_, slot)| slot.as_ref());
        let waiting = all.filter(|state| state.is_waiting());
        waiting.map(|state| state.retry_at).min()
    }
}

impl PullState {
    fn end(self, code: Code) -> Event {
        Event::Pulled {
            token: self.token,
            code,
        }
    }

    /// Starts the timeout of the requested blocks.
    fn start_timer(&mut self, partner: &Partner, now: Duration) {
        self.retry_at = now
            + partner
                .pull_time
                .timeout(self.retries, (PULL_TIMEOUT_MIN, PULL_TIMEOUT));
    }

    /// Whether a frame of a requested block is missing.
    fn is_waiting(&self) -> bool {
        self.requested
            .iter()
            .any(|requested| requested.missing != 0)
    }

    fn request(&self, block: &Block, magic: u32, partner: &Partner, context: &mut Context<'_>) {
        let (Some(session), Some(route)) = (partner.session, context.hosts.route(self.id.0)) else {
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
        context.out.send(route, Packet::Pull(pull));
    }

    /// Requests further blocks, up to the limit of blocks in flight.
    fn request_blocks(&mut self, magic: u32, partner: &Partner, context: &mut Context<'_>) {
        while self.requested.len() < PULL_BLOCKS && self.next < self.length {
            let block = Block::at(self.next, self.length, self.offer.offset);
            self.next = block.end();
            self.request(&block, magic, partner, context);
            self.requested.push_back(RequestedBlock {
                block,
                data: vec![0; block.length as usize],
                // A block has at most eight frames.
                missing: u8::try_from((1u32 << block.frames().min(REPLIES_PER_REQUEST)) - 1)
                    .unwrap_or(u8::MAX),
                repeated: false,
                requested_at: context.now,
            });
        }
    }

    /// Stores a reply. Returns `None` for a duplicate and for a reply that no block expects; else
    /// the index of the block that it completed, if any.
    fn store(&mut self, reply: &Reply<'_>) -> Option<Option<usize>> {
        let length = u32::try_from(reply.data.len()).ok()?;
        let found = self
            .requested
            .iter_mut()
            .enumerate()
            .find_map(|(at, requested)| {
                let number = requested.block.frame_number(reply.offset, length)?;
                Some((at, number, requested))
            });
        let (at, number, requested) = found?;
        let frame = requested.block.frame.wrapping_add(number);
        if frame & 0xff != u32::from(reply.frame) || requested.missing & 1 << number == 0 {
            return None;
        }
        let from = reply.offset.checked_sub(requested.block.start)? as usize;
        let slot = requested
            .data
            .get_mut(from..)?
            .get_mut(..reply.data.len())?;
        slot.copy_from_slice(reply.data);
        requested.missing &= !(1 << number);
        Some((requested.missing == 0).then_some(at))
    }
}

impl Endpoint {
    /// Starts to pull the first `wanted` bytes of an offered message. Returns `None` if there are
    /// too many pulls.
    pub(crate) fn pull(
        &mut self,
        offer: Offer,
        wanted: u32,
        token: u64,
        context: &mut Context<'_>,
    ) -> Option<Pull> {
        let id = offer.partner;
        let handle = self.pulls.handle()?;
        let mut state = PullState {
            handle,
            id,
            offer,
            length: wanted.min(offer.length),
            requested: VecDeque::new(),
            next: 0,
            token,
            retry_at: context.now + PULL_TIMEOUT,
            retries: 0,
        };
        let partner = self.partners.get_mut(&id);
        match partner.filter(|partner| partner.session == Some(offer.session)) {
            // The connection of the offer has ended.
            None => context.out.events.push_back(state.end(Code::BadSession)),
            Some(_) if state.length == 0 => self.finish(state, context),
            Some(partner) => {
                partner.open_transfers += 1;
                state.request_blocks(self.pulls.magic, partner, context);
                state.start_timer(partner, context.now);
                let (_, slot) = self.pulls.slots.get_mut(handle as usize % PULLS)?;
                *slot = Some(state);
            }
        }
        Some(Pull(handle))
    }

    /// Whether one more pull can start.
    pub(crate) fn can_pull(&self) -> bool {
        self.pulls.slots.len() < PULLS || self.pulls.slots.iter().any(|(_, p)| p.is_none())
    }

    /// Takes the next block of a pull once it is complete. With the last block, the endpoint
    /// notifies the partner.
    pub(crate) fn piece(&mut self, pull: Pull, context: &mut Context<'_>) -> Option<Vec<u8>> {
        let magic = self.pulls.magic;
        let state = self.pulls.get(pull.0)?;
        let front = state.requested.front()?;
        if front.missing != 0 {
            return None;
        }
        let piece = state.requested.pop_front()?.data;
        let partner = self.partners.get_mut(&state.id)?;
        state.request_blocks(magic, partner, context);
        state.start_timer(partner, context.now);
        if state.requested.is_empty() {
            partner.open_transfers = partner.open_transfers.saturating_sub(1);
            if let Some(state) = self.pulls.take(pull.0) {
                self.finish(state, context);
            }
        }
        Some(piece)
    }

    /// Ends a pull whose blocks were all taken, and notifies the partner.
    fn finish(&mut self, state: PullState, context: &mut Context<'_>) {
        let notify = Body::Notify {
            total: state.length,
            region: state.offer.region,
            generation: state.offer.generation,
        };
        let id = state.id;
        context.out.events.push_back(state.end(Code::Success));
        let route = context.hosts.route(id.0);
        if let (Some(partner), Some(route)) = (self.partners.get_mut(&id), route) {
            // The send window does not hold notifications back: the receiver accepts them ahead of
            // missing packets, see `limits::SEND_WINDOW`.
            partner.send(context.now, route, notify, context.out);
        }
    }

    /// Handles a reply to a pull of this endpoint. It must come from the host that the pull is
    /// from.
    pub(crate) fn receive_pull_reply(
        &mut self,
        host: u16,
        reply: &Reply<'_>,
        context: &mut Context<'_>,
    ) {
        let magic = self.pulls.magic;
        let state = self.pulls.get(reply.handle);
        let Some(state) = state.filter(|state| state.id.0 == host) else {
            return;
        };
        let (Some(done), Some(partner)) = (state.store(reply), self.partners.get_mut(&state.id))
        else {
            return;
        };
        partner.mark_alive();
        state.retries = 0;
        if let Some(requested) = done.and_then(|done| state.requested.get(done)) {
            partner
                .pull_time
                .add_sample(context.now.saturating_sub(requested.requested_at));
        }
        state.start_timer(partner, context.now);
        let Some(done) = done else {
            return;
        };
        // Blocks that were requested earlier are late or lost.
        let mut late = Vec::new();
        let earlier = state.requested.iter_mut().take(done);
        for requested in earlier.filter(|requested| requested.missing != 0 && !requested.repeated) {
            requested.repeated = true;
            late.push(requested.block);
        }
        for block in late {
            state.request(&block, magic, partner, context);
            context.out.counters.asked_again += 1;
        }
    }

    /// Handles the refusal of a pull.
    pub(crate) fn pull_refused(
        &mut self,
        id: PartnerId,
        handle: u32,
        code: Code,
        context: &mut Context<'_>,
    ) {
        let ours = self.pulls.get(handle).filter(|state| state.id == id);
        if ours.is_none() {
            return;
        }
        if let Some(partner) = self.partners.get_mut(&id) {
            partner.open_transfers = partner.open_transfers.saturating_sub(1);
        }
        if let Some(state) = self.pulls.take(handle) {
            context.out.events.push_back(state.end(code));
        }
    }
}
