//! Remote peers: the MAC addresses behind an uplink that exchange frames with a port.
//!
//! A guest can send to any number of addresses, and any number of them can send to it, so that only those with the
//! most bytes have counters: the algorithm Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of
//! Frequent and Top-k Elements in Data Streams, ICDT 2005). An address that has no counter takes the one with the fewest
//! bytes, and inherits its bytes for the comparison. So each address with more than one of [`MAX_REMOTE_PEERS`] parts of
//! all bytes has a counter. Figures that are told do not have inherited bytes: they are what was counted since the
//! address got its counter.
//!
//! Only frames that pass an uplink are counted. Each of these costs a system call, or a copy into the memory of an
//! AF_XDP socket.

use std::collections::BTreeMap;

use crate::control::RemotePeer;
use crate::fdb::FdbKey;
use crate::limits::{MAX_REMOTE_PEERS, MAX_REPORTED_REMOTE_PEERS};

/// Frames and bytes.
pub(crate) type Totals = [u64; 2];

/// The counters of one direction of one ring, or of one port.
#[derive(Debug, Default)]
pub(crate) struct RemotePeers {
    counters: Vec<Counter>,
    /// The place of the last address: most frames have the address of the frame before.
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    key: FdbKey,
    counted: Totals,
    /// Bytes of the addresses that had the counter before.
    inherited: u64,
}

impl Counter {
    fn add(&mut self, bytes: u64) {
        let [frames, sum] = self.counted;
        self.counted = [frames.saturating_add(1), sum.saturating_add(bytes)];
    }

    fn rank(&self) -> u64 {
        let [_, bytes] = self.counted;
        bytes.saturating_add(self.inherited)
    }
}

impl RemotePeers {
    /// Counts a frame.
    pub(crate) fn add(&mut self, key: FdbKey, bytes: u64) {
        match self.counters.get_mut(self.last) {
            Some(counter) if counter.key == key => counter.add(bytes),
            _ => self.find(key, bytes),
        }
    }

    fn find(&mut self, key: FdbKey, bytes: u64) {
        let mut places = self.counters.iter();
        let known = places.position(|counter| counter.key == key);
        let place = known.unwrap_or_else(|| self.place_of_new(key));
        if let Some(counter) = self.counters.get_mut(place) {
            counter.add(bytes);
            self.last = place;
        }
    }

    /// Gives a new address a counter: a free one, or the one with the fewest bytes.
    fn place_of_new(&mut self, key: FdbKey) -> usize {
        let mut new = Counter {
            key,
            counted: [0, 0],
            inherited: 0,
        };
        if self.counters.len() < MAX_REMOTE_PEERS {
            self.counters.push(new);
            return self.counters.len() - 1;
        }
        let places = self.counters.iter_mut().enumerate();
        let Some((place, least)) = places.min_by_key(|(_, counter)| counter.rank()) else {
            return 0;
        };
        new.inherited = least.rank();
        *least = new;
        place
    }
}

/// What the ports of the network received from remote peers, by port.
#[derive(Debug, Default)]
pub(crate) struct RemoteSenders(BTreeMap<u16, RemotePeers>);

impl RemoteSenders {
    /// Counts a frame for a port.
    pub(crate) fn add(&mut self, to: u16, key: FdbKey, bytes: u64) {
        self.0.entry(to).or_default().add(key, bytes);
    }

    /// Returns the counters of each port.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, &RemotePeers)> {
        self.0.iter().map(|(port, peers)| (*port, peers))
    }

    /// Removes the counters of a port that is gone, because its number may be reused.
    pub(crate) fn remove(&mut self, port: u16) {
        self.0.remove(&port);
    }
}

/// The sums over several rings and queues, and over both directions.
#[derive(Debug, Default)]
pub(crate) struct Sums(BTreeMap<(u16, u64), RemotePeer>);

impl Sums {
    /// Adds the counters of a ring or a queue to one direction of a port.
    pub(crate) fn add(
        &mut self,
        port: u16,
        peers: &RemotePeers,
        of: fn(&mut RemotePeer) -> &mut Totals,
    ) {
        for Counter { key, counted, .. } in &peers.counters {
            let (mac, vlan) = (key.mac(), key.vlan());
            let place = (port, u64::from(vlan) << 48 | mac.bits());
            let sum = self.0.entry(place).or_insert(RemotePeer {
                port,
                mac,
                vlan,
                sent: [0, 0],
                received: [0, 0],
            });
            for (sum, counted) in of(sum).iter_mut().zip(counted) {
                *sum = sum.saturating_add(*counted);
            }
        }
    }

