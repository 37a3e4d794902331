//! Reads the kernel's records of context switches: which thread ran directly after which.
//!
//! `/proc` counts how often a thread left a CPU, but not which thread ran next. After
//! `perf_event_open(2)` with `context_switch` the kernel writes a record of each switch into a ring for
//! each CPU. The observer reads the rings when the caller asks for a report, and does no work in
//! between. If the observer crashes, the kernel closes its descriptors and removes the rings with them.
//!
//! A ring has room for a limited number of switches. When it is full, the kernel drops further records
//! until the observer reads the ring. So the records cover the first part of each interval. Rates are
//! of that part, and [`SwitchRates::watched`] is its size. This limits the cost of recording.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::time::{ClockId, clock_gettime};

/// The size of all rings together in bytes. There is room for about 32,000 switches between two reads,
/// and reading them takes about 4 ms.
const ALL_RINGS_BYTES: usize = 2 << 20;

/// The maximum and the minimum size of one CPU's ring in bytes.
const MAX_RING_BYTES: usize = 1 << 20;
const MIN_RING_BYTES: usize = 1 << 14;

/// The size of a record of a switch with its header. The record contains the next process and thread,
/// the previous process and thread, and the time (`PERF_RECORD_SWITCH_CPU_WIDE` in
/// `linux/perf_event.h`).
const RECORD: usize = 32;
const HEADER: usize = 8;

const SWITCH: u32 = 15;
const LOST: u32 = 2;
/// Header flag: a thread leaves the CPU. For each switch the kernel also writes a record without this
/// flag, for the thread that enters.
const OUT: u16 = 1 << 13;

/// The thread id of the idle task of each CPU.
const IDLE: u32 = 0;

/// Records switches on all CPUs until it is dropped.
pub struct Recorder {
    cpus: Vec<Cpu>,
}

/// The switches since the last call of [`Recorder::read`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchRates {
    /// Switches per second from one thread to another, without those from and to the idle task.
    pub rates: HashMap<(u32, u32), f64>,
    /// The part of the time that the records cover, averaged over CPUs.
    pub watched: f64,
}

struct Cpu {
    ring: Sampler,
    /// The size of the ring in bytes.
    size: usize,
    /// The time of the last read, in nanoseconds of the monotonic clock.
    since: u64,
    /// Whether the ring was full at the last read.
    was_full: bool,
}

/// The switches from one CPU's ring.
#[derive(Debug)]
struct RingCounts {
    /// The number of switches from one thread to another.
    pairs: HashMap<(u32, u32), u64>,
    /// The nanoseconds that the records cover.
    watched_ns: u64,
    /// The nanoseconds since the previous read.
    all_ns: u64,
    full: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = formatter.debug_struct("Recorder");
        text.field("cpus", &self.cpus.len()).finish()
    }
}

impl Recorder {
    /// Starts to record.
    ///
    /// # Errors
    /// Returns the reason why recording is not possible on this host, and what the user can do.
    pub fn start() -> Result<Self, String> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let online = numbers(&online.unwrap_or_default());
        let size = ring_bytes(online.len());
        let start = |cpu: &usize| Cpu::start(*cpu, size);
        let cpus: Result<_, Error> = online.iter().map(start).collect();
        match cpus {
            Ok(cpus) => Ok(Self { cpus }),
            Err(error) => Err(reason(&error)),
        }
    }

    /// Returns the switches since the last call.
    pub fn read(&mut self) -> SwitchRates {
        let mut seen = SwitchRates::default();
        let count = self.cpus.len() as f64;
        for cpu in &mut self.cpus {
            let drained = cpu.drain();
            if drained.watched_ns == 0 {
                continue;
            }
            let watched = drained.watched_ns as f64;
            seen.watched += watched / drained.all_ns as f64 / count;
            for (pair, switches) in drained.pairs {
                *seen.rates.entry(pair).or_default() += switches as f64 / (watched / 1e9);
            }
        }
        seen
    }
}

