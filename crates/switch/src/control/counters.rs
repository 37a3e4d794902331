//! What is counted of a port, and why frames are lost.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::histogram::{Bursts, Delays};

/// Define [`Counters`] from one list of totals, so that a new one is written down once.
macro_rules! totals {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Running totals of one port. "Received" and "sent" are seen from the guest: a frame the guest
        /// transmitted counts as `tx`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
            /// Frames taken from it at a time.
            pub bursts: Bursts,
            /// How long frames took, from when the switch turned to them to when they were handed on, in
            /// nanoseconds: of one burst in [`LATENCY_SAMPLE`](crate::limits::LATENCY_SAMPLE).
            pub latency: Delays,
            /// Frames lost, by reason.
            pub drops: Drops,
        }

        impl Counters {
            /// How many totals there are.
            pub(super) const TOTALS: usize = [$(stringify!($field)),*].len();

            /// The totals, in their order.
            pub(super) fn row(&self) -> [u64; Self::TOTALS] {
                [$(self.$field),*]
            }

            /// Totals in their order, and nothing else.
            pub(super) fn of_row([$($field),*]: [u64; Self::TOTALS]) -> Self {
                Self { $($field,)* ..Self::default() }
            }

            /// The sum of two sets of counters, whatever they hold.
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
    /// Frames taken from the guest, the lost ones included.
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
    held,
    /// Times frames were left in the port's rings because it had sent what it may for now.
    limited,
    /// Frames it has sent to a group without members, or to routers where there are none: no loss.
    unheard,
    /// Frames that were split into segments because a receiver had not negotiated them whole.
    segmented,
    /// Frames whose checksum was filled in because a receiver had not negotiated partial ones.
    checksummed,
}

/// Define [`Drops`] and [`Loss`] from one list, so that a new reason is written down once.
macro_rules! losses {
    ($($(#[$doc:meta])* $field:ident $loss:ident,)*) => {
        /// Frames lost, by reason; counted at the port that sent them unless said otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Drops {
            $($(#[$doc])* pub $field: u64,)*
        }

        /// Why a frame was lost; each has its counter in [`Drops`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loss {
            $($(#[$doc])* $loss,)*
        }

        impl Drops {
            /// How many reasons there are.
            pub(super) const REASONS: usize = [$(stringify!($field)),*].len();

            /// Every counter, in their order.
            pub(super) fn row(&self) -> [u64; Self::REASONS] {
                [$(self.$field),*]
            }

            /// Counters in their order.
            pub(super) fn of_row([$($field),*]: [u64; Self::REASONS]) -> Self {
                Self { $($field),* }
            }

            /// Count one lost frame.
            pub fn count(&mut self, loss: Loss) {
                let counter = match loss {
                    $(Loss::$loss => &mut self.$field,)*
                };
                *counter += 1;
            }

            /// Every counter and its name.
            #[must_use]
            pub fn each(&self) -> [(&'static str, u64); Self::REASONS] {
                [$((stringify!($field), self.$field)),*]
            }

            /// The sum of two sets of counters, whatever they hold.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($field: self.$field.saturating_add(other.$field),)* }
            }
        }
    };
}

losses! {
    /// Sent to a neighbour that took no buffers for longer than the hold limit.
    receiver_stuck ReceiverStuck,
    /// Flooded, mirrored or uplink frames the receiver had no room for; counted at the receiver.
    receiver_full ReceiverFull,
    /// The receiver's buffers are too small for the frame; counted at the receiver.
    receiver_small ReceiverSmall,
    /// The receiver is not running.
    receiver_down ReceiverDown,
    /// Set aside for a receiver without room when the sender left.
    sender_gone SenderGone,
    /// Shorter than an Ethernet header or longer than a frame can be.
    bad_length BadLength,
    /// The destination is the port the frame came from.
    hairpin Hairpin,
    /// The receiver cannot take such a frame and it cannot be translated.
    untranslatable Untranslatable,
    /// The uplink's kernel queue was full or refused the frame.
    uplink Uplink,
    /// Of a VLAN that the port, or the receiver, is not in; or with tags it may not send.
    vlan Vlan,
    /// Its source address is none of the port's.
    mac_spoofed MacSpoofed,
    /// ARP that claims an address which is none of the port's.
    arp_spoofed ArpSpoofed,
    /// An IP source address which is none of the port's.
    ip_spoofed IpSpoofed,
    /// Neighbour discovery that claims an address which is none of the port's.
    nd_spoofed NdSpoofed,
    /// A router advertisement or a DHCP server's answer from a port that may not give it.
    rogue_service RogueService,
    /// Nobody can tell whom it speaks as, and the port may not speak as everybody.
    not_understood NotUnderstood,
    /// Between ports that may not talk to each other.
    private Private,
    /// Over what the receiver may receive; counted at the receiver.
    receive_limit ReceiveLimit,
    /// Broadcast, over what the port may send of it.
    broadcast_limit BroadcastLimit,
    /// Multicast to everybody, over what the port may send of it.
    multicast_limit MulticastLimit,
    /// To an address that is not known, over what the port may send of it.
    unknown_limit UnknownLimit,
}

impl Counters {
    /// Frames were handed on; `since` says when the switch turned to them, if they are among those
    /// of which that is measured.
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
    /// Frames lost, for any reason.
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
        drops.count(Loss::Hairpin);
        drops.count(Loss::Uplink);
        let once = drops.each().into_iter().filter(|(_, count)| *count == 1);
        assert_eq!(once.count(), 2);
        assert_eq!(drops.plus(&drops).total(), 4);
        drops.uplink = u64::MAX;
        assert_eq!(drops.plus(&drops).total(), u64::MAX);
    }
}
