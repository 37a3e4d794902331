//! How a member reaches the host: its region, and what wakes the host.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use window::cached::LoadTime;
use window::ivshmem::Client;
use window::pci::{Device, Interrupts};
use window::region::{Region, Seat};

use crate::address::random;
use crate::status::Error;

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
    /// The device of this VM, and what a load from its memory takes.
    Device(Device, LoadTime),
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
            let device = device.bind()?;
            let memory = device.memory()?;
            let load_time = LoadTime::measure(memory.as_fd())?;
            let region = Region::attach(memory)?;
            let id = device.id();
            Ok((Bell::Device(device, load_time), region, id))
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
            Self::Device(device, _) => Ok(device.interrupts()?),
            Self::Client(_) => Ok(None),
        }
    }

    /// What a load from the region takes in this VM; `None` on the host, whose memory is always cached.
    pub(super) fn load_time(&self) -> Option<LoadTime> {
        match self {
            Self::Device(_, load_time) => Some(*load_time),
            Self::Client(_) => None,
        }
    }

    pub(super) fn ring(&self) {
        match self {
            Self::Device(device, _) => device.ring(),
            Self::Client(client) => client.ring(),
        }
    }
}
