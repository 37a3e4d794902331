//! When a program that polls sleeps nevertheless: decisions without a clock of their own.
//!
//! In a VM, a yield does not reach the host: the virtual CPU of a poller keeps the processor that the
//! peer's VM needs. So a poller sleeps for short times while processors are *scarce*: the program has just
//! lost its processor, or steal time shows that the host is overcommitted.
//!
//! A loss of the processor shows only as a time between two polls that is longer than usual. The kernel's
//! time slices take 0.7 ms or more (`sysctl_sched_base_slice`, kernel/sched/fair.c), and interrupts less
//! than [`PREEMPTION`]. A program that computes between its polls takes about the same time each time, so
//! this is no loss. Such a program does not sleep at all: it uses the time itself.

use std::time::{Duration, Instant};

use crate::limits::{
    CPU_LOSS_LASTS, DENSE_POLLS, POLLING_BEFORE_SLEEP, POLLING_BETWEEN_CLOCK_READS,
    POLLING_BETWEEN_SLEEPS, POLLS_PER_CLOCK_READ, PREEMPTION,
};
use crate::wait_policy::{HostConditions, Wait};

/// A time between polls that is so many times as long as usual stands out.
const OUTLIER: u32 = 4;

/// The newest time between polls is this part of the usual one.
const NEWEST_SHARE: u32 = 4;

/// What a program does after a look at a peer's heap without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLook {
    /// It goes on, and polls for other things.
    Poll,
    /// It lets the other programs of this processor run.
    Yield,
    /// It sleeps for [`POLL_SLEEP`](crate::limits::POLL_SLEEP).
    Sleep,
}

/// What is known about the polls of a program.
#[derive(Debug)]
pub(crate) struct PollSleeps {
    /// The usual time from one poll to the next.
    interval: Option<Duration>,
    /// The number of polls after which the clock is read.
    polls_per_clock_read: u32,
    /// When it was last found that this program had lost its processor.
    lost_cpu: Option<Instant>,
    /// When the last sleep ended.
    last: Option<Instant>,
}

impl PollSleeps {
    pub(crate) fn new() -> Self {
        Self {
            interval: None,
            polls_per_clock_read: POLLS_PER_CLOCK_READ,
            lost_cpu: None,
            last: None,
        }
    }

    /// Returns the number of polls after which the clock is read: fewer if a poll takes long.
    #[inline(always)]
    pub(crate) fn polls_per_clock_read(&self) -> u32 {
        self.polls_per_clock_read
    }

    /// Returns whether so many polls take `limit`, usually.
    pub(crate) fn usually_take(&self, polls: u32, limit: Duration) -> bool {
        self.interval
            .is_some_and(|interval| interval.saturating_mul(polls) >= limit)
    }

    /// Records that so many polls have taken `time` until `now`, of which none found anything.
    pub(crate) fn polled(&mut self, polls: u32, time: Duration, now: Instant) {
        let each = time / polls.max(1);
        let usual = self.interval.unwrap_or(each);
        if time >= PREEMPTION && time >= usual.saturating_mul(polls.saturating_mul(OUTLIER)) {
            self.lost_cpu = Some(now);
        }
        // A long time counts as little, but the program may have begun to compute between its polls.
        let limit = usual
            .saturating_mul(OUTLIER)
            .saturating_add(Duration::from_micros(1));
        let interval = usual - usual / NEWEST_SHARE + each.min(limit) / NEWEST_SHARE;
        self.interval = Some(interval);
        let polls = POLLING_BETWEEN_CLOCK_READS.as_nanos() / interval.as_nanos().max(1);
        let polls = u32::try_from(polls).unwrap_or(POLLS_PER_CLOCK_READ);
        self.polls_per_clock_read = polls.clamp(1, POLLS_PER_CLOCK_READ);
    }

    /// Returns whether the program is to sleep for [`POLL_SLEEP`](crate::limits::POLL_SLEEP), because it has
    /// found nothing in this wait.
    pub(crate) fn is_due(&self, now: Instant, wait: &Wait, around: HostConditions) -> bool {
        self.is_scarce(now, around)
            && !self.usually_take(1, DENSE_POLLS)
            && wait.polled() >= POLLING_BEFORE_SLEEP
            && !within(self.last, POLLING_BETWEEN_SLEEPS, now)
    }

