//! Works around two faults of QEMU: after a window is unplugged, QEMU continues to use the numbers
//! of descriptors that it has closed. See `ivshmem_exit()` in its `hw/misc/ivshmem-pci.c`.
//!
//! - Without KVM's irqfd, QEMU (10.0.2) keeps a handler for the number of the device's own doorbell. QEMU has
//!   freed the handler's memory, so QEMU ends if the next file with this number is readable.
//! - QEMU closes the window's memory when the device is removed, if its BAR is mapped then, and again some 100 ms later,
//!   with the RAM block. Released versions unmap the BAR before (`pci_qdev_unrealize()` in `hw/pci/pci.c`), so they
//!   close it once. A change that was proposed to QEMU in 2025 ("pci: Do not delete the subregions") ends that.
//!
//! This module makes both harmless with QEMU's ordinary monitor commands. The kernel gives a new
//! descriptor the lowest free number. So the module passes sockets to which no process writes to QEMU
//! (`getfd`), until these sockets occupy all numbers that QEMU closed. The socket with the number of
//! the window's memory remains open for QEMU's second close. The others become network
//! back-ends of type `socket`: each replaces the old handler with its own, and removes its own handler
//! when the back-end is removed.
//!
//! Between QEMU's close and the first `getfd` the numbers are unprotected. QEMU opens descriptors of its own accord
//! when it connects a NIC. So devices stay plugged in while a NIC waits for its daemon to be started again (`may_unplug`
//! in `member.rs`), and a daemon that stops disconnects the NICs after its groups have unplugged their devices.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde_json::json;

use crate::qmp::Qmp;
use crate::{DirectError, control, io};

/// The maximum number of sockets to pass. If these do not occupy the closed numbers, more sockets do
/// not help, because another part of QEMU uses the numbers.
const MAX_FDS: usize = 64;

/// The numbers of those descriptors of a process that an `ivshmem-doorbell` device can use: eventfds
/// and control windows.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    events: BTreeSet<u32>,
    memory: BTreeSet<u32>,
}

impl Numbers {
    /// Adds the numbers that the process has now.
    pub(crate) fn add_those_of(&mut self, process: i32) -> Result<(), DirectError> {
        let events = descriptors(process, |link| link == "anon_inode:[eventfd]")?;
        self.events.extend(events);
        self.memory.extend(descriptors(process, is_window)?);
        Ok(())
    }
}

/// Returns a name that is unique among all processes of this host.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// Whether a descriptor's link in `/proc` names a control window. (A view's memory is closed once.)
fn is_window(link: &str) -> bool {
    let name = link.strip_prefix("/memfd:");
    name.is_some_and(|name| name.starts_with(control::FILE))
}

fn descriptors(process: i32, is_it: impl Fn(&str) -> bool) -> Result<BTreeSet<u32>, DirectError> {
    let folder = format!("/proc/{process}/fd");
    let entries = io(fs::read_dir(&folder), || format!("read {folder}"))?;
    let numbers = entries.flatten().filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        is_it(&link.to_string_lossy()).then_some(())?;
        entry.file_name().to_str()?.parse().ok()
    });
    Ok(numbers.collect())
}

/// Makes those descriptor numbers harmless that QEMU had open `before` and has closed since.
pub(crate) fn apply(qmp: &mut Qmp, process: i32, before: &Numbers) -> Result<(), DirectError> {
    let open = |process| descriptors(process, |_| true);
    let now = open(process)?;
    let events: BTreeSet<_> = before.events.difference(&now).collect();
    let memory: BTreeSet<_> = before.memory.difference(&now).collect();
    let mut missing: BTreeSet<_> = events.union(&memory).copied().collect();
    let (mut handlers, mut spare) = (Vec::new(), Vec::new());
    for _ in 0..MAX_FDS {
        if missing.is_empty() {
            break;
        }
        let known = open(process)?;
        let name = unique("vicinity-mend");
        qmp.pass_fd(&name, unreadable_socket()?.as_fd())?;
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

/// Returns a socket that never becomes readable.
fn unreadable_socket() -> Result<OwnedFd, DirectError> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    io(socket, || "create a socket".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, BorrowedFd};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_a_device_may_have_is_found_by_its_number() {
        let me = i32::try_from(std::process::id()).unwrap();
        let number = |fd: BorrowedFd<'_>| u32::try_from(fd.as_raw_fd()).unwrap();
        let bell = window::ivshmem::Doorbell::new().unwrap();
        let control = control::Control::new().unwrap();
        let view = memfd_create("memory-backend-memfd", MemfdFlags::CLOEXEC).unwrap();
        let socket = unreadable_socket().unwrap();
        let mut numbers = Numbers::default();
        numbers.add_those_of(me).unwrap();
        let is_found = |fd: BorrowedFd<'_>| {
            let number = number(fd);
            (
                numbers.events.contains(&number),
                numbers.memory.contains(&number),
            )
        };
        assert_eq!(is_found(bell.as_fd()), (true, false));
        assert_eq!(is_found(control.as_fd()), (false, true));
        assert_eq!(is_found(view.as_fd()), (false, false));
        assert_eq!(is_found(socket.as_fd()), (false, false));
        assert_ne!(unique("a"), unique("a"));
    }
}
