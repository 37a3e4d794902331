//! `vicinity-agent` runs in a VM of a trust group, and has its traffic to the others go by the
//! direct channel while it can.
//!
//! # Theory of operation
//!
//! Applications keep their addresses, which are those of the VM's ordinary NICs. For each address
//! of a peer there is a host route to the direct device ([`plan`]), with the peer's hardware
//! address as a permanent neighbour, so that nobody has to be asked. When the route goes, packets
//! take the way that they took before. Connections notice nothing, but that some packets may have
//! to be sent again.
//!
//! Two things are needed for a route. The module (`guest/direct`) names the peers that packets are
//! exchanged with, unless the host says that they are to go elsewhere ([`device`]). And the agents
//! tell each other their addresses over the direct device itself ([`talk`]); one is believed if it
//! is in a network that this VM has a NIC in, and is not its own.
//!
//! Nothing is configured and nothing is remembered: routes carry a protocol number of their own, so
//! those that an earlier agent left are found and put right ([`netlink`]). What may fail: the
//! device is not there (it is waited for), or comes and goes (the kernel drops its routes with
//! it); a peer that lies about its addresses gets traffic that was for another (docs/direct.md).
#![forbid(unsafe_code)]

mod agent;
mod device;
mod error;
mod netlink;
mod plan;
mod talk;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        eprintln!("usage: vicinity-agent\nNothing is to be said to it. It needs root.");
        return ExitCode::from(2);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("vicinity-agent: {error}");
            return ExitCode::FAILURE;
        }
    }
    match agent::run(|| stop.load(Ordering::Relaxed)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vicinity-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
