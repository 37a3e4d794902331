//! The configuration of a ring, which the front-end sets message by message until it starts the ring.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::chain::Direction;
use crate::dirty_log::UsedLog;
use crate::fault::RingFault;
use crate::memory::GuestMemory;
use crate::message::RingAddresses;
use crate::raw::RingMemory;
use crate::ring::Ring;

/// How one side of a ring notifies the other.
#[derive(Debug)]
pub enum Notifier {
    /// The front-end has not set it, or the ring is stopped.
    Unset,
    /// The notified side polls.
    Polling,
    /// Through this eventfd.
    Event(OwnedFd),
}

impl Notifier {
    fn from_message(descriptor: Option<OwnedFd>) -> Self {
        descriptor.map_or(Self::Polling, Self::Event)
    }
}

/// One ring of a device, and the state that the device's owner stores with it.
#[derive(Debug)]
pub struct Vring<S = ()> {
    direction: Direction,
    size: Option<u32>,
    addresses: Option<RingAddresses>,
    base: u16,
    /// The ring continues at its used index when it starts, whatever `base` is.
    resumes: bool,
    enabled: bool,
    /// The ring carries no traffic until the front-end sends the dirty log.
    waits_for_log: bool,
    kick: Notifier,
    call: Notifier,
    running: Option<Ring>,
    /// The owner's state of the ring, under the same lock.
    pub state: S,
}

impl<S: Default> Vring<S> {
    /// Creates a ring without configuration. Even numbers are receive rings, odd numbers transmit
    /// rings (virtio 1.3, 5.1.2).
    #[must_use]
    pub fn new(number: usize) -> Self {
        let direction = if number % 2 == 0 {
            Direction::Writable
        } else {
            Direction::Readable
        };
        Self {
            direction,
            size: None,
            addresses: None,
            base: 0,
            resumes: false,
            enabled: false,
            waits_for_log: false,
            kick: Notifier::Unset,
            call: Notifier::Unset,
            running: None,
            state: S::default(),
        }
    }
}

impl<S> Vring<S> {
    /// Returns the ring, if it is started and enabled and does not wait for a dirty log.
    #[inline]
    #[must_use]
    pub fn active(&self) -> Option<&Ring> {
        self.running.as_ref().filter(|_| self.carries_traffic())
    }

    /// Returns the same ring for use by the device.
    #[inline]
    #[must_use]
    pub fn active_mut(&mut self) -> Option<&mut Ring> {
        let carries = self.carries_traffic();
        self.running.as_mut().filter(|_| carries)
    }

    /// Returns the same ring, and the owner's state.
    #[inline]
    #[must_use]
    pub fn parts_mut(&mut self) -> (Option<&mut Ring>, &mut S) {
        let carries = self.carries_traffic();
        let ring = self.running.as_mut().filter(|_| carries);
        (ring, &mut self.state)
    }

    #[inline]
    fn carries_traffic(&self) -> bool {
        self.enabled & !self.waits_for_log
    }

    /// Returns the started ring, enabled or not, so that chains that were taken can be returned.
    #[inline]
    #[must_use]
    pub fn running_mut(&mut self) -> Option<&mut Ring> {
        self.running.as_mut()
    }

    /// Returns whether the ring is started, enabled or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns how the driver notifies the device.
    #[must_use]
    pub fn kick(&self) -> &Notifier {
        &self.kick
    }

    /// Calls the driver. A driver that polls, or whose eventfd counter is full, needs no call.
    ///
    /// # Errors
    /// The descriptor cannot be written to, or the front-end made it block.
    pub fn call(&self) -> Result<(), RingFault> {
        let Notifier::Event(event) = &self.call else {
            return Ok(());
        };
        // syscalls: write
        match rustix::io::write(event, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // The counter was full, the write blocked, and the thread's alarm interrupted it.
            Err(Errno::INTR) => Err(RingFault::Blocks),
            Err(_) => Err(RingFault::Notifier("call")),
        }
    }

    pub(crate) fn set_size(&mut self, size: u32) {
        self.size = Some(size);
    }

