//! Looking for work without keeping others from the processor.
//!
//! A program that looks for work again and again lets others run in between. How often that is
//! worth its price depends on whether somebody waits for this processor, perhaps the one whose
//! work is looked for. The kernel does not say so, but it shows: a yield that nobody takes returns
//! at once, and another takes two switches between programs.
//!
//! Who waits for a program that shares its processor looks in vain until it gives way; who waits for one
//! on another processor gives way in vain, for two switches, and would have had the answer meanwhile.
//! Which of the two it is shows as well: the answer is there when this program has the processor back,
//! or comes while it has it.

use std::thread;
use std::time::{Duration, Instant};

/// More than a yield takes that nobody took, and less than two switches.
const SWITCH_TIME: Duration = Duration::from_micros(1);

/// How a program that looks for work shares its processor.
#[derive(Debug, Default)]
pub struct Yielder {
    contended: bool,
    /// Nobody looked since somebody else had the processor.
    just_switched: bool,
}

/// Somebody who is waited for.
#[derive(Debug, Default)]
pub struct AwaitedPeer {
    shares_cpu: bool,
    arrivals: u32,
}

/// One time of so many it is waited for as if it had another processor: it may have one by now, and who
/// gives way at once never sees that.
const RECHECK_INTERVAL: u32 = 64;

impl Yielder {
    /// Let somebody run who waits for this processor.
    pub fn yield_now(&mut self) {
        let before = Instant::now();
        // syscalls: sched_yield
        thread::yield_now();
        self.contended = before.elapsed() >= SWITCH_TIME;
        self.just_switched = self.contended;
    }

    /// This program has looked.
    #[inline(always)]
    pub fn polled(&mut self) {
        self.just_switched = false;
    }

    /// Whether somebody ran the last time. Then more looks in a row find little: what is waited for
    /// may be made on this processor.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.contended
    }
}

impl AwaitedPeer {
    /// This look found something of it.
    #[inline(always)]
    pub fn arrived(&mut self, yielder: &Yielder) {
        self.shares_cpu = yielder.just_switched;
        self.arrivals = self.arrivals.wrapping_add(1);
    }

    /// Whether it seems to need this processor before more can come.
    #[inline(always)]
    #[must_use]
    pub fn shares_cpu(&self) -> bool {
        self.shares_cpu && self.arrivals % RECHECK_INTERVAL != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER_SWITCH: Yielder = Yielder {
        contended: true,
        just_switched: true,
    };

    #[test]
    fn who_answers_while_others_run_shares_the_processor() {
        let (mut yielder, mut awaited) = (AFTER_SWITCH, AwaitedPeer::default());
        assert!(!awaited.shares_cpu());
        awaited.arrived(&yielder);
        assert!(awaited.shares_cpu());
        yielder.polled();
        awaited.arrived(&yielder);
        assert!(!awaited.shares_cpu(), "it came while this program looked");
        assert!(yielder.is_contended());
    }

    #[test]
    fn now_and_then_it_is_doubted() {
        let mut awaited = AwaitedPeer::default();
        let mut shared = || {
            awaited.arrived(&AFTER_SWITCH);
            awaited.shares_cpu()
        };
        let arrivals = (0..2 * RECHECK_INTERVAL).filter(|_| shared()).count();
        assert_eq!(arrivals, 2 * (RECHECK_INTERVAL as usize - 1));
    }
}
