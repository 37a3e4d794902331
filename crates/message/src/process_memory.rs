//! The memory of a peer's process, which the kernel copies from and to (`process_vm_readv(2)`, `process_vm_writev(2)`).
//!
//! The kernel allows that to processes that may trace each other (`ptrace(2)`): in general those of one user, unless Yama, a
//! seccomp filter or another PID namespace forbids it. A process that may do so can read and write the other one anyway, so
//! this gives a peer no right that it did not have. Addresses come from the peer and are those of its own process: a wrong
//! one harms that process only.
//!
//! A process is named by its id, which the kernel assigns again after its end. So this side keeps a descriptor of the process
//! (`pidfd_open(2)`), by which the kernel tells whether it has ended, and looks at it once in [`LOOKS`]. Until an id is
//! assigned again, the kernel assigns all others, which takes far longer.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, geteuid, pidfd_open};
use rustix::time::Timespec;
use window::attach::Channel;

use crate::limits::COPIED_TOGETHER;

/// How often this side looks whether the process has ended, at most.
const LOOKS: Duration = Duration::from_millis(1);

/// The most bytes that are copied in one call. The kernel's limit (`MAX_RW_COUNT`) is slightly below 2 GiB.
const MOST: usize = 1 << 30;

/// The process at the other end of a link.
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    id: Pid,
    process: OwnedFd,
    /// The id of the process that the peer knows this side as.
    own: u32,
    looked: Option<Instant>,
    may_read: bool,
    may_write: bool,
}

impl ProcessMemory {
    /// Returns the process that connected, or that listened, at the other end; `None` if it is in another PID namespace,
    /// belongs to another user, or has ended.
    ///
    /// A process of another user may be one that this process has more rights than: it could execute a program with the
    /// rights of a third user, and give addresses of that program.
    pub(crate) fn of_peer(channel: &Channel) -> Option<Self> {
        let peer = getsockopt(channel, PeerCredentials).ok()?;
        if peer.uid() != geteuid().as_raw() {
            return None;
        }
        // In another PID namespace, the id is 0.
        let id = rustix::process::Pid::from_raw(peer.pid())?;
        Some(Self {
            id: Pid::from_raw(peer.pid()),
            process: pidfd_open(id, PidfdFlags::empty()).ok()?,
            own: std::process::id(),
            looked: None,
            may_read: true,
            may_write: true,
        })
    }

    /// Returns whether this process is at the other end of a channel, too.
    pub(crate) fn is_this_process(channel: &Channel) -> bool {
        let own = std::process::id();
        getsockopt(channel, PeerCredentials).is_ok_and(|peer| u32::try_from(peer.pid()) == Ok(own))
    }

    /// Returns whether the peer finds addresses of this process where it looks for them: not if this is a child of the
    /// process that connected.
    pub(crate) fn peer_knows_this_process(&self) -> bool {
        self.own == std::process::id()
    }

    /// Returns whether this side could read the process until now.
    pub(crate) fn may_read(&self) -> bool {
        self.may_read
    }

    /// Returns whether this side could write the process until now.
    pub(crate) fn may_write(&self) -> bool {
        self.may_write
    }

    /// Fills memory of this process with the bytes of the peer's. False if the kernel refuses, or a part is not mapped there.
    #[must_use]
    pub(crate) fn read(&mut self, parts: &mut [Part<&mut [u8]>]) -> bool {
        let Some(theirs) = self.theirs(parts.iter().map(|part| (part.theirs, part.own.len())))
        else {
            return false;
        };
        let own = parts.iter_mut().map(|part| IoSliceMut::new(part.own));
        let mut own: ArrayVec<_, COPIED_TOGETHER> = own.take(COPIED_TOGETHER).collect();
        let read = process_vm_readv(self.id, &mut own, &theirs);
        self.may_read &= !is_refused(read);
        read == Ok(sum(&theirs))
    }

    /// Writes memory of this process to the peer's. False as [`read`](Self::read).
    #[must_use]
    pub(crate) fn write(&mut self, parts: &[Part<&[u8]>]) -> bool {
        let Some(theirs) = self.theirs(parts.iter().map(|part| (part.theirs, part.own.len())))
        else {
            return false;
        };
        let own = parts.iter().map(|part| IoSlice::new(part.own));
        let own: ArrayVec<_, COPIED_TOGETHER> = own.take(COPIED_TOGETHER).collect();
        let written = process_vm_writev(self.id, &own, &theirs);
        self.may_write &= !is_refused(written);
        written == Ok(sum(&theirs))
    }

