//! A member's page: words that the member and the host exchange beside the control window.

use std::sync::Arc;

use crate::raw::{Mapping, Word};

/// The words of a member's page.
#[derive(Debug)]
pub struct MemberPage {
    join_number: Word,
    heartbeat: Word,
    interruptible: Word,
    polling: Word,
    joined_number: Word,
    nic: [Word; 2],
}

impl MemberPage {
    /// Returns the words of the page at `at` of a region's mapped pages.
    pub(super) fn new(head: &Arc<Mapping>, at: u64) -> Option<Self> {
        let word = |offset| Word::new(head, at + offset);
        Some(Self {
            join_number: word(0)?,
            heartbeat: word(128)?,
            interruptible: word(132)?,
            polling: word(136)?,
            joined_number: word(256)?,
            nic: [word(260)?, word(264)?],
        })
    }

    /// Member only: asks to join, with a new number.
    pub fn request_join(&self, number: u32) {
        self.join_number.store(number);
    }

    /// Host only: returns the number of the member's last request to join; 0 before the first.
    #[must_use]
    pub fn join_number(&self) -> u32 {
        self.join_number.load()
    }

    /// Member only: announces whether an interrupt wakes it.
    pub fn set_interruptible(&self, interruptible: bool) {
        self.interruptible.store(interruptible.into());
    }

    /// Host only: returns whether an interrupt wakes the member.
    #[must_use]
    pub fn is_interruptible(&self) -> bool {
        self.interruptible.load() != 0
    }

    /// Member only: announces whether it polls, because nothing wakes it. A member of an older release
    /// leaves this word 0.
    pub fn set_polling(&self, polling: bool) {
        self.polling.store(polling.into());
    }

    /// Host only: returns whether the member says that it polls.
    #[must_use]
    pub fn is_polling(&self) -> bool {
        self.polling.load() != 0
    }

    /// Host only: confirms that the control window is reset for the member that asked with this
    /// number.
    pub fn confirm_join(&self, number: u32) {
        self.joined_number.store(number);
    }

    /// Member only: returns the number that the host confirmed last.
    #[must_use]
    pub fn joined_number(&self) -> u32 {
        self.joined_number.load()
    }

    /// Host only: sets the member's NIC id. The region does not interpret it.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word"
    )]
    pub fn set_nic(&self, nic: u64) {
        let [low, high] = &self.nic;
        low.store(nic as u32);
        high.store((nic >> 32) as u32);
    }

    /// Member only: returns its NIC id.
    #[must_use]
    pub fn nic(&self) -> u64 {
        let [low, high] = &self.nic;
        u64::from(high.load()) << 32 | u64::from(low.load())
    }

    /// Member only: sends a heartbeat.
    pub fn send_heartbeat(&self) {
        self.heartbeat.store(self.heartbeat.load().wrapping_add(1));
    }

    /// Host only: returns the heartbeat counter, which changes as long as the member runs.
    #[must_use]
    pub fn heartbeat(&self) -> u32 {
        self.heartbeat.load()
    }
}
