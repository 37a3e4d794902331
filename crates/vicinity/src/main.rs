//! `vicinity`: connects the VMs of one host at memory speed.
//!
//! One binary with subcommands. `vicinity serve` ([`serve`]) is the daemon: a supervisor that holds the
//! privileges, opens sockets, taps and memory, and starts every other process ([`processes`]) as this program once
//! more, with a hidden subcommand. A process gets all it uses as descriptors over a control socket, which is its
//! standard input.
//!
//! ```text
//!  vicinity port list, …           vicinity serve                            systemd
//! ┌─────────────────────┐  HTTP  ┌──────────────────────────────────────┐  sd_notify  ┌──────────────┐
//! │ a command           │───────▶│ supervisor: configuration, sockets,  │◀───────────▶│ watchdog,    │
//! │                     │        │ taps, life cycles, totals            │ descriptors │ descriptors  │
//! └─────────────────────┘        └──────────────────────────────────────┘             └──────────────┘
//!          control sockets (SOCK_SEQPACKET): orders and descriptors down, events up
//!          │              │               │               │               │                │
//! ┌────────┴───┐ ┌────────┴──────┐ ┌──────┴────────┐ ┌────┴─────────┐ ┌───┴──────────┐ ┌───┴─────────┐
//! │ data-plane │ │ message-plane │ │ message-      │ │ message-     │ │ direct-group │ │ space-      │
//! │            │ │               │ │ gateway       │ │ uplink       │ │              │ │ process     │
//! │ one for a  │ │ one: joins    │ │ one: for this │ │ one: to      │ │ one for a    │ │ one for a   │
//! │ network    │ │ the members   │ │ host's        │ │ other hosts  │ │ trust group  │ │ space       │
//! │            │ │               │ │ programs      │ │              │ │              │ │             │
//! │ confined   │ │ confined      │ │               │ │ confined     │ │              │ │ confined    │
//! └────────┬───┘ └────────┬──────┘ └──────┬────────┘ └────┬─────────┘ └───┬──────────┘ └───┬─────────┘
//!     vhost-user       ivshmem         shared           an interface    QEMU monitors,   vhost-user of
//!     of QEMUs         of QEMUs        memory           (MXoE)          ivshmem          a QEMU, HTTP
//! ```
//!
//! A connection is made as follows. A QEMU connects to a port's socket, or the supervisor connects to a socket
//! that QEMU listens on. The network's task in the supervisor decides whether the port accepts the front-end: a
//! port has one front-end at a time, and a port in quarantine has none. The task then sends the connected socket to
//! the data plane as an order. From then on only the data plane talks to QEMU, until it reports why it stopped. The
//! supervisor owns every socket file, folder and tap; the data plane owns the connections that it was given.
//!
//! Failures:
//! - A front-end breaks the protocol: the supervisor quarantines its port. Other ports are unaffected.
//! - A process ends, or does not answer: the supervisor starts it again. Sockets, taps, memory that VMs share and
//!   totals are the supervisor's, so the next process goes on with them.
//! - The start fails: the supervisor removes what it made, and the message says what to do.
//!
//! The other commands ([`commands`]) ask the daemon over its control socket ([`client`]), or work without a
//! daemon: QEMU's options, libvirt's XML, what this machine can do (`doctor`), what its CPUs do for each VM
//! (`top`), the benchmarks and the studies.
//!
//! The modules use each other in one direction only, from the top to the bottom of this list:
//!
//! ```text
//! cli          the command line: which command gets which options
//! commands     one place for each command
//! serve        the supervisor
//! processes    one place for each process of the supervisor, and its protocol
//! client       the other end of the control API
//! status       the answers of the control API
//! config       the configuration
//! message_uplink, name, runtime_paths, space_device, table, …   used by several of these
//! ```
//!
//! Exit codes: [`commands::failure::EXIT_CODES`].
#![deny(unsafe_code)]

mod cli;
mod client;
mod commands;
mod config;
mod heap;
mod live;
mod logging;
mod message_uplink;
mod name;
mod priority;
mod processes;
mod runtime_paths;
mod serve;
mod space_device;
mod status;
mod table;
mod unix_group;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    heap::trim();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
