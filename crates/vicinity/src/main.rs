//! `vicinity`: VMs on one host talk at memory speed.
//!
//! One binary with subcommands. `vicinity serve` ([`serve`]) is the daemon: a supervisor that
//! holds the privileges, opens sockets and taps, starts one data-plane process per network
//! ([`data_plane`]) and hands it descriptors. A connection flows like this: a QEMU connects to a
//! port's socket, or Vicinity connects to a socket that QEMU listens on; the network's task
//! decides whether to let it in (one front-end per port, none from a port in quarantine) and
//! gives the connected socket to the data plane as an order. From then on the data plane alone
//! talks to QEMU, until it reports why it stopped. The supervisor owns every socket file,
//! folder and tap; the data plane owns the connections it was given. What may fail: a
//! front-end (its own port is kept out for a while), a data plane (it is started again, and its
//! front-ends connect again), the start (nothing is left behind, and the message says what to do).
//!
//! The other commands ask the daemon over its control socket ([`client`]), or work without it:
//! QEMU's options ([`qemu_args`]), libvirt's XML ([`libvirt`]), what this machine can do ([`doctor`]), what its CPUs do for
//! each VM ([`top`]).
//!
//! Exit codes: [`failure::EXIT_CODES`].
#![deny(unsafe_code)]

mod cli;
mod client;
mod commands;
mod config;
mod heap;
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

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    heap::give_back();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
