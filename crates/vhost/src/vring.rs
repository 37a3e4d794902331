//! A ring as the front-end sets it up, message by message, until it runs.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::chain::Direction;
use crate::dirty_log::UsedLog;
use crate::fault::RingFault;
use crate::memory::GuestMemory;
use crate::message::RingAddresses;
use crate::raw::RingMemory;
use crate::ring::Ring;

/// How the driver wants work announced.
#[derive(Debug)]
pub enum Notifier {
    /// Nothing was said yet, or the ring is stopped.
    Unset,
    /// It polls, or wants us to poll.
    Polling,
    /// Through this event descriptor.
    Event(OwnedFd),
}

impl Notifier {
    fn from_message(descriptor: Option<OwnedFd>) -> Self {
        descriptor.map_or(Self::Polling, Self::Event)
    }
}

/// One ring of a device, and what its owner keeps with it.
#[derive(Debug)]
pub struct Vring<S = ()> {
    direction: Direction,
    size: Option<u32>,
    addresses: Option<RingAddresses>,
    base: u16,
    enabled: bool,
    /// It waits for the dirty log that its writes go into.
    waits_for_log: bool,
    kick: Notifier,
    call: Notifier,
    running: Option<Ring>,
    /// What the owner knows of the ring: whoever works on one works on the other.
    pub state: S,
}

impl<S: Default> Vring<S> {
    /// A ring nobody set up; even numbers receive, odd ones transmit (virtio 1.3, 5.1.2).
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
    /// The running ring, if it is started and enabled and need not wait for a dirty log.
    #[inline]
    #[must_use]
    pub fn active(&self) -> Option<&Ring> {
        self.running.as_ref().filter(|_| self.carries_traffic())
    }

    /// The same, to be worked on.
    #[inline]
    #[must_use]
    pub fn active_mut(&mut self) -> Option<&mut Ring> {
        let carries = self.carries_traffic();
        self.running.as_mut().filter(|_| carries)
    }

    /// The same, and the owner's part, each to be worked on.
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

    /// The running ring, enabled or not: for handing back what was taken.
    #[inline]
    #[must_use]
    pub fn running_mut(&mut self) -> Option<&mut Ring> {
        self.running.as_mut()
    }

    /// Whether the ring is started, enabled or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// How the driver tells us of work.
    #[must_use]
    pub fn kick(&self) -> &Notifier {
        &self.kick
    }

    /// Call the driver. A driver that polls, or whose counter is full, needs no call.
    ///
    /// # Errors
    /// The descriptor is none that can be written to, or was made to block.
    pub fn call(&self) -> Result<(), RingFault> {
        let Notifier::Event(event) = &self.call else {
            return Ok(());
        };
        // syscalls: write
        match rustix::io::write(event, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // It was full, waited for room, and the thread's alarm went off.
            Err(Errno::INTR) => Err(RingFault::Blocks),
            Err(_) => Err(RingFault::Notifier("call")),
        }
    }

    pub(crate) fn set_size(&mut self, size: u32) {
        self.size = Some(size);
    }

    pub(crate) fn set_base(&mut self, base: u16) {
        self.base = base;
    }

    pub(crate) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    pub(crate) fn set_waits_for_log(&mut self, waits: bool) {
        self.waits_for_log = waits;
    }

    /// Use another call descriptor, and signal it once: frames that were delivered since the ring
    /// started, or before the last back-end ended, may have signalled nobody. QEMU starts a ring by
    /// `SET_VRING_KICK` and sends `SET_VRING_CALL` after it (`vhost_virtqueue_start` in its
    /// `hw/virtio/vhost.c`). With `VIRTIO_F_EVENT_IDX` no later frame signals the guest either, as the
    /// used index has passed `used_event` already. A driver must expect a call without work
    /// (virtio 1.3, 2.7.7).
    ///
    /// The front-end shares the descriptor with us and decides what is in it: a full one must not
    /// make us wait. (It can undo this, which is a fault.)
    pub(crate) fn set_call(&mut self, descriptor: Option<OwnedFd>) -> Result<(), RingFault> {
        if let Some(event) = &descriptor {
            // syscalls: ioctl
            rustix::io::ioctl_fionbio(event, true).map_err(|_| RingFault::Notifier("call"))?;
        }
        self.call = Notifier::from_message(descriptor);
        self.call()
    }

    /// New addresses; a running ring moves there at once.
    pub(crate) fn set_addresses(
        &mut self,
        addresses: RingAddresses,
        memory: &GuestMemory,
    ) -> Result<(), RingFault> {
        self.addresses = Some(addresses);
        self.relocate(memory)
    }

    /// Find the parts of a running ring again, after a change of memory or addresses.
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

    /// Start the ring, as a kick message does.
    pub(crate) fn start(
        &mut self,
        descriptor: Option<OwnedFd>,
        memory: &GuestMemory,
        features: u64,
    ) -> Result<(), RingFault> {
        self.kick = Notifier::from_message(descriptor);
        if self.running.is_none() {
            let located = self.locate(memory)?;
            self.running = Some(Ring::new(located, self.direction, features, self.base));
        }
        Ok(())
    }

    /// Stop the ring and say where it can go on. Its descriptors are closed.
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
