//! Executes the orders of the supervisor.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;

use crate::attach;
use crate::capture::Capture;
use crate::clock;
use crate::control::{
    Counters, Event, FdbEntry, MAX_REPORTS, Order, PEERS_PER_MESSAGE, PortId, PortReport, Reason,
    WorkerReport,
};
use crate::event_key::EventKey;
use crate::fdb::FdbKey;
use crate::front_end::guest;
use crate::limits::{FDB_ENTRIES_PER_MESSAGE, MAX_LOOK_UPS, MAX_MODERATION_DELAY_US};
use crate::manager::Manager;
use crate::port::{Kind, Port};
use crate::raw::ticks;
use crate::remote_peer_report;
use crate::shared::FIRST;
use crate::switch::Switch;

impl Manager {
    pub(crate) fn take_orders(&mut self, switch: &mut Switch) {
        loop {
            match self.outbox.receive() {
                Ok(Some((order, fd))) => self.execute(switch, order, fd),
                Ok(None) => {
                    self.stopping = true;
                    return;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::error!(%error, "internal error, report it as a bug: cannot decode an order of the \
                        supervisor");
                    return;
                }
            }
        }
    }

    fn execute(&mut self, switch: &mut Switch, order: Order, fd: Option<OwnedFd>) {
        match order {
            Order::Attach { port, name } => {
                let kind = fd.ok_or(Errno::BADF).and_then(attach::guest);
                self.attach(switch, port, name, kind);
            }
            Order::AttachUplink { port, name, kind } => {
                let port_kind = fd.ok_or(Errno::BADF);
                let port_kind = port_kind.and_then(|fd| attach::uplink(fd, kind));
                self.attach(switch, port, name, port_kind);
            }
            Order::AddUplinkQueue { port } => self.add_queue(switch, port.0, fd),
            Order::Detach { port } => self.detach(switch, port.0, Reason::Ordered),
            Order::SetRules { port, rules } => switch.set_rules(port.0, *rules),
            Order::SetSnooping { on } => switch.snooping = on,
            Order::SetFdbEntry { mac, vlan, port } => {
                let key = FdbKey::new(mac, vlan);
                let now = self.shared.seconds(clock::now());
                if !switch.table.pin(key, port.0, now) {
                    tracing::warn!(%mac, "cannot pin an address, because the FDB is full");
                }
            }
            Order::RemoveFdbEntry { mac, vlan } => {
                switch.table.remove(FdbKey::new(mac, vlan));
            }
            Order::SetModerationDelay { micros } => {
                switch.moderation_delay =
                    Duration::from_micros(micros.min(MAX_MODERATION_DELAY_US).into());
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
                            "internal error, report it as a bug: the supervisor ordered too many captures of a \
                                port"
                        );
                    }
                }
                None => tracing::error!(
                    port = port.0,
                    "internal error, report it as a bug: the supervisor ordered \
                a capture without a socket"
                ),
            },
            Order::EndCapture { port, capture } => switch.end_capture(port.0, capture),
            Order::Mirror { port, to } => switch.set_mirrors(port.0, &to),
            Order::Report => self.report(switch),
            Order::ListFdb { from } => self.list_fdb(switch, from),
            Order::Stop => self.stopping = true,
        }
    }

    fn attach(&mut self, switch: &mut Switch, id: PortId, name: String, kind: Result<Kind, Errno>) {
        if switch.port(id.0).is_some() {
            tracing::error!(
                port = id.0,
                "internal error, report it as a bug: the supervisor attached a port twice"
            );
            return;
        }
        let added = kind.and_then(|kind| {
            let added = switch.add(id.0, Port::new(name, kind));
            added.then_some(()).ok_or(Errno::NOSPC)
        });
        let watched = added.and_then(|()| self.watch(switch, id.0));
        if let Err(error) = watched {
            let why = format!("cannot attach the port: {error}");
            self.detach(switch, id.0, Reason::Host(why));
        }
    }

    /// Adds a queue to an uplink.
    fn add_queue(&self, switch: &mut Switch, number: u16, fd: Option<OwnedFd>) {
        let Some(Kind::Uplink(uplink)) = switch.port_mut(number).map(|port| &mut port.kind) else {
            tracing::error!(
                port = number,
                "internal error, report it as a bug: the supervisor added a queue to a port that is not an uplink"
            );
            return;
        };
        let added = fd.ok_or(Errno::BADF).and_then(|fd| uplink.add(fd));
        let watched = added
            .and_then(|pair| pair.map_or(Ok(()), |pair| self.watch_queue(switch, number, pair)));
        if let Err(error) = watched {
            tracing::error!(port = number, %error, "cannot serve a queue of the uplink");
        }
        self.activate(switch, number);
    }

    /// Adds a queue of an uplink to the epoll set of the worker that reads it.
    fn watch_queue(&self, switch: &Switch, number: u16, pair: usize) -> Result<(), Errno> {
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let poll = self.poll_of(switch.steering.worker(number, pair))?;
        let queue = switch.port(number).and_then(|port| match &port.kind {
            Kind::Uplink(uplink) => uplink.queues().nth(pair),
            Kind::Guest(_) => None,
        });
        epoll::add(
            poll,
            queue.ok_or(Errno::NODEV)?,
            EventKey::Tap(number).data(),
            edge,
        )
    }

    /// Adds the descriptors of a new port to the epoll sets.
    fn watch(&self, switch: &Switch, number: u16) -> Result<(), Errno> {
        let Some(port) = switch.port(number) else {
            return Err(Errno::NODEV);
        };
        match &port.kind {
            // The first worker handles the messages of front-ends.
            Kind::Guest(guest) => {
                let data = EventKey::Socket(number).data();
                let interest = epoll::EventFlags::IN;
                epoll::add(self.poll_of(FIRST)?, &guest.backend, data, interest)
            }
            Kind::Uplink(_) => {
                self.watch_queue(switch, number, 0)?;
                self.activate(switch, number);
                Ok(())
            }
        }
    }

    /// Returns the epoll set of a worker.
    fn poll_of(&self, worker: usize) -> Result<&OwnedFd, Errno> {
        let slot = self.shared.slots.get(worker);
        slot.map(|slot| &slot.poll).ok_or(Errno::NODEV)
    }

    /// Removes a port's descriptors from the epoll sets. Closing them would not be enough, because the
    /// front-end may have copies.
    fn unwatch(&self, switch: &Switch, number: u16, port: &Port) {
        let remove = |worker: usize, fd: BorrowedFd<'_>| {
            // An error does not matter: the port is removed in any case.
            let _ = self
                .poll_of(worker)
                .and_then(|poll| epoll::delete(poll, fd));
        };
        match &port.kind {
            Kind::Guest(guest) => remove(FIRST, guest.backend.as_fd()),
            Kind::Uplink(uplink) => {
                for (pair, queue) in uplink.queues().enumerate() {
                    remove(switch.steering.worker(number, pair), queue.as_fd());
                }
            }
        }
    }

    /// Removes a port, if it exists, and notifies the supervisor.
    pub(crate) fn detach(&mut self, switch: &mut Switch, number: u16, reason: Reason) {
        let rings = guest(switch, number).map_or(0, |guest| guest.backend.vring_count());
        for ring in 0..rings {
            // An error does not matter: the port is removed in any case.
            let _ = self.watch_kick(switch, number, ring, false);
        }
        let port = switch.remove(number);
        if let Some(port) = &port {
            self.unwatch(switch, number, port);
            tracing::debug!(port = port.name, ?reason, "detached the port");
        }
        // When the supervisor receives this event, no worker uses the port's descriptors and memory any more.
        // The reclaim threads close and unmap them.
        let counters = port.map_or_else(Counters::default, |mut port| port.counters());
        let id = PortId(number);
        self.outbox.send(Event::Detached {
            port: id,
            reason,
            counters: Box::new(counters),
        });
    }

    /// Sends a page of the FDB's entries.
    fn list_fdb(&mut self, switch: &Switch, from: u32) {
        let now = self.shared.seconds(clock::now());
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let (entries, next) = switch.table.list(from, FDB_ENTRIES_PER_MESSAGE, now);
        self.outbox.send(Event::FdbEntries {
            entries: entries.into_iter().map(FdbEntry::from).collect(),
            next: next.and_then(|next| u32::try_from(next).ok()),
        });
    }

    fn report(&mut self, switch: &mut Switch) {
        let now = clock::now();
        let seconds = self.shared.seconds(now);
        let numbers: Vec<u16> = switch.ports().map(|(number, _)| number).collect();
        let (mut ready, mut bytes) = (Vec::new(), 0);
        for number in numbers {
            let fdb_entries = switch.table.count(number);
            let duplicates = switch.duplicates_of(number);
            let Some(port) = switch.port_mut(number) else {
                continue;
            };
            let storm = port.limits.floods.is_storm(seconds);
            let (counters, peers) = (port.counters(), port.peers());
            let stuck = port.stuck_for(now);
            let (running, logging, features, mtu) = match &mut port.kind {
                Kind::Guest(guest) => (
                    guest.is_running(),
                    guest.backend.memory().log().is_some(),
                    guest.backend.features(),
                    guest.backend.mtu(),
                ),
                Kind::Uplink(_) => (true, false, 0, 0),
            };
            let report = PortReport {
                port: number,
                running,
                logging,
                features,
                mtu,
                fdb_entries,
                storm,
                stuck_ms: u64::try_from(stuck.as_millis()).unwrap_or(u64::MAX),
                counters,
                duplicates,
                peers,
            };
            // Several ports share a message: one message a port would cost more than everything else here.
            bytes += report.most_bytes();
            if bytes > MAX_REPORTS {
                self.outbox.send(Event::Report(std::mem::take(&mut ready)));
                bytes = report.most_bytes();
            }
            ready.push(report);
        }
        self.outbox.send(Event::Report(ready));
        let peers = remote_peer_report::of_ports(switch.ports_mut());
        for some in peers.chunks(PEERS_PER_MESSAGE) {
            self.outbox.send(Event::RemotePeers(some.to_vec()));
        }
        let fdb_entries = switch.table.entries();
        let elapsed_ticks = ticks::now().wrapping_sub(self.started);
        self.outbox.send(Event::ReportEnd(WorkerReport {
            elapsed_ticks,
            fdb_entries,
            ..self.shared.figures()
        }));
    }
}
