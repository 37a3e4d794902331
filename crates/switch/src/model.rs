//! Loom models of the tear-down of ports while workers forward: every interleaving of workers with changes
//! of the network, its rings and its FDB.
//!
//! The models run the workers' own code, with loom's locks, on real rings in real memory. The memory is
//! unmapped when its port is removed, so a worker that still accesses it ends the process. The first worker
//! also plays the supervisor and the guests. Loom has no model of the kernel, so a worker sleeps on
//! [`WorkerSlot::loom_wake`](crate::shared::WorkerSlot::loom_wake) instead, which the model notifies when
//! the kernel would wake the worker. The sleep has no timeout: if a wake-up is lost, loom finds that no
//! thread can run.
//!
//! Guests access a ring with its lock held. A real guest has no such lock, but it shows loom that the order
//! of the guest's and a worker's accesses matters. Interleavings of single instructions on a ring are
//! checked by the handshake model in the crate `vhost`.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use front_end::{Layout, Nic, Options, Wire, frame};
use loom::thread::{Builder, JoinHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::control::{ControlSocket, Counters, Event, Order, PortId, Reason};
use crate::mac::Mac;
use crate::port::{Kind, receive_ring, transmit_ring};
use crate::shared::Shared;
use crate::worker::Worker;
use crate::workers::Workers;

/// Stack size of the threads: a burst does not fit into loom's default.
const STACK: usize = 1 << 20;

/// Most preemptions in an interleaving.
const PREEMPTIONS: usize = 2;

/// Checks a model. Its set-up is not explored: the model calls [`loom::explore`] after it.
fn check(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    builder.expect_explicit_explore = true;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        spawn(model).join().unwrap();
    });
    println!("{} interleavings", runs.load(Ordering::Relaxed));
}

fn spawn<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(STACK).spawn(act).unwrap()
}

/// A network, its first worker, and its supervisor.
struct Model {
    first: Worker,
    supervisor: ControlSocket,
    events: Vec<Event>,
}

impl Model {
    fn new(workers: usize) -> Self {
        let (supervisor, control) = ControlSocket::pair().unwrap();
        Self {
            first: Workers::new(control, workers).unwrap().first,
            supervisor,
            events: Vec::new(),
        }
    }

    fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.first.shared)
    }

    /// Has the first worker handle pending events.
    fn act(&mut self) {
        self.first.wait(Some(Duration::ZERO)).unwrap();
        while let Ok(Some((event, _))) = self.supervisor.receive() {
            self.events.push(event);
        }
    }

    /// Attaches a VM to a port.
    fn join(&mut self, port: u16, options: Options) -> Nic {
        self.join_after(port, options, |_| {})
    }

    /// Attaches a VM to a port, after its guest has changed the rings.
    fn join_after(&mut self, port: u16, options: Options, act: impl FnOnce(&mut Nic)) -> Nic {
        let (wire, theirs) = Wire::pair();
        let order = Order::Attach {
            port: PortId(port),
            name: String::new(),
        };
        self.supervisor.send(&order, Some(theirs.as_fd())).unwrap();
        self.act();
        let mut nic = Nic::new(wire, options);
        act(&mut nic);
        nic.start(|| self.act());
        nic
    }

    fn leave(&mut self, port: u16) {
        let order = Order::Detach { port: PortId(port) };
        self.supervisor.send(&order, None).unwrap();
        self.act();
    }

    /// Returns why a port was detached, and its counters, if it was.
    fn detached(&self, number: u16) -> Option<(Reason, Counters)> {
        self.events.iter().find_map(|event| match event {
            Event::Detached {
                port,
                reason,
                counters,
            } if port.0 == number => Some((reason.clone(), **counters)),
            _ => None,
        })
    }

    /// Pins the address of each station to the port with the same number.
    fn pin(&self, stations: &[u16]) {
        let switch = self.first.shared.write();
        for station in stations {
            assert!(switch.table.pin(mac(*station), *station, 0));
        }
    }
}

fn mac(station: u16) -> Mac {
    Mac::from_octets(frame::mac(station))
}

/// Options with small rings.
fn small() -> Options {
    Options {
        size: 16,
        ..Options::default()
    }
}

