//! Malicious front-ends over a long time. They know the protocol and the checks of the back-end, and attack
//! messages, rings, headers, the memory table, descriptors and the order of tear-down, on several ports at
//! once. Meanwhile, well-behaved VMs exchange frames, which are verified one by one. Afterwards the process
//! must have as many descriptors, threads and mappings as before.
//!
//! `VICINITY_FUZZ_SECONDS` sets the duration (default: 20). `VICINITY_FUZZ_SEED`, which the test prints,
//! determines the steps of every port, but not how they interleave.
//!
//! This is the only test of its binary, because it counts the resources of the process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod attacker;
mod descriptors;
mod frames;
mod memory;
mod messages;
mod neighbours;
mod random;
mod usage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use common::Plane;
use switch::control::{Event, Order, PortReport, Reason};

use attacker::Attacker;
use neighbours::{Neighbours, Traffic};
use usage::Usage;

/// Ports of malicious front-ends.
const ATTACKERS: [u16; 4] = [20, 21, 22, 23];

/// Ports of well-behaved VMs, in pairs.
const GOOD: [[u16; 2]; 2] = [[1, 2], [3, 4]];

/// Most frames of a well-behaved VM that may be dropped: while a thread waits for a CPU, the receiver's
/// ring may be full of attackers' frames, and frames are dropped and counted after `STUCK_TIMEOUT`.
const LOSS_SHARE: u64 = 100;

#[test]
fn neighbours_of_malicious_front_ends_are_unaffected() {
    let time = Duration::from_secs(setting("VICINITY_FUZZ_SECONDS").unwrap_or(20));
    let seed = setting("VICINITY_FUZZ_SEED").unwrap_or_else(random::fresh);
    println!("VICINITY_FUZZ_SEED={seed} for {} s", time.as_secs());

    let mut plane = Plane::with_workers(2);
    let mut pairs = GOOD.map(|ports| Neighbours::new(&mut plane, ports));
    // After the first tenth, everything that is allocated once is allocated.
    let warm = fuzz(&plane, &mut pairs, seed, time / 10);
    let before = Usage::now();
    let rest = fuzz(&plane, &mut pairs, !seed, time - time / 10);
    let after = Usage::now();

    println!("{} attacks, {} of them faults", rest.attacks, rest.faults);
    println!("before: {before:?}\nafter:  {after:?}");
    assert!(warm.faults > 0, "nobody was at fault: nothing was attacked");
    after.assert_no_more_than(&before);
    for (pair, ports) in pairs.iter().zip(GOOD) {
        for (traffic, port) in pair.traffic().iter().zip(ports) {
            check(traffic, &rest.reports, port);
        }
    }
}

/// The result of a run.
struct Outcome {
    attacks: u64,
    faults: u64,
    /// The reports of the remaining ports, which are those of the well-behaved VMs.
    reports: Vec<PortReport>,
}

/// Attacks for `time`, while the well-behaved VMs exchange frames.
fn fuzz(plane: &Plane, pairs: &mut [Neighbours], seed: u64, time: Duration) -> Outcome {
    let (over, quiet) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (ends, inboxes): (Vec<_>, Vec<Receiver<Reason>>) =
        ATTACKERS.map(|_| channel()).into_iter().unzip();
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let supervisor = scope.spawn(move || supervise(plane, &ends, quiet));
        let traffic: Vec<_> = pairs
            .iter_mut()
            .map(|pair| scope.spawn(move || pair.exchange_until(over)))
            .collect();
        let attackers: Vec<_> = ATTACKERS
            .into_iter()
            .zip(inboxes)
            .map(|(port, inbox)| {
                let seed = seed.wrapping_add(u64::from(port) << 32);
                scope.spawn(move || attack(plane, port, seed, &inbox, end))
            })
            .collect();
        let done: Vec<_> = attackers.into_iter().map(|one| one.join()).collect();
        over.store(true, Ordering::Relaxed);
        let traffic: Vec<_> = traffic.into_iter().map(|one| one.join()).collect();
        quiet.store(true, Ordering::Relaxed);
        let reports = supervisor.join().unwrap();
        traffic.into_iter().for_each(|one| one.unwrap());
        let done = done.into_iter().map(Result::unwrap);
        let (attacks, faults) = done.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Outcome {
            attacks,
            faults,
            reports,
        }
    })
}

/// Attacks from a port until `end`; returns the number of attacks, and of those that ended with a fault.
fn attack(
    plane: &Plane,
    port: u16,
    seed: u64,
    inbox: &Receiver<Reason>,
    end: Instant,
) -> (u64, u64) {
    let (mut attacks, mut faults) = (0, 0);
    while Instant::now() < end {
        Attacker::new(plane, port, seed.wrapping_add(attacks)).run();
        let reason = inbox.recv_timeout(front_end::TEST_TIMEOUT);
        match reason.unwrap_or_else(|_| panic!("port {port} is not ended: seed {seed}+{attacks}")) {
            Reason::Fault(_) => faults += 1,
            Reason::Disconnected => {}
            other => panic!("port {port} was ended with {other:?}: seed {seed}+{attacks}"),
        }
        attacks += 1;
    }
    (attacks, faults)
}

/// Plays the supervisor: requests reports continuously, and passes the reasons of detached ports to the
/// attackers. Returns the last report after `quiet` is set.
fn supervise(plane: &Plane, ends: &[Sender<Reason>], quiet: &AtomicBool) -> Vec<PortReport> {
    loop {
        let last = quiet.load(Ordering::Relaxed);
        plane.order(&Order::Report, None);
        let mut ports = Vec::new();
        loop {
            match plane.next() {
                Event::Report(reports) => ports.extend(reports),
                Event::Detached { port, reason, .. } => {
                    let place = ATTACKERS.iter().position(|attacker| *attacker == port.0);
                    let place = place.unwrap_or_else(|| panic!("{port:?} was ended: {reason:?}"));
                    let _attacker_failed = ends[place].send(reason);
                }
                Event::ReportEnd(_) => break,
                _ => {}
            }
        }
        if last {
            return ports;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asserts that every frame of a well-behaved port arrived, or was dropped for the only permitted reason.
fn check(traffic: &Traffic, reports: &[PortReport], port: u16) {
    let report = reports.iter().find(|report| report.port == port);
    let drops = report.expect("a good port is still there").counters.drops;
    let lost = traffic.lost();
    let (sent, forged) = (traffic.sent, traffic.forged);
    println!("port {port}: {sent} frames sent, {lost} lost, {forged} forged");
    assert!(traffic.sent > 0);
    assert_eq!(lost, drops.receiver_stuck, "lost and not counted, or so");
    assert!(lost <= traffic.sent / LOSS_SHARE, "{lost} frames lost");
    let never = [drops.receiver_down, drops.bad_length, drops.hairpin];
    assert_eq!(never, [0; 3], "{drops:?}");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}
