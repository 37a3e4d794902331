//! Sending, receiving, and what became of it.

use std::time::Duration;

use message::{Memory, Pattern};

use crate::abi::{self, Address, Pointer, Request, Status};
use crate::codes::{Result, Return};
use crate::condition::Condition;
use crate::core::{Core, Handler, Kind};
use crate::shared::Shared;
use crate::table;

/// A send, beside its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    pub(crate) to: Address,
    pub(crate) match_info: u64,
    pub(crate) context: Pointer,
    /// It ends when it is received.
    pub(crate) synchronous: bool,
    /// The program does not want to know.
    pub(crate) forget: bool,
}

/// `mx_isend` and `mx_issend`.
pub(crate) fn send(shared: &Shared, memory: Memory, send: &Send) -> Result<Request> {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    let peer = core.peer(send.to)?;
    let request = match send.synchronous {
        true => core.endpoint.issend(peer, send.match_info, memory),
        false => core.endpoint.isend(peer, send.match_info, memory),
    }?;
    core.counters.sends = core.counters.sends.wrapping_add(1);
    finish(core, request, Kind::Send, send.context, send.forget)
}

/// `mx_irecv`.
pub(crate) fn receive(
    shared: &Shared,
    memory: Memory,
    pattern: Pattern,
    context: Pointer,
    forget: bool,
) -> Result<Request> {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
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
    let name = core.note(request, kind, context)?;
    if forget {
        core.endpoint.forget(request)?;
        return Ok(Request::NONE);
    }
    Ok(name)
}

/// `mx_test`, and `mx_wait` with a limit: the status of a request that has ended. The inner limit
/// is none for as long as it takes.
pub(crate) fn test(
    shared: &Shared,
    request: Request,
    wait: Option<Option<Duration>>,
) -> Result<Option<Status>> {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    let (request, _) = core.find(request)?;
    if !core.endpoint.is_ended(request)? {
        entered = entered.work_or_wait(Condition::End(request), wait)?;
    }
    Ok(take(entered.core()?, request))
}

fn take(core: &mut Core, request: message::Request) -> Option<Status> {
    let completion = core.endpoint.take(request)?;
    Some(core.status(request, &completion))
}

/// `mx_test_any`, and `mx_wait_any` with a limit.
pub(crate) fn test_any(
    shared: &Shared,
    pattern: Pattern,
    wait: Option<Option<Duration>>,
) -> Result<Option<Status>> {
    let condition = Condition::AnyEnd(pattern);
    let mut entered = shared.enter()?.work_or_wait(condition, wait)?;
    let core = entered.core()?;
    let request = core.oldest(&pattern);
    Ok(request.and_then(|request| take(core, request)))
}

/// `mx_ipeek`, and `mx_peek` with a limit.
pub(crate) fn peek(shared: &Shared, wait: Option<Option<Duration>>) -> Result<Option<Request>> {
    let condition = Condition::AnyEnd(Pattern::ANY);
    let mut entered = shared.enter()?.work_or_wait(condition, wait)?;
    let core = entered.core()?;
    let request = core.oldest(&Pattern::ANY);
    Ok(request.map(|request| core.name(request)))
}

/// `mx_iprobe`, and `mx_probe` with a limit.
pub(crate) fn probe(
    shared: &Shared,
    pattern: Pattern,
    wait: Option<Option<Duration>>,
) -> Result<Option<Status>> {
    let condition = Condition::Arrival(pattern);
    let mut entered = shared.enter()?.work_or_wait(condition, wait)?;
    let core = entered.core()?;
    let found = core.endpoint.arrived(&pattern);
    Ok(found.map(|status| core.probed(&status)))
}

/// `mx_cancel`: whether it was not too late.
pub(crate) fn cancel(shared: &Shared, request: Request) -> Result<bool> {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
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
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    let (request, _) = core.find(request)?;
    Ok(core.endpoint.forget(request)?)
}

/// `mx_ibuffered`: whether a send's memory may be used again.
pub(crate) fn buffered(shared: &Shared, request: Request) -> Result<bool> {
    let mut entered = shared.enter()?.work()?;
    let core = entered.core()?;
    let (request, kind) = core.find(request)?;
    match kind {
        Kind::Send => Ok(core.endpoint.is_ended(request)?),
        _ => Err(Return::BAD_REQUEST),
    }
}

/// `mx_wakeup`.
pub(crate) fn wake(shared: &Shared) -> Result {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    core.wakeups = core.wakeups.wrapping_add(1);
    entered.tell();
    Ok(())
}

/// `mx_disable_progression`.
pub(crate) fn disable(shared: &Shared) -> Result {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    core.disabled = core.disabled.saturating_add(1);
    Ok(())
}

/// `mx_reenable_progression`.
pub(crate) fn enable(shared: &Shared) -> Result {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    core.disabled = core.disabled.saturating_sub(1);
    entered.tell();
    Ok(())
}

/// `mx_set_request_timeout`; none is as long as it takes.
pub(crate) fn set_limit(shared: &Shared, request: Request, limit: Option<Duration>) -> Result {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    if request == Request::NONE {
        core.limit = limit;
    } else if let (request, Kind::Connect(_)) = core.find(request)? {
        core.set_limit(request, limit);
    }
    Ok(())
}

/// `mx_register_unexp_handler`; without one, messages are kept as ever.
pub(crate) fn set_handler(
    shared: &Shared,
    function: Option<abi::UnexpectedHandler>,
    context: Pointer,
) -> Result {
    let mut entered = shared.enter()?;
    let core = entered.core()?;
    let context = context.keep();
    core.handler = function.map(|function| Handler { function, context });
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
    shared.enter()?.core()?.context(request)
}