/// Calls `act` with a ring's lock held, as its guest, and then wakes the workers that the kernel would wake.
fn on_ring(shared: &Shared, port: u16, ring: usize, act: impl FnOnce()) {
    {
        let switch = shared.read();
        let guest = switch.port(port).map(|port| &port.kind);
        let vring = match guest {
            Some(Kind::Guest(guest)) => guest.backend.vring(ring),
            _ => None,
        };
        act();
        drop(vring);
    }
    for slot in &shared.slots {
        let mut fds = [PollFd::new(&slot.poll, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A worker's alarm may ring.
        if retry_on_intr(|| poll(&mut fds, Some(&now))).unwrap() > 0 {
            slot.loom_wake.notify();
        }
    }
}

/// Sends a frame from a station at the port with this number.
fn send(shared: &Shared, port: u16, nic: &Mutex<Nic>, from: u16, to: u16) {
    let bytes = frame::numbered(frame::mac(to), frame::mac(from), 0, 64);
    on_ring(shared, port, transmit_ring(0), || {
        assert!(nic.lock().unwrap().send(&bytes, Layout::One));
    });
}

/// Lets a worker sleep if it has no work, and then handles events.
fn sleep_if_idle(worker: &mut Worker, moved: bool) {
    if !moved && worker.prepare_to_sleep() {
        let shared = Arc::clone(&worker.shared);
        shared.slots[worker.context.worker].loom_wake.wait();
    }
    worker.wait(Some(Duration::ZERO)).unwrap();
}

/// Runs a worker until `done` returns true.
fn serve(
    shared: &Arc<Shared>,
    number: usize,
    done: impl Fn() -> bool + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    spawn(move || {
        let mut worker = Worker::new(shared, number, None).unwrap();
        while !done() {
            let moved = worker.round();
            sleep_if_idle(&mut worker, moved);
        }
    })
}

/// Returns the stations that sent the received frames, in order.
fn got(nic: &Mutex<Nic>) -> Vec<u16> {
    let mut nic = nic.lock().unwrap();
    let frames = std::iter::from_fn(|| nic.receive());
    let stations = frames.map(|received| u16::from(received.frame[11]));
    stations.collect()
}

fn sent(nic: &Mutex<Nic>) -> u16 {
    nic.lock().unwrap().tx.used_index()
}

/// A VM is detached while another worker forwards its frame. Another VM is attached to its port, as to a
/// data plane that has just started: a frame is in its ring already, and no kick follows.
#[test]
fn a_sender_is_replaced() {
    check(|| {
        let mut world = Model::new(2);
        world.pin(&[2]);
        let receiver = Arc::new(Mutex::new(world.join(2, small())));
        let old = Mutex::new(world.join(1, small()));
        let shared = world.shared();
        send(&shared, 1, &old, 1, 2);
        loom::explore();
        let all: Arc<Mutex<Vec<u16>>> = Arc::default();
        let theirs = Arc::clone(&all);
        let worker = serve(&shared, 1, move || {
            let mut all = theirs.lock().unwrap();
            all.extend(got(&receiver));
            all.contains(&3)
        });
        world.leave(1);
        let _new = world.join_after(1, small(), |nic| {
            let bytes = frame::numbered(frame::mac(2), frame::mac(3), 0, 64);
            assert!(nic.enqueue(&[0; 12], &bytes, Layout::One));
            let _no_kick = nic.tx.publish();
        });
        worker.join().unwrap();
        let (reason, counters) = world.detached(1).unwrap();
        assert_eq!(reason, Reason::Ordered);
        let expected: &[u16] = if counters.tx_frames == 1 {
            &[1, 3]
        } else {
            &[3]
        };
        assert_eq!(*all.lock().unwrap(), expected);
        let switch = shared.read();
        assert_eq!(switch.table.lookup(mac(1), 0), None, "it is gone");
        assert_eq!(switch.table.lookup(mac(3), 0), Some(1));
    });
}

/// A VM is detached while another worker delivers to it, and another VM is attached to its port.
#[test]
fn a_receiver_is_replaced() {
    check(|| {
        let mut world = Model::new(2);
        world.pin(&[1, 2]);
        let old = Mutex::new(world.join(2, small()));
        let sender = Arc::new(Mutex::new(world.join(1, small())));
        let shared = world.shared();
        send(&shared, 1, &sender, 1, 2);
        loom::explore();
        let theirs = Arc::clone(&sender);
        let worker = serve(&shared, 1, move || sent(&theirs) == 2);
        world.leave(2);
        let new = Mutex::new(world.join(2, small()));
        send(&shared, 1, &sender, 1, 2);
        worker.join().unwrap();
        let (_, counters) = world.detached(2).unwrap();
        let before = got(&old).len() as u64;
        assert_eq!(before, counters.rx_frames);
        let mut switch = shared.write();
        let drops = switch.port_mut(1).unwrap().counters().drops;
        drop(switch);
        let after = got(&new).len() as u64;
        assert_eq!(before + after + drops.total(), 2, "{drops:?}");
        assert!(after >= 1, "its rings ran before the second frame was sent");
    });
}

/// A worker detects a fault of a receiver while the first worker sleeps.
#[test]
fn a_port_at_fault_is_ended() {
    check(|| {
        let mut world = Model::new(2);
        world.pin(&[1, 2]);
        let bad = world.join(2, small());
        let sender = Arc::new(Mutex::new(world.join(1, small())));
        let shared = world.shared();
        // More buffers than the ring has.
        bad.rx.publish_wrong_index(1000);
        send(&shared, 1, &sender, 1, 2);
        loom::explore();
        let theirs = Arc::clone(&sender);
        let worker = serve(&shared, 1, move || sent(&theirs) == 1);
        loop {
            let moved = world.first.round();
            world.first.drop_faulty();
            world.act();
            if world.detached(2).is_some() {
                break;
            }
            sleep_if_idle(&mut world.first, moved);
        }
        worker.join().unwrap();
        let (reason, _) = world.detached(2).unwrap();
        assert!(matches!(reason, Reason::Fault(_)), "{reason:?}");
        assert!(shared.read().port(2).is_none());
    });
}

/// Two workers wait for buffers of one receiver, which posts two buffers one by one. Neither worker misses
/// its wake-up.
#[test]
fn two_workers_wait_for_one_receiver() {
    check(|| {
        let mut world = Model::new(3);
        world.pin(&[1, 2, 3]);
        let receiver = Mutex::new(world.join(
            3,
            Options {
                post: false,
                ..small()
            },
        ));
        let senders = [1, 2].map(|port| Arc::new(Mutex::new(world.join(port, small()))));
        let shared = world.shared();
        for (port, nic) in (1..).zip(&senders) {
            send(&shared, port, nic, port, 3);
        }
        loom::explore();
        let workers = [1, 2].map(|number| {
            let theirs = Arc::clone(&senders[number - 1]);
            serve(&shared, number, move || sent(&theirs) == 1)
        });
        for _ in 0..2 {
            on_ring(&shared, 3, receive_ring(0), || {
                let mut receiver = receiver.lock().unwrap();
                assert_eq!(receiver.post(1), 1);
                receiver.rx.publish_and_kick();
            });
        }
        for worker in workers {
            worker.join().unwrap();
        }
        let mut all = got(&receiver);
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}
