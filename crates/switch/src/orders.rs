//! What the supervisor asks of a worker.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::control::{Counters, Event, Order, PortId, PortReport, Reason, WorkerReport};
use crate::port::Kind;
use crate::residency::Resident;
use crate::token::Token;
use crate::worker::Worker;
use crate::{attach, ticks};

impl Worker {
    pub(crate) fn take_orders(&mut self) {
        loop {
            match self.outbox.receive() {
                Ok(Some((order, fd))) => self.carry_out(order, fd),
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

    pub(crate) fn carry_out(&mut self, order: Order, fd: Option<OwnedFd>) {
        match order {
            Order::Attach { port, name } => {
                self.attach(port, name, fd.ok_or(Errno::BADF).and_then(attach::guest));
            }
            Order::AttachUplink { port, name } => {
                self.attach(port, name, fd.ok_or(Errno::BADF).and_then(attach::uplink));
            }
            Order::Detach { port } => self.detach(port.0, Reason::Asked),
            Order::SetRules { port, rules } => self.switch.set_rules(port.0, *rules),
            Order::SetSnooping { on } => self.switch.snooping = on,
            Order::SetResidency { mac, vlan, port } => {
                let resident = Resident::new(mac, vlan);
                if !self.switch.table.pin(resident, port.0) {
                    tracing::warn!(%mac, "the residency table is full: address not pinned");
                }
            }
            Order::ClearResidency { mac, vlan } => {
                self.switch.table.forget(Resident::new(mac, vlan));
            }
            Order::Report => self.report(),
            Order::Stop => self.stopping = true,
        }
    }

    pub(crate) fn attach(&mut self, id: PortId, name: String, kind: Result<Kind, Errno>) {
        if self.switch.port(id.0).is_some() {
            tracing::error!(
                port = id.0,
                "a port was attached twice: a fault of the supervisor"
            );
            return;
        }
        let added = kind.and_then(|kind| {
            let added = self.switch.add(id.0, attach::port(name, kind));
            added.then_some(()).ok_or(Errno::NOSPC)
        });
        let watched = added.and_then(|()| self.watch(id.0));
        if let Err(error) = watched {
            let why = format!("the port cannot be attached: {error}");
            self.detach(id.0, Reason::Host(why));
        }
    }

    /// Have the kernel tell of what comes from a new port.
    pub(crate) fn watch(&mut self, number: u16) -> Result<(), Errno> {
        let Some(port) = self.switch.port(number) else {
            return Err(Errno::NODEV);
        };
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        match &port.kind {
            Kind::Guest(guest) => {
                let data = Token::Socket(number).data();
                epoll::add(&self.poll, &guest.backend, data, epoll::EventFlags::IN)
            }
            Kind::Uplink(uplink) => {
                epoll::add(&self.poll, uplink, Token::Tap(number).data(), edge)?;
                self.activate(number);
                Ok(())
            }
        }
    }

    pub(crate) fn detach(&mut self, number: u16, reason: Reason) {
        let rings = self
            .guest(number)
            .map_or(0, |guest| guest.backend.vrings().len());
        for ring in 0..rings {
            // The port goes either way.
            let _ = self.watch_kick(number, ring, false);
        }
        let port = self.switch.remove(number);
        if let Some(port) = &port {
            // The front-end may hold copies of these too.
            let _ = match &port.kind {
                Kind::Guest(guest) => epoll::delete(&self.poll, guest.backend.as_fd()),
                Kind::Uplink(uplink) => epoll::delete(&self.poll, uplink.as_fd()),
            };
            tracing::debug!(port = port.name, ?reason, "port detached");
        }
        self.active.retain(|active| *active != number);
        let counters = port.map_or_else(Counters::default, |port| port.counters);
        let id = PortId(number);
        self.outbox.send(&Event::Detached {
            port: id,
            reason,
            counters: Box::new(counters),
        });
    }

    pub(crate) fn report(&mut self) {
        let numbers: Vec<u16> = self.switch.ports().map(|(number, _)| number).collect();
        for number in numbers {
            let Some(port) = self.switch.port(number) else {
                continue;
            };
            let (running, logging, features, mtu) = match &port.kind {
                Kind::Guest(guest) => (
                    guest.is_running(),
                    guest.backend.memory().log().is_some(),
                    guest.backend.features(),
                    guest.backend.mtu(),
                ),
                Kind::Uplink(_) => (true, false, 0, 0),
            };
            let residents = self.switch.table.count(number);
            let storm = port.limits.floods.storm(self.switch.seconds);
            let counters = port.counters;
            self.outbox.send(&Event::Report(Box::new(PortReport {
                port: number,
                running,
                logging,
                features,
                mtu,
                residents,
                storm,
                counters,
            })));
        }
        let residents = u32::try_from(self.switch.table.residents()).unwrap_or(u32::MAX);
        let elapsed_ticks = ticks::now().wrapping_sub(self.started);
        self.outbox.send(&Event::ReportEnd(WorkerReport {
            elapsed_ticks,
            residents,
            ..self.figures
        }));
    }
}
