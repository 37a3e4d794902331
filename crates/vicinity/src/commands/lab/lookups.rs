//! Measures on this machine the time of a look-up in the switch's own FDB.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use switch::fdb::Fdb;
use switch::mac::Mac;

/// Look-ups that are timed.
const COUNT: u32 = 1 << 20;

/// Returns the CPU time in nanoseconds of a look-up in an FDB with this many entries. The next address
/// depends on the last result, so the processor cannot start a look-up ahead. Each next address may be that of
/// any entry. So this is the worst case for the frames of guests.
pub(crate) fn time(fdb_entries: u32) -> f64 {
    let table = Fdb::new();
    let fdb_entries = fdb_entries.max(1);
    for number in 0..fdb_entries {
        let _: switch::fdb::Learnt = table.learn(address(number), 1, 0, u32::MAX);
    }
    let mut destination = 0;
    let began = used();
    for step in 0..COUNT {
        let port = table.lookup(address(destination), 0).map_or(0, u32::from);
        destination = step.wrapping_mul(2_654_435_761).wrapping_add(port) % fdb_entries;
    }
    black_box(destination);
    used().saturating_sub(began).as_secs_f64() * 1e9 / f64::from(COUNT)
}

/// Returns the CPU time of this thread, which excludes the time of other processes on the machine.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn address(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac::from_octets([2, 0x76, a, b, c, d])
}
