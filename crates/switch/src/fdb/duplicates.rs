//! Addresses that two ports use at the same time.
//!
//! An address that moves once has moved: its VM was migrated, or another link took over. One that
//! moves to and fro has two owners, each of which loses the other's answers. The rule is EVPN's (RFC
//! 7432, 15.1): so many moves within so many seconds. What a port sends with an address that is
//! pinned to another counts as a move that was refused.
//!
//! Bounded: where many addresses are fought for, those with the fewest moves are forgotten first.

use super::FdbKey;
use crate::limits::{DUPLICATE_MOVES, DUPLICATE_SECONDS, MAX_DUPLICATES};

/// An address that two ports use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The address, in its VLAN.
    pub key: FdbKey,
    /// The ports: the one it came to last, or tried to, and the one it was at.
    pub ports: [u16; 2],
    /// How often it has moved since it began to.
    pub moves: u64,
}

impl Duplicate {
    /// The other port, for one of the two.
    #[must_use]
    pub fn other(&self, port: u16) -> Option<u16> {
        match self.ports {
            [one, other] if one == port => Some(other),
            [other, one] if one == port => Some(other),
            _ => None,
        }
    }
}

/// An address that moves.
#[derive(Clone, Copy, Debug)]
struct MovingAddress {
    duplicate: Duplicate,
    /// Moves within the seconds that count, and when these began.
    recent: u32,
    since: u32,
    last: u32,
    /// It has moved often enough.
    is_duplicate: bool,
    reported: bool,
}

impl MovingAddress {
    fn is_over(&self, now: u32) -> bool {
        now.wrapping_sub(self.last) > DUPLICATE_SECONDS
    }
}

/// The addresses of a network that have moved lately.
#[derive(Debug, Default)]
pub(super) struct Duplicates(Vec<MovingAddress>);

impl Duplicates {
    /// An address was at one port, and another sends with it.
    pub(super) fn note(&mut self, key: FdbKey, from: u16, to: u16, now: u32) {
        self.0.retain(|mover| !mover.is_over(now));
        let known = self.0.iter_mut().find(|mover| mover.duplicate.key == key);
        let Some(mover) = known else {
            return self.begin(key, [to, from], now);
        };
        mover.duplicate.ports = [to, from];
        mover.duplicate.moves += 1;
        if now.wrapping_sub(mover.since) > DUPLICATE_SECONDS {
            (mover.since, mover.recent) = (now, 0);
        }
        mover.recent += 1;
        mover.last = now;
        mover.is_duplicate |= mover.recent >= DUPLICATE_MOVES;
    }

    fn begin(&mut self, key: FdbKey, ports: [u16; 2], now: u32) {
        let mover = MovingAddress {
            duplicate: Duplicate {
                key,
                ports,
                moves: 1,
            },
            recent: 1,
            since: now,
            last: now,
            is_duplicate: false,
            reported: false,
        };
        if self.0.len() < MAX_DUPLICATES {
            return self.0.push(mover);
        }
        let open = self.0.iter_mut().filter(|mover| !mover.is_duplicate);
        if let Some(place) = open.min_by_key(|mover| mover.duplicate.moves) {
            *place = mover;
        }
    }

    /// A port is gone, or another's.
    pub(super) fn forget_port(&mut self, port: u16) {
        self.0.retain(|mover| mover.duplicate.other(port).is_none());
    }

    /// The addresses that two ports use.
    pub(super) fn all(&self, now: u32) -> impl Iterator<Item = Duplicate> + '_ {
        let movers = self.0.iter();
        let is_duplicate = movers.filter(move |mover| mover.is_duplicate && !mover.is_over(now));
        is_duplicate.map(|mover| mover.duplicate)
    }

    /// One that has not been told of.
    pub(super) fn next_unreported(&mut self) -> Option<Duplicate> {
        let mut movers = self.0.iter_mut();
        let mover = movers.find(|mover| mover.is_duplicate && !mover.reported)?;
        mover.reported = true;
        Some(mover.duplicate)
    }
}
