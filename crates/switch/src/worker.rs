//! The thread that serves a network: busy while there is work, asleep otherwise.
//!
//! Ports with something to do are on the list of active ports and served in turn. When a round
//! moves nothing, the worker looks again for a short while if that has paid lately, then asks
//! every active ring for a kick and sleeps until one comes. A ring that is not on the list has
//! been asked for a kick, always: that is the invariant that no frame is forgotten.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use vhost::fault::Fault;
use vhost::sigbus;
use vhost::vring::{Notifier, Vring};

use crate::control::{
    ControlSocket, Counters, Event, Order, PortId, PortReport, Reason, WorkerReport,
};
use crate::limits::{HOLD, MESSAGES_PER_TURN, ROUNDS_PER_POLL, SPIN};
use crate::outbox::Outbox;
use crate::port::{Guest, Kind, Port, receive_ring};
use crate::spin::Spin;
use crate::switch::Switch;
use crate::token::Token;
use crate::{attach, ticks};

/// Events taken from the kernel at once.
const EVENTS: usize = 128;

/// A network being served.
pub struct Worker {
    switch: Switch,
    outbox: Outbox,
    poll: std::os::fd::OwnedFd,
    events: Vec<epoll::Event>,
    /// Ports that have, or may have, something to do. No port is listed twice.
    active: Vec<u16>,
    spin: Spin,
    figures: WorkerReport,
    started: u64,
    epoch: Instant,
    truncations: usize,
    stopping: bool,
}

impl Worker {
    /// Serve the network whose supervisor is at the other end of `control`.
    ///
    /// # Errors
    /// The process is out of descriptors, or signal handling cannot be set up.
    pub fn new(control: ControlSocket) -> std::io::Result<Self> {
        sigbus::install()?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let interest = epoll::EventFlags::IN;
        epoll::add(&poll, &control, Token::Control.data(), interest)?;
        let epoch = Instant::now();
        Ok(Self {
            switch: Switch::new(),
            outbox: Outbox::new(control),
            poll,
            events: Vec::with_capacity(EVENTS),
            active: Vec::with_capacity(crate::limits::MAX_PORTS),
            spin: Spin::new(SPIN),
            figures: WorkerReport::default(),
            started: ticks::now(),
            epoch,
            truncations: sigbus::hits(),
            stopping: false,
        })
    }

    /// Serve until told to stop, or until the supervisor is gone.
    ///
    /// # Errors
    /// The kernel refuses to wait for events.
    pub fn run(mut self) -> std::io::Result<()> {
        let mut rounds = 0;
        while !self.stopping {
            self.tick();
            let moved = self.round();
            self.drop_faulty();
            if moved {
                self.spin.reset();
                rounds += 1;
                if rounds % ROUNDS_PER_POLL != 0 {
                    continue;
                }
                self.wait(Some(Duration::ZERO))?;
            } else if self.spin.again() {
                std::hint::spin_loop();
            } else if self.may_sleep() {
                self.sleep()?;
            }
        }
        let ports: Vec<u16> = self.switch.ports().map(|(number, _)| number).collect();
        for port in ports {
            self.detach(port, Reason::Asked);
        }
        Ok(())
    }

    /// Bring the clocks up to date.
    fn tick(&mut self) {
        self.switch.now = Instant::now();
        let seconds = self.switch.now.duration_since(self.epoch).as_secs();
        // Wraps after 136 years.
        let seconds = u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or(0);
        if self.switch.seconds != seconds {
            self.switch.seconds = seconds;
            self.switch.age();
        }
    }

    /// Serve every active port once; true when a frame moved.
    fn round(&mut self) -> bool {
        let begin = ticks::now();
        let mut moved = 0;
        let mut more = false;
        for index in 0..self.active.len() {
            let Some(port) = self.active.get(index).copied() else {
                break;
            };
            let visit = self.switch.serve(port);
            moved += visit.moved;
            more |= visit.more;
        }
        if moved > 0 {
            self.figures.busy_ticks += ticks::now().wrapping_sub(begin);
            self.figures.busy_frames += u64::from(moved);
        }
        moved > 0 || more
    }

    /// Ask all active rings for kicks and take those that have nothing off the list. False when
    /// there is work after all.
    fn may_sleep(&mut self) -> bool {
        let mut quiet = true;
        let mut kept = 0;
        for index in 0..self.active.len() {
            let Some(port) = self.active.get(index).copied() else {
                break;
            };
            let idle = self.ask_for_kicks(port);
            quiet &= idle;
            if !idle || self.holds(port) {
                if let Some(place) = self.active.get_mut(kept) {
                    *place = port;
                }
                kept += 1;
            }
        }
        self.active.truncate(kept);
        quiet
    }

