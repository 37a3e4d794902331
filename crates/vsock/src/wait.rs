//! Waits for events.

use std::io;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use crate::event_key::EventKey;
use crate::guest::Device;
use crate::limits::{REPORT_DELAY, STUCK_TIMEOUT};
use crate::plane::Plane;
use crate::receive::RECEIVE;

/// Most events that one wait reports.
const EVENTS: usize = 256;

impl Plane {
    /// Returns when [`work`](Self::work) has something to do without an event.
    fn deadline(&self) -> Option<Duration> {
        let since = self
            .guests
            .iter()
            .filter_map(|guest| guest.device.as_ref()?.full_since);
        let stuck = since.min().map(|since| since + STUCK_TIMEOUT);
        let unreported = self
            .guests
            .iter()
            .filter_map(|guest| guest.device.as_ref()?.unreported_since);
        let report = unreported.min().map(|since| since + REPORT_DELAY);
        let at = [stuck, report].into_iter().flatten().min();
        let after = at.map(|at| at.saturating_duration_since(self.now));
        after.into_iter().chain(self.handshake_deadline()).min()
    }

    /// Waits for events until there is work; returns at once if there is. Returns whether the supervisor's
    /// socket has orders.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&mut self, has_work: bool) -> io::Result<bool> {
        let timeout = match has_work {
            true => Some(Duration::ZERO),
            false => self.deadline(),
        };
        let timespec = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            // syscalls: epoll_pwait2
            match epoll::wait(&self.poll, buffer, timespec.as_ref()) {
                // The alarm interrupted a sleep. A thread that sleeps calls no guest, so it needs no alarm.
                Err(Errno::INTR) if !has_work => self.alarm.unset(),
                Ok(_) | Err(Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.alarm.set();
        let mut has_orders = false;
        for event in &events {
            match EventKey::from_data(event.data) {
                EventKey::Control => has_orders = true,
                EventKey::Listener(guest) => {
                    if let Some(guest) = self.guests.get_mut(guest) {
                        guest.may_accept = true;
                    }
                }
                EventKey::Stream(number) => {
                    let flags = event.flags;
                    if let Some(stream) = self.streams.get_mut(number) {
                        stream.may_read |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                        stream.has_hung_up |= flags.contains(EventFlags::HUP);
                    }
                    self.streams.make_ready(number);
                }
                EventKey::Socket(guest) => {
                    self.with_device(guest, |device| device.has_messages = true);
                }
                EventKey::Kick(guest, RECEIVE) => {
                    if let Some(guest) = self.guests.get_mut(guest) {
                        guest.may_receive = true;
                    }
                }
                EventKey::Kick(guest, _) => {
                    // A packet for another receiver may be behind the one that waits.
                    self.with_device(guest, |device| {
                        (device.may_transmit, device.waits_for) = (true, None);
                    });
                }
            }
        }
        Ok(has_orders)
    }

    fn with_device(&mut self, guest: usize, change: impl FnOnce(&mut Device)) {
        let guest = self.guests.get_mut(guest);
        if let Some(device) = guest.and_then(|guest| guest.device.as_mut()) {
            change(device);
        }
    }
}
