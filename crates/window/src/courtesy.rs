//! Looking for work without keeping others from the processor.
//!
//! A program that looks for work again and again lets others run in between. How often that is
//! worth its price depends on whether somebody waits for this processor, perhaps the one whose
//! work is looked for. The kernel does not say so, but it shows: a yield that nobody takes returns
//! at once, and another takes two switches between programs.

use std::thread;
use std::time::{Duration, Instant};

/// More than a yield takes that nobody took, and less than two switches.
const SWITCHED: Duration = Duration::from_micros(1);

/// How a program that looks for work shares its processor.
#[derive(Debug, Default)]
pub struct Courtesy {
    crowded: bool,
}

impl Courtesy {
    /// Let somebody run who waits for this processor.
    pub fn give_way(&mut self) {
        let before = Instant::now();
        // syscalls: sched_yield
        thread::yield_now();
        self.crowded = before.elapsed() >= SWITCHED;
    }

    /// Whether somebody ran the last time. Then more looks in a row find little: what is waited for
    /// may be made on this processor.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }
}
