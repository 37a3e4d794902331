//! Sends, receives, and calls that complete requests.

use std::time::Duration;

use message::{Memory, Pattern};

use crate::abi::{self, Address, Pointer, Request, Status};
use crate::codes::{Result, Return};
use crate::condition::Condition;
use crate::core::{Core, Handler, Kind};
use crate::shared::Shared;
use crate::table;

/// A send, without its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    pub(crate) to: Address,
    pub(crate) match_info: u64,
    pub(crate) context: Pointer,
    /// Whether the send completes only when the message is received.
    pub(crate) synchronous: bool,
    /// Whether the program passed no request, so that it cannot learn the result.
    pub(crate) forget: bool,
}

/// `mx_isend` and `mx_issend`.
pub(crate) fn send(shared: &Shared, memory: Memory, send: &Send) -> Result<Request> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(send.to)?;
    let request = match send.synchronous {
        true => core.endpoint.issend(peer, send.match_info, memory),
        false => core.endpoint.isend(peer, send.match_info, memory),
    }?;
    core.counters.sends = core.counters.sends.wrapping_add(1);
    finish(core, request, Kind::Send, send.context, send.forget)
}

/// `mx_isend_with_credit`: returns no request if there is no credit.
pub(crate) fn send_with_credit(
    shared: &Shared,
    memory: Memory,
    send: &Send,
) -> Result<Option<Request>> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(send.to)?;
    let sent = core
        .endpoint
        .isend_with_credit(peer, send.match_info, memory)?;
    let Some(request) = sent else {
        return Ok(None);
    };
    core.counters.sends = core.counters.sends.wrapping_add(1);
    finish(core, request, Kind::Send, send.context, send.forget).map(Some)
}

/// `mx_irecv`.
pub(crate) fn receive(
    shared: &Shared,
    memory: Memory,
    pattern: Pattern,
    context: Pointer,
    forget: bool,
) -> Result<Request> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let request = core.endpoint.irecv(pattern, memory)?;
    core.counters.receives = core.counters.receives.wrapping_add(1);
    finish(core, request, Kind::Receive, context, forget)
}

fn finish(
    core: &mut Core,
    request: message::Request,
    kind: Kind,
    context: Pointer,
    forget: bool,
) -> Result<Request> {
    let handle = core.register(request, kind, context)?;
    if forget {
        core.endpoint.forget(request)?;
        return Ok(Request::NONE);
    }
    Ok(handle)
}

/// `mx_test`, and `mx_wait` if `wait` is set: returns the status of a completed request. An inner
/// `None` means no timeout.
pub(crate) fn test(
    shared: &Shared,
    request: Request,
    wait: Option<Option<Duration>>,
) -> Result<Option<Status>> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let (request, _) = core.find(request)?;
    if !core.endpoint.is_ended(request)? {
        locked = locked.progress_or_wait(Condition::Completed(request), wait)?;
    }
    Ok(take(locked.core()?, request))
}

fn take(core: &mut Core, request: message::Request) -> Option<Status> {
    let completion = core.endpoint.take(request)?;
    Some(core.status(request, &completion))
}

/// `mx_test_any`, and `mx_wait_any` if `wait` is set.
pub(crate) fn test_any(
    shared: &Shared,
    pattern: Pattern,
    wait: Option<Option<Duration>>,
) -> Result<Option<Status>> {
    let condition = Condition::AnyCompleted(pattern);
    let mut locked = shared.lock_for_call()?.progress_or_wait(condition, wait)?;
    let core = locked.core()?;
    let request = core.oldest(&pattern);
    Ok(request.and_then(|request| take(core, request)))
}

/// `mx_ipeek`, and `mx_peek` if `wait` is set.
pub(crate) fn peek(shared: &Shared, wait: Option<Option<Duration>>) -> Result<Option<Request>> {
    let condition = Condition::AnyCompleted(Pattern::ANY);
    let mut locked = shared.lock_for_call()?.progress_or_wait(condition, wait)?;
    let core = locked.core()?;
    let request = core.oldest(&Pattern::ANY);
    Ok(request.map(|request| core.handle(request)))
}

/// `mx_iprobe`, and `mx_probe` if `wait` is set.
pub(crate) fn probe(
    shared: &Shared,
    pattern: Pattern,
    wait: Option<Option<Duration>>,
) -> Result<Option<Status>> {
    let condition = Condition::Unexpected(pattern);
    let mut locked = shared.lock_for_call()?.progress_or_wait(condition, wait)?;
    let core = locked.core()?;
    let found = core.endpoint.arrived(&pattern);
    Ok(found.map(|status| core.unexpected_status(&status)))
}

/// `mx_cancel`: returns whether the request was cancelled before it completed.
pub(crate) fn cancel(shared: &Shared, request: Request) -> Result<bool> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let (request, kind) = core.find(request)?;
    if kind == Kind::Send {
        return Err(Return::BAD_REQUEST);
    }
    let cancelled = core.endpoint.cancel(request)?;
    if cancelled {
        drop(core.endpoint.take(request));
    }
    Ok(cancelled)
}

/// `mx_forget`.
pub(crate) fn forget(shared: &Shared, request: Request) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let (request, _) = core.find(request)?;
    Ok(core.endpoint.forget(request)?)
}

/// `mx_ibuffered`, and `mx_buffered` if `wait` is set: returns whether the program may reuse the memory of a send.
pub(crate) fn buffered(
    shared: &Shared,
    request: Request,
    wait: Option<Option<Duration>>,
) -> Result<bool> {
    let mut locked = shared.lock_for_call()?;
    let (request, kind) = locked.core()?.find(request)?;
    if kind != Kind::Send {
        return Err(Return::BAD_REQUEST);
    }
    locked = locked.progress_or_wait(Condition::Completed(request), wait)?;
    Ok(locked.core()?.endpoint.is_ended(request)?)
}

/// `mx_wakeup`.
pub(crate) fn wake(shared: &Shared) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.wakeups = core.wakeups.wrapping_add(1);
    locked.notify();
    Ok(())
}

/// `mx_disable_progression`.
pub(crate) fn disable(shared: &Shared) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.disabled = core.disabled.saturating_add(1);
    Ok(())
}

/// `mx_reenable_progression`.
pub(crate) fn enable(shared: &Shared) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.disabled = core.disabled.saturating_sub(1);
    locked.notify();
    Ok(())
}

/// `mx_set_request_timeout`; `None` means no timeout.
pub(crate) fn set_timeout(shared: &Shared, request: Request, limit: Option<Duration>) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    if request == Request::NONE {
        core.connect_timeout = limit;
    } else if let (request, Kind::Connect(_)) = core.find(request)? {
        core.set_timeout(request, limit);
    }
    Ok(())
}

/// `mx_register_unexp_handler`. Without a handler, the engine buffers unexpected messages.
pub(crate) fn set_handler(
    shared: &Shared,
    function: Option<abi::UnexpectedHandler>,
    context: Pointer,
) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let context = context.expose();
    let data = core.handler_data;
    core.handler = function.map(|function| Handler {
        function,
        context,
        data,
    });
    core.endpoint.show_unexpected(function.is_some());
    Ok(())
}

/// `mx_context`.
pub(crate) fn context(request: Request) -> Result<Pointer> {
    let number = u16::try_from(request.0 >> 48).map_err(|_| Return::BAD_REQUEST)?;
    let shared = table::get(number).map_err(|code| match code {
        Return::BAD_ENDPOINT => Return::BAD_REQUEST,
        other => other,
    })?;
    shared.lock_for_call()?.core()?.context(request)
}
