//! Programs that poll: they call `test` and the like again and again, and wait in no call.
//!
//! An MPI library polls so, with as many processes as the machine has processors. The relay and the
//! gateways, which such a program waits for, then get a processor only if a poller yields its own. So an
//! endpoint counts the polls that found nothing, and yields as a wait would, see
//! [`wait_policy`](crate::wait_policy). It sleeps only where processors are scarce, see
//! [`poll_sleeps`](crate::poll_sleeps), for half of the time, because the program may poll for other things as well.
//!
//! A program may have several endpoints and poll them in turn, as Open MPI does with one for each component. Those that
//! find nothing must not yield or sleep while another one finds messages. So what one finds ends the wait of another.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use crate::endpoint::Endpoint;
use crate::limits::{POLL_SLEEP, POLLS_PER_CLOCK_READ, PREEMPTION};
use crate::poll_sleeps::AfterLook;
use crate::wait_policy::{EmptyPolls, Step, Wait};

/// A poller that no other program replaces yields once in so many times that it may: a processor without
/// other programs answers a yield at once, but not for free.
const UNUSED_YIELD_INTERVAL: u32 = 64;

/// Whether an endpoint of this process has found something since one that found nothing last asked. Only a change is written, because
/// the threads of several endpoints read this for each message.
static FOUND: AtomicBool = AtomicBool::new(false);

impl Endpoint {
    /// Records that the program polled, and whether it found what it polls for. After some polls that found
    /// nothing, the call yields the processor. [`test`](Self::test) and the other calls that poll make this
    /// call themselves.
    #[inline]
    pub fn polled(&mut self, found: bool) {
        if found {
            self.relay.arrived(&self.yielder);
            self.yielder.polled();
            if !FOUND.load(Relaxed) {
                FOUND.store(true, Relaxed);
            }
            self.empty_polls = EmptyPolls {
                follow_found: true,
                ..EmptyPolls::default()
            };
            return;
        }
        self.yielder.polled();
        self.empty_polls.count += 1;
        if self.relay_needs_cpu() {
            self.yielder.yield_now();
        } else if self.empty_polls.count >= self.poll_sleeps.polls_per_clock_read() {
            self.yield_as_wait();
        }
    }

    /// Records that the program works without messages, as in an access to a peer's heap: its next polls are
    /// those of a new wait.
    pub fn made_progress(&mut self) {
        self.empty_polls = EmptyPolls::default();
    }

    /// Records that the program looked at a word of a peer's heap for which it waits, without success. It also polls, for
    /// other things. See [`PollSleeps::after_look`](crate::poll_sleeps::PollSleeps::after_look).
    pub fn looked(&mut self) {
        let now = Instant::now();
        let since = self.empty_polls.looked.map(|last| now - last);
        let conditions = self.host_conditions();
        let step = self.poll_sleeps.after_look(since, now, conditions);
        let end = match step {
            AfterLook::Poll => now,
            AfterLook::Yield => self.yielder.yield_now(),
            AfterLook::Sleep => {
                thread::sleep(POLL_SLEEP);
                let end = Instant::now();
                let late = POLL_SLEEP + PREEMPTION;
                self.poll_sleeps.slept(end - now, end, late);
                end
            }
        };
        self.empty_polls.looked = Some(end);
        if step != AfterLook::Poll {
            // The time until the next poll begins here.
            self.empty_polls.count = 0;
            if let Some(wait) = &mut self.empty_polls.wait {
                wait.yielded(end);
            }
        }
    }

    /// Yields if a wait would yield or sleep by now.
    #[cold]
    fn yield_as_wait(&mut self) {
        let found_here = std::mem::take(&mut self.empty_polls.follow_found);
        if FOUND.swap(false, Relaxed) && !found_here {
            self.empty_polls = EmptyPolls::default();
            return;
        }
        let now = Instant::now();
        let polls = std::mem::take(&mut self.empty_polls.count);
        let mut wait = match self.empty_polls.wait {
            Some(wait) => {
                self.poll_sleeps.polled(polls, wait.uncounted(now), now);
                wait
            }
            None => Wait::begin(now),
        };
        let conditions = self.host_conditions();
        let lost_cpu = self.thresholds.lost_cpu;
        // The program itself computes, yields or sleeps between its polls. So many more polls might take a second.
        let rare = wait.lost_cpu_until(now, self.thresholds)
            || self
                .poll_sleeps
                .usually_take(POLLS_PER_CLOCK_READ, lost_cpu);
        let step = wait.next(now, self.thresholds, conditions, || self.awaits_reply());
        if self.poll_sleeps.is_due(now, &wait, conditions) {
            thread::sleep(POLL_SLEEP);
            let end = Instant::now();
            self.poll_sleeps.slept(end - now, end, lost_cpu);
            // The others had that time.
            wait.yielded(end);
            self.empty_polls.wait = Some(wait);
            self.poll_sockets();
            return;
        }
        let yields = match step {
            Step::Poll => false,
            _ if conditions.contended => true,
            _ => self.empty_polls.left_out >= UNUSED_YIELD_INTERVAL,
        };
        match yields {
            true => {
                self.empty_polls.left_out = 0;
                wait.yielded(self.yielder.yield_now());
            }
            false => self.empty_polls.left_out += 1,
        }
        self.empty_polls.wait = Some(wait);
        // Other programs ran meanwhile, for milliseconds perhaps. One of them may have connected.
        if rare || (yields && self.yielder.is_contended()) {
            self.poll_sockets();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Board, Options};

    /// As of a program that polls two endpoints in turn, and receives by one of them only.
    #[test]
    fn what_one_endpoint_finds_ends_the_wait_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let open = || Endpoint::open(&board, &Options::default()).unwrap();
        let (mut busy, mut idle) = (open(), open());
        let mut polls = || {
            for _ in 0..POLLS_PER_CLOCK_READ {
                idle.polled(false);
            }
            idle.empty_polls.wait.is_some()
        };
        // Endpoints of other tests may find something, too, and ask.
        let mut ends = || {
            while !polls() {}
            busy.polled(true);
            !polls()
        };
        assert!((0..1000).any(|_| ends()));
    }
}
