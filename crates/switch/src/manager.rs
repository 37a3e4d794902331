//! The control work of the first worker: orders of the supervisor, messages of front-ends, and faults of
//! ports. All of it has the network locked for writing.

use std::sync::Arc;

use rustix::event::epoll;
use vhost::fault::Fault;
use vhost::sigbus;

use crate::context::WorkerContext;
use crate::control::{ControlSocket, Reason};
use crate::event_key::EventKey;
use crate::outbox::Outbox;
use crate::port::Kind;
use crate::raw::ticks;
use crate::shared::{FIRST, Shared};
use crate::switch::Switch;

/// The state of the control work of a network.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outbox: Outbox,
    pub(crate) started: u64,
    truncations: usize,
    pub(crate) stopping: bool,
}

impl Manager {
    /// Creates the manager of the network whose supervisor has the other end of `control`.
    pub(crate) fn new(shared: Arc<Shared>, control: ControlSocket) -> Self {
        Self {
            shared,
            outbox: Outbox::new(control),
            started: ticks::now(),
            truncations: sigbus::truncations(),
            stopping: false,
        }
    }

    /// Handles events of the control socket and of front-ends' sockets.
    pub(crate) fn act(&mut self, context: &mut WorkerContext, events: &[epoll::Event]) {
        let ours = |event: &&epoll::Event| {
            let key = EventKey::from_data(event.data);
            matches!(key, EventKey::Control | EventKey::Socket(_))
        };
        let mut ours = events.iter().filter(ours).peekable();
        if ours.peek().is_none() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let switch = &mut *shared.write();
        for event in ours {
            match EventKey::from_data(event.data) {
                EventKey::Control => {
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        self.outbox.flush();
                    }
                    self.take_orders(switch);
                }
                EventKey::Socket(port) => self.take_messages(switch, context, port),
                _ => {}
            }
        }
        self.watch_outbox();
        // The change may concern ports that other workers serve.
        shared.wake_others();
    }

    fn watch_outbox(&mut self) {
        if let Some(slot) = self.shared.slots.get(FIRST) {
            self.outbox.watch(&slot.poll);
        }
    }

    /// Ends the ports that the data path found at fault, if there are any.
    pub(crate) fn drop_faulty(&mut self) {
        let truncations = sigbus::truncations();
        if truncations == self.truncations && !self.shared.read().is_faulty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let switch = &mut *shared.write();
        if truncations != self.truncations {
            self.truncations = truncations;
            self.drop_truncated(switch);
        }
        while let Some((port, fault)) = switch.take_fault() {
            // A flood can record the same fault once for each frame.
            if switch.port(port).is_some() {
                self.fail(switch, port, &fault);
            }
        }
        self.watch_outbox();
        shared.wake_others();
    }

    /// Ends the ports whose memory was truncated. Truncated memory reads as zeroes, which cause other
    /// faults too, so this comes first and reports the real cause.
    fn drop_truncated(&mut self, switch: &mut Switch) {
        let truncated = switch
            .ports()
            .filter_map(|(number, port)| match &port.kind {
                Kind::Guest(guest) => guest.backend.memory().truncated().then_some(number),
                Kind::Uplink(_) => None,
            });
        for port in truncated.collect::<Vec<_>>() {
            self.fail(switch, port, &Fault::Truncated);
        }
    }

    pub(crate) fn fail(&mut self, switch: &mut Switch, number: u16, fault: &Fault) {
        let reason = match fault {
            Fault::Disconnected => Reason::Disconnected,
            Fault::Host(_) => Reason::Host(fault.to_string()),
            _ => Reason::Fault(fault.to_string()),
        };
        self.detach(switch, number, reason);
    }

    /// Adds a port to the lists of active ports of all workers that read its rings.
    pub(crate) fn activate(&self, switch: &Switch, number: u16) {
        let pairs = match switch.port(number).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) => guest.backend.pairs(),
            Some(Kind::Uplink(uplink)) => uplink.queues().count(),
            None => 0,
        };
        for pair in 0..pairs.min(switch.steering.workers()) {
            self.shared
                .queue_port(switch.steering.worker(number, pair), number);
        }
    }

    /// Detaches all ports.
    pub(crate) fn close(&mut self) {
        let shared = Arc::clone(&self.shared);
        let switch = &mut *shared.write();
        let ports: Vec<u16> = switch.ports().map(|(number, _)| number).collect();
        for port in ports {
            self.detach(switch, port, Reason::Ordered);
        }
    }
}
