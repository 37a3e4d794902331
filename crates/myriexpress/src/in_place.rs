//! Calls for programs that match messages themselves: messages are read where they arrived, and sent
//! without a request.

use std::ffi::c_void;

use message::Unexpected;

use crate::abi::{self, Address, INLINE_MAX};
use crate::codes::Result;
use crate::core::Core;
use crate::shared::Shared;

/// The message that the program reads next.
pub(crate) struct Next {
    pub(crate) message: abi::Unexpected,
    /// Whether its data is in `inline_data`.
    pub(crate) is_inline: bool,
}

/// `mx_next_unexpected`.
#[inline]
pub(crate) fn next(shared: &Shared) -> Result<Option<Next>> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    if let Some(message) = core.reading.take() {
        core.endpoint.consume(message);
    }
    if !core.may_progress() {
        return Ok(None);
    }
    core.expire();
    let message = core.endpoint.next_in_place();
    core.endpoint.polled(message.is_some());
    let Some(message) = message else {
        return Ok(None);
    };
    let next = describe(core, &message);
    core.reading = Some(message);
    Ok(Some(next))
}

/// Returns what the program gets of a message. Short data is copied: its place in memory is reused.
#[inline]
fn describe(core: &mut Core, message: &Unexpected) -> Next {
    let mut inline_data = [0; INLINE_MAX];
    let mut is_inline = false;
    let mut data = std::ptr::null();
    if let Some(address) = core.endpoint.address_in_place(message) {
        data = address.as_ptr().cast_const();
    } else if let Some(bytes) = message.bytes() {
        match inline_data.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                is_inline = true;
            }
            None => data = bytes.as_ptr(),
        }
    }
    let message = abi::Unexpected {
        source: core.address(message.peer()),
        match_info: message.value(),
        length: u32::try_from(message.length()).unwrap_or(u32::MAX),
        reserved: 0,
        data: data.cast::<c_void>(),
        inline_data,
    };
    Next { message, is_inline }
}

/// `mx_keep_unexpected`.
pub(crate) fn keep(shared: &Shared) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    if let Some(message) = core.reading.take() {
        core.endpoint.keep(message);
        locked.notify();
    }
    Ok(())
}

/// `mx_inject`: returns whether the message was sent.
pub(crate) fn inject<'a>(
    shared: &Shared,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
    to: Address,
    match_info: u64,
) -> Result<bool> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(to)?;
    let sent = core.endpoint.inject(peer, match_info, pieces)?;
    core.counters.sends = core.counters.sends.wrapping_add(u32::from(sent));
    Ok(sent)
}
