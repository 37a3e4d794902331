//! The direct device, as the kernel module presents it in sysfs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::pread;

use crate::plan::Mac;

/// The module's name.
const DRIVER: &str = "vicinity_direct";

/// Where the kernel lists network devices.
const DEVICES: &str = "/sys/class/net";

/// A direct device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    peers: File,
}

impl Device {
    /// Returns the first direct device, if there is one.
    pub(crate) fn find() -> Option<Self> {
        let mut all: Vec<_> = fs::read_dir(DEVICES).ok()?.flatten().collect();
        all.sort_by_key(fs::DirEntry::file_name);
        all.into_iter().find_map(|entry| open(&entry.path()))
    }

    /// Returns whether the same device still exists.
    pub(crate) fn is_there(&self) -> bool {
        let index = fs::read_to_string(Path::new(DEVICES).join(&self.name).join("ifindex"));
        index.is_ok_and(|index| index.trim().parse() == Ok(self.index))
    }

    /// Returns the peers to which packets go by this device. Reading the file arms it for the next change.
    pub(crate) fn peers(&self) -> BTreeSet<Mac> {
        let mut text = [0; 4096];
        // Without the device there are no peers.
        let count = pread(&self.peers, &mut text, 0).unwrap_or(0);
        let text = text.get(..count).unwrap_or_default();
        let lines = std::str::from_utf8(text).unwrap_or_default().lines();
        lines.filter_map(mac).collect()
    }

    /// Has the kernel accept packets from the device that should have arrived by another device
    /// according to the routes, because each VM changes its routes at a different time. Also makes the
    /// device's own address usable at once.
    pub(crate) fn relax(&self) {
        for (what, value) in [("ipv4/conf", "rp_filter"), ("ipv6/conf", "accept_dad")] {
            let path = format!("/proc/sys/net/{what}/{}/{value}", self.name);
            // A kernel without IPv6 has no such file.
            drop(fs::write(path, "0"));
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.peers.as_fd()
    }
}

fn open(path: &Path) -> Option<Device> {
    let driver = fs::read_link(path.join("device/driver")).ok()?;
    if driver.file_name()? != DRIVER {
        return None;
    }
    let read = |what| fs::read_to_string(path.join(what)).ok();
    Some(Device {
        name: path.file_name()?.to_str()?.to_owned(),
        index: read("ifindex")?.trim().parse().ok()?,
        mac: mac(&read("address")?)?,
        peers: File::open(path.join("peers")).ok()?,
    })
}

fn mac(text: &str) -> Option<Mac> {
    let parts = text.trim().split(':');
    let bytes: Option<Vec<u8>> = parts
        .map(|part| u8::from_str_radix(part, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            mac("52:56:00:aa:bb:ff\n"),
            Some([0x52, 0x56, 0, 0xaa, 0xbb, 0xff])
        );
        assert_eq!(mac("52:56:00:aa:bb"), None);
        assert_eq!(mac(""), None);
    }
}
