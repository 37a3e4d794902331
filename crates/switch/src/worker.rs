//! A thread that serves a network: it polls while there is work and sleeps otherwise.
//!
//! The worker serves the ports on its list of active ports in turn. When a round forwards nothing, it
//! busy-polls for a short time if that paid off recently. Then it enables kicks on every active ring and
//! sleeps until a kick arrives. Invariant: kicks are enabled on every ring that is not on the list, so no
//! frame is missed. It holds for each worker and the transmit rings that it reads; when a ring starts, the
//! first worker queues its port for the worker's list ([`Shared::queue_port`]).
//!
//! Any worker may fill any receive ring. Each worker that waits for buffers enables kicks on the receive
//! ring, and the kick wakes all workers. A worker that fills the ring in the meantime disables the kick or
//! moves `avail_event`, and wakes the workers that wait
//! ([`RingState`](crate::ring_state::RingState::wake_set)).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use vhost::alarm::Alarm;

use crate::clock;
use crate::contention::Contention;
use crate::context::WorkerContext;
use crate::event_key::EventKey;
use crate::limits::{CALL_TIMEOUT, MAX_PORTS, MODERATION_SLEEP, ROUNDS_PER_POLL, SPIN};
use crate::manager::Manager;
use crate::moderation::Moderation;
use crate::raw::ticks;
use crate::shared::{FIRST, Shared, WorkerSlot};
use crate::spin::Spin;
use crate::steering::WakeSet;

/// Most events of one `epoll_pwait2` call.
const EVENTS: usize = 128;

/// One worker of a network.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Only the first worker has a manager.
    manager: Option<Manager>,
    pub(crate) context: WorkerContext,
    events: Vec<epoll::Event>,
    /// The list of active ports: those that may have work. No port is listed twice.
    pub(crate) active: Vec<u16>,
    /// How long the worker may sleep without a kick; `None` is without a limit.
    pub(crate) timeout: Option<Duration>,
    spin: Spin,
    moderation: Moderation,
    /// The network allows frames to gather.
    may_gather: bool,
    /// The network has captures.
    has_captures: bool,
    /// Set while the worker may call guests: a front-end may have made its call descriptor block.
    alarm: Alarm,
    pub(crate) contention: Contention,
    busy_ticks: u64,
    busy_frames: u64,
}

impl Worker {
    /// Creates the worker with this number, which must run on the calling thread.
    ///
    /// # Errors
    /// The kernel refuses to create a timer.
    pub(crate) fn new(
        shared: Arc<Shared>,
        number: usize,
        manager: Option<Manager>,
    ) -> std::io::Result<Self> {
        let epoch = shared.epoch;
        Ok(Self {
            shared,
            manager,
            context: WorkerContext::new(number),
            events: Vec::with_capacity(EVENTS),
            active: Vec::with_capacity(MAX_PORTS),
            timeout: None,
            spin: Spin::new(SPIN),
            moderation: Moderation::new(epoch),
            may_gather: true,
            has_captures: false,
            alarm: Alarm::new(CALL_TIMEOUT)?,
            contention: Contention::of_this_thread(None),
            busy_ticks: 0,
            busy_frames: 0,
        })
    }

