//! After a window is unplugged: QEMU (10.0.2) goes on using the numbers of two descriptors that it
//! has closed, see `ivshmem_exit()` in its `hw/misc/ivshmem.c`.
//!
//! - Without KVM's irqfd it keeps a handler for the number of the device's own doorbell. The
//!   handler's memory is freed, so whatever readable file gets that number next ends QEMU.
//! - It closes the number of the window's memory a second time, some moments later.
//!
//! Both are made harmless with stock commands. A new descriptor gets the lowest free number, so
//! sockets that no process writes to are handed over (`getfd`) until they have all the numbers that
//! were closed. What has the number of the window's memory stays, to be closed. The others become
//! network back-ends of type `socket`: each puts its own handler in the old one's place, and takes
//! that away when it is removed. What remains is the moment between QEMU's close and the first
//! `getfd`, in which QEMU opens nothing of itself.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde_json::json;

use crate::qmp::Qmp;
use crate::{DirectError, io};

/// More sockets than this do not help: another part of QEMU has the numbers.
const MOST: usize = 64;

/// Numbers of a process's descriptors: what an `ivshmem-doorbell` device has is among them.
#[derive(Debug)]
pub(crate) struct Numbers {
    events: BTreeSet<u32>,
    memory: BTreeSet<u32>,
}

impl Numbers {
    pub(crate) fn of(process: i32) -> Result<Self, DirectError> {
        Ok(Self {
            events: descriptors(process, |link| link == "anon_inode:[eventfd]")?,
            memory: descriptors(process, |link| link.starts_with("/memfd:"))?,
        })
    }
}

/// A name that no process has used for anything.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

fn descriptors(process: i32, is_it: impl Fn(&str) -> bool) -> Result<BTreeSet<u32>, DirectError> {
    let folder = format!("/proc/{process}/fd");
    let entries = io(fs::read_dir(&folder), || format!("look into {folder}"))?;
    let numbers = entries.flatten().filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        is_it(&link.to_string_lossy()).then_some(())?;
        entry.file_name().to_str()?.parse().ok()
    });
    Ok(numbers.collect())
}

/// Make the numbers harmless that QEMU had `before` and has closed since.
pub(crate) fn apply(qmp: &mut Qmp, process: i32, before: &Numbers) -> Result<(), DirectError> {
    let open = |process| descriptors(process, |_| true);
    let now = open(process)?;
    let events: BTreeSet<_> = before.events.difference(&now).collect();
    let memory: BTreeSet<_> = before.memory.difference(&now).collect();
    let mut missing: BTreeSet<_> = events.union(&memory).copied().collect();
    let (mut handlers, mut spare) = (Vec::new(), Vec::new());
    for _ in 0..MOST {
        if missing.is_empty() {
            break;
        }
        let known = open(process)?;
        let name = unique("vicinity-mend");
        qmp.give(&name, silent()?.as_fd())?;
        let new = open(process)?;
        missing.retain(|number| !new.contains(number));
        let mut took = new.difference(&known);
        match took.next() {
            Some(number) if events.contains(number) => handlers.push(name),
            Some(number) if memory.contains(number) => {}
            _ => spare.push(name),
        }
    }
    for name in &handlers {
        let backend = json!({"type": "socket", "id": name, "fd": name});
        qmp.execute("netdev_add", &backend)?;
        qmp.execute("netdev_del", &json!({"id": name}))?;
    }
    for name in &spare {
        qmp.execute("closefd", &json!({"fdname": name}))?;
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(DirectError::Monitor("getfd".to_owned())),
    }
}

/// A socket that never has anything to read.
fn silent() -> Result<OwnedFd, DirectError> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    io(socket, || "make a socket".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_a_device_may_have_is_found_by_its_number() {
        let me = i32::try_from(std::process::id()).unwrap();
        let bell = window::ivshmem::Doorbell::new().unwrap();
        let number = u32::try_from(bell.as_fd().as_raw_fd()).unwrap();
        let numbers = Numbers::of(me).unwrap();
        assert!(numbers.events.contains(&number) && !numbers.memory.contains(&number));
        let socket = silent().unwrap();
        let number = u32::try_from(socket.as_raw_fd()).unwrap();
        assert!(!Numbers::of(me).unwrap().events.contains(&number));
        assert_ne!(unique("a"), unique("a"));
    }
}
