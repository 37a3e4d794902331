//! Calls for programs that match messages themselves: messages are read where they arrived, and sent
//! without a request.

use message::{Short, Unexpected};

use crate::abi::{self, Address};
use crate::codes::Result;
use crate::core::Core;
use crate::shared::Shared;

/// `mx_next_unexpected`: calls `put` with the number of each message, from 0, and the message, for at most
/// `most` messages; returns how many there are.
#[inline(always)]
pub(crate) fn next(
    shared: &Shared,
    most: u32,
    put: impl FnMut(u32, abi::Unexpected),
) -> Result<u32> {
    match shared.enter() {
        Some(mut entry) => Ok(take(shared.own(&mut entry)?, most, put)),
        None => next_of_threads(shared, most, put),
    }
}

/// The same for an endpoint that several threads use.
#[inline(never)]
fn next_of_threads(
    shared: &Shared,
    most: u32,
    put: impl FnMut(u32, abi::Unexpected),
) -> Result<u32> {
    Ok(take(shared.lock_for_call()?.core()?, most, put))
}

#[inline(always)]
fn take(core: &mut Core, most: u32, mut put: impl FnMut(u32, abi::Unexpected)) -> u32 {
    if !core.may_progress() {
        core.endpoint.consume_read();
        return 0;
    }
    core.expire();
    let found = core.endpoint.read_next(most as usize);
    core.endpoint.polled(found);
    let reading = core.endpoint.reading();
    let source = core.address(reading.peer());
    let mut count = 0;
    for message in reading.in_place() {
        let next = abi::Unexpected {
            source,
            match_info: message.value,
            length: message.length,
            reserved: 0,
            data: std::ptr::with_exposed_provenance(message.address),
        };
        put(count, next);
        count += 1;
    }
    if let Some(message) = reading.other() {
        put(0, other(core, message));
        count = 1;
    }
    count
}

/// Returns what the program gets of another message.
#[inline(never)]
fn other(core: &Core, message: &Unexpected) -> abi::Unexpected {
    let data = message.bytes().map(|bytes| bytes.as_ptr().cast());
    abi::Unexpected {
        source: core.address(message.peer()),
        match_info: message.value(),
        length: u32::try_from(message.length()).unwrap_or(u32::MAX),
        reserved: 0,
        data: data.unwrap_or(std::ptr::null()),
    }
}

/// `mx_keep_unexpected`, with the number of the message from 0.
pub(crate) fn keep(shared: &Shared, number: u32) -> Result {
    let mut locked = shared.lock_for_call()?;
    locked.core()?.endpoint.keep_read(number as usize);
    locked.notify();
    Ok(())
}

/// `mx_inject`: returns whether the message was sent.
#[inline(always)]
pub(crate) fn inject(
    shared: &Shared,
    pieces: &[&[u8]],
    to: Address,
    match_info: u64,
) -> Result<bool> {
    match shared.enter() {
        Some(mut entry) => send(shared.own(&mut entry)?, pieces, to, match_info),
        None => inject_of_threads(shared, pieces, to, match_info),
    }
}

/// The same for an endpoint that several threads use.
#[inline(never)]
fn inject_of_threads(
    shared: &Shared,
    pieces: &[&[u8]],
    to: Address,
    match_info: u64,
) -> Result<bool> {
    send(shared.lock_for_call()?.core()?, pieces, to, match_info)
}

#[inline(always)]
fn send(core: &mut Core, pieces: &[&[u8]], to: Address, match_info: u64) -> Result<bool> {
    let peer = core.own_peer(to)?;
    let sent = core.endpoint.inject(peer, match_info, pieces)?;
    Ok(count(core, sent))
}

/// `mx_inject_words`: returns whether the message was sent.
#[inline(always)]
pub(crate) fn inject_words(
    shared: &Shared,
    message: Short<'_>,
    to: Address,
    match_info: u64,
) -> Result<bool> {
    match shared.enter() {
        Some(mut entry) => send_words(shared.own(&mut entry)?, message, to, match_info),
        None => inject_words_of_threads(shared, message, to, match_info),
    }
}

/// The same for an endpoint that several threads use.
#[inline(never)]
fn inject_words_of_threads(
    shared: &Shared,
    message: Short<'_>,
    to: Address,
    match_info: u64,
) -> Result<bool> {
    send_words(shared.lock_for_call()?.core()?, message, to, match_info)
}

#[inline(always)]
fn send_words(core: &mut Core, message: Short<'_>, to: Address, match_info: u64) -> Result<bool> {
    let peer = core.own_peer(to)?;
    let sent = core.endpoint.inject_words(peer, match_info, message)?;
    Ok(count(core, sent))
}

/// Counts a send, if it was one.
#[inline(always)]
fn count(core: &mut Core, sent: bool) -> bool {
    core.counters.sends = core.counters.sends.wrapping_add(u32::from(sent));
    sent
}
