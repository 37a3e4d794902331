//! The handles of endpoints and the addresses that a program receives.

use crate::abi::{Address, Endpoint};
use crate::codes::{Result, Return};

/// Bits 63 to 16 of handles for endpoints and of addresses, which mark them as made by this
/// library.
pub(crate) const ENDPOINT: u64 = 0x4d58_0000_0e00;
pub(crate) const ADDRESS: u64 = 0x4d58_0000_0a00;

pub(crate) fn number(word: u64, mark: u64) -> Result<u16> {
    match word >> 16 == mark {
        true => u16::try_from(word & 0xffff).map_err(|_| Return::BAD_ENDPOINT),
        false => Err(Return::BAD_ENDPOINT),
    }
}

/// Returns the handle of an endpoint.
pub(crate) fn endpoint(number: u16) -> Endpoint {
    Endpoint(ENDPOINT << 16 | u64::from(number))
}

/// Returns the address of a peer of an endpoint.
pub(crate) fn address(number: u16, peer: u64) -> Address {
    Address {
        endpoint: ADDRESS << 16 | u64::from(number),
        peer,
    }
}
