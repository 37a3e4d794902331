//! One virtqueue of the device: the library's [`VringMutex`] with additional checks.
//!
//! - Kick and call descriptors must be eventfds. Reading, writing or polling another kind of descriptor from QEMU could
//!   block until QEMU acts.
//! - Both are set to non-blocking mode, because QEMU reads a kick eventfd itself while it stops a queue.
//! - A new call eventfd is signalled once. QEMU may replace it at any time (with vhost-user's `SET_VRING_CALL`), and the
//!   driver then receives interrupts from the new one only, so a call on the old one during the replacement would be lost.
//!   A driver handles a spurious interrupt without harm (virtio 1.3, 2.7.7).

use std::fs::File;
use std::io;

use rustix::io::ioctl_fionbio;
use vhost::fd_kind::is_event;
use vhost_user_backend::{VringMutex, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::Error;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

pub(super) type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// A virtqueue of the device.
#[derive(Clone)]
pub(super) struct Ring(VringMutex<Memory>);

impl<'a> VringStateGuard<'a, Memory> for Ring {
    type G = <VringMutex<Memory> as VringStateGuard<'a, Memory>>::G;
}

impl<'a> VringStateMutGuard<'a, Memory> for Ring {
    type G = <VringMutex<Memory> as VringStateMutGuard<'a, Memory>>::G;
}

/// Returns the file in non-blocking mode if it is an eventfd; otherwise logs a warning and returns `None`.
fn eventfd(use_of_it: &str, file: Option<File>) -> Option<File> {
    let file = file?;
    if !is_event(&file) {
        tracing::warn!(
            "ignored a {use_of_it} descriptor of the VM's QEMU, because it is not an eventfd"
        );
        return None;
    }
    // syscalls: ioctl
    ioctl_fionbio(&file, true).is_ok().then_some(file)
}

impl VringT<Memory> for Ring {
    fn new(memory: Memory, max_queue_size: u16) -> Result<Self, Error> {
        VringMutex::new(memory, max_queue_size).map(Self)
    }

    fn set_kick(&self, file: Option<File>) {
        self.0.set_kick(eventfd("kick", file));
    }

    fn read_kick(&self) -> io::Result<bool> {
        match self.0.read_kick() {
            // QEMU has read the eventfd first.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(self.get_ref().is_enabled())
            }
            other => other,
        }
    }

    fn set_call(&self, file: Option<File>) {
        self.0.set_call(eventfd("call", file));
        if let Err(error) = self.signal_used_queue() {
            tracing::debug!("cannot interrupt the guest: {error}");
        }
    }

    fn signal_used_queue(&self) -> io::Result<()> {
        match self.0.signal_used_queue() {
            // The counter is full, so a signal is pending already.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    // All other methods delegate to the library.

    fn get_ref(&self) -> <Self as VringStateGuard<'_, Memory>>::G {
        self.0.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, Memory>>::G {
        self.0.get_mut()
    }

    fn add_used(&self, desc_index: u16, len: u32) -> Result<(), Error> {
        self.0.add_used(desc_index, len)
    }

    fn enable_notification(&self) -> Result<bool, Error> {
        self.0.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), Error> {
        self.0.disable_notification()
    }

    fn needs_notification(&self) -> Result<bool, Error> {
        self.0.needs_notification()
    }

    fn set_enabled(&self, enabled: bool) {
        self.0.set_enabled(enabled);
    }

    fn set_queue_info(
        &self,
        desc_table: u64,
        avail_ring: u64,
        used_ring: u64,
    ) -> Result<(), Error> {
        self.0.set_queue_info(desc_table, avail_ring, used_ring)
    }

    fn queue_next_avail(&self) -> u16 {
        self.0.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.0.set_queue_next_avail(base);
    }

    fn set_queue_next_used(&self, index: u16) {
        self.0.set_queue_next_used(index);
    }

    fn queue_used_idx(&self) -> Result<u16, Error> {
        self.0.queue_used_idx()
    }

    fn set_queue_size(&self, size: u16) {
        self.0.set_queue_size(size);
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.0.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        self.0.set_queue_ready(ready);
    }

    fn set_err(&self, file: Option<File>) {
        // The device never reports an error through this descriptor.
        drop(file);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, epoll, eventfd};
    use rustix::io::{Errno, read, write};

    use super::*;

    fn ring() -> Ring {
        Ring::new(Memory::new(GuestMemoryMmap::new()), 16).unwrap()
    }

    /// Returns an eventfd as QEMU's `event_notifier_init` creates it, and QEMU's own copy.
    fn notifier(flags: EventfdFlags) -> (Option<File>, File) {
        let file = File::from(eventfd(0, flags | EventfdFlags::CLOEXEC).unwrap());
        (Some(file.try_clone().unwrap()), file)
    }

    fn count(event: &File) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        read(event, &mut bytes).map(|_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn vhost_user_set_vring_call_signals_the_new_descriptor_once() {
        let ring = ring();
        let (sent, first) = notifier(EventfdFlags::NONBLOCK);
        ring.set_call(sent);
        assert_eq!(count(&first), Ok(1));
        ring.signal_used_queue().unwrap();
        // QEMU replaces the eventfd after a call on the first one.
        let (sent, second) = notifier(EventfdFlags::NONBLOCK);
        ring.set_call(sent);
        assert_eq!((count(&first), count(&second)), (Ok(1), Ok(1)));
        assert_eq!(count(&second), Err(Errno::AGAIN));
        ring.set_call(None);
        ring.signal_used_queue().unwrap();
        assert_eq!(count(&second), Err(Errno::AGAIN));
    }

    #[test]
    fn a_full_call_and_an_empty_kick_do_not_block() {
        let ring = ring();
        ring.set_enabled(true);
        let (sent, call) = notifier(EventfdFlags::empty());
        ring.set_call(sent);
        write(&call, &(u64::MAX - 2).to_ne_bytes()).unwrap();
        ring.signal_used_queue().unwrap();
        let (sent, kick) = notifier(EventfdFlags::empty());
        ring.set_kick(sent);
        assert!(ring.read_kick().unwrap());
        write(&kick, &1_u64.to_ne_bytes()).unwrap();
        assert!(ring.read_kick().unwrap());
        assert_eq!(count(&kick), Err(Errno::AGAIN));
    }

    #[test]
    fn descriptors_that_are_no_eventfds_are_ignored() {
        let ring = ring();
        for _ in 0..2 {
            let other = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            ring.set_kick(Some(File::from(other.try_clone().unwrap())));
            ring.set_call(Some(File::from(other)));
            let state = ring.get_ref();
            assert!(state.get_kick().is_none() && state.get_call().is_none());
            drop(state);
            // In the second round, the valid eventfd of the first round is replaced, too.
            let (kick, _) = notifier(EventfdFlags::NONBLOCK);
            ring.set_kick(kick);
            assert!(ring.get_ref().get_kick().is_some());
        }
    }
}
