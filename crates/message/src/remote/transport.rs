//! How a member reaches the host: its region, and what wakes the host.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use window::ivshmem::Client;
use window::pci::{Device, Interrupts};
use window::region::{Region, Seat};

use crate::address::random;
use crate::error::Error;

/// How a member reaches the host.
#[derive(Clone, Debug)]
pub enum Transport {
    /// It is a VM: by its `ivshmem` device.
    Device,
    /// It is the host itself: by the switchboard's socket for it.
    Socket(PathBuf),
}

/// What wakes the host.
#[derive(Debug)]
pub(super) enum Bell {
    Device(Device),
    Client(Client),
}

/// The host takes no longer than this to make a trunk.
const HEARD: Duration = Duration::from_secs(5);

/// The region, what wakes the host, and the id that the host gave.
pub(super) fn reach(way: &Transport) -> Result<(Bell, Region, u16), Error> {
    match way {
        Transport::Socket(path) => {
            let (client, memory) = Client::connect(path)?;
            let id = client.id();
            Ok((Bell::Client(client), Region::attach(memory)?, id))
        }
        Transport::Device => {
            let mut devices = Device::all()?.into_iter();
            let device = devices.find(|device| device.id() > 0);
            let device = device.ok_or_else(|| {
                let text = "this VM has no `ivshmem-doorbell` device: start QEMU with the \
                            options that `vicinity message qemu-args` prints";
                Error::Join(text.to_owned())
            })?;
            let region = Region::attach(device.memory()?)?;
            let id = device.id();
            Ok((Bell::Device(device), region, id))
        }
    }
}

/// Begin with a new number, and wait until the host made the trunk for it.
pub(super) fn begin(seat: &Seat, bell: &Bell) -> Result<u32, Error> {
    let number = (random()? >> 32) as u32 | 1;
    seat.open(number);
    bell.ring();
    let end = Instant::now() + HEARD;
    while seat.heard() != number {
        if Instant::now() >= end {
            return Err(Error::Join("the host does not answer".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(number)
}

impl Bell {
    /// What the host can wake this VM with.
    pub(super) fn interrupts(&self) -> Result<Option<Interrupts>, Error> {
        match self {
            Self::Device(device) => Ok(device.interrupts()?),
            Self::Client(_) => Ok(None),
        }
    }

    pub(super) fn ring(&self) {
        match self {
            Self::Device(device) => device.ring(),
            Self::Client(client) => client.ring(),
        }
    }
}
