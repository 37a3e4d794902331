//! Interfaces of the host that lead to other hosts: opened here, for a data plane may not.
//!
//! This is the crate's only module with `unsafe`: the kernel's interfaces are made of ioctls and
//! socket options that rustix has no words for.
#![allow(unsafe_code)]

mod error;
mod packet;
pub(crate) mod tap;
mod xdp;

use std::os::fd::OwnedFd;

use switch::control::UplinkWay;

pub(crate) use self::error::UplinkError;
use self::error::refused;
use crate::config::{Network, Out};

/// Opens a network's way out, if it has one: a tap by a queue for each worker, where it can have
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
