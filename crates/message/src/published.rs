//! What was written into the window of a peer that may sleep.

use window::doorbell::Ringer;

/// What was published for a peer since it was last woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Published {
    #[default]
    Nothing,
    /// Space of its lanes was released: it matters only to a peer that waits for room.
    Room,
    /// Records.
    Records,
}

impl Published {
    /// Adds room, if a lane was released.
    #[inline(always)]
    pub(crate) fn add_room(&mut self, released: bool) {
        if released && *self == Self::Nothing {
            *self = Self::Room;
        }
    }

    /// Adds records, if any were pushed.
    #[inline(always)]
    pub(crate) fn add_records(&mut self, pushed: bool) {
        if pushed {
            *self = Self::Records;
        }
    }

    /// Returns whether the caller must wake the peer for what was published, and forgets what was published.
    #[inline(always)]
    pub(crate) fn take_wakeup(&mut self, ringer: &mut Ringer) -> bool {
        match std::mem::take(self) {
            Self::Nothing => false,
            Self::Room => ringer.needs_wakeup_for_room(),
            Self::Records => ringer.needs_wakeup(),
        }
    }
}
