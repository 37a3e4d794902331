//! The policy `auto`: decides which pairs use their ordinary NICs for now.
//!
//! Shared memory is faster for long messages, and while CPUs are free. Where VMs compete for CPUs, they
//! spend their own CPU time on work that the host would have done for them, and short messages gain
//! nothing from it (paper 000, 4.3 and 4.4: below 4 KB with UDP, below 8 KB with TCP). So a pair
//! that exchanges short packets while one of its VMs waits for CPUs uses its ordinary NICs.
//!
//! Members count in their rings what they send through shared memory, and the kernel reports how long a
//! VM's threads waited for a CPU. No counter covers what a pair sends by its ordinary NICs: so a pair
//! returns to shared memory after a while, and stays away for twice as long each time that was wrong.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// The time between two decisions: long enough for the sums to be meaningful.
const DECISION_INTERVAL: Duration = Duration::from_secs(1);

/// The fewest packets between two decisions from which a decision is made.
const MIN_PACKETS: u64 = 200;

/// The mean bytes of a packet, over both directions, from which shared memory is faster: with TCP, and
/// with all other protocols.
const MIN_MEAN_SIZE: [u64; 2] = [8 << 10, 4 << 10];

/// How long a pair uses its ordinary NICs at first, and at most.
const FIRST_FALLBACK: Duration = Duration::from_secs(10);
const MAX_FALLBACK: Duration = Duration::from_secs(300);

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// What two members report to have sent to each other: by TCP, and by all other protocols.
pub(crate) type Traffic = [Sent; 2];

/// The nanoseconds for which a process ran, and for which it waited for a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTimes {
    ran: u64,
    waited: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Auto {
    decided: Option<Instant>,
    /// By process.
    cpu_times: HashMap<i32, CpuTimes>,
    pairs: HashMap<(u16, u16), Pair>,
}

#[derive(Debug, Default)]
struct Pair {
    last: Traffic,
    /// Until then the pair uses its ordinary NICs.
    until: Option<Instant>,
    /// The length of its last fallback to ordinary NICs.
    fallback: Duration,
}

impl Auto {
    /// Returns whether the next decision is due.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self
            .decided
            .is_none_or(|decided| now >= decided + DECISION_INTERVAL);
        if due {
            self.decided = Some(now);
        }
        due
    }

    /// Returns which of these members were short of CPUs since the last call, by their QEMU processes.
    pub(crate) fn short_of_cpu(&mut self, members: impl Iterator<Item = (u16, i32)>) -> Vec<u16> {
        let mut cpu_times = HashMap::new();
        let mut short = Vec::new();
        for (id, process) in members {
            let times = cpu_times_of(process);
            let before = self.cpu_times.get(&process);
            if before.is_some_and(|before| times.is_short_since(before)) {
                short.push(id);
            }
            cpu_times.insert(process, times);
        }
        self.cpu_times = cpu_times;
        short
    }

    /// Decides for a pair. Returns, if the decision changed, for how long the pair is to use its ordinary
    /// NICs; zero means that it returns to shared memory.
    pub(crate) fn decide(
        &mut self,
        pair: (u16, u16),
        traffic: Traffic,
        is_short: bool,
        now: Instant,
    ) -> Option<Duration> {
        self.pairs
            .entry(pair)
            .or_default()
            .decide(traffic, is_short, now)
    }

    /// Returns whether a pair uses its ordinary NICs.
    pub(crate) fn uses_nics(&self, pair: (u16, u16)) -> bool {
        let pair = self.pairs.get(&pair);
        pair.is_some_and(|pair| pair.until.is_some())
    }
}

impl CpuTimes {
    /// Returns whether the process waited for a third of the time in which it was runnable. (For VMs with
    /// dedicated CPUs paper 000 measures less than a tenth.)
    const fn is_short_since(&self, before: &Self) -> bool {
        let ran = self.ran.saturating_sub(before.ran);
        let waited = self.waited.saturating_sub(before.waited);
        waited > ran / 2
    }
}

