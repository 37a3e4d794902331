//! Numbers of messages: 14 bits that count round, and on top two of the connection they belong to,
//! so that what is left of an older one is known as such.

const COUNT: u16 = 0x3fff;

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq(pub(crate) u16);

impl Seq {
    /// The first of a first connection.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn next(self) -> Self {
        Self(self.0 & !COUNT | self.0.wrapping_add(1) & COUNT)
    }

    /// The first of the next connection.
    pub(crate) fn next_connection(self) -> Self {
        Self((self.0 & !COUNT).wrapping_add(COUNT + 1) | 1)
    }

    /// How far it is behind `first`, round; `None` when it is of another connection.
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
    fn mxoe_4_numbers_go_round_within_their_connection() {
        let last = Seq(0x7fff);
        assert_eq!(last.next(), Seq(0x4000));
        assert_eq!(Seq(0x4001).after(last), Some(2));
        assert_eq!(last.after(Seq(0x4001)), Some(0x3ffe));
        assert_eq!(Seq(0x8001).after(last), None);
        assert_eq!(last.next_connection(), Seq(0x8001));
        assert_eq!(Seq(0xc123).next_connection(), Seq::FIRST);
    }
}
