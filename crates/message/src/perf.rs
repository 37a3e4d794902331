//! Measurements between two endpoints: the server [`answer`]s, the client measures round trips and
//! streams.
//!
//! The client sends each measurement as a message of its own ([`Order`]); then both sides run it.
//! All times are measured by the client. Calls come in the order of `ucx_perftest`'s, and times
//! from the processor's counter as there: the client sends, then posts the receive.

mod order;

use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::ids::{Peer, Request};
use crate::latency_samples::LatencySamples;
use crate::matching::Pattern;
use crate::memory::Memory;
use crate::status::Completion;

pub use order::{Kind, LONGEST, Load};
use order::{MAX_WINDOW, Order};

/// Returns the messages in flight in a stream, unless there is a reason for another number. As many
/// as UCX's `ucx_perftest` has, but fewer large ones: it sends all of them from one buffer, which
/// stays in the caches, while here each has its own. At least two, so that one is offered while the
/// other is copied.
#[must_use]
pub fn window(length: u32) -> u8 {
    let messages = IN_FLIGHT / length.max(1);
    u8::try_from(messages)
        .unwrap_or(MAX_WINDOW)
        .clamp(MIN_WINDOW, MAX_WINDOW)
}

/// Bytes in flight in a stream.
const IN_FLIGHT: u32 = 512 << 10;

/// Messages in flight, at least.
const MIN_WINDOW: u8 = 2;

/// How an end of a measurement waits for its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// In [`wait`](crate::Endpoint::wait).
    Block,
    /// By calls of [`test`](crate::Endpoint::test), as MPI libraries do.
    Poll,
}

/// How long a client waits for the server, which may serve other clients first.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Match values: an order, measured data, and the end of a stream.
const ORDER: u64 = 1 << 56;
const DATA: u64 = 2 << 56;
const END: u64 = 3 << 56;

/// Serves one client until it disconnects, or until it is idle and `go_on`, called once a second,
/// returns false.
///
/// # Errors
/// The kernel refuses to wait, or there is no memory left.
pub fn answer(
    endpoint: &mut Endpoint,
    mode: WaitMode,
    go_on: &impl Fn() -> bool,
) -> Result<(), Error> {
    loop {
        let request = endpoint.irecv(Pattern::exactly(ORDER), vec![0; 11])?;
        let got = loop {
            if let Some(got) = endpoint.wait(request, Some(Duration::from_secs(1)))? {
                break got;
            }
            let over = endpoint.lost().is_some() || !go_on();
            // Without the cancel, this receive would take the next client's order.
            if over && endpoint.cancel(request)? {
                return endpoint.forget(request);
            }
        };
        let (Some(peer), Some(order)) = (got.status.peer, Order::decode(got.memory.bytes())) else {
            continue;
        };
        let done = match order.stream {
            true => receive_stream(endpoint, peer, order, go_on),
            false => echo(endpoint, peer, order, mode, go_on),
        };
        match done {
            Err(Error::Connection(_)) => return Ok(()),
            other => other?,
        }
    }
}

/// Allocates memory for one message to or from the peer.
fn memory(endpoint: &mut Endpoint, peer: Peer, Order { load, .. }: Order) -> Result<Memory, Error> {
    let length = load.length as usize;
    let found = match load.memory {
        Kind::Program => Some(Memory::Bytes(vec![0; length])),
        Kind::Heap => endpoint.allocate(length).map(Memory::Window),
        Kind::Shared => endpoint.allocate_for(peer, length),
    };
    found.ok_or(Error::Connection(Code::NoResources))
}

/// Polls between two checks whether the peer is connected and `go_on` returns true.
const POLLS: u32 = 1 << 20;

