//! Sequence numbers: 14 bits that wrap around, and two bits on top that number the connection, so
//! that the receiver detects packets of an earlier connection.

const COUNT: u16 = 0x3fff;

/// A sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq(pub(crate) u16);

impl Seq {
    /// The first number of a first connection.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn next(self) -> Self {
        Self(self.0 & !COUNT | self.0.wrapping_add(1) & COUNT)
    }

    /// Returns the first number of the next connection.
    pub(crate) fn next_connection(self) -> Self {
        Self((self.0 & !COUNT).wrapping_add(COUNT + 1) | 1)
    }

    /// Whether a connection begins with this number.
    pub(crate) fn is_first(self) -> bool {
        self.0 & COUNT == 1
    }

    /// Returns the distance from `first` modulo 2^14, or `None` if `self` belongs to another
    /// connection.
    pub(crate) fn after(self, first: Self) -> Option<u16> {
        let same = (self.0 ^ first.0) & !COUNT == 0;
        same.then(|| self.0.wrapping_sub(first.0) & COUNT)
    }

    pub(crate) fn same_connection(self, other: Self) -> bool {
        self.after(other).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mxoe_4_sequence_numbers_wrap_within_their_connection() {
        let last = Seq(0x7fff);
        assert_eq!(last.next(), Seq(0x4000));
        assert_eq!(Seq(0x4001).after(last), Some(2));
        assert_eq!(last.after(Seq(0x4001)), Some(0x3ffe));
        assert_eq!(Seq(0x8001).after(last), None);
        assert_eq!(last.next_connection(), Seq(0x8001));
        assert_eq!(Seq(0xc123).next_connection(), Seq::FIRST);
    }
}