    /// Returns what the program is to do after a look at a peer's heap without success. `since` is the time since the
    /// last one of this wait, if there was one. Nothing tells the program that a peer has changed the word, and the
    /// peer may need this processor to do so. The program computes nothing between the looks, so that a long time
    /// there is a loss of the processor, whatever is usual.
    pub(crate) fn after_look(
        &mut self,
        since: Option<Duration>,
        now: Instant,
        around: HostConditions,
    ) -> AfterLook {
        if since.is_some_and(|time| time >= PREEMPTION) {
            self.lost_cpu = Some(now);
        }
        match (self.is_scarce(now, around), since) {
            (false, _) => AfterLook::Poll,
            (true, None) => AfterLook::Yield,
            (true, Some(_)) => AfterLook::Sleep,
        }
    }

    /// Returns whether a peer may need the processor that this program has.
    fn is_scarce(&self, now: Instant, around: HostConditions) -> bool {
        around.remote && (within(self.lost_cpu, CPU_LOSS_LASTS, now) || around.overcommitted)
    }

    /// Records a sleep. One that took long shows that processors are still scarce.
    pub(crate) fn slept(&mut self, time: Duration, now: Instant, lost_cpu: Duration) {
        self.last = Some(now);
        if time >= lost_cpu {
            self.lost_cpu = Some(now);
        }
    }
}

