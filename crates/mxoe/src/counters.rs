//! Counters of a node.

/// Frames of a node, and how often it recovered from losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that the node sent.
    pub sent: u64,
    /// Frames that were addressed to the node.
    pub received: u64,
    /// Frames that were malformed or came from an unknown host.
    pub ignored: u64,
    /// Messages, offers and notifications that the node sent again.
    pub resent: u64,
    /// Blocks of pulls that the node requested again.
    pub asked_again: u64,
    /// Refusals that the node sent.
    pub refused: u64,
}

impl Counters {
    /// Returns the sum of the counters of two nodes.
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
