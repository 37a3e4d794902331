//! Which endpoint a number of the program means.
//!
//! A number is never given again before 65,535 others were, so a stale one is found out.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::abi::{Address, Endpoint};
use crate::codes::{Result, Return};
use crate::handle::{ADDRESS, ENDPOINT, number};
use crate::library;
use crate::limits::OPEN;
use crate::shared::Shared;

type Slot = RwLock<Option<Arc<Shared>>>;

/// An endpoint's slot is its number modulo the size.
static SLOTS: [Slot; OPEN] = [const { RwLock::new(None) }; OPEN];

static NEXT: AtomicU16 = AtomicU16::new(1);

fn slot(number: u16) -> Result<&'static Slot> {
    let place = usize::from(number) % OPEN;
    SLOTS.get(place).ok_or(Return::BAD_BAD_BAD)
}

/// Add one, made by `make` for its number.
pub(crate) fn add(make: impl FnOnce(u16) -> Result<Shared>) -> Result<Endpoint> {
    for _ in 0..OPEN {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut slot = slot(number)?
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // The number 0 would make a request's handle 0, which is none.
        if slot.is_none() && number != 0 {
            *slot = Some(Arc::new(make(number)?));
            return Ok(Endpoint(ENDPOINT << 16 | u64::from(number)));
        }
    }
    Err(Return::NO_RESOURCES)
}

/// The endpoint of a number.
pub(crate) fn get(number: u16) -> Result<Arc<Shared>> {
    let slot = slot(number)?.read().unwrap_or_else(PoisonError::into_inner);
    match &*slot {
        Some(shared) if shared.number == number => Ok(Arc::clone(shared)),
        _ => Err(library::get().err().unwrap_or(Return::BAD_ENDPOINT)),
    }
}

/// The endpoint that a program means.
pub(crate) fn endpoint(endpoint: Endpoint) -> Result<Arc<Shared>> {
    match number(endpoint.0, ENDPOINT) {
        Ok(number) => get(number),
        Err(code) => Err(library::get().err().unwrap_or(code)),
    }
}

/// The endpoint that an address belongs to.
pub(crate) fn owner(address: Address) -> Result<Arc<Shared>> {
    get(number(address.endpoint, ADDRESS)?)
}

/// Take one out: calls that begin from now on do not find it.
fn remove(number: u16) -> Result {
    let mut slot = slot(number)?
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    match slot.take_if(|shared| shared.number == number) {
        Some(_) => Ok(()),
        None => Err(Return::BAD_ENDPOINT),
    }
}

/// Close an endpoint and take it out.
pub(crate) fn close(shared: &Shared) -> Result {
    shared.close(remove)
}

/// All of them.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    let slots = SLOTS
        .iter()
        .map(|slot| slot.read().unwrap_or_else(PoisonError::into_inner).clone());
    slots.flatten().collect()
}

/// Close all.
pub(crate) fn close_all() {
    for shared in all() {
        // One that another thread closed meanwhile is closed.
        let _ = close(&shared);
    }
}
