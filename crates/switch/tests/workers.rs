//! Several workers: order is kept and no frame is lost, whatever happens to other ports.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Plane, lost};
use front_end::queue::wait_for_any;
use front_end::wire::request;
use front_end::{Layout, Nic, Options, Pair, Queue, Ram, Region, features, frame};
use switch::control::{Order, PortId, Reason};
use switch::mac::Mac;

const WORKERS: usize = 3;

fn with(pairs: u16) -> Options {
    Options {
        pairs,
        features: features::PLAIN | features::MQ,
        ..Options::default()
    }
}

/// A data plane with several workers, whose ports' addresses are pinned before they are attached, so that
/// no frame is flooded.
fn plane(ports: std::ops::RangeInclusive<u16>) -> Plane {
    let mut plane = Plane::with_workers(WORKERS);
    for port in ports {
        let order = Order::SetFdbEntry {
            mac: Mac::from_octets(frame::mac(port)),
            vlan: 0,
            port: PortId(port),
        };
        plane.order(&order, None);
    }
    plane.wait_for_orders();
    plane
}

/// One pair of a VM, and its progress.
struct End<'p> {
    pair: &'p mut Pair,
    station: u16,
    sent: u64,
    got: u64,
}

impl End<'_> {
    /// Sends to and receives from the other end; returns whether any frame moved.
    fn turn(&mut self, other: u16, count: u64) -> bool {
        let mut moved = false;
        let (there, here) = (frame::mac(other), frame::mac(self.station));
        while self.sent < count {
            let bytes = frame::numbered(there, here, self.sent, 64 + (self.sent % 1400) as usize);
            if !self.pair.send(&bytes, Layout::One) {
                break;
            }
            self.sent += 1;
            moved = true;
        }
        while let Some(received) = self.pair.receive() {
            assert_eq!(received.frame[6..12], there, "of another port");
            assert_eq!(frame::number(&received.frame), self.got, "order");
            self.got += 1;
            moved = true;
        }
        moved
    }
}

/// Waits for a call of any of these queues, unless one has work already.
fn wait(queues: &[&Queue]) {
    if !queues.iter().any(|queue| queue.ask_for_call()) {
        wait_for_any(queues);
        for queue in queues {
            let _ = queue.calls();
        }
    }
}

/// Sends in both directions between a pair of station 1 and a pair of station 2, until all frames have arrived.
fn exchange(a: &mut Pair, b: &mut Pair, count: u64) {
    let end = |pair, station| End {
        pair,
        station,
        sent: 0,
        got: 0,
    };
    let (mut a, mut b) = (end(a, 1), end(b, 2));
    while a.got < count || b.got < count {
        if !(a.turn(2, count) | b.turn(1, count)) {
            wait(&[&a.pair.tx, &a.pair.rx, &b.pair.tx, &b.pair.rx]);
        }
    }
    a.pair.wait_until_sent();
    b.pair.wait_until_sent();
}

/// Attaches ports 3 and 4, sends frames, stops rings and changes memory meanwhile, and detaches the ports.
fn attach_and_detach(plane: &mut Plane, round: usize) {
    let mut nics = [3, 4].map(|port| plane.nic(port, with(4)));
    let spare = Ram::new(1 << 16);
    let region = Region {
        guest: 1 << 40,
        user: 1 << 41,
        ..spare.regions()[0]
    };
    let single = [vec![0; 8], region.to_bytes()].concat();
    for step in 0..8 {
        for (place, nic) in nics.iter_mut().enumerate() {
            let (here, there) = (frame::mac(3 + place as u16), frame::mac(4 - place as u16));
            for pair in &mut nic.pairs {
                for number in 0..20 {
                    pair.send(&frame::numbered(there, here, number, 200), Layout::One);
                }
                while pair.receive().is_some() {}
            }
        }
        let nic = &mut nics[step % 2];
        match (round + step) % 5 {
            0 => nic.restart(),
            1 => {
                nic.enable_pair(step % 4, false);
                nic.enable_pair(step % 4, true);
            }
            2 => {
                let (table, fds) = nic.memory_table();
                assert!(nic.wire.send(request::SET_MEM_TABLE, &table, &fds));
            }
            3 => {
                let add = request::ADD_MEM_REG;
                assert!(nic.wire.send(add, &single, &[spare.fd().as_fd()]));
                assert!(nic.wire.send(request::REM_MEM_REG, &single, &[]));
            }
            _ => nic.start_rings_again(),
        }
        nic.sync();
    }
    let [c, d] = nics;
    // One front-end closes its socket; the supervisor detaches the other port.
    drop(c);
    plane.order(&Order::Detach { port: PortId(4) }, None);
    for (port, why) in [(3, Reason::Disconnected), (4, Reason::Ordered)] {
        assert_eq!(plane.detached(port).0, why);
        plane.forget_running(port);
    }
    drop(d);
}

