//! The C boundary: the functions that programs call, and the crate's only `unsafe` code.
//!
//! Each function finds the endpoint, calls the safe implementation, and passes errors to the
//! program's error handler. `symbols.map` has the symbol versions.
#![allow(unsafe_code)]

mod connection;
mod endpoint;
pub(crate) mod endpoint_lock;
mod exchange;
mod heap;
mod in_place;
mod information;
mod pointer;
mod process;
mod unsupported;

use std::time::Duration;

use crate::abi::{Address, Endpoint};
use crate::codes::{Result, Return};
use crate::library;
use crate::shared::Shared;
use crate::table;

/// Runs a call that concerns the process.
fn process_call(act: impl FnOnce() -> Result) -> Return {
    match act() {
        Ok(()) => Return::SUCCESS,
        Err(code) => library::report(None, code),
    }
}

/// Runs a call that concerns an endpoint.
fn endpoint_call(endpoint: Endpoint, act: impl FnOnce(&Shared) -> Result) -> Return {
    let shared = match table::endpoint(endpoint) {
        Ok(shared) => shared,
        Err(code) => return library::report(None, code),
    };
    match act(&shared) {
        Ok(()) => Return::SUCCESS,
        Err(code) => library::report(shared.handler(), code),
    }
}

/// Runs a call that concerns an address: errors go to the handler of its endpoint, if that exists.
fn address_call(address: Address, act: impl FnOnce() -> Result) -> Return {
    match act() {
        Ok(()) => Return::SUCCESS,
        Err(code) => {
            let handler = table::owner(address).ok().and_then(|owner| owner.handler());
            library::report(handler, code)
        }
    }
}

/// Converts a timeout in milliseconds; `MX_INFINITE` is 0.
fn timeout(milliseconds: u32) -> Option<Duration> {
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()))
}
