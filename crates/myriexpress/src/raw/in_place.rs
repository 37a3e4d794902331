//! Calls for programs that match messages themselves.

use super::endpoint_call;
use super::pointer::{List, Out};
use crate::abi::{Address, Endpoint, Segment, Unexpected};
use crate::codes::Return;
use crate::in_place;

#[unsafe(no_mangle)]
extern "C" fn mx_next_unexpected(
    endpoint: Endpoint,
    messages: Out<Unexpected>,
    most: u32,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let put = |number, message| messages.put_at(number, message);
        result.put(in_place::next(shared, most, put)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_keep_unexpected(endpoint: Endpoint, number: u32) -> Return {
    endpoint_call(endpoint, |shared| in_place::keep(shared, number))
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