impl Sent {
    /// Returns what was sent since `before`. Saturates, because a VM that restarts counts from zero, and a
    /// member may write any number.
    const fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

impl Pair {
    fn decide(&mut self, traffic: Traffic, is_short: bool, now: Instant) -> Option<Duration> {
        let [tcp, else_] = traffic;
        let [tcp_before, else_before] = self.last;
        let new = [tcp.since(tcp_before), else_.since(else_before)];
        self.last = traffic;
        if let Some(until) = self.until {
            if now < until {
                return None;
            }
            self.until = None;
            return Some(Duration::ZERO);
        }
        let much = new
            .iter()
            .zip(MIN_MEAN_SIZE)
            .filter(|(sent, _)| sent.packets >= MIN_PACKETS);
        let pays: Vec<bool> = much
            .map(|(sent, pays)| sent.bytes / sent.packets.max(1) >= pays)
            .collect();
        if pays.is_empty() {
            return None;
        }
        if !is_short || pays.contains(&true) {
            self.fallback = Duration::ZERO;
            return None;
        }
        self.fallback = (self.fallback * 2).clamp(FIRST_FALLBACK, MAX_FALLBACK);
        self.until = Some(now + self.fallback);
        Some(self.fallback)
    }
}

/// Returns the times of all threads of a process; zero if the process has ended.
fn cpu_times_of(process: i32) -> CpuTimes {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.fold(CpuTimes::default(), |sum, text| {
        let mut fields = text.split_ascii_whitespace();
        let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok());
        CpuTimes {
            ran: sum.ran.saturating_add(next().unwrap_or(0)),
            waited: sum.waited.saturating_add(next().unwrap_or(0)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So much by TCP, or by all else, since nothing.
    const fn tcp(packets: u64, bytes: u64) -> Traffic {
        let none = Sent {
            packets: 0,
            bytes: 0,
        };
        [Sent { packets, bytes }, none]
    }

    const fn udp(packets: u64, bytes: u64) -> Traffic {
        let [sent, none] = tcp(packets, bytes);
        [none, sent]
    }

    /// Returns the decision for a pair without history.
    fn first(traffic: Traffic, is_short: bool) -> Option<Duration> {
        Pair::default().decide(traffic, is_short, Instant::now())
    }

    #[test]
    fn short_packets_go_another_way_while_cpus_are_short() {
        for traffic in [tcp(1000, 8_000_000), udp(1000, 4_000_000)] {
            assert_eq!(first(traffic, true), Some(FIRST_FALLBACK));
            assert_eq!(first(traffic, false), None, "CPUs are free");
        }
        for traffic in [tcp(1000, 9_000_000), udp(1000, 5_000_000)] {
            assert_eq!(first(traffic, true), None, "long");
        }
        assert_eq!(first(udp(100, 10_000), true), None, "few");
        let [short, _] = tcp(1000, 100_000);
        let [_, long] = udp(1000, 50_000_000);
        assert_eq!(first([short, long], true), None, "one of them is long");
    }

    #[test]
    fn a_pair_returns_to_shared_memory_and_each_fallback_is_longer() {
        let mut now = Instant::now();
        let mut pair = Pair::default();
        let mut sent = 0;
        let mut next_fallback = |pair: &mut Pair| {
            sent += 1000;
            let decided = pair.decide(udp(sent, sent * 100), true, now);
            let began = now;
            while pair.decide(udp(sent, sent * 100), true, now).is_none() {
                now += DECISION_INTERVAL;
            }
            assert_eq!(decided, Some(now - began));
            now - began
        };
        assert_eq!(next_fallback(&mut pair), FIRST_FALLBACK);
        assert_eq!(next_fallback(&mut pair), FIRST_FALLBACK * 2);
        for _ in 0..8 {
            next_fallback(&mut pair);
        }
        assert_eq!(next_fallback(&mut pair), MAX_FALLBACK);
        // It was right to come back.
        assert_eq!(pair.decide(udp(1 << 40, 1 << 60), true, now), None);
        assert_eq!(
            pair.decide(udp(1 << 41, 1 << 60), true, now),
            Some(FIRST_FALLBACK)
        );
    }

    #[test]
    fn counters_that_go_back_say_nothing() {
        let mut pair = Pair::default();
        let now = Instant::now();
        assert_eq!(pair.decide(udp(1_000_000, u64::MAX), true, now), None);
        assert_eq!(pair.decide(udp(10, 1000), true, now), None);
    }

    #[test]
    fn a_process_that_waits_for_a_third_of_the_time_is_short_of_cpus() {
        let before = CpuTimes {
            ran: 1000,
            waited: 1000,
        };
        let short = |ran: u64, waited: u64| {
            let (ran, waited) = (1000 + ran, 1000 + waited);
            CpuTimes { ran, waited }.is_short_since(&before)
        };
        assert!(short(100, 60));
        assert!(!short(100, 50));
        assert!(!short(0, 0));
    }

    #[test]
    fn only_processes_of_the_last_sample_can_be_short_of_cpus() {
        let mut auto = Auto::default();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(auto.short_of_cpu([(0, me), (1, -1)].into_iter()).is_empty());
        assert!(cpu_times_of(me).ran > 0);
        assert!(auto.cpu_times.contains_key(&me));
        assert!(auto.short_of_cpu(std::iter::empty()).is_empty());
        assert!(auto.cpu_times.is_empty());
    }
}
