//! Whether a process polls for what comes next, or sleeps.
//!
//! A poll that succeeds saves the other side a doorbell, and this side a wake-up. Between two polls, the process yields
//! its processor to the programs that it waits for. A program of MX yields, too, and soon gives the processor back. A virtual
//! CPU keeps it for a time slice of some milliseconds, as a program that computes does. A wake-up costs no such slice: the
//! scheduler soon runs a process that was woken. So a process with links of VMs that has lost its processor by a yield sleeps
//! instead of polling, for a while. One with links of programs only goes on polling: between these, polls find most
//! messages, and a process that always sleeps takes nine times as long.
//!
//! The doorbell of a program in a VM passes the VM's gateway, so it costs the VM two context switches. The host
//! suppresses these doorbells for a while after anything was moved, as virtio's devices suppress notifications, and
//! sleeps for short times meanwhile.

use std::time::{Duration, Instant};

use crate::limits::PREEMPTION;
use crate::poll_sleeps::within;

/// How long a process polls after it moved anything.
const SPIN: Duration = Duration::from_micros(50);

/// How long the host suppresses the doorbells of VMs after it moved anything.
const SUPPRESSION: Duration = Duration::from_millis(1);

/// How long the host sleeps at a time while it suppresses doorbells: about as long as an emulated VM takes for one.
pub(super) const SUPPRESSED_SLEEP: Duration = Duration::from_micros(50);

/// How long a process does not poll after it has lost its processor. It loses one time slice to notice that it would lose
/// further ones.
const LOSS_LASTS: Duration = Duration::from_secs(1);

/// What decides how a process waits that moves records.
#[derive(Debug, Default)]
pub(super) struct AdaptivePolling {
    /// When anything was last moved.
    moved: Option<Instant>,
    /// When another program was last found to keep the processor.
    lost_cpu: Option<Instant>,
    has_vms: bool,
}

impl AdaptivePolling {
    /// Records whether there are links of VMs.
    pub(super) fn set_has_vms(&mut self, has_vms: bool) {
        self.has_vms = has_vms;
    }

    /// Records that something was moved.
    #[inline]
    pub(super) fn moved(&mut self, now: Instant) {
        self.moved = Some(now);
    }

    /// Records a yield.
    #[inline]
    pub(super) fn yielded(&mut self, begin: Instant, end: Instant) {
        if end.saturating_duration_since(begin) >= PREEMPTION {
            self.lost_cpu = Some(end);
        }
    }

    /// Returns whether to poll again, after a poll that moved nothing.
    #[inline]
    pub(super) fn polls_on(&self, now: Instant) -> bool {
        let loses_cpu = self.has_vms && within(self.lost_cpu, LOSS_LASTS, now);
        within(self.moved, SPIN, now) && !loses_cpu
    }

    /// Returns whether the doorbells of VMs are suppressed.
    pub(super) fn suppresses_doorbells(&self, now: Instant) -> bool {
        within(self.moved, SUPPRESSION, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(10);

    #[test]
    fn a_process_polls_for_a_while_after_it_moved_something() {
        let (mut polling, now) = (AdaptivePolling::default(), Instant::now());
        assert!(!polling.polls_on(now));
        polling.moved(now);
        assert!(polling.polls_on(now + SOON));
        assert!(!polling.polls_on(now + SPIN));
    }

    /// The least time slice of the kernel is 0.7 ms; two context switches take some microseconds.
    #[test]
    fn a_process_that_lost_its_processor_by_a_yield_sleeps_at_once() {
        let (mut polling, begin) = (AdaptivePolling::default(), Instant::now());
        polling.set_has_vms(true);
        polling.moved(begin);
        polling.yielded(begin, begin + SOON);
        assert!(polling.polls_on(begin + SOON), "the others gave it back");
        let now = begin + Duration::from_micros(700);
        polling.yielded(begin, now);
        for later in [SOON, LOSS_LASTS / 2, LOSS_LASTS - SOON] {
            polling.moved(now + later);
            assert!(!polling.polls_on(now + later));
            polling.set_has_vms(false);
            assert!(polling.polls_on(now + later), "programs give it back");
            polling.set_has_vms(true);
        }
        // It tries again from time to time.
        polling.moved(now + LOSS_LASTS);
        assert!(polling.polls_on(now + LOSS_LASTS));
    }

    #[test]
    fn doorbells_are_suppressed_for_a_while_only() {
        let (mut polling, now) = (AdaptivePolling::default(), Instant::now());
        assert!(!polling.suppresses_doorbells(now));
        polling.moved(now);
        assert!(polling.suppresses_doorbells(now + SUPPRESSION / 2));
        assert!(!polling.suppresses_doorbells(now + SUPPRESSION));
    }
}