    /// Serves the network until it stops.
    ///
    /// # Errors
    /// The kernel refuses to wait for events, or another worker has failed.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let mut rounds = 0;
        let mut moved = false;
        while !self.is_stopping() {
            self.tick(moved);
            moved = self.round();
            self.drop_faulty();
            if moved {
                self.spin.reset();
                rounds += 1;
                if rounds % ROUNDS_PER_POLL != 0 {
                    continue;
                }
                self.wait(Some(Duration::ZERO))?;
            } else if self.may_gather && self.moderation.gathers(self.context.now, self.busy_frames)
            {
                // Kicks stay disabled, so the ports stay on the list.
                self.wait(Some(MODERATION_SLEEP))?;
                self.count_wakeup();
            } else if self.spin.continue_polling() {
                std::hint::spin_loop();
            } else if self.prepare_to_sleep() {
                self.sleep()?;
            } else {
                // Something keeps the worker awake although it forwards nothing. It still reads events, so
                // that orders are handled.
                self.wait(Some(Duration::ZERO))?;
            }
        }
        match &mut self.manager {
            Some(manager) if manager.stopping => manager.close(),
            Some(_) => return Err(std::io::Error::other("a worker of the network has failed")),
            None => {}
        }
        Ok(())
    }

    /// Ends the ports at fault, if this is the first worker.
    pub(crate) fn drop_faulty(&mut self) {
        if let Some(manager) = &mut self.manager {
            manager.drop_faulty();
        }
    }

    fn is_stopping(&self) -> bool {
        let stopping = self.manager.as_ref().is_some_and(|own| own.stopping);
        stopping || self.shared.is_stopping()
    }

    fn slot(&self) -> Option<&WorkerSlot> {
        self.shared.slots.get(self.context.worker)
    }

    /// Updates the clocks. `moved` tells whether the worker forwarded frames since the last call.
    fn tick(&mut self, moved: bool) {
        let now = clock::now();
        self.context
            .capture_budget
            .refill(now - self.context.now, !moved);
        self.context.now = now;
        self.contention.update(self.context.now);
        let seconds = self.shared.seconds(self.context.now);
        if self.context.seconds != seconds {
            self.context.seconds = seconds;
            self.shared.read().age(seconds);
        }
    }

    /// Serves every active port once; returns true when a frame was forwarded or a port has more.
    pub(crate) fn round(&mut self) -> bool {
        let begin = ticks::now();
        let mut moved = 0;
        let mut more = false;
        let switch = self.shared.read();
        for port in &self.active {
            let served = switch.serve(&mut self.context, *port);
            moved += served.moved;
            more |= served.more;
        }
        self.may_gather = !switch.moderation_delay.is_zero();
        self.has_captures = !switch.captures.is_empty();
        let faulty = switch.is_faulty();
        drop(switch);
        if moved > 0 {
            // The counters of two processors may differ: no time is less than none.
            let spent = ticks::now().saturating_sub(begin);
            self.busy_ticks = self.busy_ticks.saturating_add(spent);
            self.busy_frames += u64::from(moved);
            if let Some(slot) = self.slot() {
                slot.busy_ticks.store(self.busy_ticks, Ordering::Relaxed);
                slot.busy_frames.store(self.busy_frames, Ordering::Relaxed);
            }
        }
        let (wakes, own) = (std::mem::take(&mut self.context.wakes), self.context.worker);
        if wakes != WakeSet::NONE {
            self.shared.wake_set(wakes, own);
        }
        if faulty && own != FIRST {
            self.shared.wake(FIRST);
        }
        moved > 0 || more
    }

    /// Sleeps until an event or the timeout.
    fn sleep(&mut self) -> std::io::Result<()> {
        let timeout = self.timeout;
        let begin = Instant::now();
        self.wait(timeout)?;
        let slept = begin.elapsed();
        self.moderation.slept();
        // A sleep that ends with its timeout does not show when work arrives.
        if timeout.is_none_or(|timeout| slept < timeout) {
            self.spin.slept(slept);
        }
        self.count_wakeup();
        Ok(())
    }

    fn count_wakeup(&self) {
        if let Some(slot) = self.slot() {
            slot.wakeups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for events of the epoll set and handles them.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: 0,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let shared = Arc::clone(&self.shared);
        if self.has_captures {
            shared.read().flush_captures();
        }
        let Some(slot) = shared.slots.get(self.context.worker) else {
            return Ok(());
        };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        loop {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            // syscalls: epoll_pwait2
            match epoll::wait(&slot.poll, buffer, timeout.as_ref()) {
                // The alarm interrupted a sleep without a timeout. A worker that sleeps calls no guest, so
                // the alarm is not needed.
                Err(Errno::INTR) if timeout.is_none() => self.alarm.unset(),
                Ok(_) | Err(Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.alarm.set();
        self.handle_events(&events);
        if let Some(manager) = &mut self.manager {
            manager.act(&mut self.context, &events);
        }
        self.events = events;
        while let Some(port) = slot.next_pending_port() {
            self.activate(port);
        }
        Ok(())
    }

    /// Adds ports with events to the list of active ports.
    fn handle_events(&mut self, events: &[epoll::Event]) {
        for event in events {
            match EventKey::from_data(event.data) {
                // A kick of a receive ring concerns ports that wait for it, which are on the list already.
                EventKey::Kick(port, ring) if ring % 2 == 1 => self.activate(port),
                EventKey::Tap(port) => self.activate(port),
                EventKey::Kick(..) | EventKey::Control | EventKey::Socket(_) | EventKey::Wake => {}
            }
        }
        self.count_kicks(events);
    }

    /// Counts each kick once; a kick of a receive ring reaches every worker.
    fn count_kicks(&self, events: &[epoll::Event]) {
        let kicks = events
            .iter()
            .filter_map(|event| match EventKey::from_data(event.data) {
                EventKey::Kick(port, ring) => Some((port, ring)),
                _ => None,
            });
        let mut kicks = kicks.peekable();
        if kicks.peek().is_some() {
            let switch = self.shared.read();
            kicks.for_each(|(port, ring)| switch.count_kick(self.context.worker, port, ring));
        }
    }

    pub(crate) fn activate(&mut self, port: u16) {
        if !self.active.contains(&port) {
            self.active.push(port);
        }
    }
}
