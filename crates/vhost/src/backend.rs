//! The state machine of one device, which its front-end's messages drive.
//!
//! [`Backend::receive`] reads a message, and [`Backend::apply`] executes it and replies. They are two
//! steps so that the owner can remove a kick descriptor from its epoll set before `apply` closes it
//! ([`Message::releases`]). A fault from either ends the device.
//!
//! The state machine accepts the order of messages that QEMU sends, which differs from the diagram in
//! the specification: QEMU enables rings before it sets features, and reads the protocol features
//! without acknowledging `VHOST_USER_F_PROTOCOL_FEATURES` first.

mod logging;
mod regions;
mod reply;
mod restore;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use crate::channel::{Channel, Descriptors, Message};
use crate::dirty_log::DirtyLog;
use crate::fault::{Fault, ProtocolFault, RingFault};
use crate::fd_kind::{is_event, is_memory};
use crate::features::{self, protocol};
use crate::limits::{MAX_MEMORY_SLOTS, MAX_RING_SIZE, MAX_VRINGS};
use crate::memory::GuestMemory;
use crate::message::Request;
use crate::offer::Offer;
use crate::raw::ForeignFd;
use crate::sync::{Mutex, MutexGuard};
use crate::vring::Vring;
use reply::Reply;

/// The effect of a message on the owner of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that touches the data path.
    None,
    /// A ring started or stopped, or its kick descriptor changed.
    Ring(usize),
    /// Any ring may have changed.
    AllRings,
    /// The front-end asks the back-end to announce this MAC address (`SEND_RARP`).
    Announce([u8; 6]),
}

/// The back-end of one device. Its owner stores an `S` with each ring.
///
/// Messages need exclusive access (`&mut`). Between messages, several threads may share the back-end:
/// each works on a ring that it has locked ([`vring`](Self::vring)).
#[derive(Debug)]
pub struct Backend<S = ()> {
    channel: Channel,
    offer: Offer,
    features: u64,
    protocol_features: u64,
    status: u64,
    mtu: u16,
    memory: Arc<GuestMemory>,
    vrings: Vec<Mutex<Vring<S>>>,
    /// Queue pairs, up to the highest one that was ever started.
    pairs: usize,
    /// The front-end requested logging of writes (`VHOST_F_LOG_ALL`).
    logging: bool,
    /// The dirty log, once the front-end has sent it.
    log: Option<Arc<DirtyLog>>,
}

impl Message {
    /// Returns the rings, out of `count`, whose kick descriptor [`Backend::apply`] may close for
    /// this message.
    #[must_use]
    pub fn releases(&self, count: usize) -> std::ops::Range<usize> {
        match self.request {
            Request::SetVringKick(ring) => one_of(ring, count),
            _ => self.stops(count),
        }
    }

    /// Returns the rings, out of `count`, that this message stops.
    fn stops(&self, count: usize) -> std::ops::Range<usize> {
        match self.request {
            Request::GetVringBase(ring) => one_of(ring, count),
            Request::ResetOwner | Request::ResetDevice | Request::SetStatus(0) => 0..count,
            _ => 0..0,
        }
    }
}

impl Request {
    /// Returns whether a descriptor is of the kind that this message carries.
    fn accepts_descriptor(&self, descriptor: &ForeignFd) -> bool {
        match self {
            Self::SetVringKick(_)
            | Self::SetVringCall(_)
            | Self::SetVringErr(_)
            | Self::SetLogFd => is_event(descriptor),
            Self::RemMemReg(_) => is_memory(descriptor),
            // `Mapping::new` checks descriptors of memory.
            _ => true,
        }
    }
}

impl<S: Default> Backend<S> {
    /// Creates the back-end of a network card with up to `queue_pairs` pairs on a connected socket.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn new(socket: OwnedFd, queue_pairs: usize) -> Result<Self, Fault> {
        Self::offering(socket, Offer::network_card(queue_pairs))
    }

    /// Creates the back-end of a device that offers this, on a connected socket.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn offering(socket: OwnedFd, offer: Offer) -> Result<Self, Fault> {
        let vrings = offer.vrings.min(MAX_VRINGS);
        Ok(Self {
            channel: Channel::new(socket)?,
            offer,
            features: 0,
            protocol_features: 0,
            status: 0,
            mtu: 0,
            memory: Arc::default(),
            vrings: (0..vrings).map(Vring::new).map(Mutex::new).collect(),
            pairs: 0,
            logging: false,
            log: None,
        })
    }
}

impl<S> Backend<S> {
    /// Returns the virtio features that the driver acknowledged.
    #[inline]
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the MTU that the front-end announced, or 0.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Returns the VM's memory.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Returns the number of queue pairs, up to the highest one that was ever started.
    #[inline]
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Returns the highest possible number of rings. Their order is vhost-user's: receive 0,
    /// transmit 0, receive 1, …
    #[inline]
    #[must_use]
    pub fn vring_count(&self) -> usize {
        self.vrings.len()
    }

