//! Calls that send and receive messages and complete requests.

use std::time::Duration;

use message::Pattern;

use super::pointer::{List, Out};
use super::{endpoint_call, timeout};
use crate::abi::{Address, Endpoint, Pointer, Request, Segment, Status};
use crate::codes::{Result, Return};
use crate::exchange;
use crate::shared::Shared;

fn send(
    endpoint: Endpoint,
    segments: &List<Segment>,
    count: u32,
    request: &Out<Request>,
    send: &exchange::Send,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let memory = segments.memory(count)?;
        request.put(exchange::send(shared, memory, send)?);
        Ok(())
    })
}

fn details(
    to: Address,
    match_info: u64,
    context: Pointer,
    synchronous: bool,
    request: &Out<Request>,
) -> exchange::Send {
    exchange::Send {
        to,
        match_info,
        context,
        synchronous,
        forget: request.is_null(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn mx_isend(
    endpoint: Endpoint,
    segments: List<Segment>,
    count: u32,
    to: Address,
    match_info: u64,
    context: Pointer,
    request: Out<Request>,
) -> Return {
    let details = details(to, match_info, context, false, &request);
    send(endpoint, &segments, count, &request, &details)
}

#[unsafe(no_mangle)]
extern "C" fn mx_isend_with_credit(
    endpoint: Endpoint,
    segments: List<Segment>,
    count: u32,
    to: Address,
    match_info: u64,
    context: Pointer,
    request: Out<Request>,
    result: Out<u32>,
) -> Return {
    let details = details(to, match_info, context, false, &request);
    endpoint_call(endpoint, |shared| {
        let sent = exchange::send_with_credit(shared, segments.memory(count)?, &details)?;
        result.put(u32::from(sent.is_some()));
        if let Some(sent) = sent {
            request.put(sent);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_issend(
    endpoint: Endpoint,
    segments: List<Segment>,
    count: u32,
    to: Address,
    match_info: u64,
    context: Pointer,
    request: Out<Request>,
) -> Return {
    let details = details(to, match_info, context, true, &request);
    send(endpoint, &segments, count, &request, &details)
}

#[unsafe(no_mangle)]
extern "C" fn mx_irecv(
    endpoint: Endpoint,
    segments: List<Segment>,
    count: u32,
    match_info: u64,
    mask: u64,
    context: Pointer,
    request: Out<Request>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let memory = segments.memory(count)?;
        let pattern = Pattern::new(match_info, mask)?;
        let forget = request.is_null();
        let handle = exchange::receive(shared, memory, pattern, context, forget)?;
        request.put(handle);
        Ok(())
    })
}

/// Returns the request that a pointer refers to.
fn request_of(request: &Out<Request>) -> Result<Request> {
    let request = request.get().filter(|request| *request != Request::NONE);
    request.ok_or(Return::BAD_REQUEST)
}

/// Writes whether there is a result, and the result.
fn write_result<T: Copy>(found: Option<T>, what: &Out<T>, result: &Out<u32>) {
    if let Some(found) = found {
        what.put(found);
    }
    result.put(u32::from(found.is_some()));
}

fn test(
    shared: &Shared,
    request: &Out<Request>,
    wait: Option<Option<Duration>>,
    status: &Out<Status>,
    result: &Out<u32>,
) -> Result {
    let found = exchange::test(shared, request_of(request)?, wait)?;
    if found.is_some() {
        request.put(Request::NONE);
    }
    write_result(found, status, result);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn mx_test(
    endpoint: Endpoint,
    request: Out<Request>,
    status: Out<Status>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        test(shared, &request, None, &status, &result)
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_wait(
    endpoint: Endpoint,
    request: Out<Request>,
    milliseconds: u32,
    status: Out<Status>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        test(
            shared,
            &request,
            Some(timeout(milliseconds)),
            &status,
            &result,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_test_any(
    endpoint: Endpoint,
    match_info: u64,
    mask: u64,
    status: Out<Status>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let pattern = Pattern::new(match_info, mask)?;
        let found = exchange::test_any(shared, pattern, None)?;
        write_result(found, &status, &result);
        Ok(())
    })
}

/// In this call, the timeout precedes the match value.
#[unsafe(no_mangle)]
extern "C" fn mx_wait_any(
    endpoint: Endpoint,
    milliseconds: u32,
    match_info: u64,
    mask: u64,
    status: Out<Status>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let pattern = Pattern::new(match_info, mask)?;
        let found = exchange::test_any(shared, pattern, Some(timeout(milliseconds)))?;
        write_result(found, &status, &result);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_ipeek(endpoint: Endpoint, request: Out<Request>, result: Out<u32>) -> Return {
    endpoint_call(endpoint, |shared| {
        write_result(exchange::peek(shared, None)?, &request, &result);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_peek(
    endpoint: Endpoint,
    milliseconds: u32,
    request: Out<Request>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let found = exchange::peek(shared, Some(timeout(milliseconds)))?;
        write_result(found, &request, &result);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_iprobe(
    endpoint: Endpoint,
    match_info: u64,
    mask: u64,
    status: Out<Status>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let pattern = Pattern::new(match_info, mask)?;
        write_result(exchange::probe(shared, pattern, None)?, &status, &result);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_probe(
    endpoint: Endpoint,
    milliseconds: u32,
    match_info: u64,
    mask: u64,
    status: Out<Status>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let pattern = Pattern::new(match_info, mask)?;
        let found = exchange::probe(shared, pattern, Some(timeout(milliseconds)))?;
        write_result(found, &status, &result);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_cancel(endpoint: Endpoint, request: Out<Request>, result: Out<u32>) -> Return {
    endpoint_call(endpoint, |shared| {
        let cancelled = exchange::cancel(shared, request_of(&request)?)?;
        if cancelled {
            request.put(Request::NONE);
        }
        result.put(u32::from(cancelled));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_forget(endpoint: Endpoint, request: Out<Request>) -> Return {
    endpoint_call(endpoint, |shared| {
        exchange::forget(shared, request_of(&request)?)?;
        request.put(Request::NONE);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_ibuffered(endpoint: Endpoint, request: Out<Request>, result: Out<u32>) -> Return {
    endpoint_call(endpoint, |shared| {
        let buffered = exchange::buffered(shared, request_of(&request)?, None)?;
        result.put(u32::from(buffered));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_buffered(
    endpoint: Endpoint,
    request: Out<Request>,
    milliseconds: u32,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let limit = Some(timeout(milliseconds));
        let buffered = exchange::buffered(shared, request_of(&request)?, limit)?;
        result.put(u32::from(buffered));
        Ok(())
    })
}

/// The handle of a request contains the number of its endpoint.
#[unsafe(no_mangle)]
extern "C" fn mx_context(request: Out<Request>, context: Out<Pointer>) -> Return {
    super::process_call(|| {
        let request = request_of(&request)?;
        context.put(exchange::context(request)?);
        Ok(())
    })
}
