//! Repeated look-ups of an address: a measuring aid.

use std::hint::black_box;
use std::num::NonZeroU32;

use super::{Fdb, FdbKey};

impl Fdb {
    /// Returns the port of an address after `times` look-ups. Each look-up depends on the result of the
    /// one before, so the time is that of a chain of as many cached entries.
    #[cold]
    #[must_use]
    pub fn look_up_times(&self, key: FdbKey, now: u32, times: NonZeroU32) -> Option<u16> {
        let mut found = None;
        for _ in 0..times.get() {
            let before = u64::from(found.unwrap_or(0));
            // The same address, but neither the compiler nor the processor can know that before the
            // previous look-up has finished.
            let bits = key.bits() ^ black_box(before) ^ black_box(before);
            found = self.port(bits, now);
        }
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mac::Mac;

    #[test]
    fn repeated_look_ups_return_the_same_port() {
        let table = Fdb::new();
        let key = FdbKey::new(Mac::from_octets([2, 0, 0, 0, 0, 1]), 0);
        let times = [1, 2, 10, 1000].map(|times| NonZeroU32::new(times).unwrap());
        for times in times {
            assert_eq!(table.look_up_times(key, 0, times), None);
        }
        assert!(table.pin(key, 7, 0));
        for times in times {
            assert_eq!(table.look_up_times(key, 0, times), Some(7));
        }
    }
}