    /// Locks a ring, if it exists.
    #[inline]
    #[must_use]
    pub fn vring(&self, ring: usize) -> Option<MutexGuard<'_, Vring<S>>> {
        let vring = self.vrings.get(ring)?;
        // A poisoned lock needs no handling: a thread that panics ends the process.
        Some(vring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a ring, if it exists, without locking: `&mut self` excludes other users.
    #[inline]
    #[must_use]
    pub fn vring_mut(&mut self, ring: usize) -> Option<&mut Vring<S>> {
        self.vrings.get_mut(ring).map(unlocked)
    }

    /// Returns all rings, likewise.
    pub fn vrings_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Vring<S>> {
        self.vrings.iter_mut().map(unlocked)
    }

    /// Returns the next message, or `None` when no complete one has arrived.
    ///
    /// # Errors
    /// The front-end closed the socket or broke the protocol.
    pub fn receive(&mut self) -> Result<Option<Message>, Fault> {
        self.channel.receive()
    }

    /// Executes a message and replies to it.
    ///
    /// # Errors
    /// The message is invalid in this state; the device must be removed.
    pub fn apply(&mut self, message: Message) -> Result<Change, Fault> {
        let Message {
            header,
            request,
            descriptors,
        } = message;
        let (change, reply) = match self.execute(request, descriptors) {
            Ok(done) => done,
            Err(fault) => {
                if self.acknowledges(header.needs_reply()) {
                    // Reports the failure to the front-end. The port ends even if this fails.
                    let _ = self.channel.reply(header.request, &1_u64.to_ne_bytes());
                }
                return Err(fault);
            }
        };
        let acknowledges = self.acknowledges(header.needs_reply());
        reply.send(&self.channel, header.request, acknowledges)?;
        Ok(change)
    }

    fn acknowledges(&self, wanted: bool) -> bool {
        wanted && self.protocol_features & protocol::REPLY_ACK != 0
    }

    fn execute(
        &mut self,
        request: Request,
        descriptors: Descriptors,
    ) -> Result<(Change, Reply), Fault> {
        let done = (Change::None, Reply::Acknowledge(0));
        if !descriptors
            .iter()
            .all(|descriptor| request.accepts_descriptor(descriptor))
        {
            return Err(ProtocolFault::WrongDescriptor.into());
        }
        match request {
            Request::GetFeatures => return Ok((Change::None, Reply::Number(self.offer.features))),
            Request::SetFeatures(acked) => self.set_features(acked)?,
            Request::SetOwner => {}
            Request::ResetOwner => return self.stop_all(),
            Request::SetMemTable(regions) => {
                self.set_memory(&regions, &descriptors)?;
            }
            Request::SetLogBase { size, offset } => {
                self.set_log(size, offset, &descriptors)?;
                // Rings may have waited for the log. This reply is mandatory; it is not the
                // acknowledgement of `REPLY_ACK`.
                return Ok((Change::AllRings, Reply::Number(0)));
            }
            // Front-ends read the log without being notified, so the descriptor is not used.
            Request::SetLogFd => {}
            Request::SetVringNum(ring, size) => {
                self.stopped_ring(8, ring)?
                    .set_size(checked_size(ring, size)?);
            }
            Request::SetVringAddr(ring, addresses) => {
                let memory = Arc::clone(&self.memory);
                let vring = self.ring(ring)?;
                vring
                    .set_addresses(addresses, &memory)
                    .map_err(ring_fault(ring))?;
            }
            Request::SetVringBase(ring, base) => self.stopped_ring(10, ring)?.set_base(base),
            Request::GetVringBase(ring) => {
                let base = self.ring(ring)?.stop();
                self.drop_log_when_stopped()?;
                return Ok((Change::Ring(ring), Reply::State(ring, base)));
            }
            Request::SetVringKick(ring) => {
                self.start(ring, descriptors)?;
                return Ok((Change::Ring(ring), Reply::Acknowledge(0)));
            }
            Request::SetVringCall(ring) => {
                let call = descriptors.into_iter().next().map(ForeignFd::into_inner);
                self.ring(ring)?.set_call(call).map_err(ring_fault(ring))?;
            }
            // An error ends the port and closes the socket, so the error descriptor is not used.
            Request::SetVringErr(ring) => drop(self.ring(ring)?),
            Request::GetProtocolFeatures => {
                return Ok((Change::None, Reply::Number(self.offer.protocol_features)));
            }
            Request::SetProtocolFeatures(acked) => {
                self.protocol_features = subset(acked, self.offer.protocol_features)?;
            }
            Request::GetQueueNum => {
                return Ok((Change::None, Reply::Number(self.vrings.len() as u64 / 2)));
            }
            Request::SetVringEnable(ring, enabled) => {
                self.ring(ring)?.set_enabled(enabled);
                return Ok((Change::Ring(ring), Reply::Acknowledge(0)));
            }
            Request::SendRarp(mac) => return Ok((Change::Announce(mac), Reply::Acknowledge(0))),
            Request::SetMtu(mtu) => return Ok((Change::None, self.set_mtu(mtu))),
            Request::GetConfig {
                offset,
                size,
                flags,
            } => {
                if self.protocol_features & protocol::CONFIG == 0 {
                    return Err(ProtocolFault::NotNegotiated(24).into());
                }
                let reply = Reply::config(&self.offer, [offset, size, flags]);
                return Ok((Change::None, reply));
            }
            Request::ResetDevice => return self.stop_all(),
            Request::GetMaxMemSlots => {
                return Ok((Change::None, Reply::Number(MAX_MEMORY_SLOTS as u64)));
            }
            Request::AddMemReg(info) => self.add_region(info, &descriptors)?,
            Request::RemMemReg(info) => self.replace_memory(self.memory.without(&info)?)?,
            Request::SetStatus(status) => {
                self.status = status;
                if status == 0 {
                    return self.stop_all();
                }
            }
            Request::GetStatus => return Ok((Change::None, Reply::Number(self.status))),
        }
        Ok(done)
    }

    fn set_features(&mut self, acked: u64) -> Result<(), Fault> {
        let acked = subset(acked, self.offer.features)?;
        self.features = acked & !features::LOG_ALL;
        self.set_logging(acked & features::LOG_ALL != 0)?;
        // Without the protocol-feature bit there is no message that enables a ring.
        if acked & features::PROTOCOL_FEATURES == 0 {
            for vring in self.vrings_mut() {
                vring.set_enabled(true);
            }
        }
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u64) -> Reply {
        // 5.1.4.1: at least 68, the smallest MTU of IPv4.
        match u16::try_from(mtu) {
            Ok(mtu) if mtu >= 68 => {
                self.mtu = mtu;
                Reply::Acknowledge(0)
            }
            _ => Reply::Acknowledge(1),
        }
    }

    fn start(&mut self, ring: usize, descriptors: Descriptors) -> Result<(), Fault> {
        let (memory, features) = (Arc::clone(&self.memory), self.features);
        let kick = descriptors.into_iter().next().map(ForeignFd::into_inner);
        self.ring(ring)?
            .start(kick, &memory, features)
            .map_err(ring_fault(ring))?;
        self.pairs = self.pairs.max(ring / 2 + 1);
        Ok(())
    }

    fn stop_all(&mut self) -> Result<(Change, Reply), Fault> {
        for vring in self.vrings_mut() {
            vring.stop();
        }
        self.drop_log_when_stopped()?;
        Ok((Change::AllRings, Reply::Acknowledge(0)))
    }

    fn ring(&mut self, ring: usize) -> Result<&mut Vring<S>, ProtocolFault> {
        let number = u32::try_from(ring).unwrap_or(u32::MAX);
        self.vring_mut(ring)
            .ok_or(ProtocolFault::RingNumber(number))
    }

    fn stopped_ring(&mut self, request: u32, ring: usize) -> Result<&mut Vring<S>, ProtocolFault> {
        let vring = self.ring(ring)?;
        if vring.is_running() {
            return Err(ProtocolFault::Running { request, ring });
        }
        Ok(vring)
    }
}

fn unlocked<T>(lock: &mut Mutex<T>) -> &mut T {
    lock.get_mut().unwrap_or_else(PoisonError::into_inner)
}

impl<S> AsFd for Backend<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Returns the range of this ring; an empty range if the number is not below `count`.
fn one_of(ring: usize, count: usize) -> std::ops::Range<usize> {
    ring.min(count)..(ring + 1).min(count)
}

fn subset(acked: u64, offered: u64) -> Result<u64, ProtocolFault> {
    let extra = acked & !offered;
    if extra == 0 {
        Ok(acked)
    } else {
        Err(ProtocolFault::Features(extra))
    }
}

fn checked_size(ring: usize, size: u32) -> Result<u32, Fault> {
    if size.is_power_of_two() && size <= MAX_RING_SIZE {
        Ok(size)
    } else {
        Err(ring_fault(ring)(RingFault::Memory(
            crate::raw::RingError::Size(size),
        )))
    }
}

/// Returns a function that adds the ring's number to a [`RingFault`].
pub fn ring_fault(ring: usize) -> impl Fn(RingFault) -> Fault {
    move |fault| Fault::Ring { ring, fault }
}
