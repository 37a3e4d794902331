//! Finds the endpoint for a handle of the program.
//!
//! A number is reused only after 32,767 others, so stale handles are detected. The endpoints of serialized
//! programs have odd numbers and slots of their own: a late call for an endpoint that was closed
//! must take the lock in the same way as those for the next endpoint in its slot.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::abi::{Address, Endpoint, ErrorHandler};
use crate::codes::{Result, Return};
use crate::core::Core;
use crate::handle::{ADDRESS, ENDPOINT, number};
use crate::library;
use crate::limits::MAX_OPEN_ENDPOINTS;
use crate::raw::endpoint_lock::Threads;
use crate::shared::{Shared, Slot};

/// The slots of endpoints. An endpoint's slot is half of its number modulo their count.
static MULTIPLE: [Slot; MAX_OPEN_ENDPOINTS] =
    [const { Slot::new(Threads::Multiple) }; MAX_OPEN_ENDPOINTS];
static SERIALIZED: [Slot; MAX_OPEN_ENDPOINTS] =
    [const { Slot::new(Threads::Serialized) }; MAX_OPEN_ENDPOINTS];

/// Half of the next number.
static NEXT: AtomicU16 = AtomicU16::new(1);

#[inline]
fn slot(number: u16) -> Result<&'static Slot> {
    let slots = match number % 2 {
        0 => &MULTIPLE,
        _ => &SERIALIZED,
    };
    let place = usize::from(number / 2) % MAX_OPEN_ENDPOINTS;
    slots.get(place).ok_or(Return::BAD_BAD_BAD)
}

/// Adds an endpoint, which `make` makes for a number.
pub(crate) fn add(
    threads: Threads,
    handler: Option<ErrorHandler>,
    mut make: impl FnMut(u16) -> Result<Core>,
) -> Result<Shared> {
    for _ in 0..MAX_OPEN_ENDPOINTS {
        let half = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = half << 1 | u16::from(threads == Threads::Serialized);
        // With the number 0, a request's handle could be 0, which means no request.
        if number == 0 {
            continue;
        }
        let slot = slot(number)?;
        if let Some(shared) = Shared::open(number, slot, handler, || make(number))? {
            return Ok(shared);
        }
    }
    Err(Return::NO_RESOURCES)
}

/// Returns the endpoint with this number.
#[inline]
pub(crate) fn get(number: u16) -> Result<Shared> {
    let shared = Shared::find(number, slot(number)?);
    shared.ok_or_else(|| missing(Return::BAD_ENDPOINT))
}

/// Returns the endpoint for a handle of the program.
#[inline]
pub(crate) fn endpoint(endpoint: Endpoint) -> Result<Shared> {
    get(number(endpoint.0, ENDPOINT).map_err(missing)?)
}

/// Returns the error of a call without an endpoint.
#[cold]
fn missing(code: Return) -> Return {
    library::get().err().unwrap_or(code)
}

/// Returns the endpoint that an address belongs to.
pub(crate) fn owner(address: Address) -> Result<Shared> {
    get(number(address.endpoint, ADDRESS)?)
}

/// Returns all open endpoints.
pub(crate) fn all() -> impl Iterator<Item = Shared> {
    MULTIPLE
        .iter()
        .chain(&SERIALIZED)
        .filter_map(|slot| Shared::find(slot.number()?, slot))
}

/// Closes all endpoints.
pub(crate) fn close_all() {
    for shared in all() {
        // Another thread may have closed this one meanwhile.
        let _ = shared.close();
    }
}
