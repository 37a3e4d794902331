//! Addresses and contents of the test's frames.

use mxoe::Address;
use mxoe::wire::{Frame, Mac, Packet};

pub(crate) const KEY: u32 = 77;

pub(crate) fn mac(host: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, host as u8 + 1])
}

pub(crate) fn at(host: usize, endpoint: u8) -> Address {
    Address {
        host: mac(host),
        endpoint,
    }
}

/// Returns a session that differs for each program and each opening.
pub(crate) fn session(program: usize, opening: u32) -> u32 {
    opening << 8 | (program as u32 + 1)
}

/// Returns a frame of a host for another one.
pub(crate) fn frame(from: usize, to: usize, packet: Packet<'_>) -> Vec<u8> {
    let frame = Frame {
        destination: mac(to),
        source: mac(from),
        index: 0,
        packet,
    };
    frame.encode()
}

pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}
