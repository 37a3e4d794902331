//! Finds the memfd that contains a VM's RAM, and its place in guest-physical memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::open_files::{self, FileId};
use crate::qmp::Qmp;
use crate::{DirectError, io};

/// The firmware uses the memory below this address, so packets are never there.
const LOW: u64 = 1 << 20;

/// A range of guest-physical memory that is RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Guest-physical address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of the range in the file.
    pub offset: u64,
}

/// A VM's RAM.
#[derive(Debug)]
pub(crate) struct Ram {
    /// The memfd, open for reading only.
    file: File,
    pub(crate) id: FileId,
    pub(crate) size: u64,
    /// The id of QEMU's memory backend.
    backend: String,
}

impl Ram {
    /// Asks QEMU for the RAM of its machine.
    pub(crate) fn of(qmp: &mut Qmp) -> Result<Self, DirectError> {
        let path = qmp.text(
            "qom-get",
            &[("path", "/machine"), ("property", "memory-backend")],
        )?;
        let id = path.rsplit('/').next().unwrap_or_default().to_owned();
        let size = qmp.size_of_shared_memory(&id)?;
        if !size.is_power_of_two() {
            return Err(DirectError::Memory(format!(
                "the VM has {} MiB; a view is a PCI BAR, so set the VM's memory to a power of two",
                size >> 20
            )));
        }
        let file = file(qmp.process()?, size)?;
        let metadata = io(file.metadata(), || {
            "read the metadata of the VM's memory".to_owned()
        })?;
        Ok(Self {
            file,
            id: FileId::of(&metadata),
            size,
            backend: id,
        })
    }

    /// Returns the ranges of guest-physical memory that the RAM occupies. Call this function only while
    /// the VM has no views: QEMU (10.0.2) permanently keeps all memory that exists when it runs this
    /// command, so it would never release a view.
    pub(crate) fn ranges(&self, qmp: &mut Qmp) -> Result<Vec<Range>, DirectError> {
        let command = [("command-line", "info mtree -f")];
        let tree = qmp.text("human-monitor-command", &command)?;
        let ranges = ranges(&tree, &self.backend);
        match ranges.is_empty() {
            true => Err(DirectError::Memory(format!(
                "QEMU does not report the addresses of the memory `{}`",
                self.backend
            ))),
            false => Ok(ranges),
        }
    }

    /// Returns a path by which any QEMU of this user can open the RAM. The path is valid until `self`
    /// is dropped.
    pub(crate) fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        let descriptor = self.file.as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{descriptor}", std::process::id()))
    }
}

/// Opens the memfd of this size that a QEMU process has open for writing. Fails if there is not exactly
/// one such memfd.
fn file(process: i32, size: u64) -> Result<File, DirectError> {
    let held = open_files::memfds(process)?.into_iter();
    let mut own = held.filter(|held| held.size == size && held.writable);
    let file = match (own.next(), own.next()) {
        (Some(own), None) => File::open(own.path).ok(),
        _ => None,
    };
    let Some(file) = file else {
        return Err(DirectError::Memory(
            "cannot find the VM's memory; start QEMU with one `-object memory-backend-memfd,share=on`, as \
                `vicinity qemu-args` prints"
                .to_owned(),
        ));
    };
    // If the file shrank, each QEMU that maps it would receive SIGBUS and end.
    let seals = io(fcntl_get_seals(file.as_fd()), || {
        "read the seals of the VM's memory".to_owned()
    })?;
    match seals.contains(SealFlags::SHRINK) {
        true => Ok(file),
        false => Err(DirectError::Memory(
            "the VM's memory is not sealed; start QEMU without `seal=off`".to_owned(),
        )),
    }
}

/// Returns the ranges of the RAM called `name` in the output of QEMU's `info mtree -f`. Reads only the
/// view of the whole memory (`AS "memory"`), and joins contiguous ranges.
fn ranges(tree: &str, name: &str) -> Vec<Range> {
    let mut inside = false;
    let mut found: Vec<Range> = Vec::new();
    for line in tree.lines() {
        if line.starts_with("FlatView") {
            inside = false;
        }
        inside |= line.trim_start().starts_with("AS \"memory\"");
        let Some(range) = range(line, name).filter(|_| inside) else {
            continue;
        };
        match found.last_mut() {
            Some(last)
                if last.start + last.length == range.start
                    && last.offset + last.length == range.offset =>
            {
                last.length += range.length;
            }
            _ => found.push(range),
        }
    }
    found.retain(|range| range.start.saturating_add(range.length) > LOW);
    found
}

/// Parses a line `  START-LAST (prio N, ram): NAME @OFFSET`. Addresses and offset are hexadecimal. An
/// absent offset is 0.
fn range(line: &str, name: &str) -> Option<Range> {
    let (bounds, rest) = line.trim().split_once(" (prio ")?;
    let (_, rest) = rest.split_once(", ram): ")?;
    let (start, last) = bounds.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let mut words = rest.split(' ');
    if words.next() != Some(name) {
        return None;
    }
    let offset = match words.next() {
        Some(text) => number(text.strip_prefix('@')?)?,
        None => 0,
    };
    let (start, last) = (number(start)?, number(last)?);
    let length = last.checked_sub(start)?.checked_add(1)?;
    start.checked_add(length)?;
    offset.checked_add(length)?;
    Some(Range {
        start,
        length,
        offset,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The output of QEMU 10.0 for a `pc` machine with 4 GiB, abridged.
    const PC: &str = r#"FlatView #0
 AS "memory", root: system
 AS "cpu-memory-0", root: system
 Root memory region: system
  0000000000000000-00000000000bffff (prio 0, ram): ram
  00000000000c0000-00000000000dffff (prio 1, rom): pc.rom
  0000000000100000-00000000bfffffff (prio 0, ram): ram @0000000000100000
  00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic
  00000000fd000000-00000000fdffffff (prio 1, ram): vga.vram
  0000000100000000-000000013fffffff (prio 0, ram): ram @00000000c0000000

FlatView #1
 AS "cpu-smm-0", root: memory
  0000000000000000-00000000000bffff (prio 0, ram): ram
  0000000000100000-00000000bfffffff (prio 0, ram): ram @0000000000100000
"#;

    #[test]
    fn ram_above_the_hole_lies_behind_that_below_it() {
        let range = |start, length, offset| Range {
            start,
            length,
            offset,
        };
        let want = [
            range(0x10_0000, 0xbff0_0000, 0x10_0000),
            range(0x1_0000_0000, 0x4000_0000, 0xc000_0000),
        ];
        assert_eq!(ranges(PC, "ram"), want);
        assert!(ranges(PC, "other").is_empty());
    }

    #[test]
    fn what_is_contiguous_is_one_range() {
        let text = " AS \"memory\", root: system\n\
                    00000000000f0000-00000000000fffff (prio 0, ram): m @00000000000f0000\n\
                    0000000000100000-00000000001fffff (prio 0, ram): m @0000000000100000\n";
        let want = Range {
            start: 0xf_0000,
            length: 0x11_0000,
            offset: 0xf_0000,
        };
        assert_eq!(ranges(text, "m"), [want]);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([0-9a-f]{1,17}-[0-9a-f]{1,17} \\(prio 0, ram\\): m( @[0-9a-f]{1,17})?\n| AS \"memory\"\n|.*\n){0,20}") {
            for found in ranges(&text, "m") {
                prop_assert!(found.start.checked_add(found.length).is_some());
            }
        }
    }
}
