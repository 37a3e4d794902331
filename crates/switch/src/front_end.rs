//! Handles the vhost-user messages of front-ends.

use rustix::event::epoll;
use rustix::io::Errno;
use vhost::backend::{Change, ring_fault};
use vhost::fault::{Fault, RingFault};
use vhost::vring::Notifier;

use crate::context::WorkerContext;
use crate::control::{Event, PortId};
use crate::event_key::EventKey;
use crate::limits::MESSAGES_PER_ROUND;
use crate::mac::Mac;
use crate::manager::Manager;
use crate::port::{Guest, Kind};
use crate::switch::Switch;

/// Returns the VM's NIC at a port.
pub(crate) fn guest(switch: &mut Switch, number: u16) -> Option<&mut Guest> {
    match switch.port_mut(number).map(|port| &mut port.kind) {
        Some(Kind::Guest(guest)) => Some(guest),
        _ => None,
    }
}

impl Manager {
    /// Handles some messages of a front-end. If more are left, the next wait reports the socket as
    /// readable again.
    pub(crate) fn take_messages(
        &mut self,
        switch: &mut Switch,
        context: &mut WorkerContext,
        number: u16,
    ) {
        for _ in 0..MESSAGES_PER_ROUND {
            match self.take_message(switch, context, number) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.fail(switch, number, &fault),
            }
        }
    }

    /// Handles one message; returns false when there is none.
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

    /// Updates a guest after a change of its rings, and notifies the supervisor when they start to run.
    fn rings_changed(&mut self, switch: &mut Switch, number: u16) {
        let Some(guest) = guest(switch, number) else {
            return;
        };
        let running = guest.is_running();
        let has_started = running && !guest.announced;
        guest.announced = running;
        guest.rings_changed();
        if has_started {
            switch.note_new_vm(number);
            self.outbox.send(Event::Running {
                port: PortId(number),
            });
        }
    }

    /// Adds a ring's kick descriptor to the epoll sets, or removes it before it is closed. The front-end
    /// has a copy of the descriptor, so closing this one would not remove it from the epoll sets.
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
        // Edge triggered: each kick is one event, and the counter need not be read.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // One worker reads a transmit ring; any worker may wait for a receive ring.
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
                // A front-end may use one descriptor for two rings: one watch covers both.
                Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                // The descriptor does not support epoll.
                Err(Errno::PERM) => return Err(ring_fault(ring)(RingFault::Notifier("kick"))),
                Err(error) => return Err(Fault::Host(error)),
            }
        }
        Ok(())
    }
}