    /// Returns those with the most bytes: at most [`MAX_REMOTE_PEERS`] of each port, and
    /// [`MAX_REPORTED_REMOTE_PEERS`] of all.
    pub(crate) fn most(self) -> Vec<RemotePeer> {
        let mut all: Vec<RemotePeer> = self.0.into_values().collect();
        all.sort_by_key(|peer| std::cmp::Reverse(peer.bytes()));
        let mut kept: BTreeMap<u16, usize> = BTreeMap::new();
        all.retain(|peer| {
            let count = kept.entry(peer.port).or_default();
            *count += 1;
            *count <= MAX_REMOTE_PEERS
        });
        all.truncate(MAX_REPORTED_REMOTE_PEERS);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::mac::Mac;

    fn key(number: u16) -> FdbKey {
        let [high, low] = number.to_be_bytes();
        FdbKey::new(Mac::from_octets([2, 0, 0, 0, high, low]), 0)
    }

    fn of(peers: &RemotePeers, wanted: FdbKey) -> Option<Totals> {
        let found = peers.counters.iter().find(|counter| counter.key == wanted);
        found.map(|counter| counter.counted)
    }

    proptest! {
        #[test]
        fn each_address_with_a_great_part_of_the_bytes_is_counted_and_none_too_high(
            frames in prop::collection::vec((0_u16..300, 60_u64..65_000), 1..3000),
            often in 0_u16..300,
        ) {
            let mut peers = RemotePeers::default();
            let mut truth: HashMap<u16, Totals> = HashMap::new();
            let stream = frames.iter().flat_map(|frame| [*frame, (often, 30_000)]);
            for (number, bytes) in stream {
                peers.add(key(number), bytes);
                let [count, sum] = truth.entry(number).or_default();
                (*count, *sum) = (*count + 1, *sum + bytes);
            }
            prop_assert!(peers.counters.len() <= MAX_REMOTE_PEERS);
            let all: u64 = truth.values().map(|[_, bytes]| bytes).sum();
            for (number, [frames, bytes]) in &truth {
                let counted = of(&peers, key(*number));
                if *bytes > all / MAX_REMOTE_PEERS as u64 {
                    prop_assert!(counted.is_some(), "{number} has {bytes} of {all}");
                }
                if let Some([counted_frames, counted_bytes]) = counted {
                    prop_assert!(counted_frames <= *frames && counted_bytes <= *bytes);
                }
                if truth.len() <= MAX_REMOTE_PEERS {
                    prop_assert_eq!(counted, Some([*frames, *bytes]));
                }
            }
        }
    }

    #[test]
    fn what_is_reported_is_bounded_for_each_port_and_for_all() {
        let mut sums = Sums::default();
        for port in 0..40 {
            let mut peers = RemotePeers::default();
            (0..60).for_each(|number| peers.add(key(number), 100 + u64::from(port)));
            sums.add(port, &peers, |peer| &mut peer.sent);
            let mut senders = RemotePeers::default();
            (30..90).for_each(|number| senders.add(key(number), 100));
            sums.add(port, &senders, |peer| &mut peer.received);
        }
        let all = sums.most();
        assert_eq!(all.len(), MAX_REPORTED_REMOTE_PEERS);
        assert!(all.is_sorted_by_key(|peer| std::cmp::Reverse(peer.bytes())));
        let of = |port| all.iter().filter(|peer| peer.port == port).count();
        assert!((0..40).all(|port| of(port) <= MAX_REMOTE_PEERS));
        let both = |peer: &&RemotePeer| peer.sent == [1, 139] && peer.received == [1, 100];
        assert_eq!(all.iter().filter(both).count(), 30);
    }

    #[test]
    fn counters_of_a_port_that_is_gone_are_removed() {
        let mut senders = RemoteSenders::default();
        senders.add(3, key(1), 100);
        senders.add(4, key(1), 100);
        senders.remove(3);
        assert_eq!(senders.0.keys().collect::<Vec<_>>(), [&4]);
    }
}
