//! The benchmark's own generator: it sends frames at a given rate, whether or not the switch keeps up (open loop), and
//! stamps each with the time at which it was due. If the switch is behind, the
//! latency of every frame that had to wait is longer, not only that of the one that was sent late.
//!
//! One thread, on the generator's CPU, drives all NICs in turn and never sleeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

use super::driver::Driver;

/// Frames that the generator sends or receives at one NIC before it continues with the next.
const BURST_PER_NIC: usize = 32;

/// Rounds between two checks for a signal.
const ROUNDS_PER_SIGNAL_CHECK: u32 = 1 << 16;

/// Frames from one NIC to others.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// The number of the NIC that sends.
    pub(crate) from: usize,
    /// The destinations; the NIC sends to them in turn.
    pub(crate) to: Vec<[u8; 6]>,
}

/// The offered load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfferedLoad {
    /// The generator sends a frame whenever a buffer is free.
    Saturate,
    /// Frames a second, all flows together.
    Rate(f64),
}

/// How long frames are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until<'a> {
    /// The generator sends for this time, and records latencies.
    After(Duration),
    /// The generator sends until the flag is set. It records no latencies; the caller counts the received frames
    /// instead.
    Stopped(&'a AtomicBool),
}

/// Results of a run of the generator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Frames sent.
    pub(crate) sent: u64,
    /// Frames received.
    pub(crate) received: u64,
    /// Length of the run, in seconds.
    pub(crate) seconds: f64,
    /// Nanoseconds from when each frame was due until it was received, in order of value.
    pub(crate) latencies: Vec<u32>,
}

impl Observed {
    /// Frames received per second.
    pub(crate) fn frames_per_s(&self) -> f64 {
        self.received as f64 / self.seconds
    }

    /// Returns the latency in nanoseconds that this share of the frames did not exceed.
    pub(crate) fn latency_ns(&self, share: f64) -> Option<f64> {
        let last = self.latencies.len().checked_sub(1)?;
        let place = (last as f64 * share).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to last"
        )]
        let place = place as usize;
        self.latencies.get(place).map(|&ns| f64::from(ns))
    }
}

/// A flow that is under way.
struct Stream<'a> {
    flow: &'a Flow,
    sent: u64,
    /// The next destination.
    next: usize,
    /// Nanoseconds between two frames; 0 to saturate.
    gap: f64,
}

/// Sends and receives frames. The stamps count from `epoch`. The frames that each NIC receives are added to its
/// total in `received`, which other threads may read.
pub(crate) fn run(
    drivers: &mut [Driver],
    flows: &[Flow],
    pace: OfferedLoad,
    until: Until<'_>,
    epoch: Instant,
    received: &[AtomicU64],
) -> Result<Observed> {
    let gap = match pace {
        OfferedLoad::Saturate => 0.0,
        OfferedLoad::Rate(rate) => flows.len() as f64 * 1e9 / rate,
    };
    let stream = |flow| Stream {
        flow,
        sent: 0,
        next: 0,
        gap,
    };
    let mut streams: Vec<_> = flows.iter().map(stream).collect();
    // Capacity for all latencies, so that the loop allocates nothing.
    let room = match until {
        Until::After(_) => 1 << 24,
        Until::Stopped(_) => 0,
    };
    let mut latencies = Vec::with_capacity(room);
    let start = nanoseconds(epoch);
    let (mut now, mut rounds, mut total) = (start, 0_u32, 0);
    while until.continues(now - start) {
        for stream in &mut streams {
            let driver = drivers.get_mut(stream.flow.from);
            let driver = driver.ok_or_else(|| Error::Host("a flow without a NIC".to_owned()))?;
            stream.send(driver, start, now);
        }
        for (driver, received) in drivers.iter_mut().zip(received) {
            now = nanoseconds(epoch);
            let taken = driver.receive(BURST_PER_NIC, |stamp| {
                // Frames that were under way before the run have earlier stamps.
                if stamp >= start && latencies.len() < room {
                    let late = now.saturating_sub(stamp);
                    latencies.push(u32::try_from(late).unwrap_or(u32::MAX));
                }
            });
            // No other thread writes to the total.
            let before = received.load(Ordering::Relaxed);
            received.store(before + taken as u64, Ordering::Relaxed);
            total += taken as u64;
            driver.publish();
        }
        rounds = rounds.wrapping_add(1);
        if rounds % ROUNDS_PER_SIGNAL_CHECK == 0 {
            interrupt::check()?;
        }
    }
    latencies.sort_unstable();
    Ok(Observed {
        sent: streams.iter().map(|stream| stream.sent).sum(),
        received: total,
        seconds: (now - start) as f64 / 1e9,
        latencies,
    })
}

impl Until<'_> {
    /// Whether the run continues after this number of nanoseconds.
    fn continues(self, passed: u64) -> bool {
        match self {
            Self::After(time) => u128::from(passed) < time.as_nanos(),
            Self::Stopped(end) => !end.load(Ordering::Relaxed),
        }
    }
}

impl Stream<'_> {
    /// Sends the frames that are due, as long as buffers are free.
    fn send(&mut self, driver: &mut Driver, start: u64, now: u64) {
        let due = self.due(start, now);
        if due == 0 {
            return;
        }
        for _ in 0..due.min(driver.room()) {
            let stamp = match self.gap > 0.0 {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "seconds in nanoseconds"
                )]
                true => start + (self.sent as f64 * self.gap) as u64,
                false => now,
            };
            let Some(to) = self.flow.to.get(self.next) else {
                return;
            };
            driver.send(*to, stamp);
            self.sent += 1;
            self.next = (self.next + 1) % self.flow.to.len();
        }
        driver.publish();
    }

    /// Returns the number of frames that are due and not sent yet, at most [`BURST_PER_NIC`].
    fn due(&self, start: u64, now: u64) -> usize {
        if self.gap <= 0.0 {
            return BURST_PER_NIC;
        }
        let behind = (now - start) as f64 / self.gap - self.sent as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "negative is none"
        )]
        let behind = behind.ceil().max(0.0) as usize;
        behind.min(BURST_PER_NIC)
    }
}

fn nanoseconds(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
