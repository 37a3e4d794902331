//! A model of a host with fewer CPUs than virtual CPUs, in virtual time.
//!
//! Each virtual CPU runs one program, which exchanges messages with another one. The host takes a
//! virtual CPU away for 0 to 90 ms at random, as CPU quotas and other VMs do, and shares its CPUs
//! among the others in slices of 3 ms. What the programs decide is decided by the code that
//! endpoints and the broker run: [`Wait`], [`StealMonitor`] and [`Heartbeat`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use window::calibration::{Samples, Thresholds};
use window::steal::{CpuTimes, StealMonitor};

use super::heartbeat::{Heartbeat, SILENT_AFTER};
use crate::limits::REMOTE_TRANSFER_SPIN;
use crate::wait_policy::{HostConditions, Step, Wait};

/// The step of the model.
const STEP: Duration = Duration::from_micros(10);
/// A virtual CPU's turn, if others wait for a CPU of the host.
const SLICE: Duration = Duration::from_millis(3);
/// The time from the wake-up of a virtual CPU until it is runnable.
const WAKE: Duration = Duration::from_micros(50);
const LONGEST_LOSS: Duration = Duration::from_millis(90);
/// The host takes a virtual CPU away once in so many steps in which it runs: each 20 ms.
const STEPS_PER_LOSS: usize = 2_000;

const VCPUS: usize = 6;
const CPUS: usize = 2;
/// This VM is paused for a while.
const PAUSED: usize = 5;
const PAUSE: std::ops::Range<Duration> = Duration::from_secs(4)..Duration::from_secs(19);
const END: Duration = Duration::from_secs(25);

/// What a program did in a step.
#[derive(PartialEq, Eq)]
enum Action {
    Nothing,
    Sent,
    Took,
}

#[derive(Clone, Copy)]
enum Program {
    /// It works, and then sends a message.
    Works(Duration),
    Waits(Wait),
    /// Its virtual CPU halts.
    Sleeps,
}

struct Vcpu {
    program: Program,
    /// Messages that arrived and were not taken.
    inbox: u32,
    taken: u64,
    sent: u64,
    /// When it sent last.
    asked: Duration,
    /// It is not runnable before: the host took it away, or it is being woken.
    away_until: Duration,
    slice: Duration,
    /// Time in which it wanted to run and did not.
    lost: Duration,
    ran: Duration,
    polled: Duration,
    polled_in_wait: Duration,
    longest_polling: Duration,
    steal: StealMonitor,
    beats: u32,
    beaten: Duration,
    heartbeat: Heartbeat,
    /// The lost time of both ends when it sent last.
    lost_before: Duration,
    latencies: Vec<Duration>,
}

impl Vcpu {
    fn new(start: Instant, number: usize) -> Self {
        // One of each pair begins.
        let program = match number % 2 {
            0 => Program::Works(STEP),
            _ => Program::Waits(Wait::begin(start)),
        };
        Self {
            program,
            inbox: 0,
            taken: 0,
            sent: 0,
            asked: Duration::ZERO,
            away_until: Duration::ZERO,
            slice: Duration::ZERO,
            lost: Duration::ZERO,
            ran: Duration::ZERO,
            polled: Duration::ZERO,
            polled_in_wait: Duration::ZERO,
            longest_polling: Duration::ZERO,
            steal: StealMonitor::default(),
            beats: 0,
            beaten: Duration::ZERO,
            heartbeat: Heartbeat::new(start),
            lost_before: Duration::ZERO,
            latencies: Vec::new(),
        }
    }

    fn is_halted(&self) -> bool {
        matches!(self.program, Program::Sleeps) && self.inbox == 0
    }

    /// Runs for one step, at the end of which it is `now`. A message that it takes is followed by
    /// this work.
    fn run(
        &mut self,
        (start, now): (Instant, Duration),
        work: Duration,
        thresholds: &Thresholds,
    ) -> Action {
        self.ran += STEP;
        match self.program {
            Program::Works(left) if left > STEP => {
                self.program = Program::Works(left - STEP);
                Action::Nothing
            }
            Program::Works(_) => {
                (self.sent, self.asked) = (self.sent + 1, now);
                self.polled_in_wait = Duration::ZERO;
                self.program = Program::Waits(Wait::begin(start + now));
                Action::Sent
            }
            Program::Waits(_) | Program::Sleeps if self.inbox > 0 => {
                (self.inbox, self.taken) = (self.inbox - 1, self.taken + 1);
                self.program = Program::Works(work);
                Action::Took
            }
            Program::Waits(mut wait) => {
                self.polled += STEP;
                self.polled_in_wait += STEP;
                self.longest_polling = self.longest_polling.max(self.polled_in_wait);
                let around = HostConditions {
                    remote: true,
                    contended: false,
                    overcommitted: self.steal.is_overcommitted(),
                };
                self.program = match wait.next(start + now, thresholds, around, || true) {
                    Step::Sleep => Program::Sleeps,
                    Step::Poll => Program::Waits(wait),
                    Step::Yield => {
                        wait.yielded(start + now);
                        Program::Waits(wait)
                    }
                };
                Action::Nothing
            }
            // It halted in this step.
            Program::Sleeps => Action::Nothing,
        }
    }
}

struct Host {
    start: Instant,
    now: Duration,
    vcpus: Vec<Vcpu>,
    /// The runnable virtual CPUs; the first ones run.
    queue: VecDeque<usize>,
    random: fastrand::Rng,
    thresholds: Thresholds,
    /// The host takes virtual CPUs away.
    takes: bool,
}