impl Cpu {
    fn start(cpu: usize, size: usize) -> Result<Self, Error> {
        let ring = Builder::new(Software::DUMMY)
            .any_pid()
            .one_cpu(cpu)
            .context_switch(true)
            .sample_id_all(true)
            .sample(SampleFlag::TID | SampleFlag::TIME)
            .clockid(Clock::MONOTONIC)
            .enabled(true)
            .build()?
            .sampled(size)?;
        Ok(Self {
            ring,
            size,
            since: now(),
            was_full: false,
        })
    }

    fn drain(&mut self) -> RingCounts {
        let mut tally = RingReader::new(self.since, self.was_full);
        // On a busy CPU the kernel may write records as fast as this loop reads them.
        while tally.bytes < 2 * self.size {
            let Some(record) = self.ring.next_record() else {
                break;
            };
            tally.add(record.ty(), record.misc(), &record.to_contiguous());
        }
        let until = now();
        let drained = tally.end(until, self.size);
        self.since = until;
        self.was_full = drained.full;
        drained
    }
}

/// The sums of a ring's records, as the recorder reads them.
#[derive(Debug)]
struct RingReader {
    since: u64,
    was_full: bool,
    bytes: usize,
    /// The time up to which no record is lost: that of the last switch before the first loss.
    last: u64,
    full: bool,
    pairs: HashMap<(u32, u32), u64>,
}

impl RingReader {
    fn new(since: u64, was_full: bool) -> Self {
        Self {
            since,
            was_full,
            bytes: 0,
            last: since,
            full: false,
            pairs: HashMap::new(),
        }
    }

