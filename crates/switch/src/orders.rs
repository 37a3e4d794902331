//! What the supervisor asks of a worker.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::attach;
use crate::capture::Capture;
use crate::control::{Counters, Event, Order, PortId, PortReport, Reason, WorkerReport};
use crate::front_end::guest;
use crate::limits::{MAX_GATHER_US, MAX_LOOK_UPS};
use crate::manager::Manager;
use crate::port::{Kind, Port};
use crate::raw::ticks;
use crate::residency::Resident;
use crate::shared::FIRST;
use crate::switch::Switch;
use crate::token::Token;
use crate::uplink::UPLINK_PAIR;

impl Manager {
    pub(crate) fn take_orders(&mut self, switch: &mut Switch) {
        loop {
            match self.outbox.receive() {
                Ok(Some((order, fd))) => self.carry_out(switch, order, fd),
                Ok(None) => {
                    self.stopping = true;
                    return;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::error!(%error, "an order from the supervisor cannot be read");
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, switch: &mut Switch, order: Order, fd: Option<OwnedFd>) {
        match order {
            Order::Attach { port, name } => {
                let kind = fd.ok_or(Errno::BADF).and_then(attach::guest);
                self.attach(switch, port, name, kind);
            }
            Order::AttachUplink { port, name, way } => {
                let kind = fd.ok_or(Errno::BADF);
                let kind = kind.and_then(|fd| attach::uplink(fd, way));
                self.attach(switch, port, name, kind);
            }
            Order::Detach { port } => self.detach(switch, port.0, Reason::Asked),
            Order::SetRules { port, rules } => switch.set_rules(port.0, *rules),
            Order::SetSnooping { on } => switch.snooping = on,
            Order::SetResidency { mac, vlan, port } => {
                let resident = Resident::new(mac, vlan);
                if !switch.table.pin(resident, port.0) {
                    tracing::warn!(%mac, "the residency table is full: address not pinned");
                }
            }
            Order::ClearResidency { mac, vlan } => {
                switch.table.forget(Resident::new(mac, vlan));
            }
            Order::SetGather { micros } => {
                switch.gather = Duration::from_micros(micros.min(MAX_GATHER_US).into());
            }
            Order::SetLookUps { times } => {
                switch.look_ups = NonZeroU32::new(times.min(MAX_LOOK_UPS));
            }
            Order::Capture {
                port,
                capture,
                most,
            } => match fd {
                Some(socket) => {
                    let capture = Capture::new(capture, socket, most);
                    if !switch.capture(port.0, capture) {
                        tracing::error!(
                            port = port.0,
                            "captured too often: a fault of the supervisor"
                        );
                    }
                }
                None => tracing::error!(port = port.0, "a capture without a socket"),
            },
            Order::EndCapture { port, capture } => switch.end_capture(port.0, capture),
            Order::Mirror { port, to } => switch.set_mirrors(port.0, &to),
            Order::Report => self.report(switch),
            Order::Stop => self.stopping = true,
        }
    }

    fn attach(&mut self, switch: &mut Switch, id: PortId, name: String, kind: Result<Kind, Errno>) {
        if switch.port(id.0).is_some() {
            tracing::error!(
                port = id.0,
                "a port was attached twice: a fault of the supervisor"
            );
            return;
        }
        let added = kind.and_then(|kind| {
            let added = switch.add(id.0, Port::new(name, kind));
            added.then_some(()).ok_or(Errno::NOSPC)
        });
        let watched = added.and_then(|()| self.watch(switch, id.0));
        if let Err(error) = watched {
            let why = format!("the port cannot be attached: {error}");
            self.detach(switch, id.0, Reason::Host(why));
        }
    }

    /// Have the kernel tell of what comes from a new port.
    fn watch(&self, switch: &Switch, number: u16) -> Result<(), Errno> {
        let Some(port) = switch.port(number) else {
            return Err(Errno::NODEV);
        };
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let poll = self.poll_for(switch, port, number).ok_or(Errno::NODEV)?;
        match &port.kind {
            Kind::Guest(guest) => {
                let data = Token::Socket(number).data();
                epoll::add(poll, &guest.backend, data, epoll::EventFlags::IN)
            }
            Kind::Uplink(uplink) => {
                epoll::add(poll, uplink, Token::Tap(number).data(), edge)?;
                self.activate(switch, number);
                Ok(())
            }
        }
    }

    /// Where what comes from a port is heard: its socket's messages by the first worker, its
    /// tap's frames by the one that reads them.
    fn poll_for(&self, switch: &Switch, port: &Port, number: u16) -> Option<&OwnedFd> {
        let worker = match port.kind {
            Kind::Guest(_) => FIRST,
            Kind::Uplink(_) => switch.readers.worker(number, UPLINK_PAIR),
        };
        self.shared.posts.get(worker).map(|post| &post.poll)
    }

    /// Remove a port, if it is there, and say so.
    pub(crate) fn detach(&mut self, switch: &mut Switch, number: u16, reason: Reason) {
        let rings = guest(switch, number).map_or(0, |guest| guest.backend.vring_count());
        for ring in 0..rings {
            // The port goes either way.
            let _ = self.watch_kick(switch, number, ring, false);
        }
        let port = switch.remove(number);
        if let Some(port) = &port {
            if let Some(poll) = self.poll_for(switch, port, number) {
                // The front-end may hold copies of these too.
                let _ = match &port.kind {
                    Kind::Guest(guest) => epoll::delete(poll, guest.backend.as_fd()),
                    Kind::Uplink(uplink) => epoll::delete(poll, uplink.as_fd()),
                };
            }
            tracing::debug!(port = port.name, ?reason, "port detached");
        }
        // Gone, with its descriptors and its memory, when the supervisor hears of it.
        let counters = port.map_or_else(Counters::default, |mut port| port.counters());
        let id = PortId(number);
        self.outbox.send(&Event::Detached {
            port: id,
            reason,
            counters: Box::new(counters),
        });
    }

    fn report(&mut self, switch: &mut Switch) {
        let seconds = self.shared.seconds(Instant::now());
        let numbers: Vec<u16> = switch.ports().map(|(number, _)| number).collect();
        for number in numbers {
            let residents = switch.table.count(number);
            let duplicates = switch.duplicates_of(number);
            let Some(port) = switch.port_mut(number) else {
                continue;
            };
            let storm = port.limits.floods.storm(seconds);
            let (counters, peers) = (port.counters(), port.peers());
            let (running, logging, features, mtu) = match &mut port.kind {
                Kind::Guest(guest) => (
                    guest.is_running(),
                    guest.backend.memory().log().is_some(),
                    guest.backend.features(),
                    guest.backend.mtu(),
                ),
                Kind::Uplink(_) => (true, false, 0, 0),
            };
            self.outbox.send(&Event::Report(Box::new(PortReport {
                port: number,
                running,
                logging,
                features,
                mtu,
                residents,
                storm,
                counters,
                duplicates,
                peers,
            })));
        }
        let residents = switch.table.residents();
        let elapsed_ticks = ticks::now().wrapping_sub(self.started);
        self.outbox.send(&Event::ReportEnd(WorkerReport {
            elapsed_ticks,
            residents,
            ..self.shared.figures()
        }));
    }
}
