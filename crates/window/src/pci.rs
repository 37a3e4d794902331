//! The guest's side of an `ivshmem` device, used from user space without a driver.
//!
//! The kernel exposes the BARs of a PCI device as files: `resource0` holds the registers,
//! `resource2` the memory. A process that may write these files can map both. Only interrupts need
//! a driver: ours (`guest/wake`) exposes them as a UIO device.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::raw::{Access, Mapping, Word};

/// Where the kernel lists PCI devices.
const DEVICES: &str = "/sys/bus/pci/devices";

/// Vendor and device of `ivshmem`.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");

/// Offsets of registers (QEMU's `docs/specs/ivshmem-spec.rst`), in bytes.
const POSITION: u64 = 8;
const DOORBELL: u64 = 12;
const REGISTERS: u64 = 256;

/// The driver that handles interrupts, and its directory while it is loaded.
const DRIVER: &str = "vicinity_wake";
const DRIVER_FOLDER: &str = "/sys/bus/pci/drivers/vicinity_wake";

/// The file that makes the kernel offer a device to drivers.
const PROBE: &str = "/sys/bus/pci/drivers_probe";

/// An `ivshmem` device of this VM.
#[derive(Debug)]
pub struct Device {
    folder: PathBuf,
    position: Word,
    doorbell: Word,
}

/// The interrupts of a device.
#[derive(Debug)]
pub struct Interrupts(OwnedFd);

impl Interrupts {
    /// Clears pending interrupts.
    pub fn clear(&self) {
        // There may be none.
        let _count = rustix::io::read(&self.0, &mut [0; 4]);
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    /// Returns all `ivshmem` devices of this VM, in the bus's order.
    ///
    /// # Errors
    /// A device cannot be used: usually because this process is not root.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::all_in(Path::new(DEVICES))
    }

    fn all_in(folder: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // There is no PCI bus.
            Err(_) => return Ok(Vec::new()),
        };
        let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        let is = |folder: &PathBuf, file, wanted| {
            fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == wanted)
        };
        let (vendor, device) = IVSHMEM;
        folders.retain(|folder| is(folder, "vendor", vendor) && is(folder, "device", device));
        folders.into_iter().map(Self::open).collect()
    }

    fn open(folder: PathBuf) -> io::Result<Self> {
        // A device without a driver may be disabled.
        if !folder.join("driver").exists() {
            fs::write(folder.join("enable"), "1")?;
        }
        let file = read_write(&folder.join("resource0"))?;
        let mapping = Mapping::new(file.as_fd(), 0, REGISTERS, Access::ReadWrite)?;
        let mapping = Arc::new(mapping);
        let register = |at| Word::new(&mapping, at).ok_or(io::ErrorKind::InvalidData);
        Ok(Self {
            position: register(POSITION)?,
            doorbell: register(DOORBELL)?,
            folder,
        })
    }

    /// Returns the id that the host gave this VM; 0 if it gave none (`ivshmem-plain`).
    #[must_use]
    pub fn id(&self) -> u16 {
        u16::try_from(self.position.load()).unwrap_or(0)
    }

    /// Wakes the host: rings vector 0 of peer 0.
    pub fn ring(&self) {
        self.doorbell.store(0);
    }

    /// Returns the interrupts that the host raises; `None` if the kernel has no driver for them.
    ///
    /// # Errors
    /// The driver does not bind to the device.
    pub fn interrupts(&self) -> io::Result<Option<Interrupts>> {
        if !Path::new(DRIVER_FOLDER).exists() {
            return Ok(None);
        }
        if !self.folder.join("driver").exists() {
            fs::write(self.folder.join("driver_override"), DRIVER)?;
            let name = self.folder.file_name().unwrap_or_default();
            fs::write(PROBE, name.as_encoded_bytes())?;
        }
        let mut found = fs::read_dir(self.folder.join("uio"))?.flatten();
        let name = found.next().ok_or(io::ErrorKind::NotFound)?.file_name();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = Path::new("/dev").join(name);
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Some(Interrupts(file)))
    }

    /// Opens the shared memory.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn memory(&self) -> io::Result<OwnedFd> {
        read_write(&self.folder.join("resource2"))
    }
}

fn read_write(path: &Path) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(path)?;
    Ok(file.into())
}
