//! The thread that serves a network: busy while there is work, asleep otherwise.
//!
//! Ports with something to do are on the list of active ports and served in turn. When a round
//! moves nothing, the worker looks again for a short while if that has paid lately, then asks
//! every active ring for a kick and sleeps until one comes. A ring that is not on the list has
//! been asked for a kick, always: that is the invariant that no frame is forgotten.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use vhost::alarm::Alarm;
use vhost::fault::Fault;
use vhost::sigbus;

use crate::contention::Contention;
use crate::control::{ControlSocket, Reason, WorkerReport};
use crate::limits::{CALL, MAX_PORTS, ROUNDS_PER_POLL, SPIN, THIN};
use crate::outbox::Outbox;
use crate::port::{Kind, Port};
use crate::spin::Spin;
use crate::switch::Switch;
use crate::thin::Thin;
use crate::ticks;
use crate::token::Token;

/// Events taken from the kernel at once.
const EVENTS: usize = 128;

/// A network being served.
pub struct Worker {
    pub(crate) switch: Switch,
    pub(crate) outbox: Outbox,
    pub(crate) poll: std::os::fd::OwnedFd,
    events: Vec<epoll::Event>,
    /// Ports that have, or may have, something to do. No port is listed twice.
    pub(crate) active: Vec<u16>,
    /// Receivers that a port waits for, and by which pair: scratch of [`Worker::may_sleep`].
    pub(crate) receivers: Vec<(u16, usize)>,
    spin: Spin,
    thin: Thin,
    /// Set while a guest may be called, which its front-end may have made a trap.
    alarm: Alarm,
    pub(crate) contention: Contention,
    pub(crate) figures: WorkerReport,
    pub(crate) started: u64,
    epoch: Instant,
    truncations: usize,
    pub(crate) stopping: bool,
}

impl Worker {
    /// Serve the network whose supervisor is at the other end of `control`, on this thread.
    ///
    /// # Errors
    /// The process is out of descriptors, or signal handling cannot be set up.
    pub fn new(control: ControlSocket) -> std::io::Result<Self> {
        sigbus::install()?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let interest = epoll::EventFlags::IN;
        epoll::add(&poll, &control, Token::Control.data(), interest)?;
        let epoch = Instant::now();
        // The kernel adds 50 µs to every sleep otherwise. Where it will not, frames wait longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Self {
            switch: Switch::new(),
            outbox: Outbox::new(control),
            poll,
            events: Vec::with_capacity(EVENTS),
            active: Vec::with_capacity(MAX_PORTS),
            receivers: Vec::with_capacity(MAX_PORTS),
            spin: Spin::new(SPIN),
            thin: Thin::new(epoch),
            alarm: Alarm::new(CALL)?,
            contention: Contention::of_this_thread(),
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
            } else if self.thin.gathers(self.switch.now, self.figures.busy_frames) {
                // No kick is asked for: the ports stay on the list.
                self.wait(Some(THIN))?;
                self.figures.wakeups += 1;
            } else if self.spin.again() {
                std::hint::spin_loop();
            } else if self.may_sleep() {
                self.sleep()?;
            } else {
                // Whatever keeps it awake without moving anything: orders are still heard.
                self.wait(Some(Duration::ZERO))?;
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
        self.contention.look(self.switch.now);
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

    /// Wait for something to happen.
    fn sleep(&mut self) -> std::io::Result<()> {
        let patience = self
            .active
            .iter()
            .filter_map(|port| self.patience(*port))
            .min();
        let begin = Instant::now();
        self.wait(patience)?;
        let slept = begin.elapsed();
        self.thin.slept();
        // A sleep that ran its time says nothing about when work comes.
        if patience.is_none_or(|patience| slept < patience) {
            self.spin.slept(slept);
        }
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
        loop {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            // syscalls: epoll_pwait2
            match epoll::wait(&self.poll, buffer, timeout.as_ref()) {
                // It sleeps longer than a moment, and whoever sleeps calls nobody.
                Err(Errno::INTR) if timeout.is_none() => self.alarm.unset(),
                Ok(_) | Err(Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.alarm.set();
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

    pub(crate) fn activate(&mut self, port: u16) {
        if !self.active.contains(&port) && self.switch.port(port).is_some() {
            self.active.push(port);
        }
    }

    /// End the ports that the data path found at fault. A truncated memory reads as zeroes, which
    /// break other rules: it is looked for first, to be named as what it is.
    fn drop_faulty(&mut self) {
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
        while let Some((port, fault)) = self.switch.take_fault() {
            // A flood finds the same fault once a frame.
            if self.switch.port(port).is_some() {
                self.fail(port, &fault);
            }
        }
    }

    pub(crate) fn fail(&mut self, number: u16, fault: &Fault) {
        let reason = match fault {
            Fault::Gone => Reason::Gone,
            Fault::Host(_) => Reason::Host(fault.to_string()),
            _ => Reason::Fault(fault.to_string()),
        };
        self.detach(number, reason);
    }
}
