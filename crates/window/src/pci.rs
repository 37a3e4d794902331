//! The inside of a VM: its `ivshmem` device, with the driver `vicinity_wake` or without a driver.
//!
//! The kernel offers a PCI device's BARs as files in sysfs: `resource0` has the registers and
//! `resource2` has the memory. A program that may write these files can map them, and needs no
//! driver. The kernel maps `resource2` uncached, which makes messages slow where the processor obeys
//! (see [`crate::cached`]), and a kernel that is locked down refuses to map either file.
//!
//! The driver (`guest/wake`) adds what sysfs lacks: the file `memory`, which the kernel maps
//! write-back; the file `registers`, which a kernel that is locked down maps too; and interrupts,
//! as a UIO device. The driver keeps programs from mapping `resource2`, because two mappings of one
//! page must not differ in their memory type. So all programs of a VM have to use the same file,
//! and a gateway binds the driver, if it is loaded, before it opens the memory ([`Device::bind`]).

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

/// The driver, and its folder while it is loaded.
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
    /// Returns all `ivshmem` devices that no other driver has taken, in the bus's order.
    ///
    /// # Errors
    /// The kernel refuses to open or to map a device's registers: usually because this program does not run as
    /// root.
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
        folders.retain(|folder| is_ivshmem(folder));
        folders.retain(|folder| driver(folder).is_none_or(|name| name == DRIVER));
        folders.into_iter().map(Self::open).collect()
    }

    fn open(folder: PathBuf) -> io::Result<Self> {
        // A device without a driver may be disabled.
        if driver(&folder).is_none() {
            fs::write(folder.join("enable"), "1")?;
        }
        let map = || -> io::Result<_> {
            let file = read_write(&file_of(&folder, "registers", "resource0"))?;
            Ok(Mapping::new(file.as_fd(), 0, REGISTERS, Access::ReadWrite)?)
        };
        let mapping = match map() {
            // A kernel that is locked down refuses to map `resource0`, also to root.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && bind(&folder)? => {
                map()?
            }
            mapping => mapping.map_err(|error| refused(&folder, error))?,
        };
        let mapping = Arc::new(mapping);
        let register = |at| Word::new(&mapping, at).ok_or(io::ErrorKind::InvalidData);
        Ok(Self {
            position: register(POSITION)?,
            doorbell: register(DOORBELL)?,
            folder,
        })
    }

    /// Binds the driver to the device, if the driver is loaded; otherwise returns the device as it is.
    ///
    /// # Errors
    /// The kernel refuses to bind the driver, or to map the registers anew.
    pub fn bind(self) -> io::Result<Self> {
        match driver(&self.folder).is_none() && bind(&self.folder)? {
            true => Self::open(self.folder),
            false => Ok(self),
        }
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

    /// Returns the interrupts by which the host wakes this VM; `None` without the driver.
    ///
    /// # Errors
    /// The kernel does not offer the driver's UIO device.
    pub fn interrupts(&self) -> io::Result<Option<Interrupts>> {
        if driver(&self.folder).is_none() {
            return Ok(None);
        }
        let mut found = fs::read_dir(self.folder.join("uio"))?.flatten();
        let name = found.next().ok_or(io::ErrorKind::NotFound)?.file_name();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = Path::new("/dev").join(name);
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Some(Interrupts(file)))
    }

    /// Opens the memory: write-back with the driver, uncached without it where the processor obeys.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn memory(&self) -> io::Result<OwnedFd> {
        read_write(&file_of(&self.folder, "memory", "resource2"))
    }
}

/// Says what to do when the kernel refuses to map a device's registers.
fn refused(folder: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let text = format!(
        "the kernel refuses to map the device {}: run this program as root, and in a VM whose kernel is locked down \
            (Secure Boot) load the module vicinity_wake, which such a kernel loads if it is signed",
        folder.display()
    );
    io::Error::new(error.kind(), text)
}

/// Returns whether the driver `vicinity_wake` has taken this VM's region, an `ivshmem-doorbell` device; `None` if the
/// machine has no such device. Needs no privilege and changes nothing.
#[must_use]
pub fn has_driver() -> Option<bool> {
    has_driver_in(Path::new(DEVICES))
}

fn has_driver_in(folder: &Path) -> Option<bool> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let folders = entries.map(|entry| entry.path());
    let folders = folders.filter(|folder| is_ivshmem(folder));
    // An `ivshmem-plain` device, such as a view of the direct channel, has no interrupts: QEMU gives it no BAR 1, where
    // the MSI-X table of `ivshmem-doorbell` is.
    let mut drivers = folders
        .filter(|folder| folder.join("resource1").exists())
        .map(|folder| driver(&folder))
        .filter(|driver| driver.as_deref().is_none_or(|name| name == DRIVER));
    let first = drivers.next()?;
    Some(first.is_some() || drivers.any(|driver| driver.is_some()))
}

fn is_ivshmem(folder: &Path) -> bool {
    let is = |file, wanted| {
        fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == wanted)
    };
    is("vendor", IVSHMEM.0) && is("device", IVSHMEM.1)
}

/// The name of the driver that has taken the device.
fn driver(folder: &Path) -> Option<String> {
    let driver = fs::read_link(folder.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Has the driver take the device; false if the driver is not loaded, or does not take the device.
fn bind(folder: &Path) -> io::Result<bool> {
    if !Path::new(DRIVER_FOLDER).exists() {
        return Ok(false);
    }
    fs::write(folder.join("driver_override"), DRIVER)?;
    let name = folder.file_name().unwrap_or_default();
    fs::write(PROBE, name.as_encoded_bytes())?;
    Ok(driver(folder).is_some())
}

/// The driver's file, or the kernel's own if the driver offers none.
fn file_of(folder: &Path, by_driver: &str, by_kernel: &str) -> PathBuf {
    let file = folder.join(by_driver);
    match file.exists() {
        true => file,
        false => folder.join(by_kernel),
    }
}

fn read_write(path: &Path) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(path)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A device as sysfs shows it: an `ivshmem-doorbell` has BAR 1, and a driver is a link.
    fn device(all: &Path, name: &str, bars: &[&str], driver: Option<&str>) {
        let folder = all.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("vendor"), "0x1af4\n").unwrap();
        fs::write(folder.join("device"), "0x1110\n").unwrap();
        for bar in bars {
            fs::write(folder.join(bar), "").unwrap();
        }
        if let Some(driver) = driver {
            let target = Path::new("../../drivers").join(driver);
            symlink(target, folder.join("driver")).unwrap();
        }
    }

    #[test]
    fn the_driver_of_the_region_is_found() {
        const DOORBELL: &[&str] = &["resource0", "resource1", "resource2"];
        const PLAIN: &[&str] = &["resource0", "resource2"];
        let with = |devices: &[(&[&str], Option<&str>)]| {
            let all = tempfile::tempdir().unwrap();
            for (number, (bars, driver)) in devices.iter().enumerate() {
                device(all.path(), &format!("0000:00:0{number}.0"), bars, *driver);
            }
            has_driver_in(all.path())
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[(PLAIN, None)]), None);
        // The window of the direct channel.
        assert_eq!(with(&[(DOORBELL, Some("vicinity_direct"))]), None);
        assert_eq!(with(&[(PLAIN, None), (DOORBELL, None)]), Some(false));
        assert_eq!(with(&[(DOORBELL, Some("vicinity_wake"))]), Some(true));
        assert_eq!(has_driver_in(Path::new("/nowhere")), None);
    }
}
