//! When an uplink works and when it sleeps.

use std::time::{Duration, Instant};

use window::doorbell;

use super::link::Link;
use super::wire_member::WireMember;
use super::{Uplink, links};
use crate::error::Error;
use crate::remote::shared_interface::{INTERVAL, SharedInterface};

/// Turns between two reads of the clock.
const ROUNDS: u32 = 8;

/// The longest time that an uplink polls before it sends a heartbeat and calls `go_on`.
const SPIN_LIMIT: Duration = Duration::from_millis(100);

/// The pause before an uplink tries again to send on an interface that was full.
const FULL_PAUSE: Duration = Duration::from_micros(50);

/// The interval of heartbeats.
const BEAT: Duration = Duration::from_secs(1);

impl Uplink {
    /// Runs until `go_on`, called at least once a second, returns false.
    ///
    /// # Errors
    /// The interface or the host is gone, or the host has ended this uplink's membership.
    pub fn run(&mut self, mut go_on: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        let mut look_at = Duration::ZERO;
        while go_on(self) {
            self.page.send_heartbeat();
            let now = self.network.now();
            if now >= look_at {
                look_at = now + INTERVAL;
                self.look_after_others()?;
            }
            if self.page.joined_number() != self.join_number {
                return Err(Error::Join("the host has ended this uplink".to_owned()));
            }
            self.spin()?;
            self.sleep()?;
        }
        Ok(())
    }

    /// Works, and polls for a while if anything was moved just now.
    fn spin(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            for _ in 0..ROUNDS {
                if self.poll()? {
                    self.polling.moved(Instant::now());
                    continue;
                }
                let now = Instant::now();
                if !self.polling.polls_on(now) {
                    return Ok(());
                }
                // The program that it waits for may need this processor, or its sibling.
                std::hint::spin_loop();
                std::thread::yield_now();
                self.polling.yielded(now, Instant::now());
            }
            if started.elapsed() >= SPIN_LIMIT {
                return Ok(());
            }
        }
    }

    /// Announces the sleep to all endpoints, checks for work once more, then sleeps.
    fn sleep(&mut self) -> Result<(), Error> {
        let now = self.network.now();
        self.each_link(now, Link::prepare_to_wait);
        let has_vms = links(&mut self.links).any(|link| Some(link.pair.nic) != self.host_nic);
        self.polling.set_has_vms(has_vms);
        // Members run on other kernels, or are treated so: they use a fence each.
        let _result = doorbell::wait_fence();
        let mut limit = self.sleep_limit();
        if self
            .sharing
            .as_ref()
            .is_some_and(SharedInterface::has_others)
        {
            limit = limit.min(INTERVAL);
        }
        let woken = self.waiter.wait(Some(limit))?;
        for link in links(&mut self.links) {
            link.finish_wait();
        }
        self.check_sockets(&woken)
    }

    /// Returns how long the uplink may sleep before there is something to do.
    pub(in crate::remote) fn sleep_limit(&mut self) -> Duration {
        let now = self.network.now();
        let mut limit = match self.has_work() {
            true => Duration::ZERO,
            false => BEAT,
        };
        if !self.sent {
            limit = limit.min(FULL_PAUSE);
        }
        let deadline = self.wire_members.values().filter_map(WireMember::deadline);
        let deadline = deadline
            .min()
            .map_or(BEAT, |deadline| deadline.saturating_sub(now));
        limit.min(deadline)
    }

    /// Returns whether a turn would move anything.
    fn has_work(&mut self) -> bool {
        let now = self.network.now();
        self.control.has_message() || self.any_link(now, Link::has_work)
    }
}
