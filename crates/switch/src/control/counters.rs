//! The counters of a port, and the reasons why frames are dropped.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::histogram::{Bursts, Delays};

/// Defines [`Counters`] from one list of totals, so that a new total needs one line.
macro_rules! totals {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Running totals of one port. "Received" and "sent" are seen from the guest: a frame the guest
        /// transmitted counts as `tx`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
            /// Frames in each burst that a worker took from the port.
            pub bursts: Bursts,
            /// Forwarding latency in nanoseconds, from the beginning of the burst to delivery, of one burst
            /// in [`LATENCY_SAMPLE`](crate::limits::LATENCY_SAMPLE).
            pub latency: Delays,
            /// Dropped frames, by reason.
            pub drops: Drops,
        }

        impl Counters {
            /// The number of totals.
            pub(super) const TOTALS: usize = [$(stringify!($field)),*].len();

            /// Returns the totals in their order.
            pub(super) fn row(&self) -> [u64; Self::TOTALS] {
                [$(self.$field),*]
            }

            /// Creates counters from totals in their order, with empty histograms and no drops.
            pub(super) fn of_row([$($field),*]: [u64; Self::TOTALS]) -> Self {
                Self { $($field,)* ..Self::default() }
            }

            /// Returns the sum of two sets of counters; sums saturate.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_add(other.$field),)*
                    bursts: self.bursts.plus(&other.bursts),
                    latency: self.latency.plus(&other.latency),
                    drops: self.drops.plus(&other.drops),
                }
            }
        }
    };
}

totals! {
    /// Frames taken from the guest, including dropped ones.
    tx_frames,
    /// Their bytes, without the virtio-net header.
    tx_bytes,
    /// Frames delivered to the guest.
    rx_frames,
    /// Their bytes, without the virtio-net header.
    rx_bytes,
    /// Notifications received from the guest (kicks).
    kicks,
    /// Notifications sent to the guest (calls).
    calls,
    /// Frames that waited because a receiver had no room.
    #[serde(rename = "held")]
    backpressured,
    /// Number of times that frames stayed in the port's rings because the port had reached its send rate.
    limited,
    /// Frames sent to a multicast group without members, or to routers where there are none. They do not
    /// count as dropped.
    #[serde(rename = "unheard")]
    multicast_without_members,
    /// Frames that were segmented because a receiver had not negotiated their kind of GSO.
    segmented,
    /// Frames whose checksum was computed because a receiver had not negotiated partial checksums.
    checksummed,
}

/// Defines [`Drops`] and [`DropReason`] from one list, so that a new reason needs one line.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $field:ident $reason:ident,)*) => {
        /// Dropped frames by reason, counted at the port that sent them unless stated otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Drops {
            $($(#[$doc])* pub $field: u64,)*
        }

        /// Why a frame was dropped; each reason has its counter in [`Drops`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropReason {
            $($(#[$doc])* $reason,)*
        }

        impl Drops {
            /// The number of reasons.
            pub(super) const REASONS: usize = [$(stringify!($field)),*].len();

            /// Returns the counters in their order.
            pub(super) fn row(&self) -> [u64; Self::REASONS] {
                [$(self.$field),*]
            }

            /// Creates drops from counters in their order.
            pub(super) fn of_row([$($field),*]: [u64; Self::REASONS]) -> Self {
                Self { $($field),* }
            }

            /// Counts one dropped frame.
            pub fn count(&mut self, reason: DropReason) {
                let counter = match reason {
                    $(DropReason::$reason => &mut self.$field,)*
                };
                *counter += 1;
            }

            /// Returns the name and value of every counter.
            #[must_use]
            pub fn each(&self) -> [(&'static str, u64); Self::REASONS] {
                [$((stringify!($field), self.$field)),*]
            }

            /// Returns the sum of two sets of counters; sums saturate.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($field: self.$field.saturating_add(other.$field),)* }
            }
        }
    };
}

drop_reasons! {
    /// The receiver had posted no buffers for longer than [`STUCK_TIMEOUT`](crate::limits::STUCK_TIMEOUT).
    receiver_stuck ReceiverStuck,
    /// A flooded, mirrored or uplink frame for which the receiver had no room; counted at the receiver.
    receiver_full ReceiverFull,
    /// The receiver's buffers are too small for the frame; counted at the receiver.
    receiver_small ReceiverSmall,
    /// The receiver does not run.
    receiver_down ReceiverDown,
    /// The frame was deferred for a receiver without room when the sender was detached.
    sender_gone SenderGone,
    /// The frame is shorter than an Ethernet header or longer than the longest frame.
    bad_length BadLength,
    /// The destination is the port that sent the frame.
    hairpin Hairpin,
    /// The receiver has not negotiated the frame's offloads, and the frame cannot be translated.
    untranslatable Untranslatable,
    /// The uplink's kernel queue was full or refused the frame.
    uplink Uplink,
    /// The port or the receiver is not in the frame's VLAN, or the frame's tags are not allowed.
    vlan Vlan,
    /// The source MAC address is not one of the port's.
    mac_spoofed MacSpoofed,
    /// An ARP message claims an address that is not one of the port's.
    arp_spoofed ArpSpoofed,
    /// The IP source address is not one of the port's.
    ip_spoofed IpSpoofed,
    /// A neighbour discovery message claims an address that is not one of the port's.
    nd_spoofed NdSpoofed,
    /// A router advertisement or a DHCP server's answer from a port that must not send it.
    rogue_service RogueService,
    /// The guard cannot read the frame's addresses, and the port's addresses are restricted.
    not_understood NotUnderstood,
    /// The private VLAN roles do not let the two ports exchange frames.
    private Private,
    /// The frame exceeds the receiver's receive rate; counted at the receiver.
    receive_limit ReceiveLimit,
    /// A broadcast that exceeds the port's limit.
    broadcast_limit BroadcastLimit,
    /// A flooded multicast frame that exceeds the port's limit.
    multicast_limit MulticastLimit,
    /// A frame to an unknown destination that exceeds the port's limit.
    unknown_limit UnknownLimit,
}

impl Counters {
    /// Records the latency of a burst that began at `since`; `None` if this burst is not measured.
    #[inline]
    pub(crate) fn count_latency(&mut self, since: Option<Instant>) {
        if let Some(since) = since {
            let nanoseconds = since.elapsed().as_nanos();
            self.latency
                .note(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }
}

impl Drops {
    /// Returns the number of dropped frames, for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        let counts = self.each().into_iter().map(|(_, count)| count);
        counts.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_counter() {
        let mut drops = Drops::default();
        drops.count(DropReason::Hairpin);
        drops.count(DropReason::Uplink);
        let once = drops.each().into_iter().filter(|(_, count)| *count == 1);
        assert_eq!(once.count(), 2);
        assert_eq!(drops.plus(&drops).total(), 4);
        drops.uplink = u64::MAX;
        assert_eq!(drops.plus(&drops).total(), u64::MAX);
    }
}
