//! `libmyriexpress`: the C interface of Myrinet Express (MX) on the message plane, so that
//! programs made for MX run on it.
//!
//! # Theory of operation
//!
//! A program calls a function of [`raw`]; that finds the endpoint in the [`table`], locks it
//! ([`shared`]) and calls the engine of `crates/message` for it. What MX has and the engine does
//! not is added here: codes and their texts ([`codes`]), error handlers and the board
//! ([`library`]), names ([`names`]), the pointers that a program keeps with requests and peers
//! ([`core`]), handlers of unexpected messages, waits of several threads on one endpoint.
//!
//! Endpoints and requests are pointers for the program and numbers for this library, so one that
//! is not valid any more is found out and answered with the code that MX has for it. An address is
//! a number of its endpoint and one of the peer.
//!
//! Progress is made by the threads that call, and by nobody else unless the program asks for it: then
//! by a thread for each endpoint while the program does not call ([`standin`]). While a handler
//! runs, by none.
//!
//! Who owns what: the endpoint owns its requests; the program lends each its memory until it has
//! ended. What may fail: whatever may fail in the engine, told by the code of a request or call.
//! Each error of a call goes through the handler of errors, which by default ends the process:
//! that is how MX is.
//!
//! Cargo makes an archive of this; `scripts/myriexpress` makes the two libraries of that, with the
//! symbols' versions of the original.
#![deny(unsafe_code)]

mod abi;
mod codes;
mod condition;
mod connect;
mod core;
mod exchange;
mod handle;
mod info;
mod library;
mod limits;
mod names;
mod raw;
mod shared;
mod standin;
mod table;
