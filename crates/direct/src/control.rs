//! The control window's memory. The host reads and writes its file, and does not map it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};

use crate::auto::{Sent, Traffic};
use crate::layout::{self, MEMBERS};
use crate::open_files::FileId;
use crate::ram::Range;
use crate::{DirectError, io};

/// The name of its file.
pub(crate) const FILE: &str = "vicinity-direct";

#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

impl Control {
    pub(crate) fn new() -> Result<Self, DirectError> {
        let make = || -> Result<OwnedFd, Errno> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create(FILE, flags)?;
            ftruncate(&file, layout::LENGTH)?;
            // Guests' QEMUs get this descriptor: none must be able to shrink it.
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        };
        let control = Self(io(make(), || "create the control window".to_owned())?);
        control.write(0, &layout::header())?;
        Ok(control)
    }

    /// Takes over a window that another process made.
    pub(crate) fn adopt(window: OwnedFd) -> Self {
        Self(window)
    }

    /// Returns the identity of its file, by which a QEMU that has the window is recognised.
    pub(crate) fn id(&self) -> Result<FileId, DirectError> {
        let file = io(self.0.try_clone(), || {
            "read the metadata of the control window".to_owned()
        })?;
        let metadata = File::from(file).metadata();
        io(metadata, || {
            "read the metadata of the control window".to_owned()
        })
        .map(|metadata| FileId::of(&metadata))
    }

    /// Writes whether two members are to send to each other through the window.
    pub(crate) fn route(&self, one: u32, other: u32, here: bool) -> Result<(), DirectError> {
        for at in [layout::routed(one, other), layout::routed(other, one)] {
            self.write(at, &[u8::from(here)])?;
        }
        Ok(())
    }

    /// Returns how much two members report to have sent to each other.
    pub(crate) fn traffic(&self, one: u32, other: u32) -> Result<Traffic, DirectError> {
        let mut sum = self.sent(one, other)?;
        for (sum, sent) in sum.iter_mut().zip(self.sent(other, one)?) {
            *sum = Sent {
                packets: sum.packets.saturating_add(sent.packets),
                bytes: sum.bytes.saturating_add(sent.bytes),
            };
        }
        Ok(sum)
    }

    /// Returns how much a member reports to have sent to another.
    pub(crate) fn sent(&self, from: u32, to: u32) -> Result<Traffic, DirectError> {
        let mut words = [[[0; 8]; 2]; 2];
        let bytes = words.as_flattened_mut().as_flattened_mut();
        let read = pread(&self.0, bytes, layout::sent(from, to));
        io(read, || "read the control window".to_owned())?;
        Ok(words.map(|sent| {
            let [packets, bytes] = sent.map(u64::from_le_bytes);
            Sent { packets, bytes }
        }))
    }

    /// Writes the part of a VM that joins, after ending the sessions of the VM that had this id before.
    pub(crate) fn add_member(
        &self,
        id: u32,
        mac: [u8; 6],
        ranges: &[Range],
    ) -> Result<(), DirectError> {
        self.end_sessions(id)?;
        let part = layout::host_part(mac, ranges).ok_or_else(|| {
            DirectError::Memory(format!(
                "the VM's memory has {} ranges, which is too many",
                ranges.len()
            ))
        })?;
        self.write(layout::member(id), &part)
    }

    /// Clears the part of a VM that leaves.
    pub(crate) fn remove_member(&self, id: u32) -> Result<(), DirectError> {
        self.end_sessions(id)?;
        self.write(layout::member(id), &[0; layout::HOST_PART])
    }

    /// Ends all sessions of a VM that cannot end them itself, because it has ended or restarts.
    pub(crate) fn end_sessions(&self, id: u32) -> Result<(), DirectError> {
        self.write(layout::nonce(id), &[0; 8])?;
        for peer in 0..MEMBERS {
            self.write(layout::session(id, peer), &[0; 4])?;
            self.write(layout::accepted(peer, id), &[0; 4])?;
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DirectError> {
        let written = pwrite(&self.0, bytes, at);
        io(written, || "write the control window".to_owned()).map(drop)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_traffic_saturate_with_any_values_of_members() {
        let control = Control::new().unwrap();
        let say = |at, words: [u64; 4]| {
            let bytes = words.map(u64::to_le_bytes);
            control.write(at, bytes.as_flattened()).unwrap();
        };
        say(layout::sent(1, 2), [1, 100, 2, 300]);
        say(layout::sent(2, 1), [10, 1000, u64::MAX, 3000]);
        say(layout::sent(1, 3), [7; 4]);
        let sent = |packets, bytes| Sent { packets, bytes };
        let all = [sent(11, 1100), sent(u64::MAX, 3300)];
        assert_eq!(control.sent(1, 2).unwrap(), [sent(1, 100), sent(2, 300)]);
        assert_eq!(control.traffic(1, 2).unwrap(), all);
        assert_eq!(control.traffic(2, 1).unwrap(), all);
    }
}
