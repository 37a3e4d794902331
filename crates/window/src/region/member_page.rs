//! What a member and the host say to each other beside the control: a member's words.

use std::sync::Arc;

use crate::raw::{Mapping, Word};

/// The words of a member that are no window's.
#[derive(Debug)]
pub struct MemberPage {
    join_number: Word,
    heartbeat: Word,
    interruptible: Word,
    joined_number: Word,
    nic: [Word; 2],
}

impl MemberPage {
    /// The words of the member at `at` of a region, whose members are mapped.
    pub(super) fn new(head: &Arc<Mapping>, at: u64) -> Option<Self> {
        let word = |offset| Word::new(head, at + offset);
        Some(Self {
            join_number: word(0)?,
            heartbeat: word(128)?,
            interruptible: word(132)?,
            joined_number: word(256)?,
            nic: [word(260)?, word(264)?],
        })
    }

    /// The member: begin, with a number that is new.
    pub fn request_join(&self, number: u32) {
        self.join_number.store(number);
    }

    /// The host: what the member began with last; 0 before it ever did.
    #[must_use]
    pub fn join_number(&self) -> u32 {
        self.join_number.load()
    }

    /// The member: say whether a doorbell wakes it.
    pub fn set_interruptible(&self, interruptible: bool) {
        self.interruptible.store(interruptible.into());
    }

    /// The host: whether a doorbell wakes the member.
    #[must_use]
    pub fn is_interruptible(&self) -> bool {
        self.interruptible.load() != 0
    }

    /// The host: the control is new, for the member that began with this number.
    pub fn confirm_join(&self, number: u32) {
        self.joined_number.store(number);
    }

    /// The member: whom the control is made for.
    #[must_use]
    pub fn joined_number(&self) -> u32 {
        self.joined_number.load()
    }

    /// The host: who sits here. What it is, is for the user of the region.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word"
    )]
    pub fn set_nic(&self, nic: u64) {
        let [low, high] = &self.nic;
        low.store(nic as u32);
        high.store((nic >> 32) as u32);
    }

    /// The member: who it is.
    #[must_use]
    pub fn nic(&self) -> u64 {
        let [low, high] = &self.nic;
        u64::from(high.load()) << 32 | u64::from(low.load())
    }

    /// The member: still there.
    pub fn beat(&self) {
        self.heartbeat.store(self.heartbeat.load().wrapping_add(1));
    }

    /// The host: something else than the last time, if the member is still there.
    #[must_use]
    pub fn heartbeat(&self) -> u32 {
        self.heartbeat.load()
    }
}
