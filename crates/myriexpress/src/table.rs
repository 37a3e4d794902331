//! Finds the endpoint for a handle of the program.
//!
//! A number is reused only after 65,535 others, so stale handles are detected.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::abi::{Address, Endpoint};
use crate::codes::{Result, Return};
use crate::handle::{ADDRESS, ENDPOINT, number};
use crate::library;
use crate::limits::MAX_OPEN_ENDPOINTS;
use crate::shared::Shared;

type Slot = RwLock<Option<Arc<Shared>>>;

/// An endpoint's slot is its number modulo the size of the table.
static SLOTS: [Slot; MAX_OPEN_ENDPOINTS] = [const { RwLock::new(None) }; MAX_OPEN_ENDPOINTS];

static NEXT: AtomicU16 = AtomicU16::new(1);

fn slot(number: u16) -> Result<&'static Slot> {
    let place = usize::from(number) % MAX_OPEN_ENDPOINTS;
    SLOTS.get(place).ok_or(Return::BAD_BAD_BAD)
}

/// Adds an endpoint, which `make` makes for a number.
pub(crate) fn add(make: impl FnOnce(u16) -> Result<Shared>) -> Result<Endpoint> {
    for _ in 0..MAX_OPEN_ENDPOINTS {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut slot = slot(number)?
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // With the number 0, a request's handle could be 0, which means no request.
        if slot.is_none() && number != 0 {
            *slot = Some(Arc::new(make(number)?));
            return Ok(Endpoint(ENDPOINT << 16 | u64::from(number)));
        }
    }
    Err(Return::NO_RESOURCES)
}

/// Returns the endpoint with this number.
pub(crate) fn get(number: u16) -> Result<Arc<Shared>> {
    let slot = slot(number)?.read().unwrap_or_else(PoisonError::into_inner);
    match &*slot {
        Some(shared) if shared.number == number => Ok(Arc::clone(shared)),
        _ => Err(library::get().err().unwrap_or(Return::BAD_ENDPOINT)),
    }
}

/// Returns the endpoint for a handle of the program.
pub(crate) fn endpoint(endpoint: Endpoint) -> Result<Arc<Shared>> {
    match number(endpoint.0, ENDPOINT) {
        Ok(number) => get(number),
        Err(code) => Err(library::get().err().unwrap_or(code)),
    }
}

/// Returns the endpoint that an address belongs to.
pub(crate) fn owner(address: Address) -> Result<Arc<Shared>> {
    get(number(address.endpoint, ADDRESS)?)
}

/// Removes an endpoint from the table: later calls do not find it.
fn remove(number: u16) -> Result {
    let mut slot = slot(number)?
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    match slot.take_if(|shared| shared.number == number) {
        Some(_) => Ok(()),
        None => Err(Return::BAD_ENDPOINT),
    }
}

/// Closes an endpoint, and removes it from the table.
pub(crate) fn close(shared: &Shared) -> Result {
    shared.close(remove)
}

/// Returns all open endpoints.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    let slots = SLOTS
        .iter()
        .map(|slot| slot.read().unwrap_or_else(PoisonError::into_inner).clone());
    slots.flatten().collect()
}

/// Closes all endpoints.
pub(crate) fn close_all() {
    for shared in all() {
        // Another thread may have closed this one meanwhile.
        let _ = close(&shared);
    }
}
