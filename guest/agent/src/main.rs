//! `vicinity-agent` runs in VMs. In a VM of a trust group it routes the traffic to the group's other VMs
//! over the direct channel while that is possible. It also carries TCP connections by AF_VSOCK ([`sockets`]), and
//! publishes files into a VM's space ([`publish`]).
//!
//! # Theory of operation
//!
//! ```text
//!  device: peers of the kernel module ─┐
//!                                      ├─▶ plan: wanted routes ─▶ netlink: routes, neighbours
//!  talk: addresses from peers' agents ─┘
//! ```
//!
//! Applications keep their addresses, which are those of the VM's ordinary NICs. For each address
//! of a peer the agent adds a host route to the direct device ([`plan`]), with the peer's hardware
//! address as a permanent neighbour, so that the kernel sends no ARP or neighbour solicitation. When the
//! route is removed, packets take the path that they took before. Connections continue; some packets may
//! have to be sent again.
//!
//! A route needs two things. The kernel module (`guest/direct`) lists the peers with which packets are
//! exchanged, except those that the host has routed elsewhere ([`device`]). And the agents
//! send each other their addresses over the direct device itself ([`talk`]). The agent accepts an address
//! if it is in a network that this VM has a NIC in, and is not an address of this VM.
//!
//! The agent has no configuration and stores nothing: its routes carry a protocol number of their own, so
//! it finds and corrects those that an earlier agent left ([`netlink`]). What may fail: the
//! device is absent (the agent waits for it), or it appears and disappears (the kernel removes its routes
//! with it). A peer that lies about its addresses receives traffic that was for another VM
//! (docs/direct.md).
#![forbid(unsafe_code)]

mod agent;
mod device;
mod error;
mod netlink;
mod plan;
mod publish;
mod sockets;
mod talk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The command line.
const USAGE: &str = "\
usage: vicinity-agent                         have peers' traffic go by the direct channel; as root
       vicinity-agent sockets                 have TCP connections go by AF_VSOCK; as root
       vicinity-agent publish FILE... FOLDER  put files into a space, each whole or not at all";

fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match words.first() {
        None => return until_signal(agent::run),
        Some(word) if word.as_os_str() == "sockets" && words.len() == 1 => {
            return until_signal(sockets::run);
        }
        Some(word) if word.as_os_str() == "publish" && words.len() > 2 => {
            let folder = words.pop().unwrap_or_default();
            publish::run(words.get(1..).unwrap_or_default(), &folder)
        }
        Some(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    exit_code(done)
}

/// Works until a signal arrives.
fn until_signal(work: fn(&dyn Fn() -> bool) -> Result<(), error::AgentError>) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("vicinity-agent: {error}");
            return ExitCode::FAILURE;
        }
    }
    exit_code(work(&|| stop.load(Ordering::Relaxed)))
}

fn exit_code(done: Result<(), error::AgentError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vicinity-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
