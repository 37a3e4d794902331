//! Detects MAC addresses that two ports use at the same time.
//!
//! An address that moves once is normal: its VM was migrated, or another link took over. An address that
//! moves back and forth is used by two ports, each of which loses the answers to the other's frames. The
//! rule is EVPN's (RFC 7432, 15.1): [`DUPLICATE_MOVES`] moves within [`DUPLICATE_SECONDS`]. A frame whose
//! source address is pinned to another port counts as a move that was refused.
//!
//! The table is bounded: when it is full, the address with the fewest moves is removed first.

use super::FdbKey;
use crate::limits::{DUPLICATE_MOVES, DUPLICATE_SECONDS, MAX_DUPLICATES};

/// An address that two ports use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The address, in its VLAN.
    pub key: FdbKey,
    /// The port that the address moved to last (or was refused at), and the port that it was at.
    pub ports: [u16; 2],
    /// Number of moves since the address was first tracked.
    pub moves: u64,
}

impl Duplicate {
    /// Returns the other port, if `port` is one of the two.
    #[must_use]
    pub fn other(&self, port: u16) -> Option<u16> {
        match self.ports {
            [one, other] if one == port => Some(other),
            [other, one] if one == port => Some(other),
            _ => None,
        }
    }
}

/// The record of an address that moves.
#[derive(Clone, Copy, Debug)]
struct MovingAddress {
    duplicate: Duplicate,
    /// Moves since `since`, the beginning of the window.
    recent: u32,
    since: u32,
    /// The last move.
    last: u32,
    /// The address has moved often enough within a window.
    is_duplicate: bool,
    /// `next_unreported` has returned it.
    reported: bool,
}

impl MovingAddress {
    fn is_over(&self, now: u32) -> bool {
        now.wrapping_sub(self.last) > DUPLICATE_SECONDS
    }
}

/// The addresses of a network that have moved recently.
#[derive(Debug, Default)]
pub(super) struct Duplicates(Vec<MovingAddress>);

impl Duplicates {
    /// Records that an address of port `from` was used by port `to`.
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

    /// Removes the records of a port that is gone or was reassigned.
    pub(super) fn remove_port(&mut self, port: u16) {
        self.0.retain(|mover| mover.duplicate.other(port).is_none());
    }

    /// Returns the addresses that two ports use.
    pub(super) fn all(&self, now: u32) -> impl Iterator<Item = Duplicate> + '_ {
        let movers = self.0.iter();
        let is_duplicate = movers.filter(move |mover| mover.is_duplicate && !mover.is_over(now));
        is_duplicate.map(|mover| mover.duplicate)
    }

    /// Returns a duplicate that was not returned before.
    pub(super) fn next_unreported(&mut self) -> Option<Duplicate> {
        let mut movers = self.0.iter_mut();
        let mover = movers.find(|mover| mover.is_duplicate && !mover.reported)?;
        mover.reported = true;
        Some(mover.duplicate)
    }
}
