//! The inside of a VM: its `ivshmem` device, without a driver.
//!
//! The kernel shows a PCI device's BARs as files: `resource0` has the registers, `resource2` the
//! memory. Both can be mapped by who may write them. Interrupts alone need a driver: ours
//! (`guest/wake`), which shows them as a UIO device.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::raw::{Access, Mapping, Word};

/// Where the kernel lists them.
const DEVICES: &str = "/sys/bus/pci/devices";

/// Vendor and device of `ivshmem`.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");

/// Registers (QEMU's `docs/specs/ivshmem-spec.rst`), in bytes.
const POSITION: u64 = 8;
const DOORBELL: u64 = 12;
const REGISTERS: u64 = 256;

/// The driver that takes interrupts, and its folder while it is loaded.
const DRIVER: &str = "vicinity_wake";
const DRIVER_FOLDER: &str = "/sys/bus/pci/drivers/vicinity_wake";

/// Where devices are offered to drivers.
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
    /// Those that came are heard.
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
    /// All that there are, in the bus's order.
    ///
    /// # Errors
    /// One cannot be used: usually because we are not root.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::all_in(Path::new(DEVICES))
    }

    fn all_in(folder: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // No PCI.
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
        // A device without a driver may be off.
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

    /// The id that the host gave this VM; 0 when it gave none (`ivshmem-plain`).
    #[must_use]
    pub fn id(&self) -> u16 {
        u16::try_from(self.position.load()).unwrap_or(0)
    }

    /// Wake the host: member 0, vector 0.
    pub fn ring(&self) {
        self.doorbell.store(0);
    }

    /// What tells that the host rang; `None` in a kernel without the driver for it.
    ///
    /// # Errors
    /// The driver does not take the device.
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

    /// The memory.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn memory(&self) -> io::Result<OwnedFd> {
        read_write(&self.folder.join("resource2"))
    }
}

fn read_write(path: &Path) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(path)?;
    Ok(file.into())
}
