//! Interfaces of the host that lead to other hosts: opened here, for a data plane may not.
//!
//! This is the crate's only module with `unsafe`: the kernel's interfaces are made of ioctls and
//! socket options that rustix has no words for.
#![allow(unsafe_code)]

mod packet;
pub(crate) mod tap;

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use switch::control::UplinkWay;

use crate::config::{Network, Out};

/// Why an uplink could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UplinkError {
    /// A tap.
    #[error(transparent)]
    Tap(#[from] tap::TapError),
    /// No such interface.
    #[error(
        "there is no interface {name} for the uplink; `ip link` lists those there are. A tap, which \
         would be made, is named by `tap`"
    )]
    Missing {
        /// The interface.
        name: String,
    },
    /// Not allowed.
    #[error("not allowed to use interface {name}; run as root, or with CAP_NET_RAW")]
    Forbidden {
        /// The interface.
        name: String,
    },
    /// Anything else.
    #[error("interface {name}: the kernel refused to {step}: {source}")]
    Refused {
        /// The interface.
        name: String,
        /// What was asked.
        step: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
}

/// Open a network's way out, if it has one: a tap by a queue for each worker, where it can have
/// several. At least one descriptor.
pub(crate) fn open(network: &Network) -> Result<Option<Vec<OwnedFd>>, UplinkError> {
    let Some(out) = &network.uplink else {
        return Ok(None);
    };
    Ok(Some(match out {
        Out::Tap(name) => tap::open_queues(name, network.workers)?,
        Out::Interface(name) => vec![packet::open(name)?],
    }))
}

/// What the descriptors of [`open`] are.
pub(crate) fn way(out: &Out) -> UplinkWay {
    match out {
        Out::Tap(_) => UplinkWay::Tap,
        Out::Interface(_) => UplinkWay::Packet,
    }
}
