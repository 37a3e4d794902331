//! Which pulls request further blocks, if the receive buffer of the socket limits the blocks of all of them together.
//!
//! The pulls request one block each in turn, so none waits until another one has ended. A pull that has requested its blocks again
//! does not count: its partner does not answer, and must not hold up the pulls from others.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::event::PartnerId;
use crate::partner::Partner;
use crate::pulls::{PullState, Pulls};

impl Pulls {
    /// Requests further blocks, as many as the socket holds. Without such a limit, each pull requests its own.
    pub(crate) fn share_blocks(
        &mut self,
        partners: &BTreeMap<PartnerId, Partner>,
        context: &mut Context<'_>,
    ) {
        self.must_share = false;
        let Some(most) = context.pull_blocks else {
            return;
        };
        let mut left = most.saturating_sub(self.in_flight());
        let mut without = 0;
        while left > 0 && without < self.slots.len() {
            self.turn = match self.turn + 1 < self.slots.len() {
                true => self.turn + 1,
                false => 0,
            };
            match self.request_in_turn(partners, context) {
                Some(true) => (left, without) = (left - 1, 0),
                _ => without += 1,
            }
        }
    }

    /// Requests a block of the pull whose turn it is. Returns whether it has requested one, if there is such a pull.
    fn request_in_turn(
        &mut self,
        partners: &BTreeMap<PartnerId, Partner>,
        context: &mut Context<'_>,
    ) -> Option<bool> {
        let magic = self.magic;
        let (_, slot) = self.slots.get_mut(self.turn)?;
        let state = slot.as_mut().filter(|state| state.retries == 0)?;
        let partner = partners.get(&state.id)?;
        let was_waiting = state.is_waiting();
        let requested = state.request_next(magic, partner, context);
        if requested && !was_waiting {
            state.start_timer(partner, context.now);
        }
        Some(requested)
    }

    /// Returns the number of blocks that may arrive.
    fn in_flight(&self) -> usize {
        let all = self.slots.iter().filter_map(|(_, slot)| slot.as_ref());
        let answered = all.filter(|state| state.retries == 0);
        answered.map(PullState::missing_blocks).sum()
    }
}
