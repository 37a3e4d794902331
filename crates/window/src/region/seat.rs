//! What a member and the host say to each other beside the trunk: a seat's words.

use std::sync::Arc;

use crate::raw::{Mapping, Word};

/// The words of a seat that are no window's.
#[derive(Debug)]
pub struct Seat {
    opened: Word,
    beat: Word,
    listens: Word,
    heard: Word,
    nic: [Word; 2],
}

impl Seat {
    /// The words of the seat at `at` of a region, whose seats are mapped.
    pub(super) fn new(head: &Arc<Mapping>, at: u64) -> Option<Self> {
        let word = |offset| Word::new(head, at + offset);
        Some(Self {
            opened: word(0)?,
            beat: word(128)?,
            listens: word(132)?,
            heard: word(256)?,
            nic: [word(260)?, word(264)?],
        })
    }

    /// The member: begin, with a number that is new.
    pub fn open(&self, number: u32) {
        self.opened.store(number);
    }

    /// The host: what the member began with last; 0 before it ever did.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.opened.load()
    }

    /// The member: say whether a doorbell wakes it.
    pub fn listen(&self, listens: bool) {
        self.listens.store(listens.into());
    }

    /// The host: whether a doorbell wakes the member.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listens.load() != 0
    }

    /// The host: the trunk is new, for the member that began with this number.
    pub fn hear(&self, number: u32) {
        self.heard.store(number);
    }

    /// The member: whom the trunk is made for.
    #[must_use]
    pub fn heard(&self) -> u32 {
        self.heard.load()
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
        self.beat.store(self.beat.load().wrapping_add(1));
    }

    /// The host: something else than the last time, if the member is still there.
    #[must_use]
    pub fn beaten(&self) -> u32 {
        self.beat.load()
    }
}
