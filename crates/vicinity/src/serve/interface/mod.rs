//! Interfaces of the host that lead to other hosts. The supervisor opens them, because a data plane
//! has no permission to.
//!
//! This is the crate's only module with `unsafe`: it needs ioctls and socket options of the kernel
//! that rustix does not offer.
#![allow(unsafe_code)]

mod error;
mod packet;
pub(crate) mod tap;
mod xdp;

use std::os::fd::OwnedFd;

use switch::control::UplinkKind;

pub(crate) use self::error::UplinkError;
use self::error::refused;
use crate::config::{Network, UplinkInterface};

/// Opens a network's uplink, if it has one. Opens a tap with one queue for each worker, if the tap
/// can have several queues. Returns at least one descriptor.
pub(crate) fn open(network: &Network) -> Result<Option<Vec<OwnedFd>>, UplinkError> {
    let Some(out) = &network.uplink else {
        return Ok(None);
    };
    Ok(Some(match out {
        UplinkInterface::Tap(name) => tap::open_queues(name, network.workers)?,
        UplinkInterface::Interface(name) => vec![packet::open(name)?],
        UplinkInterface::Xdp(name) => xdp::open(name)?,
    }))
}

/// Returns how many of the descriptors of [`open`] the supervisor passes to a data plane.
pub(crate) fn passed_fd_count(out: &UplinkInterface) -> usize {
    match out {
        UplinkInterface::Xdp(_) => xdp::PASSED_FDS,
        UplinkInterface::Tap(_) | UplinkInterface::Interface(_) => usize::MAX,
    }
}

/// Returns whether the descriptors of [`open`] can serve only one data plane process.
pub(crate) fn is_single_use(out: &UplinkInterface) -> bool {
    matches!(out, UplinkInterface::Xdp(_))
}

/// Returns the kind of the descriptors of [`open`].
pub(crate) fn uplink_kind(out: &UplinkInterface) -> Result<UplinkKind, UplinkError> {
    Ok(match out {
        UplinkInterface::Tap(_) => UplinkKind::Tap,
        UplinkInterface::Interface(_) => UplinkKind::Packet,
        UplinkInterface::Xdp(name) => {
            let layout = xdp::layout().map_err(refused(name, "report the layout of its rings"))?;
            UplinkKind::Xdp(layout)
        }
    })
}
