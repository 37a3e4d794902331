//! How a member reaches the host: its region, and the doorbell that wakes the host.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use window::cached::LoadTime;
use window::ivshmem::Client;
use window::pci::{Device, Interrupts};
use window::region::{MemberPage, Region};

use crate::address::random;
use crate::error::Error;

/// How a member reaches the host.
#[derive(Clone, Debug)]
pub enum Transport {
    /// The member is a VM: its `ivshmem` device.
    Device,
    /// The member is the host itself: the broker's socket for it.
    Socket(PathBuf),
}

/// The doorbell that wakes the host.
#[derive(Debug)]
pub(super) enum HostDoorbell {
    /// The device of this VM, and what a load from its memory takes.
    Device(Device, LoadTime),
    Client(Client),
}

/// How long a member waits for the host's confirmation.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the region; returns the host's doorbell, the region, and the id that the host assigned.
pub(super) fn open_transport(transport: &Transport) -> Result<(HostDoorbell, Region, u16), Error> {
    match transport {
        Transport::Socket(path) => {
            let (client, memory) = Client::connect(path)?;
            let id = client.id();
            Ok((HostDoorbell::Client(client), Region::attach(memory)?, id))
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
            Ok((HostDoorbell::Device(device, load_time), region, id))
        }
    }
}

/// Asks to join with a new number, and waits until the host has reset the control window for it.
pub(super) fn join_broker(page: &MemberPage, doorbell: &HostDoorbell) -> Result<u32, Error> {
    let number = (random()? >> 32) as u32 | 1;
    page.request_join(number);
    doorbell.ring();
    let end = Instant::now() + JOIN_TIMEOUT;
    while page.joined_number() != number {
        if Instant::now() >= end {
            return Err(Error::Join("the host does not answer".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(number)
}

impl HostDoorbell {
    /// Returns the interrupts by which the host can wake this VM.
    pub(super) fn interrupts(&self) -> Result<Option<Interrupts>, Error> {
        match self {
            Self::Device(device, _) => Ok(device.interrupts()?),
            Self::Client(_) => Ok(None),
        }
    }

    /// Returns what a load from the region takes in this VM, or `None` on the host, whose memory is always cached.
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