impl Host {
    fn new(seed: u64) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: Duration::ZERO,
            vcpus: (0..VCPUS).map(|number| Vcpu::new(start, number)).collect(),
            queue: VecDeque::new(),
            random: fastrand::Rng::with_seed(seed),
            thresholds: Thresholds::of(&Samples::default()),
            takes: true,
        }
    }

    fn is_paused(&self, number: usize) -> bool {
        number == PAUSED && PAUSE.contains(&self.now)
    }

    fn step(&mut self) {
        self.now += STEP;
        for number in 0..VCPUS {
            let vcpu = &self.vcpus[number];
            let runnable =
                !vcpu.is_halted() && vcpu.away_until <= self.now && !self.is_paused(number);
            let queued = self.queue.contains(&number);
            if runnable && !queued {
                self.queue.push_back(number);
            } else if !runnable && queued {
                self.queue.retain(|other| *other != number);
            }
        }
        let running: Vec<_> = self.queue.iter().copied().take(CPUS).collect();
        for number in 0..VCPUS {
            let vcpu = &mut self.vcpus[number];
            match running.contains(&number) {
                true => self.run(number),
                false if !vcpu.is_halted() => vcpu.lost += STEP,
                false => {}
            }
        }
    }

    fn run(&mut self, number: usize) {
        let work = match self.random.u32(..10) {
            0 => Duration::from_millis(2),
            _ => Duration::from_micros(self.random.u64(10..100)),
        };
        let vcpu = &mut self.vcpus[number];
        let did = vcpu.run((self.start, self.now), work, &self.thresholds);
        vcpu.slice += STEP;
        let is_over = vcpu.slice >= SLICE;
        if self.takes && self.random.usize(..STEPS_PER_LOSS) == 0 {
            vcpu.away_until = self.now + LONGEST_LOSS.mul_f64(self.random.f64());
        }
        let (partner, lost) = (number ^ 1, vcpu.lost);
        let lost = lost + self.vcpus[partner].lost;
        if did == Action::Sent {
            self.vcpus[number].lost_before = lost;
            let peer = &mut self.vcpus[partner];
            if peer.is_halted() {
                peer.away_until = peer.away_until.max(self.now + WAKE);
            }
            peer.inbox += 1;
        }
        let vcpu = &mut self.vcpus[number];
        if did == Action::Took && vcpu.sent > 0 {
            let whole = self.now - vcpu.asked;
            vcpu.latencies
                .push(whole.saturating_sub(lost - vcpu.lost_before));
        }
        if is_over {
            vcpu.slice = Duration::ZERO;
            self.queue.retain(|other| *other != number);
            self.queue.push_back(number);
        }
    }

    /// What happens once a second: steal times are read, gateways send heartbeats, and the broker checks them.
    fn second(&mut self) {
        let now = self.start + self.now;
        for number in 0..VCPUS {
            let paused = self.is_paused(number);
            let vcpu = &mut self.vcpus[number];
            let ticks = |time: Duration| u64::try_from(time.as_micros()).unwrap();
            if !paused {
                let times = CpuTimes {
                    busy: ticks(vcpu.ran + vcpu.lost),
                    stolen: ticks(vcpu.lost),
                };
                vcpu.steal.record(times, now);
            }
            // A virtual CPU that is away beats when it is back.
            if !paused && vcpu.away_until <= self.now {
                (vcpu.beats, vcpu.beaten) = (vcpu.beats + 1, self.now);
            }
            vcpu.heartbeat.update(vcpu.beats, now);
            let expected = self.now - vcpu.beaten >= SILENT_AFTER;
            assert_eq!(vcpu.heartbeat.is_silent(), expected, "at {:?}", self.now);
            assert!(!expected || paused, "only a paused VM is silent");
        }
    }

    fn run_until(&mut self, end: Duration) {
        while self.now < end {
            self.step();
            if self.now.as_micros() % 1_000_000 == 0 {
                self.second();
            }
        }
    }
}

#[test]
fn waiters_under_overcommitment_lose_nothing_and_poll_little() {
    for seed in 0..3 {
        let mut host = Host::new(seed);
        host.run_until(END);
        let (mut ran, mut polled) = (Duration::ZERO, Duration::ZERO);
        for (number, vcpu) in host.vcpus.iter().enumerate() {
            ran += vcpu.ran;
            polled += vcpu.polled;
            // A wait polls for one limit at most, and for less than a loss more.
            let limit = REMOTE_TRANSFER_SPIN + host.thresholds.lost_cpu;
            assert!(vcpu.longest_polling <= limit, "{:?}", vcpu.longest_polling);
            // What the CPUs did not cause is bounded: the other's work, and two wake-ups.
            let longest = vcpu.latencies.iter().max().unwrap();
            assert!(
                *longest <= Duration::from_micros(2_500),
                "{number}: {longest:?}"
            );
            assert!(vcpu.taken > 100, "{number}: {} messages", vcpu.taken);
        }
        let share = polled.as_secs_f64() / ran.as_secs_f64();
        println!("seed {seed}: {:.1} % of the CPU time polled", share * 100.0);
        assert!(share < 0.25, "{share}");
        // With its CPU back, each program continues: nothing is lost, and nothing is stuck.
        host.takes = false;
        let before: Vec<_> = host.vcpus.iter().map(|vcpu| vcpu.taken).collect();
        host.run_until(END + Duration::from_secs(1));
        for (number, vcpu) in host.vcpus.iter().enumerate() {
            assert!(vcpu.taken > before[number], "{number} is stuck");
            let peer = &host.vcpus[number ^ 1];
            assert_eq!(peer.sent, vcpu.taken + u64::from(vcpu.inbox));
        }
    }
}
