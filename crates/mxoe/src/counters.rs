//! What a node has done.

/// Frames of a node, and what was lost on the way and mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that came for it.
    pub received: u64,
    /// Those that made no sense, or were from nobody it knows.
    pub ignored: u64,
    /// Messages, offers and notifications that were sent again.
    pub resent: u64,
    /// Blocks of pulls that were asked for again.
    pub asked_again: u64,
    /// Refusals that were sent.
    pub refused: u64,
}

impl Counters {
    /// The sum of two nodes'.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent.wrapping_add(other.sent),
            received: self.received.wrapping_add(other.received),
            ignored: self.ignored.wrapping_add(other.ignored),
            resent: self.resent.wrapping_add(other.resent),
            asked_again: self.asked_again.wrapping_add(other.asked_again),
            refused: self.refused.wrapping_add(other.refused),
        }
    }
}
