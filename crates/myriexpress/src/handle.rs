//! The handles of endpoints and addresses that a program holds.

use crate::abi::Address;
use crate::codes::{Result, Return};

/// Marks numbers that this library made of endpoints and of addresses: bits 63 to 16.
pub(crate) const ENDPOINT: u64 = 0x4d58_0000_0e00;
pub(crate) const ADDRESS: u64 = 0x4d58_0000_0a00;

pub(crate) fn number(word: u64, mark: u64) -> Result<u16> {
    match word >> 16 == mark {
        true => u16::try_from(word & 0xffff).map_err(|_| Return::BAD_ENDPOINT),
        false => Err(Return::BAD_ENDPOINT),
    }
}

/// The address of an endpoint's peer.
pub(crate) fn address(number: u16, peer: u64) -> Address {
    Address {
        endpoint: ADDRESS << 16 | u64::from(number),
        peer,
    }
}
