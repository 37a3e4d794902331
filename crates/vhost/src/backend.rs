//! The state of one device, driven by its front-end's messages.
//!
//! [`Backend::receive`] reads a message, [`Backend::apply`] carries it out and answers it. They
//! are two steps so that the owner can stop watching a kick descriptor before it is closed
//! ([`Message::releases`]). A fault from either ends the device.
//!
//! The order of messages is what QEMU does, not what the specification draws: rings are enabled
//! before features are set, protocol features are asked for without being acknowledged first.

mod logging;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use crate::channel::{Channel, Descriptors, Message};
use crate::descriptor::{is_event, is_memory};
use crate::dirty_log::DirtyLog;
use crate::fault::{Fault, ProtocolFault, RingFault};
use crate::features::{self, protocol};
use crate::limits::{MAX_MEMORY_SLOTS, MAX_RING_SIZE, MAX_VRINGS};
use crate::memory::{GuestMemory, RegionInfo};
use crate::message::Request;
use crate::raw::Foreign;
use crate::sync::{Mutex, MutexGuard};
use crate::vring::Vring;

/// What changed for the owner of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that touches the data path.
    None,
    /// A ring started, stopped, or has another kick descriptor.
    Ring(usize),
    /// Every ring may have.
    AllRings,
    /// The front-end wants this MAC announced on its behalf.
    Announce([u8; 6]),
}

/// The back-end of one device, whose owner keeps an `S` with each ring.
///
/// Messages change it through `&mut`, when nobody else has it. Between them, any thread may work
/// on a ring that it has locked ([`vring`](Self::vring)).
#[derive(Debug)]
pub struct Backend<S = ()> {
    channel: Channel,
    max_vrings: usize,
    features: u64,
    protocol_features: u64,
    status: u64,
    mtu: u16,
    memory: Arc<GuestMemory>,
    vrings: Vec<Mutex<Vring<S>>>,
    /// Queue pairs up to the last one that was ever started.
    pairs: usize,
    /// The front-end wants writes logged (`VHOST_F_LOG_ALL`).
    logging: bool,
    /// Where, once it has said so.
    log: Option<Arc<DirtyLog>>,
}

impl Message {
    /// The rings, out of `count`, whose kick descriptor may be closed when this message is
    /// applied.
    #[must_use]
    pub fn releases(&self, count: usize) -> std::ops::Range<usize> {
        match self.request {
            Request::SetVringKick(ring) => one_of(ring, count),
            _ => self.stops(count),
        }
    }

    /// The rings, out of `count`, that stop when this message is applied.
    fn stops(&self, count: usize) -> std::ops::Range<usize> {
        match self.request {
            Request::GetVringBase(ring) => one_of(ring, count),
            Request::ResetOwner | Request::ResetDevice | Request::SetStatus(0) => 0..count,
            _ => 0..0,
        }
    }
}

impl Request {
    /// Whether a descriptor is of the kind that comes with this message.
    fn accepts_descriptor(&self, descriptor: &Foreign) -> bool {
        match self {
            Self::SetVringKick(_)
            | Self::SetVringCall(_)
            | Self::SetVringErr(_)
            | Self::SetLogFd => is_event(descriptor),
            Self::RemMemReg(_) => is_memory(descriptor),
            // Asked when it is mapped.
            _ => true,
        }
    }
}

impl<S: Default> Backend<S> {
    /// Serve a device with up to `queue_pairs` pairs over a connected socket.
    ///
    /// # Errors
    /// The descriptor is no socket.
    pub fn new(socket: OwnedFd, queue_pairs: usize) -> Result<Self, Fault> {
        let max_vrings = (2 * queue_pairs).clamp(2, MAX_VRINGS);
        Ok(Self {
            channel: Channel::new(socket)?,
            max_vrings,
            features: 0,
            protocol_features: 0,
            status: 0,
            mtu: 0,
            memory: Arc::default(),
            vrings: (0..max_vrings).map(Vring::new).map(Mutex::new).collect(),
            pairs: 0,
            logging: false,
            log: None,
        })
    }
}

impl<S> Backend<S> {
    /// The virtio features the driver took.
    #[inline]
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The MTU the front-end announced, 0 when it announced none.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The VM's memory.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// How many queue pairs there are, up to the last one that was ever started.
    #[inline]
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// How many rings there may be. In vhost-user's order they are: receive 0, transmit 0,
    /// receive 1, …
    #[inline]
    #[must_use]
    pub fn vring_count(&self) -> usize {
        self.vrings.len()
    }