    fn holds(&self, port: u16) -> bool {
        match self.switch.port(port).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) => guest.held.iter().any(|held| !held.is_empty()),
            _ => false,
        }
    }

    /// Ask a port's transmit rings for a kick, and the receivers it waits for too. True when none
    /// of them has anything now.
    fn ask_for_kicks(&mut self, number: u16) -> bool {
        let now = self.switch.now;
        let mut receivers: Vec<u16> = Vec::new();
        let mut result = Ok(true);
        if let Some(Kind::Guest(guest)) = self.switch.port_mut(number).map(|port| &mut port.kind) {
            result = ask_transmit(guest, now);
            receivers.extend(guest.held.iter().flat_map(|held| held.receivers()));
        }
        receivers.sort_unstable();
        receivers.dedup();
        let mut idle = match result {
            Ok(idle) => idle,
            Err(fault) => {
                self.fail(number, &fault);
                true
            }
        };
        for receiver in receivers {
            match self.ask_receiver(receiver) {
                Ok(quiet) => idle &= quiet,
                Err(fault) => self.fail(receiver, &fault),
            }
        }
        idle
    }

    /// Ask a receiver that had too few buffers for a kick. False when it has other ones now, or
    /// is not there any more.
    fn ask_receiver(&mut self, number: u16) -> Result<bool, Fault> {
        let Some(Kind::Guest(guest)) = self.switch.port_mut(number).map(|port| &mut port.kind)
        else {
            return Ok(false);
        };
        let Some(short) = guest.short else {
            return Ok(false);
        };
        let ring = receive_ring(0);
        match guest.backend.vring_mut(ring).and_then(Vring::active_mut) {
            Some(active) => active
                .ask_for_kick(short.seen)
                .map(|more| !more)
                .map_err(vhost::backend::at(ring)),
            None => Ok(false),
        }
    }

    /// Wait for something to happen.
    fn sleep(&mut self) -> std::io::Result<()> {
        let holding = self.active.iter().any(|port| self.holds(*port));
        let begin = Instant::now();
        self.wait(holding.then_some(HOLD))?;
        self.spin.slept(begin.elapsed());
        self.figures.wakeups += 1;
        Ok(())
    }

    /// Take events from the kernel and act on them.
    fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: 0,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.poll, buffer, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            self.act(Token::from_data(event.data), event.flags);
        }
        self.events = events;
        Ok(())
    }

    fn act(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Control => {
                if flags.contains(epoll::EventFlags::OUT) {
                    self.outbox.flush();
                }
                self.take_orders();
            }
            Token::Socket(port) => self.take_messages(port),
            Token::Kick(port, ring) => {
                if let Some(port) = self.switch.port_mut(port) {
                    port.counters.kicks += 1;
                }
                // A kick of a receive ring concerns those who wait for it, and they are active.
                if ring % 2 == 1 {
                    self.activate(port);
                }
            }
            Token::Tap(port) => self.activate(port),
        }
    }

    fn activate(&mut self, port: u16) {
        if !self.active.contains(&port) && self.switch.port(port).is_some() {
            self.active.push(port);
        }
    }

    fn take_orders(&mut self) {
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

    fn carry_out(&mut self, order: Order, fd: Option<std::os::fd::OwnedFd>) {
        match order {
            Order::Attach { port, name } => {
                self.attach(port, name, fd.ok_or(Errno::BADF).and_then(attach::guest));
            }
            Order::AttachUplink { port, name } => {
                self.attach(port, name, fd.ok_or(Errno::BADF).and_then(attach::uplink));
            }
            Order::Detach { port } => self.detach(port.0, Reason::Asked),
            Order::SetResidency { mac, port } => {
                if !self.switch.table.pin(mac, port.0) {
                    tracing::warn!(%mac, "the residency table is full: address not pinned");
                }
            }
            Order::ClearResidency { mac } => self.switch.table.forget(mac),
            Order::Report => self.report(),
            Order::Stop => self.stopping = true,
        }
    }

    fn attach(&mut self, id: PortId, name: String, kind: Result<Kind, Errno>) {
        let added = kind.and_then(|kind| {
            let port = attach::port(name, kind);
            if self.switch.add(id.0, port) {
                Ok(())
            } else {
                Err(Errno::EXIST)
            }
        });
        let watched = added.and_then(|()| self.watch(id.0));
        if let Err(error) = watched {
            let why = format!("the port cannot be attached: {error}");
            self.detach(id.0, Reason::Host(why));
        }
    }

    /// Have the kernel tell of what comes from a new port.
    fn watch(&mut self, number: u16) -> Result<(), Errno> {
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

    /// Handle what a front-end has sent, some messages at a time. What is left makes the socket
    /// readable again at the next look.
    fn take_messages(&mut self, number: u16) {
        for _ in 0..MESSAGES_PER_TURN {
            match self.take_message(number) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.fail(number, &fault),
            }
        }
    }

    /// Handle one message; false when there is none.
    fn take_message(&mut self, number: u16) -> Result<bool, Fault> {
        let Some(guest) = self.guest(number) else {
            return Ok(false);
        };
        let Some(message) = guest.backend.receive()? else {
            return Ok(false);
        };
        let rings = guest.backend.vrings().len();
        for ring in message.stops(rings) {
            self.switch.release_held(number, ring);
        }
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

    fn guest(&mut self, number: u16) -> Option<&mut Guest> {
        match self.switch.port_mut(number).map(|port| &mut port.kind) {
            Some(Kind::Guest(guest)) => Some(guest),
            _ => None,
        }
    }

    fn after(&mut self, number: u16, change: vhost::backend::Change) -> Result<(), Fault> {
        use vhost::backend::Change;
        match change {
            Change::None => {}
            Change::Announce(mac) => self
                .switch
                .announce(number, crate::mac::Mac::from_octets(mac)),
            Change::Ring(_) | Change::AllRings => {
                self.activate(number);
                self.announce_running(number);
            }
        }
        Ok(())
    }

    /// Tell the supervisor once when a guest's rings run.
    fn announce_running(&mut self, number: u16) {
        let Some(guest) = self.guest(number) else {
            return;
        };
        let running = guest.is_running();
        let news = running && !guest.announced;
        guest.announced = running;
        guest.short = None;
        guest.reserve();
        if news {
            self.outbox.send(&Event::Running {
                port: PortId(number),
            });
        }
    }

    /// Watch a ring's kick descriptor, or stop watching it before it is closed: the front-end
    /// keeps a copy, so closing ours would not end the watch.
    fn watch_kick(&mut self, number: u16, ring: usize, on: bool) -> Result<(), Fault> {
        let Some(Kind::Guest(guest)) = self.switch.port(number).map(|port| &port.kind) else {
            return Ok(());
        };
        let Some(Notifier::Event(kick)) = guest.backend.vrings().get(ring).map(Vring::kick) else {
            return Ok(());
        };
        let data = Token::Kick(number, ring).data();
        // Edge triggered: each kick is one event, and the counter need not be read back.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let done = if on {
            epoll::add(&self.poll, kick, data, edge)
        } else {
            epoll::delete(&self.poll, kick)
        };
        match done {
            // One descriptor for two rings is odd but harmless: one watch tells of both.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(error) => Err(Fault::Host(error)),
        }
    }

    /// End the ports that the data path found at fault.
    fn drop_faulty(&mut self) {
        while let Some((port, fault)) = self.switch.take_fault() {
            self.fail(port, &fault);
        }
        let hits = sigbus::hits();
        if hits != self.truncations {
            self.truncations = hits;
            let truncated = |(number, port): (u16, &Port)| match &port.kind {
                Kind::Guest(guest) => guest.backend.memory().truncated().then_some(number),
                Kind::Uplink(_) => None,
            };
            let ports: Vec<u16> = self.switch.ports().filter_map(truncated).collect();
            for port in ports {
                self.fail(port, &Fault::Truncated);
            }
        }
    }

    fn fail(&mut self, number: u16, fault: &Fault) {
        let reason = match fault {
            Fault::Gone => Reason::Gone,
            Fault::Host(_) => Reason::Host(fault.to_string()),
            _ => Reason::Fault(fault.to_string()),
        };
        self.detach(number, reason);
    }

    fn detach(&mut self, number: u16, reason: Reason) {
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
            tracing::info!(port = port.name, ?reason, "port detached");
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

    fn report(&mut self) {
        let numbers: Vec<u16> = self.switch.ports().map(|(number, _)| number).collect();
        for number in numbers {
            let Some(port) = self.switch.port(number) else {
                continue;
            };
            let (running, features, mtu) = match &port.kind {
                Kind::Guest(guest) => (
                    guest.is_running(),
                    guest.backend.features(),
                    guest.backend.mtu(),
                ),
                Kind::Uplink(_) => (true, 0, 0),
            };
            let residents = u32::try_from(self.switch.table.count(number)).unwrap_or(u32::MAX);
            let counters = port.counters;
            self.outbox.send(&Event::Report(Box::new(PortReport {
                port: number,
                running,
                features,
                mtu,
                residents,
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

/// Ask a guest's transmit rings for kicks; true when they have nothing to send now.
fn ask_transmit(guest: &mut Guest, now: Instant) -> Result<bool, Fault> {
    let mut idle = true;
    for (pair, held) in guest.held.iter().enumerate() {
        let number = crate::port::transmit_ring(pair);
        let Some(ring) = guest.backend.vring_mut(number).and_then(Vring::active_mut) else {
            continue;
        };
        if held.is_stalled(now) {
            continue;
        }
        idle &= !ring.ask_for_kick(0).map_err(vhost::backend::at(number))?;
    }
    Ok(idle)
}