    fn add(&mut self, kind: u32, flags: u16, data: &[u8]) {
        let first = self.bytes == 0;
        self.bytes += HEADER + data.len();
        match kind {
            // The kernel writes the record of a loss when there is room again. This can be after the
            // read that found the ring full, which has already counted the loss.
            LOST if first && self.was_full => {}
            LOST => self.full = true,
            SWITCH if !self.full => {
                let Some((from, to, at)) = parse(data) else {
                    return;
                };
                self.last = self.last.max(at);
                if flags & OUT != 0 && from != IDLE && to != IDLE {
                    *self.pairs.entry((from, to)).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn end(self, until: u64, size: usize) -> RingCounts {
        let full = self.full || self.bytes + RECORD > size;
        let seen = if full { self.last } else { until };
        RingCounts {
            watched_ns: seen.saturating_sub(self.since),
            all_ns: until.saturating_sub(self.since),
            pairs: self.pairs,
            full,
        }
    }
}

/// Returns the previous thread, the next thread, and the time of a switch.
fn parse(data: &[u8]) -> Option<(u32, u32, u64)> {
    let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let at = u64::from_ne_bytes(data.get(16..24)?.try_into().ok()?);
    Some((word(12)?, word(4)?, at))
}

/// Returns the size of each CPU's ring in bytes. The kernel requires a power of two.
fn ring_bytes(cpus: usize) -> usize {
    let each = ALL_RINGS_BYTES / cpus.max(1);
    (each / 2 + 1)
        .next_power_of_two()
        .clamp(MIN_RING_BYTES, MAX_RING_BYTES)
}

/// Returns the numbers of a list like `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse().ok()?..=to.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

fn now() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the reason why the kernel provides no records, and what the user can do.
fn reason(error: &Error) -> String {
    let help = match error.kind() {
        ErrorKind::PermissionDenied => {
            "run as root (CAP_PERFMON), or set kernel.perf_event_paranoid to 0"
        }
        _ => "the kernel does not record them; use Linux 4.3 or newer with perf events",
    };
    format!("{help}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4096;

    fn record(from: u32, to: u32, at: u64) -> Vec<u8> {
        let words = [1, to, 1, from].map(u32::to_ne_bytes).concat();
        [words, at.to_ne_bytes().to_vec()].concat()
    }

    /// Adds both records of a switch: that of the thread that leaves, and that of the thread that
    /// enters.
    fn switch(tally: &mut RingReader, from: u32, to: u32, at: u64) {
        tally.add(SWITCH, OUT, &record(from, to, at));
        tally.add(SWITCH, 0, &record(to, from, at));
    }

    #[test]
    fn a_switch_is_counted_once_and_those_with_the_idle_task_are_not() {
        let mut tally = RingReader::new(1000, false);
        for (from, to) in [(7, 8), (8, 7), (7, 8), (8, IDLE), (IDLE, 7)] {
            switch(&mut tally, from, to, 1500);
        }
        let drained = tally.end(3000, SIZE);
        assert_eq!(drained.pairs, [((7, 8), 2), ((8, 7), 1)].into());
        assert_eq!((drained.watched_ns, drained.all_ns), (2000, 2000));
        assert!(!drained.full);
    }

    #[test]
    fn what_does_not_fit_shortens_the_time_that_was_watched() {
        let mut tally = RingReader::new(0, false);
        for at in 1..=64 {
            switch(&mut tally, 7, 8, at);
        }
        let drained = tally.end(1000, SIZE);
        assert_eq!((drained.watched_ns, drained.all_ns), (64, 1000));
        assert!(drained.full);
    }

    #[test]
    fn a_loss_record_that_comes_late_belongs_to_the_time_before() {
        let lost = [0; 24];
        let mut tally = RingReader::new(0, true);
        tally.add(LOST, 0, &lost);
        switch(&mut tally, 7, 8, 10);
        assert!(!tally.full);
        tally.add(LOST, 0, &lost);
        switch(&mut tally, 7, 8, 900);
        let drained = tally.end(1000, SIZE);
        assert_eq!(drained.pairs, [((7, 8), 1)].into());
        assert_eq!(drained.watched_ns, 10);
    }

    #[test]
    fn a_record_cut_short_is_none() {
        assert_eq!(parse(&record(7, 8, 9)), Some((7, 8, 9)));
        assert_eq!(parse(&record(7, 8, 9)[..20]), None);
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn rings_share_the_room() {
        assert_eq!(
            [1, 2, 3, 64, 4096].map(ring_bytes),
            [
                MAX_RING_BYTES,
                MAX_RING_BYTES,
                1 << 19,
                1 << 15,
                MIN_RING_BYTES
            ]
        );
        assert_eq!(numbers("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(numbers(""), []);
    }

    /// Two threads on one CPU wake each other, so each runs after the other.
    #[test]
    fn threads_that_take_turns_on_a_cpu_are_seen() {
        let mut recorder = match Recorder::start() {
            Ok(recorder) => recorder,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
        let ids = std::thread::scope(|scope| {
            let play = |mut socket: std::os::unix::net::UnixStream, first: bool| {
                let mut set = rustix::thread::CpuSet::new();
                set.set(0);
                rustix::thread::sched_setaffinity(None, &set).unwrap();
                let mut byte = [0];
                for turn in 0..2000 {
                    if first || turn > 0 {
                        std::io::Write::write_all(&mut socket, &byte).unwrap();
                    }
                    std::io::Read::read_exact(&mut socket, &mut byte).unwrap();
                }
                // The other thread waits for this byte in its last read.
                if !first {
                    std::io::Write::write_all(&mut socket, &byte).unwrap();
                }
                u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
            };
            let one = scope.spawn(move || play(left, true));
            let two = scope.spawn(move || play(right, false));
            [one.join().unwrap(), two.join().unwrap()]
        });
        let seen = recorder.read();
        assert!(seen.watched > 0.0 && seen.watched <= 1.0);
        for pair in [(ids[0], ids[1]), (ids[1], ids[0])] {
            assert!(seen.rates.contains_key(&pair), "{ids:?} in {seen:?}");
        }
    }
}
