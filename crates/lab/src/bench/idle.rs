//! What an idle switch costs: wake-ups and CPU time of all its threads while two connected
//! front-ends send nothing.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::interrupt;

use super::threads::Totals;

/// What an idle `vicinity` costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// How long it was watched, in seconds.
    pub seconds: f64,
    /// Times per second that one of its threads came back from sleep.
    pub wakeups_per_s: f64,
    /// Share of one core used, 1.0 for a whole core.
    pub core_share: f64,
}

/// Watches a process for `time`.
pub(super) fn watch(process: u32, time: Duration) -> Result<Idle> {
    let (start, before) = (Instant::now(), Totals::of(process)?);
    interrupt::sleep(time)?;
    let seconds = start.elapsed().as_secs_f64();
    let spent = Totals::of(process)?.since(&before);
    Ok(Idle {
        seconds,
        wakeups_per_s: spent.sleeps as f64 / seconds,
        core_share: spent.ran.as_secs_f64() / seconds,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_works_is_seen() {
        let (stop, stopped) = mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        });
        let idle = watch(std::process::id(), Duration::from_millis(20)).unwrap();
        drop(stop);
        worker.join().unwrap();
        assert!(idle.core_share > 0.0);
        assert!(idle.wakeups_per_s > 0.0, "this thread slept");
    }
}
