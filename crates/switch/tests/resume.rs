//! A back-end dies at any time, and another one resumes at the used index. Receivers take frames at once,
//! slowly, or not at all. Chains are returned in order in every case: the driver ([`front_end::Queue`])
//! checks each one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use common::bare::{attach, messages};
use front_end::{Layout, Nic, Options, Wire, features, frame};
use proptest::prelude::*;
use switch::context::WorkerContext;
use switch::limits::STUCK_TIMEOUT;
use switch::mac::Mac;
use switch::switch::Switch;

const PORTS: u16 = 4;

/// The switch, its guests and the clock, all driven by one thread.
struct World {
    switch: Switch,
    context: WorkerContext,
    now: Instant,
    nics: Vec<Nic>,
    /// Frames sent, and the numbers of those received, by sender and receiver.
    sent: [[u64; PORTS as usize]; PORTS as usize],
    got: [[Vec<u64>; PORTS as usize]; PORTS as usize],
    /// Frames that were dropped, or deferred when a switch died.
    lost: u64,
}

/// Adds a port, whose address is pinned.
fn join(switch: &mut Switch, number: u16, theirs: OwnedFd) {
    attach(switch, number, theirs);
    let mac = Mac::from_octets(frame::mac(number));
    assert!(switch.table.pin(mac, number, 0));
}

impl World {
    fn new(options: Options) -> Self {
        let mut switch = Switch::default();
        let nics = (0..PORTS).map(|number| {
            let (wire, theirs) = Wire::pair();
            join(&mut switch, number, theirs);
            let mut nic = Nic::new(wire, options);
            nic.start(|| messages(&mut switch, number));
            nic
        });
        let nics = nics.collect();
        Self {
            switch,
            context: WorkerContext::new(0),
            now: Instant::now(),
            nics,
            sent: Default::default(),
            got: Default::default(),
            lost: 0,
        }
    }

    /// Replaces the switch by a new one. Its counters and deferred frames are lost.
    fn crash(&mut self) {
        for number in 0..PORTS {
            let port = self.switch.port_mut(number).unwrap();
            self.lost += port.counters().drops.total() + port.deferred_frames();
        }
        let mut switch = Switch::default();
        for (number, nic) in (0..).zip(&mut self.nics) {
            let (wire, theirs) = Wire::pair();
            join(&mut switch, number, theirs);
            nic.resume(wire, || messages(&mut switch, number));
        }
        self.switch = switch;
    }

    fn serve(&mut self, port: u16) -> bool {
        self.context.now = self.now;
        let moved = self.switch.serve(&mut self.context, port).moved > 0;
        assert!(self.switch.take_fault().is_none());
        moved
    }

    fn send(&mut self, from: u16, to: u16, length: usize) {
        let (a, b) = (usize::from(from), usize::from(to));
        let bytes = frame::numbered(frame::mac(to), frame::mac(from), self.sent[a][b], length);
        if self.nics[a].send(&bytes, Layout::One) {
            self.sent[a][b] += 1;
        }
    }

    fn take(&mut self, at: u16) {
        let nic = &mut self.nics[usize::from(at)];
        while let Some(received) = nic.receive() {
            assert_eq!(received.frame[..6], frame::mac(at));
            let from = usize::from(received.frame[11]);
            let got = &mut self.got[from][usize::from(at)];
            let number = frame::number(&received.frame);
            let last = got.last().copied();
            assert!(last.is_none_or(|last| last < number), "{last:?} {number}");
            got.push(number);
        }
        nic.reclaim();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send(from, to, length) => self.send(from, to, length),
            Step::Serve(port) => _ = self.serve(port),
            Step::Post(port, count) => {
                let nic = &mut self.nics[usize::from(port)];
                nic.post(count);
                nic.rx.publish_and_kick();
            }
            Step::Take(port) => self.take(port),
            Step::Wait(time) => self.now += time,
            Step::Crash => self.crash(),
        }
    }

    /// Lets every receiver take all frames, and checks that every frame is accounted for.
    fn finish(&mut self) {
        loop {
            let mut moved = false;
            for port in 0..PORTS {
                self.take(port);
                self.step(&Step::Post(port, u16::MAX));
            }
            for port in 0..PORTS {
                moved |= self.serve(port);
            }
            if !moved {
                break;
            }
        }
        for nic in &self.nics {
            assert_eq!(nic.in_flight(), 0, "chains that did not come back");
        }
        for number in 0..PORTS {
            let port = self.switch.port_mut(number).unwrap();
            assert_eq!(port.deferred_frames(), 0);
            self.lost += port.counters().drops.total();
        }
        let sent: u64 = self.sent.iter().flatten().sum();
        let got: usize = self.got.iter().flatten().map(Vec::len).sum();
        assert_eq!(sent, got as u64 + self.lost);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u16, u16, usize),
    Serve(u16),
    Post(u16, u16),
    Take(u16),
    Wait(Duration),
    Crash,
}

fn step(wait: Duration) -> impl Strategy<Value = Step> {
    let port = || 0..PORTS;
    let length = prop_oneof![6 => 40_usize..1500, 1 => 1500_usize..60_000];
    let send = (port(), 1..PORTS, length)
        .prop_map(|(from, on, length)| Step::Send(from, (from + on) % PORTS, length));
    prop_oneof![
        24 => send,
        6 => port().prop_map(Step::Serve),
        // The last port posts slowly; the one before it posts no buffers before `finish`.
        3 => (0..2_u16, 1..20_u16).prop_map(|(port, count)| Step::Post(port, count)),
        1 => Just(Step::Post(PORTS - 1, 1)),
        4 => port().prop_map(Step::Take),
        1 => (0..4_u32).prop_map(move |part| Step::Wait(wait * part / 4)),
        1 => Just(Step::Crash),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    (any::<bool>(), any::<bool>(), any::<u16>(), 4_u32..9).prop_map(
        |(in_order, event_idx, base, size)| {
            let mut features = features::PLAIN;
            if in_order {
                features |= features::IN_ORDER;
            }
            if !event_idx {
                features &= !features::EVENT_IDX;
            }
            Options {
                features,
                size: 1 << size,
                base,
                post: false,
                ..Options::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Frames that wait too long are dropped and counted.
    #[test]
    fn nothing_comes_twice_and_nothing_vanishes(
        options in options(),
        steps in prop::collection::vec(step(STUCK_TIMEOUT * 2), 1..1500),
    ) {
        let mut world = World::new(options);
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }

    /// No frame waits too long: then only deferred frames are lost, and only when the switch dies.
    #[test]
    fn receivers_that_are_slow_but_not_stuck_lose_nothing(
        options in options(),
        steps in prop::collection::vec(step(Duration::ZERO), 1..1500),
    ) {
        let mut world = World::new(options);
        for step in steps.iter().filter(|step| !matches!(step, Step::Crash)) {
            world.step(step);
        }
        world.finish();
        // Only frames that are too large for a ring are dropped (`receiver_small`).
        let small: u64 = (0..PORTS)
            .map(|number| world.switch.port_mut(number).unwrap().counters())
            .map(|counters| counters.drops.receiver_small)
            .sum();
        prop_assert_eq!(world.lost, small);
    }
}
