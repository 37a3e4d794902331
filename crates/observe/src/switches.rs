//! Who ran after whom: the kernel's records of context switches.
//!
//! `/proc` counts how often a thread left a CPU, not to whom. `perf_event_open(2)` with
//! `context_switch` writes a record of each switch into a ring for each CPU, which is read when
//! the caller asks: nothing runs in between, and an observer that crashes leaves nothing behind, for
//! all of it goes with its descriptors.
//!
//! A ring has room for so many switches, and no more are read until it is asked again. So what is
//! seen is the first part of each interval, as much as fits; rates are of that part, and
//! [`Seen::watched`] says how large it was. That bounds what watching costs.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of all rings together: some 32,000 switches for each look, which take some 4 ms to read.
const ROOM: usize = 2 << 20;

/// Bytes of one CPU's ring, at most and at least.
const MOST: usize = 1 << 20;
const LEAST: usize = 1 << 14;

/// A record of a switch, header included: the next process and thread, the previous ones, and when
/// (`PERF_RECORD_SWITCH_CPU_WIDE` in `linux/perf_event.h`).
const RECORD: usize = 32;
const HEADER: usize = 8;

const SWITCH: u32 = 15;
const LOST: u32 = 2;
/// In a header's flags: the record is of leaving a CPU. Each switch has one of coming, too.
const OUT: u16 = 1 << 13;

/// The idle task, of every CPU.
const IDLE: u32 = 0;

/// Records switches on all CPUs until it is dropped.
pub struct Recorder {
    cpus: Vec<Cpu>,
}

/// What was seen since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Switches a second from a thread to another; the idle task is in none.
    pub rates: HashMap<(u32, u32), f64>,
    /// The part of the time that was watched, averaged over CPUs.
    pub watched: f64,
}

struct Cpu {
    ring: Sampler,
    /// Bytes of the ring.
    size: usize,
    /// When it was last read, in nanoseconds of the monotonic clock.
    since: u64,
    /// It was full then.
    was_full: bool,
}

/// What one CPU's ring had.
#[derive(Debug)]
struct Drained {
    /// Switches from a thread to another.
    pairs: HashMap<(u32, u32), u64>,
    /// How long they took.
    watched_ns: u64,
    /// How long it is since the look before.
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
    /// Begin to record.
    ///
    /// # Errors
    /// Why that is not possible here, and what would help.
    pub fn start() -> Result<Self, String> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let online = numbers(&online.unwrap_or_default());
        let size = room(online.len());
        let start = |cpu: &usize| Cpu::start(*cpu, size);
        let cpus: Result<_, Error> = online.iter().map(start).collect();
        match cpus {
            Ok(cpus) => Ok(Self { cpus }),
            Err(error) => Err(reason(&error)),
        }
    }

    /// What was seen since the last look.
    pub fn look(&mut self) -> Seen {
        let mut seen = Seen::default();
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

    fn drain(&mut self) -> Drained {
        let mut tally = Tally::new(self.since, self.was_full);
        // On a busy CPU records may come as fast as they are read.
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

/// A ring's records, as they are read.
#[derive(Debug)]
struct Tally {
    since: u64,
    was_full: bool,
    bytes: usize,
    /// When the last switch was that is known with all before it.
    last: u64,
    full: bool,
    pairs: HashMap<(u32, u32), u64>,
}

impl Tally {
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
            // The kernel says what it has lost once there is room again: it may be after the look
            // that found the ring full.
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

    fn end(self, until: u64, size: usize) -> Drained {
        let full = self.full || self.bytes + RECORD > size;
        let seen = if full { self.last } else { until };
        Drained {
            watched_ns: seen.saturating_sub(self.since),
            all_ns: until.saturating_sub(self.since),
            pairs: self.pairs,
            full,
        }
    }
}

/// Previous thread, next thread, and when.
fn parse(data: &[u8]) -> Option<(u32, u32, u64)> {
    let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let at = u64::from_ne_bytes(data.get(16..24)?.try_into().ok()?);
    Some((word(12)?, word(4)?, at))
}

/// Bytes of each CPU's ring: a power of two, which the kernel wants.
fn room(cpus: usize) -> usize {
    let each = ROOM / cpus.max(1);
    (each / 2 + 1).next_power_of_two().clamp(LEAST, MOST)
}

/// The numbers of a list like `0-3,8`.
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

/// Why the kernel gives no records, and what would help.
fn reason(error: &Error) -> String {
    let help = match error.kind() {
        ErrorKind::PermissionDenied => {
            "for root (CAP_PERFMON) only, or with kernel.perf_event_paranoid at most 0"
        }
        _ => "the kernel records none (perf events, since Linux 4.3)",
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

    /// A switch: the record of leaving, and that of coming.
    fn switch(tally: &mut Tally, from: u32, to: u32, at: u64) {
        tally.add(SWITCH, OUT, &record(from, to, at));
        tally.add(SWITCH, 0, &record(to, from, at));
    }

    #[test]
    fn a_switch_is_counted_once_and_those_with_the_idle_task_are_not() {
        let mut tally = Tally::new(1000, false);
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
        let mut tally = Tally::new(0, false);
        for at in 1..=64 {
            switch(&mut tally, 7, 8, at);
        }
        let drained = tally.end(1000, SIZE);
        assert_eq!((drained.watched_ns, drained.all_ns), (64, 1000));
        assert!(drained.full);
    }

    #[test]
    fn a_loss_that_was_told_late_is_of_the_time_before() {
        let lost = [0; 24];
        let mut tally = Tally::new(0, true);
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
            [1, 2, 3, 64, 4096].map(room),
            [MOST, MOST, 1 << 19, 1 << 15, LEAST]
        );
        assert_eq!(numbers("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(numbers(""), []);
    }

    /// Two threads that wake each other, on one CPU: each runs after the other.
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
                // The other's last read.
                if !first {
                    std::io::Write::write_all(&mut socket, &byte).unwrap();
                }
                u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
            };
            let one = scope.spawn(move || play(left, true));
            let two = scope.spawn(move || play(right, false));
            [one.join().unwrap(), two.join().unwrap()]
        });
        let seen = recorder.look();
        assert!(seen.watched > 0.0 && seen.watched <= 1.0);
        for pair in [(ids[0], ids[1]), (ids[1], ids[0])] {
            assert!(seen.rates.contains_key(&pair), "{ids:?} in {seen:?}");
        }
    }
}
