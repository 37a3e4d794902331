//! `libmyriexpress`: the C interface of Myrinet Express (MX) on the message plane, so that
//! programs written for MX run on Vicinity.
//!
//! # Theory of operation
//!
//! ```text
//!  C program:  mx_isend()  mx_wait()  ...
//!                  │
//!  ┌─ raw ─────────▼─────────────────────────────────────────────┐
//!  │ extern "C" functions, pointers of the program               │
//!  └───────────────┬─────────────────────────────────────────────┘
//!                  ▼
//!   table ──▶ Shared: lock, waiting threads        library: board,
//!                  │                               error handler
//!                  ▼
//!             Core: requests, context pointers,    names, info,
//!                  │ handler, timeouts             codes
//!                  ▼
//!             message::Endpoint (crates/message)
//! ```
//!
//! A program calls a function of [`raw`], which finds the endpoint in the [`table`], locks it
//! ([`shared`]) and calls the engine of `crates/message`. This crate adds what MX has and the engine
//! does not: codes and their texts ([`codes`]), error handlers and the board ([`library`]), names
//! ([`names`]), the context pointers of requests and peers ([`core`]), handlers of unexpected
//! messages, timeouts of connects, and waits of several threads on one endpoint.
//!
//! To the program, endpoints and requests are pointers. To this library, they are numbers, so a
//! handle that is no longer valid is detected and gets MX's code for it. An address consists of the
//! number of its endpoint and that of the peer.
//!
//! **Progress.** Only threads that make calls advance the protocol, unless the program enables a
//! progress thread for each endpoint, which works while the program makes no calls ([`progress_thread`]).
//! While a handler of unexpected messages runs, no thread makes progress.
//!
//! **Ownership.** The endpoint owns its requests. The program lends the memory of a message to the
//! library until the request has completed.
//!
//! **Failures.** Errors of the engine become codes of requests and calls. Each error of a call goes
//! to the error handler. As MX specifies, the default handler ends the process.
//!
//! # Example
//!
#![doc = concat!("```c\n", include_str!("../examples/hello.c"), "```")]
//!
//! Cargo builds a static archive; `scripts/myriexpress` makes the shared and the static library from
//! it, with the symbol versions of the original.
#![deny(unsafe_code)]

mod abi;
mod codes;
mod condition;
mod connect;
mod core;
mod exchange;
mod handle;
mod heap;
mod in_place;
mod info;
mod library;
mod limits;
mod names;
mod progress_thread;
mod raw;
mod shared;
mod table;
