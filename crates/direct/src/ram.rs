//! Finds the memfd that contains a VM's RAM, and its place in guest-physical memory.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, fchown};

use rustix::fs::{Mode, SealFlags, fchmod, fcntl_get_seals};
use rustix::process::geteuid;

use crate::open_files::{self, FileId};
use crate::qmp::Qmp;
use crate::{DirectError, io};

/// The start of QEMU's id of a peer's memory. The rest of the id is used only once: the memory of an
/// unplugged device may stay for some time, and QEMU ends when another one with the same id is plugged in.
pub(crate) const MEMORY: &str = "vicinity-memory";

/// The firmware uses the memory below this address, so packets are never there.
const LOW: u64 = 1 << 20;

/// The rights to write a file, of its group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// The kinds of devices that add RAM to a machine, as `query-memory-devices` names them. The others that it lists
/// (`nvdimm`, `virtio-pmem`, `sgx-epc`) are no RAM from which a kernel allocates packets.
const PLUGGED_RAM: [&str; 3] = ["dimm", "virtio-mem", "hv-balloon"];

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
        refuse_plugged_ram(qmp)?;
        let id = backend(qmp)?;
        refuse_kind(qmp, &id)?;
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
        deny_writing(&file)?;
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
}

impl AsFd for Ram {
    /// Returns the memfd, open for reading only.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the id of the memory backend that is the machine's RAM.
fn backend(qmp: &mut Qmp) -> Result<String, DirectError> {
    let path = qmp.text(
        "qom-get",
        &[("path", "/machine"), ("property", "memory-backend")],
    )?;
    if let Some(id) = path.rsplit('/').next().filter(|id| !id.is_empty()) {
        return Ok(id.to_owned());
    }
    // The RAM of a machine with `-numa node,memdev=` is in the nodes' backends, and the property is empty.
    let is_view = |id: &String| {
        let rest = id.strip_prefix(MEMORY);
        rest.is_some_and(|rest| rest.starts_with('-'))
    };
    let all = qmp.memory_backends()?.into_iter();
    let nodes: Vec<String> = all.filter(|id| !is_view(id)).collect();
    match nodes.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(DirectError::Monitor("query-memdev".to_owned())),
        several => Err(DirectError::Memory(format!(
            "the VM's memory is in {} objects ({}), one for each NUMA node, and a view shows one: give the guest \
             one NUMA node or none (with libvirt, one <cell> in <numa>)",
            several.len(),
            several.join(", ")
        ))),
    }
}

/// Refuses a VM with RAM that is plugged in. Such RAM is outside the backend that peers see, so they could not
/// read a packet there.
fn refuse_plugged_ram(qmp: &mut Qmp) -> Result<(), DirectError> {
    let mut devices = qmp.memory_devices()?.into_iter();
    match devices.find(|(kind, _)| PLUGGED_RAM.contains(&kind.as_str())) {
        None => Ok(()),
        Some((kind, id)) => Err(DirectError::Memory(format!(
            "the VM has plugged-in memory (`{kind}`, {id}), which its peers would not see: unplug it, and give the \
             VM all of its memory from the start (with libvirt, no <memory> among the <devices>)"
        ))),
    }
}

/// Refuses a memory backend that is not a memfd, whatever else it is.
fn refuse_kind(qmp: &mut Qmp, id: &str) -> Result<(), DirectError> {
    let object = format!("/objects/{id}");
    let kind = qmp.text("qom-get", &[("path", &object), ("property", "type")])?;
    let why = match kind.as_str() {
        "memory-backend-memfd" => return Ok(()),
        "memory-backend-ram" => "which no other process can map",
        // A file on hugetlbfs or tmpfs, or POSIX shared memory.
        _ => "whose file could be shortened while peers map it",
    };
    Err(DirectError::Memory(format!(
        "the VM's memory `{id}` is a `{kind}`, {why}: give it a `memory-backend-memfd` with `share=on`, as `vicinity \
         qemu-args` prints it, also for huge pages (`hugetlb=on`; with libvirt, <source type='memfd'/> beside \
         <hugepages/>)"
    )))
}