#[test]
fn ports_that_are_attached_and_detached_do_not_affect_others() {
    const COUNT: u64 = 3000;
    let mut plane = plane(1..=4);
    let (mut a, mut b) = (plane.nic(1, with(4)), plane.nic(2, with(4)));
    let left = AtomicUsize::new(4);
    std::thread::scope(|scope| {
        let streams: Vec<_> = a
            .pairs
            .iter_mut()
            .zip(&mut b.pairs)
            .map(|(a, b)| {
                let left = &left;
                scope.spawn(move || {
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        exchange(a, b, COUNT);
                    }));
                    left.fetch_sub(1, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let mut round = 0;
        while round < 20 || left.load(Ordering::Relaxed) > 0 {
            attach_and_detach(&mut plane, round);
            round += 1;
        }
        for stream in streams {
            stream.join().unwrap().unwrap();
        }
    });
    for port in [1, 2] {
        let counters = plane.counters(port);
        assert_eq!(lost(&counters.drops), 0, "{:?}", counters.drops);
        assert_eq!(counters.tx_frames, 4 * COUNT);
        assert_eq!(counters.rx_frames, 4 * COUNT);
    }
}

/// All workers deliver into one small receive ring, which is full most of the time.
#[test]
fn a_receive_ring_that_all_workers_fill_gets_every_flow_in_order() {
    const COUNT: u64 = 400;
    const SENDERS: [u16; 3] = [1, 2, 3];
    let mut plane = plane(1..=4);
    let mut senders = SENDERS.map(|port| plane.nic(port, with(4)));
    let small = Options {
        size: 16,
        ..with(1)
    };
    let mut receiver = plane.nic(4, small);
    let mut sent = [[0_u64; 4]; 3];
    let mut next = [[0_u64; 4]; 3];
    let mut got = 0;
    let total = COUNT * 12;
    let stuck = |plane: &mut Plane| -> u64 {
        let counters = SENDERS.map(|port| plane.counters(port).drops);
        let stuck: u64 = counters.iter().map(|drops| drops.receiver_stuck).sum();
        assert_eq!(counters.iter().map(lost).sum::<u64>(), stuck);
        stuck
    };
    loop {
        let mut moved = false;
        for (s, nic) in senders.iter_mut().enumerate() {
            for (p, pair) in nic.pairs.iter_mut().enumerate() {
                // The upper half of the number is the pair, which identifies the flow.
                let (to, from) = (frame::mac(4), frame::mac(SENDERS[s]));
                while sent[s][p] < COUNT {
                    let number = (p as u64) << 32 | sent[s][p];
                    if !pair.send(&frame::numbered(to, from, number, 100), Layout::One) {
                        break;
                    }
                    sent[s][p] += 1;
                    moved = true;
                }
                moved |= pair.reclaim() > 0;
            }
        }
        while let Some(received) = receiver.receive() {
            let s = usize::from(received.frame[11]) - 1;
            let number = frame::number(&received.frame);
            let (p, number) = ((number >> 32) as usize, number & 0xffff_ffff);
            // Frames are missing only if they were dropped, which is counted below.
            assert!(number >= next[s][p], "order");
            next[s][p] = number + 1;
            got += 1;
            moved = true;
        }
        if moved {
            continue;
        }
        if sent == [[COUNT; 4]; 3] && senders.iter().all(all_back) {
            // Deferred frames may still arrive.
            if got + stuck(&mut plane) == total {
                break;
            }
            continue;
        }
        let mut queues = vec![&receiver.rx];
        let pairs = senders.iter().flat_map(|nic: &Nic| &nic.pairs);
        queues.extend(pairs.map(|pair| &pair.tx));
        wait(&queues);
    }
    assert_eq!(plane.counters(4).rx_frames, got);
}

fn all_back(nic: &Nic) -> bool {
    nic.pairs.iter().all(|pair| pair.in_flight() == 0)
}

/// All workers of a network end together.
#[test]
fn all_workers_end_when_the_supervisor_closes_its_socket() {
    let (control, theirs) = switch::control::ControlSocket::pair().unwrap();
    let workers = std::thread::spawn(move || switch::run(theirs, WORKERS));
    drop(control);
    workers.join().unwrap().unwrap();
}
