//! Calls for programs that match messages themselves.

use super::endpoint_call;
use super::pointer::{List, Out, many_pieces, pieces};
use crate::abi::{Address, Endpoint, Segment, Unexpected};
use crate::codes::{Result, Return};
use crate::in_place;
use crate::shared::Shared;

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
        let list = segments.segments(count)?;
        let sent = if let Ok(one) = <&[_; 1]>::try_from(list) {
            in_place::inject(shared, &pieces(one)?, to, match_info)
        } else if let Ok(two) = <&[_; 2]>::try_from(list) {
            in_place::inject(shared, &pieces(two)?, to, match_info)
        } else {
            inject_many(shared, list, to, match_info)
        }?;
        result.put(u32::from(sent));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_inject_words(
    endpoint: Endpoint,
    words: List<u64>,
    length: u32,
    to: Address,
    match_info: u64,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let message = words.short_message(length)?;
        let sent = in_place::inject_words(shared, message, to, match_info)?;
        result.put(u32::from(sent));
        Ok(())
    })
}

#[inline(never)]
fn inject_many(shared: &Shared, list: &[Segment], to: Address, match_info: u64) -> Result<bool> {
    in_place::inject(shared, &many_pieces(list)?, to, match_info)
}