    /// One ring, if it exists, for the caller alone.
    #[inline]
    #[must_use]
    pub fn vring(&self, ring: usize) -> Option<MutexGuard<'_, Vring<S>>> {
        let vring = self.vrings.get(ring)?;
        // A thread that panics ends the process; until then nothing is worse than it was.
        Some(vring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same where nobody else can have it: no lock is taken.
    #[inline]
    #[must_use]
    pub fn vring_mut(&mut self, ring: usize) -> Option<&mut Vring<S>> {
        self.vrings.get_mut(ring).map(unlocked)
    }

    /// All rings, likewise.
    pub fn vrings_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Vring<S>> {
        self.vrings.iter_mut().map(unlocked)
    }

    /// The next message, or `None` when there is no whole one yet.
    ///
    /// # Errors
    /// The front-end is gone or sent nonsense.
    pub fn receive(&mut self) -> Result<Option<Message>, Fault> {
        self.channel.receive()
    }

    /// Carry out a message and answer it.
    ///
    /// # Errors
    /// The message asks for something impossible: the device is finished.
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
                    // The front-end learns that it failed; the port is lost either way.
                    let _ = self.channel.reply(header.request, &1_u64.to_ne_bytes());
                }
                return Err(fault);
            }
        };
        match reply {
            Reply::Number(number) => self.channel.reply(header.request, &number.to_ne_bytes())?,
            Reply::State(ring, value) => {
                let mut payload = [0; 8];
                let (index, number) = payload.split_at_mut(4);
                index.copy_from_slice(&u32::try_from(ring).unwrap_or(0).to_ne_bytes());
                number.copy_from_slice(&u32::from(value).to_ne_bytes());
                self.channel.reply(header.request, &payload)?;
            }
            Reply::Acknowledge(code) => {
                if self.acknowledges(header.needs_reply()) {
                    self.channel.reply(header.request, &code.to_ne_bytes())?;
                }
            }
        }
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
            Request::GetFeatures => return Ok((Change::None, Reply::Number(self.offered()))),
            Request::SetFeatures(acked) => self.set_features(acked)?,
            Request::SetOwner => {}
            Request::ResetOwner => return self.stop_all(),
            Request::SetMemTable(regions) => {
                self.set_memory(&regions, &descriptors)?;
            }
            Request::SetLogBase { size, offset } => {
                self.set_log(size, offset, &descriptors)?;
                // Rings may have waited for it. The reply is not the optional acknowledgement.
                return Ok((Change::AllRings, Reply::Number(0)));
            }
            // Front-ends read the log without being told.
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
                let call = descriptors.into_iter().next().map(Foreign::into_inner);
                self.ring(ring)?.set_call(call).map_err(ring_fault(ring))?;
            }
            // Errors end the port and close the socket; nobody needs to be told twice.
            Request::SetVringErr(ring) => drop(self.ring(ring)?),
            Request::GetProtocolFeatures => {
                return Ok((Change::None, Reply::Number(protocol::OFFERED)));
            }
            Request::SetProtocolFeatures(acked) => {
                self.protocol_features = subset(acked, protocol::OFFERED)?;
            }
            Request::GetQueueNum => {
                return Ok((Change::None, Reply::Number(self.max_vrings as u64 / 2)));
            }
            Request::SetVringEnable(ring, enabled) => {
                self.ring(ring)?.set_enabled(enabled);
                return Ok((Change::Ring(ring), Reply::Acknowledge(0)));
            }
            Request::SendRarp(mac) => return Ok((Change::Announce(mac), Reply::Acknowledge(0))),
            Request::SetMtu(mtu) => return Ok((Change::None, self.set_mtu(mtu))),
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

    fn offered(&self) -> u64 {
        if self.max_vrings > 2 {
            features::OFFERED
        } else {
            features::OFFERED & !features::MQ
        }
    }

    fn set_features(&mut self, acked: u64) -> Result<(), Fault> {
        let acked = subset(acked, self.offered())?;
        self.features = acked & !features::LOG_ALL;
        self.set_logging(acked & features::LOG_ALL != 0)?;
        // Without the protocol-feature bit there is no message to enable a ring by.
        if acked & features::PROTOCOL_FEATURES == 0 {
            for vring in self.vrings_mut() {
                vring.set_enabled(true);
            }
        }
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u64) -> Reply {
        // 5.1.4.1: at least 68, what IPv4 needs.
        match u16::try_from(mtu) {
            Ok(mtu) if mtu >= 68 => {
                self.mtu = mtu;
                Reply::Acknowledge(0)
            }
            _ => Reply::Acknowledge(1),
        }
    }

    fn set_memory(&mut self, regions: &[RegionInfo], fds: &[Foreign]) -> Result<(), Fault> {
        let log = self.memory.log().cloned();
        let mut memory = GuestMemory::default().logged_by(log)?;
        for (info, fd) in regions.iter().zip(fds) {
            memory = memory.with(*info, fd.as_fd())?;
        }
        self.replace_memory(memory)
    }

    fn add_region(&mut self, info: RegionInfo, fds: &[Foreign]) -> Result<(), Fault> {
        match fds.first() {
            Some(fd) => self.replace_memory(self.memory.with(info, fd.as_fd())?),
            None => Ok(()),
        }
    }

    /// Use other memory from now on; rings that run find their parts in it.
    fn replace_memory(&mut self, memory: GuestMemory) -> Result<(), Fault> {
        let memory = Arc::new(memory);
        self.memory = Arc::clone(&memory);
        for (ring, vring) in self.vrings_mut().enumerate() {
            vring.relocate(&memory).map_err(ring_fault(ring))?;
        }
        Ok(())
    }

    fn start(&mut self, ring: usize, descriptors: Descriptors) -> Result<(), Fault> {
        let (memory, features) = (Arc::clone(&self.memory), self.features);
        let kick = descriptors.into_iter().next().map(Foreign::into_inner);
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

/// The ring alone; none if it is not one of `count`.
fn one_of(ring: usize, count: usize) -> std::ops::Range<usize> {
    ring.min(count)..(ring + 1).min(count)
}

/// How a message is answered.
enum Reply {
    /// With a number.
    Number(u64),
    /// With a ring's state.
    State(usize, u16),
    /// Only if the front-end asks; 0 is success.
    Acknowledge(u64),
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

/// Name the ring a fault belongs to.
pub fn ring_fault(ring: usize) -> impl Fn(RingFault) -> Fault {
    move |fault| Fault::Ring { ring, fault }
}
