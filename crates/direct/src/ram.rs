//! A VM's RAM: which file it is, and where in guest-physical memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::open_files::{self, FileId};
use crate::qmp::Qmp;
use crate::{DirectError, io};

/// What is below this is firmware's, and no packet is ever there.
const LOW: u64 = 1 << 20;

/// Guest-physical memory that is RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Guest-physical address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Where it is in the file.
    pub offset: u64,
}

/// A VM's RAM.
#[derive(Debug)]
pub(crate) struct Ram {
    /// Opened for reading only.
    file: File,
    pub(crate) id: FileId,
    pub(crate) size: u64,
    /// QEMU's name of it.
    backend: String,
}

impl Ram {
    /// Ask a QEMU for its machine's RAM.
    pub(crate) fn of(qmp: &mut Qmp) -> Result<Self, DirectError> {
        let path = qmp.text(
            "qom-get",
            &[("path", "/machine"), ("property", "memory-backend")],
        )?;
        let id = path.rsplit('/').next().unwrap_or_default().to_owned();
        let size = qmp.size_of_shared_memory(&id)?;
        if !size.is_power_of_two() {
            return Err(DirectError::Memory(format!(
                "the VM has {} MiB: a view is a PCI BAR, so its memory must be a power of two",
                size >> 20
            )));
        }
        let file = file(qmp.process()?, size)?;
        let metadata = io(file.metadata(), || "look at the VM's memory".to_owned())?;
        Ok(Self {
            file,
            id: FileId::of(&metadata),
            size,
            backend: id,
        })
    }

    /// Where it is in guest-physical memory. To be asked while the VM has no views: QEMU (10.0.2)
    /// permanently keeps all memory that there is at the time when it is asked for this, so a view
    /// would never be given back.
    pub(crate) fn ranges(&self, qmp: &mut Qmp) -> Result<Vec<Range>, DirectError> {
        let command = [("command-line", "info mtree -f")];
        let tree = qmp.text("human-monitor-command", &command)?;
        let ranges = ranges(&tree, &self.backend);
        match ranges.is_empty() {
            true => Err(DirectError::Memory(format!(
                "QEMU does not tell where the memory `{}` is",
                self.backend
            ))),
            false => Ok(ranges),
        }
    }

    /// A path by which any QEMU of this user opens it, while this lives.
    pub(crate) fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        let descriptor = self.file.as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{descriptor}", std::process::id()))
    }
}

/// The memfd of this size that a QEMU holds as its own, which must be the only one.
fn file(process: i32, size: u64) -> Result<File, DirectError> {
    let held = open_files::memfds(process)?.into_iter();
    let mut own = held.filter(|held| held.size == size && held.writable);
    let file = match (own.next(), own.next()) {
        (Some(own), None) => File::open(own.path).ok(),
        _ => None,
    };
    let Some(file) = file else {
        return Err(DirectError::Memory(
            "the VM's memory is not to be found: give it one \
             `-object memory-backend-memfd,share=on`, as `vicinity qemu-args` prints"
                .to_owned(),
        ));
    };
    // A file that shrinks would kill every QEMU that maps it.
    let seals = io(fcntl_get_seals(file.as_fd()), || "read seals".to_owned())?;
    match seals.contains(SealFlags::SHRINK) {
        true => Ok(file),
        false => Err(DirectError::Memory(
            "the VM's memory is not sealed: leave out `seal=off`".to_owned(),
        )),
    }
}

/// The RAM called `name` in the output of QEMU's `info mtree -f`: in its view of the whole
/// memory, what is contiguous joined.
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

/// `  START-LAST (prio N, ram): NAME @OFFSET`, all hexadecimal; without an offset it is 0.
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

    /// What QEMU 10.0 says of a `pc` machine with 4 GiB, cut.
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