/// Takes from other users, and from the VM's own, the right to open the memory for writing. A process that has a
/// descriptor for reading can open it again by `/proc/self/fd`, and the kernel then asks for the rights of the
/// file only, which a memfd grants to every user. So the file belongs to this process's user from now on, and only its owner
/// may open it for writing. The VM's QEMU and its back-ends keep the descriptors and mappings that they have.
fn deny_writing(file: &File) -> Result<(), DirectError> {
    let what = || "take the rights to write from the file of the VM's memory".to_owned();
    io(fchown(file, Some(geteuid().as_raw()), None), what)?;
    let mode = io(file.metadata(), what)?.mode() & 0o7777;
    io(
        fchmod(file, Mode::from_raw_mode(mode & !OTHERS_WRITE)),
        what,
    )
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
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use serde_json::{Value, json};

    use super::*;
    use crate::qmp::tests::answering;

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

    /// Returns the reason why a QEMU with these answers is refused.
    fn refused(answers: &[Value]) -> String {
        let (mut qmp, _qemu) = answering(answers);
        Ram::of(&mut qmp).unwrap_err().to_string()
    }

    /// Returns an object as `query-memdev` of QEMU 10.0 lists it.
    fn backend_of(id: &str) -> Value {
        json!({"dump": true, "host-nodes": [], "id": id, "merge": true, "policy": "default",
            "prealloc": false, "reserve": true, "share": true, "size": 64 << 20})
    }

    #[test]
    fn numa_nodes_are_refused_if_there_are_several() {
        // -numa node,memdev=ram0 -numa node,memdev=ram1
        let nodes = json!([backend_of("ram1"), backend_of("ram0")]);
        let said = refused(&[json!([]), json!(""), nodes]);
        assert!(said.contains("2 objects (ram1, ram0)"), "{said}");
        assert!(said.contains("one <cell>"), "{said}");
        // One node, beside the views that another process has plugged in.
        let one = json!([backend_of("vicinity-memory-7-0"), backend_of("ram0")]);
        let (mut qmp, _qemu) = answering(&[json!(""), one]);
        assert_eq!(backend(&mut qmp).unwrap(), "ram0");
        let (mut qmp, _qemu) = answering(&[json!("/objects/vicinity-memory")]);
        assert_eq!(backend(&mut qmp).unwrap(), "vicinity-memory");
    }

    #[test]
    fn plugged_in_memory_is_refused_by_its_kind() {
        // -device pc-dimm,id=d0,memdev=m1 and -device virtio-mem-pci,memdev=m2,requested-size=0
        let dimm = json!({"type": "dimm", "data": {"addr": 4_294_967_296_u64, "hotplugged": false, "id": "d0",
            "hotpluggable": true, "memdev": "/objects/m1", "node": 0, "size": 134_217_728, "slot": 0}});
        let said = refused(&[json!([dimm])]);
        assert!(said.contains("(`dimm`, d0)"), "{said}");
        let virtio = json!({"type": "virtio-mem", "data": {"block-size": 2_097_152, "max-size": 134_217_728,
            "memaddr": 4_429_185_024_u64, "memdev": "/objects/m2", "node": 0, "requested-size": 0, "size": 0}});
        let nvdimm = json!({"type": "nvdimm", "data": {"id": "n0"}});
        let said = refused(&[json!([nvdimm, virtio])]);
        assert!(said.contains("(`virtio-mem`, without an id)"), "{said}");
        let (mut qmp, _qemu) = answering(&[json!([nvdimm])]);
        refuse_plugged_ram(&mut qmp).unwrap();
    }

    #[test]
    fn memory_that_is_no_memfd_is_refused_by_its_kind() {
        let kind = |kind: &str| refused(&[json!([]), json!("/objects/ram"), json!(kind)]);
        let file = kind("memory-backend-file");
        assert!(file.contains("a `memory-backend-file`, whose file could be shortened"));
        assert!(file.contains("<source type='memfd'/>"), "{file}");
        assert!(kind("memory-backend-ram").contains("which no other process can map"));
    }

    /// Opens a descriptor again by `/proc/self/fd` as another user. Returns whether that succeeds for
    /// reading, and for writing.
    fn opened_again_by_another_user(file: &File) -> [bool; 2] {
        ["<", "<>"].map(|how| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec 5{how} /proc/self/fd/0")]);
            shell.uid(65534).gid(65534).stderr(Stdio::null());
            let opened = shell.stdin(file.try_clone().unwrap()).status().unwrap();
            opened.success()
        })
    }

    #[test]
    fn a_view_cannot_be_opened_for_writing_by_another_user() {
        let memory = memfd_create("ram", MemfdFlags::CLOEXEC).unwrap();
        let file = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd())).unwrap();
        let is_root = geteuid().is_root();
        if is_root {
            fchown(&file, Some(65534), Some(65534)).unwrap();
            assert_eq!(opened_again_by_another_user(&file), [true, true]);
        }
        deny_writing(&file).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.uid(), geteuid().as_raw());
        assert_eq!(metadata.mode() & OTHERS_WRITE, 0);
        if is_root {
            assert_eq!(opened_again_by_another_user(&file), [true, false]);
        }
        // The descriptors of the VM's QEMU can still write.
        rustix::io::write(&memory, b"x").unwrap();
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