/// Returns whether less time than this has passed since an event, if it happened.
#[inline]
pub(crate) fn within(since: Option<Instant>, time: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_policy::conditions::{NEAR, OVERCOMMITTED, REMOTE, thresholds, us};

    /// A program that polls in this state, from `now` on.
    struct Poller {
        state: PollSleeps,
        around: HostConditions,
        now: Instant,
    }

    impl Poller {
        fn new(around: HostConditions) -> Self {
            Self {
                state: PollSleeps::new(),
                around,
                now: Instant::now(),
            }
        }

        /// Waits with a poll each `interval` until `end`, as [`polling`](crate::polling) does; between two
        /// polls it loses its processor once for `loss`. Returns when it sleeps, in microseconds of the wait
        /// without the loss.
        fn wait(&mut self, interval: Duration, loss: Duration, end: Duration) -> Vec<u128> {
            let (mut begin, mut polls, mut lost) = (self.now, 0, loss.is_zero());
            let mut wait = Wait::begin(begin);
            let mut list = Vec::new();
            while self.now - begin < end {
                self.now += interval;
                polls += 1;
                if polls < self.state.polls_per_clock_read() {
                    continue;
                }
                if !lost && self.now - begin >= interval * (2 * POLLS_PER_CLOCK_READ) {
                    self.now += loss;
                    (begin, lost) = (begin + loss, true);
                }
                let taken = wait.uncounted(self.now);
                self.state
                    .polled(std::mem::take(&mut polls), taken, self.now);
                wait.next(self.now, &thresholds(), self.around, || false);
                if self.state.is_due(self.now, &wait, self.around) {
                    list.push((self.now - begin).as_micros());
                    self.now += us(50);
                    self.state.slept(us(50), self.now, thresholds().lost_cpu);
                    wait.yielded(self.now);
                }
            }
            list
        }
    }

    const NO_LOSS: Duration = Duration::ZERO;

    /// The shortest time slice of the kernel.
    const SLICE: Duration = Duration::from_micros(700);

    #[test]
    fn polls_sleep_only_while_processors_are_scarce_and_for_half_of_the_time() {
        let mut poller = Poller::new(REMOTE);
        assert_eq!(poller.wait(us(1), NO_LOSS, us(390)), []);
        let after_loss = poller.wait(us(1), SLICE, us(390));
        assert_eq!(after_loss.len(), 3, "{after_loss:?}");
        let between = |pair: &[u128]| pair[1] - pair[0];
        assert!(after_loss.windows(2).map(between).all(|time| time >= 100));
        // The next waits remember the loss, for a while.
        assert_eq!(poller.wait(us(1), NO_LOSS, us(390)).len(), 3);
        poller.now += CPU_LOSS_LASTS;
        assert_eq!(poller.wait(us(1), NO_LOSS, us(390)), []);
        poller.around = OVERCOMMITTED;
        assert_eq!(poller.wait(us(1), NO_LOSS, us(390)).len(), 3);
        assert_eq!(Poller::new(NEAR).wait(us(1), SLICE, us(390)), []);
    }

    /// Emulated guests with two ranks on one CPU poll once in about 90 us, and their virtual CPUs lose the
    /// processor for 1.4 to 4 ms (scheduler trace of four such VMs on two processors).
    #[test]
    fn a_loss_of_one_time_slice_is_found_whatever_a_poll_takes() {
        for interval in [1, 5, 20, 50, 90, 150].map(us) {
            for loss in [1_400, 2_800, 4_000].map(us) {
                let mut poller = Poller::new(REMOTE);
                let sleeps = poller.wait(interval, NO_LOSS, us(20_000));
                assert_eq!(sleeps, [], "{interval:?}");
                let sleeps = poller.wait(interval, loss, us(20_000));
                assert!(sleeps.len() >= 40, "{interval:?} {loss:?} {sleeps:?}");
            }
        }
    }

    #[test]
    fn a_program_that_computes_between_its_polls_never_sleeps() {
        for interval in [10, 100, 300, 1_000, 6_000].map(us) {
            let mut poller = Poller::new(REMOTE);
            let sleeps = poller.wait(interval, NO_LOSS, us(1_000_000));
            assert_eq!(sleeps, [], "{interval:?}");
        }
        // Nor after a loss, if a sleep would take a part of its own time.
        for interval in [300, 1_000, 6_000].map(us) {
            let mut poller = Poller::new(REMOTE);
            let sleeps = poller.wait(interval, us(20_000), us(1_000_000));
            assert_eq!(sleeps, [], "{interval:?}");
        }
    }

    #[test]
    fn looks_at_a_heap_sleep_at_once_while_processors_are_scarce() {
        let mut poller = Poller::new(REMOTE);
        let after = |poller: &mut Poller, since: Option<Duration>| {
            poller.state.after_look(since, poller.now, poller.around)
        };
        for since in [None, Some(us(1)), Some(us(299))] {
            assert_eq!(after(&mut poller, since), AfterLook::Poll);
        }
        poller.wait(us(1), SLICE, us(390));
        assert_eq!(after(&mut poller, None), AfterLook::Yield);
        assert_eq!(after(&mut poller, Some(us(1))), AfterLook::Sleep);
        // No poll has to come between two sleeps.
        let late = us(50) + PREEMPTION;
        poller.state.slept(us(50), poller.now, late);
        assert_eq!(after(&mut poller, Some(us(1))), AfterLook::Sleep);
        poller.now += CPU_LOSS_LASTS;
        assert_eq!(after(&mut poller, Some(us(1))), AfterLook::Poll);
        // A sleep that ended late, because another program had the processor.
        poller.state.slept(late, poller.now, late);
        assert_eq!(after(&mut poller, Some(us(1))), AfterLook::Sleep);
        poller.around = NEAR;
        assert_eq!(after(&mut poller, Some(us(1))), AfterLook::Poll);
    }

    /// Polls of a rank that shares its processor with another one may usually be as far apart.
    #[test]
    fn a_long_time_between_two_looks_is_a_loss_whatever_is_usual() {
        let mut poller = Poller::new(REMOTE);
        poller.wait(us(400), NO_LOSS, us(20_000));
        let (now, around) = (poller.now, poller.around);
        let after = |state: &mut PollSleeps, since| state.after_look(since, now, around);
        assert_eq!(after(&mut poller.state, None), AfterLook::Poll);
        let sleep = after(&mut poller.state, Some(PREEMPTION));
        assert_eq!(sleep, AfterLook::Sleep);
        assert_eq!(after(&mut poller.state, None), AfterLook::Yield);
    }

    #[test]
    fn a_long_sleep_shows_that_processors_are_scarce() {
        let mut poller = Poller::new(REMOTE);
        let lost_cpu = thresholds().lost_cpu;
        poller.state.slept(lost_cpu, poller.now, lost_cpu);
        assert_eq!(poller.wait(us(1), NO_LOSS, us(390)).len(), 3);
    }
}
