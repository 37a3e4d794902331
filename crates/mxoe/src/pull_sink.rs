//! The receiver's side of a pull: it requests a few blocks at a time, repeats requests until every
//! frame has arrived, and returns blocks in order. It requests no more while the program takes
//! none, which holds the sender back.

use std::collections::VecDeque;

use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::event::{Code, Offer, PartnerId, Pull};
use crate::limits::{PULL_TIMEOUT, PULLS};
use crate::partner::Body;
use crate::pulls::PullState;
use crate::wire::Reply;

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
                self.pulls.share_blocks(&self.partners, context);
            }
        }
        Some(Pull(handle))
    }

    /// Whether one more pull can start.
    pub(crate) fn can_pull(&self) -> bool {
        self.pulls.slots.len() < PULLS || self.pulls.slots.iter().any(|(_, p)| p.is_none())
    }

    /// Whether the next block of a pull is complete.
    pub(crate) fn has_piece(&self, pull: Pull) -> bool {
        let state = self.pulls.find(pull.0);
        let front = state.and_then(|state| state.requested.front());
        front.is_some_and(|front| front.missing == 0)
    }

    /// Takes the next block of a pull once it is complete. With the last block, the endpoint
    /// notifies the partner.
    pub(crate) fn next_piece(&mut self, pull: Pull, context: &mut Context<'_>) -> Option<Vec<u8>> {
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
        if state.requested.is_empty() && state.is_requested() {
            partner.open_transfers = partner.open_transfers.saturating_sub(1);
            if let Some(state) = self.pulls.take(pull.0) {
                self.finish(state, context);
            }
        }
        self.pulls.share_blocks(&self.partners, context);
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
        let route = context.route(self.number, id);
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
        self.pulls.share_blocks(&self.partners, context);
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
