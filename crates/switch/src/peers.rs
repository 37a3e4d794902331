//! The destinations of a transmit ring's frames: a row of the traffic matrix.
//!
//! Counters are updated once for each run of frames with the same destination, from the growth of the
//! ring's totals, so single frames cost nothing. Memory and time are bounded: a destination port uses the
//! slot of its number, or one of the next seven. A port that finds no free slot is missing from the
//! matrix; other counters are not affected.

use crate::control::Peer;
use crate::limits::MAX_PEERS;

/// Slots that are probed for a port.
const PROBES: usize = 8;

/// Frames and bytes by the port they went to.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Empty before the first frame, because most rings never carry one.
    slots: Vec<Option<Peer>>,
}

impl Peers {
    /// Counts frames that were forwarded to port `to`.
    #[inline]
    pub(crate) fn add(&mut self, to: u16, frames: u64, bytes: u64) {
        let slot = usize::from(to) % MAX_PEERS;
        match self.slots.get_mut(slot) {
            Some(Some(peer)) if peer.port == to => peer.grow(frames, bytes),
            _ => self.find(to, frames, bytes),
        }
    }

    #[cold]
    fn find(&mut self, port: u16, frames: u64, bytes: u64) {
        if frames == 0 {
            return;
        }
        self.slots.resize(MAX_PEERS, None);
        let near = || (0..PROBES).map(|step| (usize::from(port) + step) % MAX_PEERS);
        let at = |slot: &usize| self.slots.get(*slot).copied().flatten();
        let own = near().find(|slot| at(slot).is_some_and(|peer| peer.port == port));
        let slot = own.or_else(|| near().find(|slot| at(slot).is_none()));
        if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(slot)) {
            slot.get_or_insert(Peer::new(port)).grow(frames, bytes);
        }
    }

    /// Removes the counters of a port that is gone, because its number may be reused.
    pub(crate) fn remove(&mut self, port: u16) {
        for slot in &mut self.slots {
            *slot = slot.filter(|peer| peer.port != port);
        }
    }
}

impl Peer {
    const fn new(port: u16) -> Self {
        Self {
            port,
            frames: 0,
            bytes: 0,
        }
    }

    #[inline]
    fn grow(&mut self, frames: u64, bytes: u64) {
        self.frames = self.frames.saturating_add(frames);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Returns the sums over several rings, limited to the [`MAX_PEERS`] ports with the most bytes.
pub(crate) fn sum<'p>(all: impl Iterator<Item = &'p Peers>) -> Vec<Peer> {
    let mut sum: Vec<Peer> = Vec::new();
    for peer in all.flat_map(|peers| peers.slots.iter().flatten()) {
        match sum.iter_mut().find(|known| known.port == peer.port) {
            Some(known) => known.grow(peer.frames, peer.bytes),
            None => sum.push(*peer),
        }
    }
    sum.sort_by_key(|peer| std::cmp::Reverse(peer.bytes));
    sum.truncate(MAX_PEERS);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16, frames: u64, bytes: u64) -> Peer {
        Peer {
            port,
            frames,
            bytes,
        }
    }

    #[test]
    fn runs_are_added_up_by_their_destination() {
        let [mut one, mut other] = [Peers::default(), Peers::default()];
        one.add(7, 2, 128);
        one.add(9, 1, 1500);
        one.add(7, 1, 64);
        one.add(8, 0, 0);
        other.add(9, 1, 1);
        assert_eq!(
            sum([&one, &other].into_iter()),
            [peer(9, 2, 1501), peer(7, 3, 192)]
        );
        one.remove(9);
        one.add(9, 1, 100);
        assert_eq!(sum([&one].into_iter()), [peer(7, 3, 192), peer(9, 1, 100)]);
    }

    #[test]
    fn ports_with_the_same_slot_use_neighbouring_ones() {
        let mut peers = Peers::default();
        let rivals = (0..=PROBES).map(|n| u16::try_from(3 + n * MAX_PEERS).unwrap());
        for port in rivals.clone().chain(rivals) {
            peers.add(port, 1, port.into());
        }
        let all = sum([&peers].into_iter());
        assert_eq!(all.len(), PROBES, "the last finds no slot");
        assert!(all.iter().all(|peer| peer.frames == 2));
        // One port is removed; the others keep their slots.
        peers.remove(3);
        peers.add(u16::try_from(3 + MAX_PEERS).unwrap(), 1, 1);
        let all = sum([&peers].into_iter());
        assert_eq!(all.iter().map(|peer| peer.frames).max(), Some(3));
        assert_eq!(all.len(), PROBES - 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut peers = Peers::default();
        (0..1000).for_each(|port| peers.add(port, 1, 64));
        assert_eq!(peers.slots.len(), MAX_PEERS);
    }
}
