//! One entry of the FDB, and its representation in a slot.

use std::sync::atomic::Ordering;

use crate::limits::AGEING;
use crate::mac::Mac;
use crate::sync::AtomicU64;

/// The key of the FDB: a MAC address in a VLAN. Networks without VLANs use VLAN 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbKey(u64);

impl FdbKey {
    /// Creates the key of an address in a VLAN.
    #[inline]
    #[must_use]
    pub fn new(mac: Mac, vlan: u16) -> Self {
        Self(u64::from(vlan) << 48 | mac.bits())
    }

    pub(super) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the VLAN.
    #[must_use]
    pub fn vlan(self) -> u16 {
        let [_, _, _, _, _, _, low, high] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// Returns the address.
    #[inline]
    #[must_use]
    pub fn mac(self) -> Mac {
        Mac::from_bits(self.0)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }
}

impl From<Mac> for FdbKey {
    fn from(mac: Mac) -> Self {
        Self::new(mac, 0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The bits of the key, or 0 for a free slot: no station has the address zero.
    pub(super) mac: u64,
    /// When the address last sent a frame, in seconds.
    pub(super) seen: u32,
    pub(super) port: u16,
    pub(super) pinned: bool,
}

/// A slot of the table: one word for the key, and one word for everything else.
#[derive(Debug, Default)]
pub(super) struct Slot {
    mac: AtomicU64,
    pub(super) rest: AtomicU64,
}

impl Slot {
    #[inline]
    pub(super) fn get(&self) -> Entry {
        let rest = self.rest.load(Ordering::Relaxed);
        let [a, b, pinned, _, c, d, e, f] = rest.to_le_bytes();
        Entry {
            mac: self.mac.load(Ordering::Relaxed),
            seen: u32::from_le_bytes([c, d, e, f]),
            port: u16::from_le_bytes([a, b]),
            pinned: pinned != 0,
        }
    }

    pub(super) fn set(&self, entry: Entry) {
        self.mac.store(entry.mac, Ordering::Relaxed);
        self.rest.store(entry.rest(), Ordering::Relaxed);
    }
}

impl Entry {
    /// Encodes everything except the key.
    pub(super) fn rest(self) -> u64 {
        u64::from(self.port) | u64::from(self.pinned) << 16 | u64::from(self.seen) << 32
    }

    #[inline]
    pub(super) fn expired(&self, now: u32) -> bool {
        !self.pinned && now.wrapping_sub(self.seen) > AGEING
    }
}
