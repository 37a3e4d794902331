//! Ports with rules. The tests check each rule both ways: allowed frames arrive byte for byte, other frames
//! are dropped and counted, and other ports are unaffected.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod checked_bytes;
mod frames;
mod limits;
mod multicast;
mod private_vlan;
mod source;
mod vlan;

use common::{Plane, lost};
use front_end::{Layout, Nic, Options, features};
use switch::control::Drops;
use switch::guard::Rules;

/// Attaches a NIC for each set of rules, at ports 1 and up, with the features of Linux' driver.
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

/// Sends a frame and waits until the switch has returned its chain.
fn send(from: &mut Nic, frame: &[u8]) {
    from.wait_to_send(frame, Layout::One);
    from.wait_until_sent();
}

/// Asserts that a NIC has received nothing.
fn assert_nothing(nic: &mut Nic) {
    assert_eq!(nic.receive(), None);
}

/// Asserts that a port has `count` drops, all counted by `reason`.
fn assert_lost(plane: &mut Plane, port: u16, reason: impl Fn(&Drops) -> u64, count: u64) {
    let drops = plane.counters(port).drops;
    assert_eq!((reason(&drops), lost(&drops)), (count, count), "{drops:?}");
}
