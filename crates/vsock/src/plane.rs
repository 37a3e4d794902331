//! All guests of the process, and the loop that serves them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll::{self, EventFlags};
use vhost::alarm::Alarm;
use vhost::backend::Backend;
use vhost::fault::Fault;
use vhost::handover::StoredSetting;

use crate::connection::{Connections, Ends};
use crate::connection_list::{ConnectionList, Listed};
use crate::event::Event;
use crate::event_key::EventKey;
use crate::figures::Figures;
use crate::guest::{Device, Guest, GuestConfig, offer};
use crate::header::{Header, Operation};
use crate::limits::CALL_TIMEOUT;
use crate::packet::{Address, Packet};
use crate::receive::RECEIVE;
use crate::streams::Streams;

/// The device: all guests that this process serves.
#[derive(Debug)]
pub struct Plane {
    pub(crate) guests: Vec<Guest>,
    /// The numbers of the guests, by CID.
    pub(crate) by_cid: HashMap<u32, usize>,
    pub(crate) connections: Connections,
    pub(crate) streams: Streams,
    pub(crate) poll: OwnedFd,
    pub(crate) events: VecDeque<(Event, Option<OwnedFd>)>,
    pub(crate) now: Instant,
    /// Resets that the process before this one owes to guests.
    owed: Vec<Listed>,
    pub(crate) alarm: Alarm,
    /// The guest that is served first in the next round.
    first: usize,
}

impl Plane {
    /// Creates the device for these guests, without front-ends. `list` is the list of the connections,
    /// and the connections of the last process. The calling thread must serve the device.
    ///
    /// # Errors
    /// The kernel refuses an epoll set or a timer.
    pub fn new(
        guests: Vec<GuestConfig>,
        (list, owed): (ConnectionList, Vec<Listed>),
    ) -> io::Result<Self> {
        let by_cid = guests.iter().enumerate();
        let by_cid = by_cid.map(|(number, guest)| (guest.cid, number)).collect();
        Ok(Self {
            guests: guests.into_iter().map(Guest::new).collect(),
            by_cid,
            connections: Connections::listed_in(list),
            streams: Streams::default(),
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: VecDeque::new(),
            now: Instant::now(),
            owed,
            alarm: Alarm::new(CALL_TIMEOUT)?,
            first: 0,
        })
    }

    /// Makes [`wait`](Self::wait) return when this descriptor is readable: the supervisor's socket.
    ///
    /// # Errors
    /// The kernel refuses to watch it.
    pub fn watch_control(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        let data = EventKey::Control.data();
        // syscalls: epoll_ctl
        Ok(epoll::add(&self.poll, control, data, EventFlags::IN)?)
    }

    /// Makes [`wait`](Self::wait) also return when the supervisor's socket has room, if events wait for it.
    ///
    /// # Errors
    /// The kernel refuses to watch it.
    pub fn watch_room(&self, control: BorrowedFd<'_>, events_wait: bool) -> io::Result<()> {
        let mut interest = EventFlags::IN;
        interest.set(EventFlags::OUT, events_wait);
        let data = EventKey::Control.data();
        Ok(epoll::modify(&self.poll, control, data, interest)?)
    }

    /// Serves a guest's front-end from now on. `stored` is empty for a new one; otherwise this process
    /// continues for the last one, and the guest's connections of that time are reset.
    pub fn attach(&mut self, guest: usize, socket: OwnedFd, stored: Vec<StoredSetting>) {
        self.detach(guest, None);
        if let Err(fault) = self.try_attach(guest, socket, stored) {
            self.end(guest, &fault);
        }
    }

