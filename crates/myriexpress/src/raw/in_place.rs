//! Calls for programs that match messages themselves.

use super::endpoint_call;
use super::pointer::{List, Out};
use crate::abi::{Address, Endpoint, Segment, Unexpected};
use crate::codes::Return;
use crate::in_place;

#[unsafe(no_mangle)]
extern "C" fn mx_next_unexpected(
    endpoint: Endpoint,
    message: Out<Unexpected>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let found = in_place::next(shared, |next| message.put(next))?;
        result.put(u32::from(found));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_keep_unexpected(endpoint: Endpoint) -> Return {
    endpoint_call(endpoint, in_place::keep)
}

#[unsafe(no_mangle)]
extern "C" fn mx_inject(
    endpoint: Endpoint,
    segments: List<Segment>,
    count: u32,
    to: Address,
    match_info: u64,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let sent = in_place::inject(shared, segments.pieces(count)?, to, match_info)?;
        result.put(u32::from(sent));
        Ok(())
    })
}
