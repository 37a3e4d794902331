//! `vicinity-agent` runs in VMs. In one of a trust group it has the traffic to the others go by the
//! direct channel while it can; and it puts files into a VM's space ([`publish`]).
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
mod publish;
mod talk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How it is used.
const USAGE: &str = "\
usage: vicinity-agent                         have peers' traffic go by the direct channel; as root
       vicinity-agent publish FILE... FOLDER  put files into a space, each whole or not at all";

fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match words.first() {
        None => return route(),
        Some(word) if word.as_os_str() == "publish" && words.len() > 2 => {
            let folder = words.pop().unwrap_or_default();
            publish::run(words.get(1..).unwrap_or_default(), &folder)
        }
        Some(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    told(done)
}

/// Have peers' traffic go by the direct channel until a signal comes.
fn route() -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("vicinity-agent: {error}");
            return ExitCode::FAILURE;
        }
    }
    told(agent::run(|| stop.load(Ordering::Relaxed)))
}

fn told(done: Result<(), error::AgentError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vicinity-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