    fn try_attach(
        &mut self,
        number: usize,
        socket: OwnedFd,
        stored: Vec<StoredSetting>,
    ) -> Result<(), Fault> {
        let Some(guest) = self.guests.get_mut(number) else {
            return Ok(());
        };
        let cid = guest.config.cid;
        let mut backend = Backend::offering(socket, offer(cid))?;
        // syscalls: epoll_ctl
        let edge = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.poll, &backend, EventKey::Socket(number).data(), edge)
            .map_err(Fault::Host)?;
        let continues = !stored.is_empty();
        let restored = backend.restore(stored);
        guest.device = Some(Device::new(backend));
        guest.is_attached = true;
        guest.may_receive = true;
        restored?;
        if continues {
            self.watch_kicks(number, 0..2)?;
            self.pay_resets(cid, number);
        }
        tracing::info!(vm = %self.name_of(number), "a front-end connected");
        Ok(())
    }

    /// Sends a guest the resets of the connections that ended with the last process.
    fn pay_resets(&mut self, cid: u32, number: usize) {
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        for listed in &self.owed {
            let [one, other] = listed.ends;
            for (own, peer) in [(one, other), (other, one)] {
                if own.cid == cid {
                    let reset = Packet::control(Operation::Reset, listed.kind, peer, own);
                    guest.reply(reset.header());
                }
            }
        }
    }

    pub(crate) fn name_of(&self, guest: usize) -> &str {
        self.guests
            .get(guest)
            .map_or("", |guest| &guest.config.name)
    }

    /// Returns the figures of a guest.
    #[must_use]
    pub fn figures(&self, guest: usize) -> Figures {
        let Some(guest) = self.guests.get(guest) else {
            return Figures::default();
        };
        Figures {
            attached: guest.is_attached,
            connections: self.connections.count_of(guest.config.cid) as u64,
            ..guest.figures
        }
    }

    /// Removes and returns the next event for the supervisor, with the descriptor that it carries.
    pub fn next_event(&mut self) -> Option<(Event, Option<OwnedFd>)> {
        self.events.pop_front()
    }

    /// Ends a guest's front-end for a fault, and tells the supervisor.
    pub(crate) fn end(&mut self, guest: usize, fault: &Fault) {
        let is_fault = !matches!(fault, Fault::Disconnected | Fault::Host(_));
        self.detach(guest, Some(fault));
        self.queue_event(Event::Ended {
            guest,
            reason: fault.to_string(),
            is_fault,
        });
    }

    /// Queues an event for the supervisor that carries no descriptor.
    pub(crate) fn queue_event(&mut self, event: Event) {
        self.events.push_back((event, None));
    }

    /// Drops a guest's front-end, and resets its connections.
    fn detach(&mut self, number: usize, fault: Option<&Fault>) {
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        guest.device = None;
        if !std::mem::take(&mut guest.is_attached) {
            return;
        }
        guest.replies.clear();
        let cid = guest.config.cid;
        match fault {
            Some(Fault::Disconnected) => {
                tracing::info!(vm = %guest.config.name, "the front-end disconnected");
            }
            Some(fault) => {
                tracing::warn!(vm = %guest.config.name, "the front-end was dropped: {fault}");
            }
            None => {}
        }
        self.reset_all(cid);
        self.release_senders(number);
    }

    /// Resets all connections of a guest that is gone, or whose driver was reset: its peers get resets.
    pub(crate) fn reset_all(&mut self, cid: u32) {
        let all: Vec<Ends> = self.connections.of_cid(cid).collect();
        for ends in all {
            self.reset_at(ends, ends.other_than(cid).cid);
            self.connections.remove(ends);
            self.close_stream(ends);
        }
    }

    /// Sends a reset of a connection to the end at this CID.
    pub(crate) fn reset_at(&mut self, ends: Ends, cid: u32) {
        let Some(kind) = self.connections.get(ends).map(|connection| connection.kind) else {
            return;
        };
        let Some(guest) = self.by_cid.get(&cid).copied() else {
            return;
        };
        let peer = ends.other_than(cid);
        let own = ends.other_than(peer.cid);
        let reset = Packet::control(Operation::Reset, kind, peer, own);
        self.reply(guest, reset.header());
    }

    /// Queues a packet of this device for a guest, if there is one to send.
    pub(crate) fn reply(&mut self, guest: usize, header: impl Into<Option<Header>>) {
        if let (Some(guest), Some(header)) = (self.guests.get_mut(guest), header.into()) {
            guest.reply(header);
        }
    }

    /// Returns whether a guest may connect to another one.
    pub(crate) fn allows(&self, from: Address, to: Address) -> bool {
        let rules = |address: Address| {
            let number = self.by_cid.get(&address.cid)?;
            self.guests.get(*number).map(|guest| &guest.config.rules)
        };
        match (rules(from), rules(to)) {
            (Some(from), Some(server)) => from.may_connect(server, to.port),
            _ => false,
        }
    }

    /// Does a part of the work that waits, for each guest. Returns whether more work waits.
    pub fn work(&mut self) -> bool {
        self.now = Instant::now();
        let count = self.guests.len();
        self.first = (self.first + 1) % count.max(1);
        for turn in 0..count {
            let number = (self.first + turn) % count;
            self.serve_front_end(number);
            self.accept(number);
            self.serve_receiver(number);
            self.serve_sender(number);
            self.report_late(number);
        }
        self.serve_streams();
        self.end_late_handshakes();
        self.reset_stuck();
        !self.streams.ready.is_empty()
            || self.guests.iter().any(|guest| {
                let device = guest.device.as_ref();
                let busy = |device: &Device| {
                    let reads =
                        device.has_messages && device.pending.is_none() && self.events.is_empty();
                    device.may_transmit && device.waits_for.is_none() || reads
                };
                device.is_some_and(busy)
                    || guest.may_receive && device.is_some()
                    || guest.may_accept
            })
    }

    fn serve_sender(&mut self, number: usize) {
        let may = |device: &Device| device.may_transmit && device.waits_for.is_none();
        let guest = self.guests.get_mut(number);
        let Some(mut device) = guest.and_then(|guest| guest.device.take_if(|device| may(device)))
        else {
            return;
        };
        let result = self.transmit(number, &mut device);
        let waits: Vec<usize> = device
            .waits_for
            .into_iter()
            .chain(device.deferred.receivers())
            .collect();
        if let Some(guest) = self.guests.get_mut(number) {
            guest.device = Some(device);
        }
        if let Err(fault) = result {
            self.end(number, &fault);
        }
        for receiver in waits {
            match self.is_attached(receiver) {
                true => self.request_buffers(receiver),
                false => self.release_senders(receiver),
            }
        }
    }

    /// Returns whether a guest has a driver that receives.
    pub(crate) fn is_receiving(&self, guest: usize) -> bool {
        let device = self
            .guests
            .get(guest)
            .and_then(|guest| guest.device.as_ref());
        let ring = device.and_then(|device| device.backend.vring(RECEIVE));
        ring.is_some_and(|vring| vring.active().is_some())
    }

    pub(crate) fn is_attached(&self, guest: usize) -> bool {
        self.guests
            .get(guest)
            .is_some_and(|guest| guest.is_attached)
    }
}
