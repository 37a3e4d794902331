//! What ports with rules may send and receive. Each rule both ways: what is allowed arrives byte
//! for byte, what is not is lost and counted, and neighbours never notice.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod limits;
mod multicast;
mod source;
mod vlan;

use common::{Plane, lost};
use front_end::{Layout, Nic, Options, features};
use switch::control::Drops;
use switch::guard::Rules;

/// A NIC for each set of rules, at ports 1 and up, with a driver like Linux'.
fn nics<const N: usize>(plane: &mut Plane, rules: [Rules; N]) -> [Nic; N] {
    let mut port = 0;
    rules.map(|rules| {
        port += 1;
        plane.rules(port, rules);
        let options = Options {
            features: features::LINUX,
            receive_bytes: 2048,
            ..Options::default()
        };
        plane.nic(port, options)
    })
}

/// Send a frame and wait until it is dealt with.
fn send(from: &mut Nic, frame: &[u8]) {
    from.wait_to_send(frame, Layout::One);
    from.wait_until_sent();
}

/// Nothing has come for a NIC.
fn assert_nothing(nic: &mut Nic) {
    assert_eq!(nic.receive(), None);
}

/// All that a port has lost is counted by `reason`, and there are so many.
fn assert_lost(plane: &mut Plane, port: u16, reason: impl Fn(&Drops) -> u64, count: u64) {
    let drops = plane.counters(port).drops;
    assert_eq!((reason(&drops), lost(&drops)), (count, count), "{drops:?}");
}
