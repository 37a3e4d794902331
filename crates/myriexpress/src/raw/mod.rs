//! The C boundary: the functions that programs call, and the only `unsafe` code.
//!
//! Each function finds the endpoint, hands on, and has errors handled as the program wants it. The
//! symbols' versions are in `symbols.map`.
#![allow(unsafe_code)]

mod connection;
mod endpoint;
mod exchange;
mod information;
mod pointer;
mod process;
mod undone;

use std::time::Duration;

use crate::abi::{Address, Endpoint};
use crate::codes::{Result, Return};
use crate::library;
use crate::shared::Shared;
use crate::table;

/// Do what is done to the process.
fn globally(act: impl FnOnce() -> Result) -> Return {
    match act() {
        Ok(()) => Return::SUCCESS,
        Err(code) => library::report(None, code),
    }
}

/// Do what is done to an endpoint.
fn with(endpoint: Endpoint, act: impl FnOnce(&Shared) -> Result) -> Return {
    let shared = match table::endpoint(endpoint) {
        Ok(shared) => shared,
        Err(code) => return library::report(None, code),
    };
    match act(&shared) {
        Ok(()) => Return::SUCCESS,
        Err(code) => library::report(shared.handler, code),
    }
}

/// Do what is done to an address: errors are its endpoint's, if it has one.
fn about(address: Address, act: impl FnOnce() -> Result) -> Return {
    match act() {
        Ok(()) => Return::SUCCESS,
        Err(code) => {
            let handler = table::owner(address).ok().and_then(|owner| owner.handler);
            library::report(handler, code)
        }
    }
}

/// A time in milliseconds; `MX_INFINITE` is 0.
fn limit(milliseconds: u32) -> Option<Duration> {
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()))
}