/// Polls for a request a limited number of times.
#[cold]
fn poll(endpoint: &mut Endpoint, request: Request) -> Result<Option<Completion>, Error> {
    for _ in 0..POLLS {
        if let Some(done) = endpoint.test(request)? {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

/// Waits for a request, as long as the peer is connected and `go_on` returns true. After an
/// error, the request does not exist any more.
#[inline(always)]
fn finish(
    endpoint: &mut Endpoint,
    peer: Peer,
    request: Request,
    mode: WaitMode,
    go_on: &impl Fn() -> bool,
) -> Result<Completion, Error> {
    loop {
        let done = match mode {
            WaitMode::Block => endpoint.wait(request, Some(Duration::from_secs(1)))?,
            WaitMode::Poll => poll(endpoint, request)?,
        };
        if let Some(done) = done {
            return match done.status.code {
                Code::Success => Ok(done),
                code => Err(Error::Connection(code)),
            };
        }
        if is_lost(endpoint, peer) {
            discard(endpoint, request)?;
            return Err(Error::Connection(Code::Closed));
        }
        if !go_on() {
            discard(endpoint, request)?;
            return Err(Error::Connection(Code::Cancelled));
        }
    }
}

/// Returns whether this peer was lost since the last call. Other peers may have been lost too: the
/// clients of earlier measurements.
fn is_lost(endpoint: &mut Endpoint, peer: Peer) -> bool {
    std::iter::from_fn(|| endpoint.lost()).any(|lost| lost == peer)
}

/// Discards a request. A receive that stayed would take a message of the next client.
#[cold]
fn discard(endpoint: &mut Endpoint, request: Request) -> Result<(), Error> {
    match endpoint.cancel(request) {
        // The end of the link ends a send.
        Ok(_) | Err(Error::CannotCancel) => endpoint.forget(request),
        Err(error) => Err(error),
    }
}

fn echo(
    endpoint: &mut Endpoint,
    peer: Peer,
    order: Order,
    mode: WaitMode,
    go_on: &impl Fn() -> bool,
) -> Result<(), Error> {
    let mut room = memory(endpoint, peer, order)?;
    for _ in 0..order.load.count {
        let request = endpoint.irecv(Pattern::exactly(DATA), room)?;
        let got = finish(endpoint, peer, request, mode, go_on)?;
        let request = endpoint.isend(peer, DATA, got.memory)?;
        room = finish(endpoint, peer, request, mode, go_on)?.memory;
    }
    Ok(())
}

fn receive_stream(
    endpoint: &mut Endpoint,
    peer: Peer,
    order: Order,
    go_on: &impl Fn() -> bool,
) -> Result<(), Error> {
    let window = usize::from(order.load.window);
    let mut requests = std::collections::VecDeque::with_capacity(window);
    let mut left = order.load.count;
    while let Some(more) = left.checked_sub(1).filter(|_| requests.len() < window) {
        left = more;
        let room = memory(endpoint, peer, order)?;
        requests.push_back(endpoint.irecv(Pattern::exactly(DATA), room)?);
    }
    while let Some(request) = requests.pop_front() {
        let got = match finish(endpoint, peer, request, WaitMode::Block, go_on) {
            Ok(got) => got,
            Err(error) => {
                for request in requests {
                    discard(endpoint, request)?;
                }
                return Err(error);
            }
        };
        if let Some(more) = left.checked_sub(1) {
            left = more;
            requests.push_back(endpoint.irecv(Pattern::exactly(DATA), got.memory)?);
        }
    }
    let request = endpoint.isend(peer, END, Memory::Empty)?;
    finish(endpoint, peer, request, WaitMode::Block, go_on).map(|_| ())
}

/// Sends the order to the peer, which has to take it within `timeout`.
fn begin(
    endpoint: &mut Endpoint,
    peer: Peer,
    order: Order,
    timeout: Duration,
    go_on: &impl Fn() -> bool,
) -> Result<(), Error> {
    // A synchronous send ends when the peer has received it, so a peer that serves no orders is
    // detected.
    let request = endpoint.issend(peer, ORDER, order.encode())?;
    let end = Instant::now() + timeout;
    let go_on_until = || Instant::now() < end && go_on();
    match finish(endpoint, peer, request, WaitMode::Block, &go_on_until) {
        Err(Error::Connection(Code::Cancelled)) if go_on() => Err(Error::Timeout),
        other => other.map(|_| ()),
    }
}

/// Measures round trips, one by one, each from the end of the one before.
///
/// # Errors
/// The peer disconnected or does not answer, the last message came back changed, or there is no
/// memory left.
pub fn round_trips(
    endpoint: &mut Endpoint,
    peer: Peer,
    load: Load,
    mode: WaitMode,
    go_on: &impl Fn() -> bool,
) -> Result<Vec<Duration>, Error> {
    let order = Order {
        stream: false,
        load,
    };
    let count = load.count;
    begin(endpoint, peer, order, BEGIN_TIMEOUT, go_on)?;
    let mut there = memory(endpoint, peer, order)?;
    let mut back = memory(endpoint, peer, order)?;
    let mut number = 0u8;
    let _all = there.fill(0, load.length.into(), |piece| {
        piece.fill_with(|| {
            number = number.wrapping_add(101);
            number
        });
        Some(())
    });
    let mut laps = LatencySamples::start(count as usize);
    for _ in 0..count {
        let sent = endpoint.isend(peer, DATA, there)?;
        let request = endpoint.irecv(Pattern::exactly(DATA), back)?;
        back = finish(endpoint, peer, request, mode, go_on)?.memory;
        laps.record();
        there = finish(endpoint, peer, sent, mode, go_on)?.memory;
    }
    match is_same(&back, &there) {
        true => Ok(laps.times()),
        false => Err(Error::DataMismatch),
    }
}

/// Returns whether two memories hold the same bytes.
fn is_same(one: &Memory, other: &Memory) -> bool {
    let [one, other] = [one, other].map(|memory| {
        let length = usize::try_from(memory.length()).unwrap_or_default();
        let mut bytes = vec![0; length];
        memory.get(0, &mut bytes);
        bytes
    });
    one == other
}

/// Measures messages in one direction, with as many in flight as the load has, until the peer has
/// received the last one.
///
/// # Errors
/// The peer disconnected or does not answer, or there is no memory left.
pub fn stream(
    endpoint: &mut Endpoint,
    peer: Peer,
    load: Load,
    go_on: &impl Fn() -> bool,
) -> Result<Duration, Error> {
    let order = Order { stream: true, load };
    let Load { count, window, .. } = load;
    let end = endpoint.irecv(Pattern::exactly(END), Memory::Empty)?;
    begin(endpoint, peer, order, BEGIN_TIMEOUT, go_on)?;
    let mut requests = std::collections::VecDeque::with_capacity(window.into());
    let spare = (0..window).map(|_| memory(endpoint, peer, order));
    let mut spare = spare.collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    for _ in 0..count {
        let memory = match spare.pop() {
            Some(memory) => memory,
            None => match requests.pop_front() {
                Some(oldest) => finish(endpoint, peer, oldest, WaitMode::Block, go_on)?.memory,
                None => Memory::Empty,
            },
        };
        requests.push_back(endpoint.isend(peer, DATA, memory)?);
    }
    for request in requests {
        finish(endpoint, peer, request, WaitMode::Block, go_on)?;
    }
    finish(endpoint, peer, end, WaitMode::Block, go_on)?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests;
