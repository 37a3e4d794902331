//! What front-ends ask of a network.

use rustix::event::epoll;
use rustix::io::Errno;
use vhost::backend::{Change, ring_fault};
use vhost::fault::{Fault, RingFault};
use vhost::vring::Notifier;

use crate::context::WorkerContext;
use crate::control::{Event, PortId};
use crate::event_key::EventKey;
use crate::limits::MESSAGES_PER_TURN;
use crate::mac::Mac;
use crate::manager::Manager;
use crate::port::{Guest, Kind};
use crate::switch::Switch;

/// The VM's NIC at a port.
pub(crate) fn guest(switch: &mut Switch, number: u16) -> Option<&mut Guest> {
    match switch.port_mut(number).map(|port| &mut port.kind) {
        Some(Kind::Guest(guest)) => Some(guest),
        _ => None,
    }
}

impl Manager {
    /// Handle what a front-end has sent, some messages at a time. What is left makes the socket
    /// readable again at the next look.
    pub(crate) fn take_messages(
        &mut self,
        switch: &mut Switch,
        context: &mut WorkerContext,
        number: u16,
    ) {
        for _ in 0..MESSAGES_PER_TURN {
            match self.take_message(switch, context, number) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.fail(switch, number, &fault),
            }
        }
    }

    /// Handle one message; false when there is none.
    fn take_message(
        &mut self,
        switch: &mut Switch,
        context: &mut WorkerContext,
        number: u16,
    ) -> Result<bool, Fault> {
        let Some(port) = guest(switch, number) else {
            return Ok(false);
        };
        let Some(message) = port.backend.receive()? else {
            return Ok(false);
        };
        let rings = message.releases(port.backend.vring_count());
        for ring in rings.clone() {
            self.watch_kick(switch, number, ring, false)?;
        }
        let Some(port) = guest(switch, number) else {
            return Ok(false);
        };
        match port.backend.apply(message)? {
            Change::None => {}
            Change::Announce(mac) => switch.announce(context, number, Mac::from_octets(mac)),
            Change::Ring(_) | Change::AllRings => {
                self.rings_changed(switch, number);
                self.activate(switch, number);
            }
        }
        for ring in rings {
            self.watch_kick(switch, number, ring, true)?;
        }
        Ok(true)
    }

    /// Tell the supervisor once when a guest's rings run.
    fn rings_changed(&mut self, switch: &mut Switch, number: u16) {
        let Some(guest) = guest(switch, number) else {
            return;
        };
        let running = guest.is_running();
        let news = running && !guest.announced;
        guest.announced = running;
        guest.rings_changed();
        if news {
            switch.note_new_vm(number);
            self.outbox.send(Event::Running {
                port: PortId(number),
            });
        }
    }

    /// Watch a ring's kick descriptor, or stop watching it before it is closed: the front-end
    /// keeps a copy, so closing ours would not end the watch.
    pub(crate) fn watch_kick(
        &self,
        switch: &Switch,
        number: u16,
        ring: usize,
        on: bool,
    ) -> Result<(), Fault> {
        let Some(Kind::Guest(guest)) = switch.port(number).map(|port| &port.kind) else {
            return Ok(());
        };
        let Some(vring) = guest.backend.vring(ring) else {
            return Ok(());
        };
        let Notifier::Event(kick) = vring.kick() else {
            return Ok(());
        };
        let data = EventKey::Kick(number, ring).data();
        // Edge triggered: each kick is one event, and the counter need not be read back.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // A transmit ring is read by one worker; for a receive ring any may wait.
        let reader = (ring % 2 == 1).then(|| switch.steering.worker(number, ring / 2));
        for (worker, slot) in self.shared.slots.iter().enumerate() {
            if reader.is_some_and(|reader| reader != worker) {
                continue;
            }
            // syscalls: epoll_ctl
            let done = if on {
                epoll::add(&slot.poll, kick, data, edge)
            } else {
                epoll::delete(&slot.poll, kick)
            };
            match done {
                // One descriptor for two rings is odd but harmless: one watch tells of both.
                Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                // Nothing that events can be waited for on.
                Err(Errno::PERM) => return Err(ring_fault(ring)(RingFault::Notifier("kick"))),
                Err(error) => return Err(Fault::Host(error)),
            }
        }
        Ok(())
    }
}
