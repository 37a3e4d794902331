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
const SWITCHED: Duration = Duration::from_micros(1);

/// How a program that looks for work shares its processor.
#[derive(Debug, Default)]
pub struct Courtesy {
    crowded: bool,
    /// Nobody looked since somebody else had the processor.
    fresh: bool,
}

/// Somebody who is waited for.
#[derive(Debug, Default)]
pub struct Awaited {
    shares: bool,
    times: u32,
}

/// One time of so many it is waited for as if it had another processor: it may have one by now, and who
/// gives way at once never sees that.
const DOUBT: u32 = 64;

impl Courtesy {
    /// Let somebody run who waits for this processor.
    pub fn give_way(&mut self) {
        let before = Instant::now();
        // syscalls: sched_yield
        thread::yield_now();
        self.crowded = before.elapsed() >= SWITCHED;
        self.fresh = self.crowded;
    }

    /// This program has looked.
    #[inline(always)]
    pub fn looked(&mut self) {
        self.fresh = false;
    }

    /// Whether somebody ran the last time. Then more looks in a row find little: what is waited for
    /// may be made on this processor.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }
}

impl Awaited {
    /// This look found something of it.
    #[inline(always)]
    pub fn came(&mut self, courtesy: &Courtesy) {
        self.shares = courtesy.fresh;
        self.times = self.times.wrapping_add(1);
    }

    /// Whether it seems to need this processor before more can come.
    #[inline(always)]
    #[must_use]
    pub fn shares(&self) -> bool {
        self.shares && self.times % DOUBT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER_OTHERS: Courtesy = Courtesy {
        crowded: true,
        fresh: true,
    };

    #[test]
    fn who_answers_while_others_run_shares_the_processor() {
        let (mut courtesy, mut awaited) = (AFTER_OTHERS, Awaited::default());
        assert!(!awaited.shares());
        awaited.came(&courtesy);
        assert!(awaited.shares());
        courtesy.looked();
        awaited.came(&courtesy);
        assert!(!awaited.shares(), "it came while this program looked");
        assert!(courtesy.is_crowded());
    }

    #[test]
    fn now_and_then_it_is_doubted() {
        let mut awaited = Awaited::default();
        let mut shared = || {
            awaited.came(&AFTER_OTHERS);
            awaited.shares()
        };
        let times = (0..2 * DOUBT).filter(|_| shared()).count();
        assert_eq!(times, 2 * (DOUBT as usize - 1));
    }
}
