//! The messages of a guest's front-end.
//!
//! The supervisor keeps a device's settings for the next process. It is told them before the message is
//! executed, because the front-end knows by the reply that its message was executed. So a message waits
//! ([`Device::pending`](crate::guest::Device)) until all events have been sent.

use std::ops::Range;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use vhost::backend::{Change, ring_fault};
use vhost::channel::Message;
use vhost::fault::{Fault, RingFault};
use vhost::handover::{Setting, StoredSetting, settings};
use vhost::message::Request;
use vhost::vring::Notifier;

use crate::event::Event;
use crate::event_key::EventKey;
use crate::guest::Device;
use crate::plane::Plane;
use crate::receive::TRANSMIT;

/// Messages that one front-end may send in a row, before others are served.
const MESSAGES: usize = 64;

impl Plane {
    /// Reads the next message of a guest's front-end, unless one waits for the supervisor.
    pub(crate) fn serve_front_end(&mut self, number: usize) {
        for _ in 0..MESSAGES {
            // Each message is told in one piece: no front-end fills the queue of events.
            if !self.events.is_empty() {
                return;
            }
            match self.next_message(number) {
                Ok(true) => drop(self.execute_pending()),
                Ok(false) => return,
                Err(fault) => return self.end(number, &fault),
            }
        }
    }

    /// Returns whether the front-end has sent a message, which now waits.
    fn next_message(&mut self, number: usize) -> Result<bool, Fault> {
        let guest = self.guests.get_mut(number);
        let Some(device) = guest.and_then(|guest| guest.device.as_mut()) else {
            return Ok(false);
        };
        if !device.has_messages || device.pending.is_some() {
            return Ok(false);
        }
        let Some(message) = device.backend.receive()? else {
            device.has_messages = false;
            return Ok(false);
        };
        let changes = settings(&message)
            .map_err(|error| Fault::Host(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))?;
        let guest = number;
        self.events
            .extend(changes.into_iter().map(|change| match change {
                Setting::Set(StoredSetting {
                    key,
                    payload,
                    descriptor,
                }) => {
                    let event = Event::Keep {
                        guest,
                        key,
                        payload,
                    };
                    (event, descriptor)
                }
                Setting::Remove(key) => (Event::Forget { guest, key }, None),
                Setting::RemoveAll(request) => (Event::ForgetAll { guest, request }, None),
            }));
        let is_answered = message.is_answered();
        device.pending = Some(message);
        if is_answered {
            self.queue_event(Event::Answering { guest });
        }
        Ok(true)
    }

    /// Executes the messages that waited for the supervisor, once there is no event left to send. Returns
    /// whether there was such a message.
    pub fn execute_pending(&mut self) -> bool {
        let mut executed = false;
        for number in 0..self.guests.len() {
            if !self.events.is_empty() {
                return executed;
            }
            let guest = self.guests.get_mut(number);
            let device = guest.and_then(|guest| guest.device.as_mut());
            let Some(message) = device.and_then(|device| device.pending.take()) else {
                continue;
            };
            let is_answered = message.is_answered();
            if let Err(fault) = self.execute(number, message) {
                self.end(number, &fault);
            } else if is_answered {
                self.queue_event(Event::Answered { guest: number });
            }
            executed = true;
        }
        executed
    }

    fn execute(&mut self, number: usize, message: Message) -> Result<(), Fault> {
        let released = message.releases(2);
        self.unwatch_kicks(number, released);
        let guest = self.guests.get_mut(number);
        let Some(guest) = guest else {
            return Ok(());
        };
        let Some(device) = &mut guest.device else {
            return Ok(());
        };
        // A ring that stops, or moves, has no unreported packets.
        device.report_now()?;
        if driver_was_reset(device, &message.request) {
            device.reset();
            guest.replies.clear();
            let cid = guest.config.cid;
            self.reset_all(cid);
        }
        let guest = self.guests.get_mut(number);
        let Some(device) = guest.and_then(|guest| guest.device.as_mut()) else {
            return Ok(());
        };
        let change = device.backend.apply(message)?;
        device.may_transmit = true;
        let rings = match change {
            Change::Ring(ring) => ring..ring + 1,
            Change::AllRings => 0..2,
            Change::None | Change::Announce(_) => return Ok(()),
        };
        if let Some(guest) = self.guests.get_mut(number) {
            guest.may_receive = true;
        }
        self.watch_kicks(number, rings)
    }

    /// Adds rings' kick descriptors to the epoll set.
    pub(crate) fn watch_kicks(&self, number: usize, rings: Range<usize>) -> Result<(), Fault> {
        self.kicks(number, rings, |ring, kick| {
            let Notifier::Event(kick) = kick else {
                // No front-end of this device polls instead; the device would have to, too.
                return match kick {
                    Notifier::Polling => Err(ring_fault(ring)(RingFault::Notifier("kick"))),
                    _ => Ok(()),
                };
            };
            let data = EventKey::Kick(number, ring).data();
            // Edge triggered: each kick is one event, and the counter need not be read.
            let edge = EventFlags::IN | EventFlags::ET;
            // syscalls: epoll_ctl
            match epoll::add(&self.poll, kick, data, edge) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(Errno::PERM) => Err(ring_fault(ring)(RingFault::Notifier("kick"))),
                Err(error) => Err(Fault::Host(error)),
            }
        })
    }

    /// Removes rings' kick descriptors from the epoll set. The front-end has a copy of the descriptor, so
    /// closing ours would not remove it.
    pub(crate) fn unwatch_kicks(&self, number: usize, rings: Range<usize>) {
        let removed = self.kicks(number, rings, |_, kick| {
            if let Notifier::Event(kick) = kick {
                // It is not in the set if the front-end used it for two rings.
                let _not_in_it = epoll::delete(&self.poll, kick);
            }
            Ok(())
        });
        debug_assert!(removed.is_ok());
    }

    fn kicks(
        &self,
        number: usize,
        rings: Range<usize>,
        act: impl Fn(usize, &Notifier) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some(device) = self
            .guests
            .get(number)
            .and_then(|guest| guest.device.as_ref())
        else {
            return Ok(());
        };
        for ring in rings {
            if let Some(vring) = device.backend.vring(ring) {
                act(ring, vring.kick())?;
            }
        }
        Ok(())
    }
}

/// Returns whether this message shows that the driver was reset since the transmit ring stopped: a ring that
/// was only paused continues where it stopped. Notes where it stops.
fn driver_was_reset(device: &mut Device, request: &Request) -> bool {
    match request {
        Request::GetVringBase(TRANSMIT) => {
            let mut vring = device.backend.vring(TRANSMIT);
            let ring = vring.as_mut().and_then(|vring| vring.running_mut());
            device.stopped_at = ring.map(|ring| ring.next_available());
            false
        }
        Request::SetVringBase(TRANSMIT, base) => device
            .stopped_at
            .take()
            .is_some_and(|stopped| stopped != *base),
        _ => false,
    }
}
