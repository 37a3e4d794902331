//! What front-ends ask of a worker.

use rustix::event::epoll;
use rustix::io::Errno;
use vhost::backend::{Change, at};
use vhost::fault::{Fault, RingFault};
use vhost::vring::{Notifier, Vring};

use crate::control::{Event, PortId};
use crate::limits::MESSAGES_PER_TURN;
use crate::mac::Mac;
use crate::port::{Guest, Kind};
use crate::token::Token;
use crate::worker::Worker;

impl Worker {
    /// Handle what a front-end has sent, some messages at a time. What is left makes the socket
    /// readable again at the next look.
    pub(crate) fn take_messages(&mut self, number: u16) {
        for _ in 0..MESSAGES_PER_TURN {
            match self.take_message(number) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.fail(number, &fault),
            }
        }
    }

    /// Handle one message; false when there is none.
    pub(crate) fn take_message(&mut self, number: u16) -> Result<bool, Fault> {
        let Some(guest) = self.guest(number) else {
            return Ok(false);
        };
        let Some(message) = guest.backend.receive()? else {
            return Ok(false);
        };
        let rings = guest.backend.vrings().len();
        for ring in message.releases(rings) {
            self.watch_kick(number, ring, false)?;
        }
        let again = message.releases(rings);
        let Some(guest) = self.guest(number) else {
            return Ok(false);
        };
        let change = guest.backend.apply(message)?;
        self.after(number, change)?;
        for ring in again {
            self.watch_kick(number, ring, true)?;
        }
        Ok(true)
    }

    pub(crate) fn guest(&mut self, number: u16) -> Option<&mut Guest> {
        match self.switch.port_mut(number).map(|port| &mut port.kind) {
            Some(Kind::Guest(guest)) => Some(guest),
            _ => None,
        }
    }

    pub(crate) fn after(&mut self, number: u16, change: Change) -> Result<(), Fault> {
        match change {
            Change::None => {}
            Change::Announce(mac) => self.switch.announce(number, Mac::from_octets(mac)),
            Change::Ring(_) | Change::AllRings => {
                self.activate(number);
                self.announce_running(number);
            }
        }
        Ok(())
    }

    /// Tell the supervisor once when a guest's rings run.
    pub(crate) fn announce_running(&mut self, number: u16) {
        let Some(guest) = self.guest(number) else {
            return;
        };
        let running = guest.is_running();
        let news = running && !guest.announced;
        guest.announced = running;
        guest.rings_changed();
        if news {
            self.switch.greet(number);
            self.outbox.send(&Event::Running {
                port: PortId(number),
            });
        }
    }

    /// Watch a ring's kick descriptor, or stop watching it before it is closed: the front-end
    /// keeps a copy, so closing ours would not end the watch.
    pub(crate) fn watch_kick(&mut self, number: u16, ring: usize, on: bool) -> Result<(), Fault> {
        let Some(Kind::Guest(guest)) = self.switch.port(number).map(|port| &port.kind) else {
            return Ok(());
        };
        let Some(Notifier::Event(kick)) = guest.backend.vrings().get(ring).map(Vring::kick) else {
            return Ok(());
        };
        let data = Token::Kick(number, ring).data();
        // Edge triggered: each kick is one event, and the counter need not be read back.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // syscalls: epoll_ctl
        let done = if on {
            epoll::add(&self.poll, kick, data, edge)
        } else {
            epoll::delete(&self.poll, kick)
        };
        match done {
            // One descriptor for two rings is odd but harmless: one watch tells of both.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            // Nothing that events can be waited for on.
            Err(Errno::PERM) => Err(at(ring)(RingFault::Notifier("kick"))),
            Err(error) => Err(Fault::Host(error)),
        }
    }
}
