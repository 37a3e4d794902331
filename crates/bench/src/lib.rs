//! Native benchmarks of the planes, each compared with its peers.
//!
//! # Theory of operation
//!
//! A benchmark runs on the host itself, without VMs. It starts the `vicinity` program and the programs it is compared
//! with, puts load on each of them, and measures them in turn:
//!
//! ```text
//!     CPU 0                                 CPU 1
//!  ┌──────────────────────┐             ┌──────────────────────────────┐
//!  │ generator            │  sockets,   │ program under test           │
//!  │ testpmd, wrk,        │◀───────────▶│ vicinity, OVS-DPDK, testpmd, │
//!  │ our own virtio       │  shared     │ UCX, TCP, nginx              │
//!  │ driver, message perf │  memory     │                              │
//!  └──────────┬───────────┘             └──────────────┬───────────────┘
//!             │ frames, messages, bytes, latencies     │ CPU time, cycles, memory
//!             ▼                                        ▼
//!  ┌──────────────────────────────────────────────────────────────────┐
//!  │ round 1: A B C   round 2: C B A   round 3: A B C …               │
//!  └──────────────────────────────┬───────────────────────────────────┘
//!                                 ▼
//!      medians of the rounds' ratios, targets, JSON (`output`)
//! ```
//!
//! | module | what it measures | beside |
//! |---|---|---|
//! | [`switch`] | frames, latency, 64 KB frames, large forwarding databases, idle ports | OVS-DPDK, testpmd |
//! | [`operate`] | changing, reading and capturing a switch under load | the same switch without that |
//! | [`message`] | round trips and streams of messages | UCX, TCP |
//! | [`uplink`] | messages between two hosts | TCP through the same link |
//! | [`space`] | files of a space over HTTP | nginx |
//!
//! Other programs of the machine change the figures from round to round, but they change the figures of programs that
//! were measured right after each other by about the same factor. Therefore each round yields ratios, the median of
//! the ratios is the result, and the order changes from round to round. Each benchmark has a guard for everything that
//! it starts or reserves: programs (`process`), hugepages (`hugepages`), the priority of the session (`priority`). A
//! signal arrives as an error, so the guards also run after Ctrl-C.

#![forbid(unsafe_code)]

mod cpus;
mod leftovers;
mod memory;
pub mod message;
pub mod operate;
mod output;
mod parse;
mod priority;
mod process;
mod requirements;
pub mod space;
pub mod switch;
mod threads;
pub mod uplink;

/// Default number of rounds. A median of fewer than five rounds means little.
pub const ROUNDS: u32 = 5;