    pub(crate) fn set_base(&mut self, base: u16) {
        (self.base, self.resumes) = (base, false);
    }

    /// Makes the next start of the ring continue where another process left it. Chains return in
    /// order, so the used index says which ones are completed.
    pub(crate) fn resume_at_used_index(&mut self) {
        self.resumes = true;
    }

    pub(crate) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    pub(crate) fn set_waits_for_log(&mut self, waits: bool) {
        self.waits_for_log = waits;
    }

    /// Sets another call descriptor, and signals it once. Frames that were delivered since the ring
    /// started, or before the previous back-end ended, may have had no descriptor to signal: QEMU
    /// starts a ring by `SET_VRING_KICK` and sends `SET_VRING_CALL` after it (`vhost_virtqueue_start`
    /// in its `hw/virtio/vhost.c`). With `VIRTIO_F_EVENT_IDX` no later frame signals the guest either,
    /// because the used index has passed `used_event` already. A driver must expect a call without
    /// work (virtio 1.3, 2.7.7).
    ///
    /// The front-end shares the descriptor and can fill its counter. The descriptor is made
    /// non-blocking, so that a full counter does not block the worker. (If the front-end makes it
    /// blocking again, [`call`](Self::call) reports a fault.)
    pub(crate) fn set_call(&mut self, descriptor: Option<OwnedFd>) -> Result<(), RingFault> {
        if let Some(event) = &descriptor {
            // syscalls: ioctl
            rustix::io::ioctl_fionbio(event, true).map_err(|_| RingFault::Notifier("call"))?;
        }
        self.call = Notifier::from_message(descriptor);
        self.call()
    }

    /// Sets new addresses; a running ring moves to them at once.
    pub(crate) fn set_addresses(
        &mut self,
        addresses: RingAddresses,
        memory: &GuestMemory,
    ) -> Result<(), RingFault> {
        self.addresses = Some(addresses);
        self.relocate(memory)
    }

    /// Locates the parts of a running ring again, after a change of memory or addresses.
    pub(crate) fn relocate(&mut self, memory: &GuestMemory) -> Result<(), RingFault> {
        if self.running.is_none() {
            return Ok(());
        }
        let located = self.locate(memory)?;
        if let Some(ring) = &mut self.running {
            ring.relocate(located);
        }
        Ok(())
    }

    /// Starts the ring, as `SET_VRING_KICK` does.
    pub(crate) fn start(
        &mut self,
        descriptor: Option<OwnedFd>,
        memory: &GuestMemory,
        features: u64,
    ) -> Result<(), RingFault> {
        self.kick = Notifier::from_message(descriptor);
        if self.running.is_none() {
            let located = self.locate(memory)?;
            if self.resumes {
                self.base = located.used_index();
            }
            self.resumes = false;
            self.running = Some(Ring::new(located, self.direction, features, self.base));
        }
        Ok(())
    }

    /// Stops the ring, closes its descriptors, and returns the position at which it can resume.
    pub(crate) fn stop(&mut self) -> u16 {
        if let Some(ring) = self.running.take() {
            self.base = ring.next_available();
        }
        self.kick = Notifier::Unset;
        self.call = Notifier::Unset;
        self.base
    }

    fn locate(&self, memory: &GuestMemory) -> Result<RingMemory, RingFault> {
        let (Some(size), Some(addresses)) = (self.size, self.addresses) else {
            return Err(RingFault::NotConfigured);
        };
        let [descriptors, available, used] = RingMemory::part_lengths(size);
        let part = |name, address, length| {
            memory
                .locate_user(address, length)
                .ok_or(RingFault::Outside(name))
        };
        let parts = [
            part("descriptor table", addresses.descriptors, descriptors)?,
            part("available ring", addresses.available, available)?,
            part("used ring", addresses.used, used)?,
        ];
        let log = match (addresses.log, memory.log()) {
            (Some(address), Some(log)) => {
                let past = RingFault::NotLogged(address);
                Some(UsedLog::new(log, address, used).ok_or(past)?)
            }
            _ => None,
        };
        Ok(RingMemory::new(size, parts)?.logged_by(log))
    }
}