    /// Returns memory of the process; `None` if it has ended, or if that is not within an address space, or more than the
    /// kernel copies in a call.
    fn theirs(
        &mut self,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Option<ArrayVec<RemoteIoVec, COPIED_TOGETHER>> {
        let mut theirs = ArrayVec::new();
        for (address, len) in parts {
            let base = usize::try_from(address).ok()?;
            base.checked_add(len)?;
            theirs.try_push(RemoteIoVec { base, len }).ok()?;
        }
        (self.is_alive() && sum(&theirs) <= MOST).then_some(theirs)
    }

    /// Returns whether the process has not ended, as far as this side has looked.
    fn is_alive(&mut self) -> bool {
        let now = Instant::now();
        if self.looked.is_none_or(|looked| now - looked >= LOOKS) {
            self.looked = Some(now);
            let ended = &mut [PollFd::new(&self.process, PollFlags::IN)];
            if poll(ended, Some(&Timespec::default())) != Ok(0) {
                (self.may_read, self.may_write) = (false, false);
            }
        }
        self.may_read || self.may_write
    }
}

/// Memory of this process, and where its copy is in the peer's.
#[derive(Debug)]
pub(crate) struct Part<T> {
    theirs: u64,
    own: T,
}

impl<T> Part<T> {
    /// Memory of this process, and the address of the same length of memory in the peer's.
    pub(crate) fn new(theirs: u64, own: T) -> Self {
        Self { theirs, own }
    }
}

fn sum(parts: &[RemoteIoVec]) -> usize {
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.len))
}

/// Returns whether the kernel will refuse the next call, too: without the right, without the call, or without the process.
fn is_refused(result: nix::Result<usize>) -> bool {
    matches!(
        result,
        Err(Errno::EPERM | Errno::ENOSYS | Errno::ESRCH | Errno::EACCES)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A program at the other end of a channel, which does nothing.
    fn other_process() -> (Child, ProcessMemory) {
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let of_kernel = rustix::process::Pid::from_raw(id.as_raw()).unwrap();
        let process = pidfd_open(of_kernel, PidfdFlags::empty()).unwrap();
        let memory = ProcessMemory {
            id,
            process,
            own: std::process::id(),
            looked: None,
            may_read: true,
            may_write: true,
        };
        (child, memory)
    }

    fn address(bytes: &[u8]) -> u64 {
        bytes.as_ptr().addr() as u64
    }

    #[test]
    fn a_peer_in_this_process_is_read_and_written() {
        let (one, _other) = Channel::pair().unwrap();
        let mut memory = ProcessMemory::of_peer(&one).unwrap();
        let from = [1, 2, 3];
        let mut to = [0; 3];
        assert!(memory.read(&mut [Part::new(address(&from), &mut to[..])]));
        assert_eq!(to, from);
        let to = vec![0; 3];
        assert!(memory.write(&[Part::new(address(&to), &from[..])]));
        assert_eq!(to, from);
    }

    #[test]
    fn memory_that_is_not_mapped_is_not_copied_and_the_process_stays_usable() {
        let (one, _other) = Channel::pair().unwrap();
        let mut memory = ProcessMemory::of_peer(&one).unwrap();
        let mut to = [7; 3];
        for from in [0, 1, u64::MAX, u64::MAX - 1, 1 << 63] {
            assert!(!memory.read(&mut [Part::new(from, &mut to[..])]));
            assert!(!memory.write(&[Part::new(from, &to[..])]));
        }
        assert!(memory.may_read() && memory.may_write());
        assert_eq!(to, [7; 3]);
    }

    #[test]
    fn a_process_that_has_ended_is_not_accessed_under_its_id() {
        let (mut child, mut memory) = other_process();
        let mut to = [0];
        // Alive: it can be accessed, and nothing is mapped at address 1.
        assert!(!memory.read(&mut [Part::new(1, &mut to[..])]));
        assert!(memory.may_read());
        child.kill().unwrap();
        // The id now belongs to a process that lives.
        let _ended = child.wait().unwrap();
        memory.id = Pid::this();
        memory.looked = None;
        let from = [1];
        assert!(!memory.read(&mut [Part::new(address(&from), &mut to[..])]));
        assert!(!memory.write(&[Part::new(address(&from), &to[..])]));
        assert!(!memory.may_read() && !memory.may_write());
    }
}
