//! The inside of a VM: its `ivshmem` device, without a driver.
//!
//! The kernel shows a PCI device's BARs as files: `resource0` has the registers, `resource2` the
//! memory. Both can be mapped by who may write them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::raw::{Access, Mapping, Word};

/// Where the kernel lists them.
const DEVICES: &str = "/sys/bus/pci/devices";

/// Vendor and device of `ivshmem`.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");

/// Registers (QEMU's `docs/specs/ivshmem-spec.rst`), in bytes.
const POSITION: u64 = 8;
const DOORBELL: u64 = 12;
const REGISTERS: u64 = 256;

/// An `ivshmem` device of this VM.
#[derive(Debug)]
pub struct Device {
    folder: PathBuf,
    position: Word,
    doorbell: Word,
}

impl Device {
    /// All that there are, in the bus's order.
    ///
    /// # Errors
    /// One cannot be used: usually because we are not root.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::below(Path::new(DEVICES))
    }

    fn below(folder: &Path) -> io::Result<Vec<Self>> {
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
        fs::write(folder.join("enable"), "1")?;
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

    /// The memory.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn memory(&self) -> io::Result<OwnedFd> {
        read_write(&self.folder.join("resource2"))
    }
}

fn read_write(path: &Path) -> io::Result<OwnedFd> {
    let file = fs::File::options().read(true).write(true).open(path)?;
    Ok(file.into())
}
