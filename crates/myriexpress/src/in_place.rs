//! Calls for programs that match messages themselves: messages are read where they arrived, and sent
//! without a request.

use message::{InPlace, Reading, Unexpected};

use crate::abi::{self, Address};
use crate::codes::Result;
use crate::core::Core;
use crate::shared::Shared;

/// `mx_next_unexpected`: calls `put` with the message; returns whether there is one.
#[inline(always)]
pub(crate) fn next(shared: &Shared, put: impl FnOnce(abi::Unexpected)) -> Result<bool> {
    match shared.enter() {
        Some(mut entry) => Ok(take(shared.own(&mut entry)?, put)),
        None => next_of_threads(shared, put),
    }
}

/// The same for an endpoint that several threads use.
#[inline(never)]
fn next_of_threads(shared: &Shared, put: impl FnOnce(abi::Unexpected)) -> Result<bool> {
    Ok(take(shared.lock_for_call()?.core()?, put))
}

#[inline(always)]
fn take(core: &mut Core, put: impl FnOnce(abi::Unexpected)) -> bool {
    if !core.may_progress() {
        core.endpoint.consume_read();
        return false;
    }
    core.expire();
    let found = core.endpoint.read_next();
    core.endpoint.polled(found);
    match core.endpoint.reading() {
        Reading::Nothing => {}
        Reading::InPlace(message) => put(in_place(core, message)),
        Reading::Other(message) => put(other(core, message)),
    }
    found
}

/// Returns what the program gets of a message that is where it arrived.
#[inline(always)]
fn in_place(core: &Core, message: &InPlace) -> abi::Unexpected {
    abi::Unexpected {
        source: core.address(message.peer),
        match_info: message.value,
        length: message.length,
        reserved: 0,
        data: std::ptr::with_exposed_provenance(message.address),
    }
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

/// `mx_keep_unexpected`.
pub(crate) fn keep(shared: &Shared) -> Result {
    let mut locked = shared.lock_for_call()?;
    locked.core()?.endpoint.keep_read();
    locked.notify();
    Ok(())
}

/// `mx_inject`: returns whether the message was sent.
#[inline]
pub(crate) fn inject<'a>(
    shared: &Shared,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
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
fn inject_of_threads<'a>(
    shared: &Shared,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
    to: Address,
    match_info: u64,
) -> Result<bool> {
    send(shared.lock_for_call()?.core()?, pieces, to, match_info)
}

#[inline(always)]
fn send<'a>(
    core: &mut Core,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
    to: Address,
    match_info: u64,
) -> Result<bool> {
    let peer = core.own_peer(to)?;
    let sent = core.endpoint.inject(peer, match_info, pieces)?;
    core.counters.sends = core.counters.sends.wrapping_add(u32::from(sent));
    Ok(sent)
}
