//! Interfaces of the host that lead to other hosts: opened here, for a data plane may not.
//!
//! This is the crate's only module with `unsafe`: the kernel's interfaces are made of ioctls and
//! socket options that rustix has no words for.
#![allow(unsafe_code)]

mod packet;
pub(crate) mod tap;
mod xdp;

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
    #[error(
        "not allowed to use interface {name}; run as root, or with CAP_NET_RAW, and for `xdp` with \
         CAP_NET_ADMIN and CAP_BPF"
    )]
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
        Out::Xdp(name) => xdp::open(name)?,
    }))
}

/// How many descriptors of [`open`] a data plane gets.
pub(crate) fn given(out: &Out) -> usize {
    match out {
        Out::Xdp(_) => xdp::GIVEN,
        Out::Tap(_) | Out::Interface(_) => usize::MAX,
    }
}

/// Whether those serve one data plane alone.
pub(crate) fn once(out: &Out) -> bool {
    matches!(out, Out::Xdp(_))
}

/// What the kernel says is told with the interface's name.
fn refused(name: &str, step: &'static str) -> impl FnOnce(Errno) -> UplinkError {
    let name = name.to_owned();
    move |source| match source {
        Errno::PERM | Errno::ACCESS => UplinkError::Forbidden { name },
        source => UplinkError::Refused { name, step, source },
    }
}

/// What the descriptors of [`open`] are.
pub(crate) fn way(out: &Out) -> Result<UplinkWay, UplinkError> {
    Ok(match out {
        Out::Tap(_) => UplinkWay::Tap,
        Out::Interface(_) => UplinkWay::Packet,
        Out::Xdp(name) => {
            let layout = xdp::layout().map_err(refused(name, "tell how its rings are"))?;
            UplinkWay::Xdp(layout)
        }
    })
}
