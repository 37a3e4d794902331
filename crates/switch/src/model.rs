//! Tear-down against the data path, checked by loom: every order in which workers can come by the
//! network, its rings and its table.
//!
//! The code is the workers' own, with loom's locks, on real rings in real memory, which is unmapped
//! when its port goes: whoever still looks at it then ends the process. The first worker stands in
//! for the supervisor and the guests as well. What loom does not know is the kernel, so a worker
//! sleeps on [`WorkerSlot::loom_wake`](crate::shared::WorkerSlot::loom_wake) instead, which rings when the kernel would
//! have woken it. It sleeps without a limit: where a wake-up is lost, loom finds nobody left to run.
//!
//! Guests work on a ring with its lock in hand. They have no such lock, but loom tells by it that the
//! order of theirs and a worker's doings matters. What may happen between two instructions on a
//! ring is for the model of the handshake, in the crate `vhost`.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use front_end::{Layout, Nic, Options, Wire, frame};
use loom::thread::{Builder, JoinHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::{ControlSocket, Counters, Event, Order, PortId, Reason};
use crate::mac::Mac;
use crate::port::{Kind, receive_ring, transmit_ring};
use crate::shared::Shared;
use crate::worker::Worker;
use crate::workers::Workers;

/// Room for a burst; loom's own threads have less.
const STACK: usize = 1 << 20;

/// How often a worker may be interrupted where it would have gone on.
const PREEMPTIONS: usize = 2;

/// Check a model whose set-up is not of interest: it says [`loom::explore`] when it is.
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
struct World {
    first: Worker,
    supervisor: ControlSocket,
    news: Vec<Event>,
}

impl World {
    fn new(workers: usize) -> Self {
        let (supervisor, control) = ControlSocket::pair().unwrap();
        Self {
            first: Workers::new(control, workers).unwrap().first,
            supervisor,
            news: Vec::new(),
        }
    }

    fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.first.shared)
    }

    /// Have the first worker act on what has come.
    fn act(&mut self) {
        self.first.wait(Some(Duration::ZERO)).unwrap();
        while let Ok(Some((event, _))) = self.supervisor.receive() {
            self.news.push(event);
        }
    }

    /// A VM comes to a port.
    fn join(&mut self, port: u16, options: Options) -> Nic {
        self.join_after(port, options, |_| {})
    }

    /// The same, when its guest has done something to the rings before they start.
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

    /// Why a port was detached, and its counters, once it was.
    fn detached(&self, number: u16) -> Option<(Reason, Counters)> {
        self.news.iter().find_map(|event| match event {
            Event::Detached {
                port,
                reason,
                counters,
            } if port.0 == number => Some((reason.clone(), **counters)),
            _ => None,
        })
    }

    /// Pin the address of each station to the port of the same number.
    fn pin(&self, stations: &[u16]) {
        let switch = self.first.shared.write();
        for station in stations {
            assert!(switch.table.pin(mac(*station), *station));
        }
    }
}

fn mac(station: u16) -> Mac {
    Mac::from_octets(frame::mac(station))
}

/// Small rings.
fn small() -> Options {
    Options {
        size: 16,
        ..Options::default()
    }
}

/// Do something to a ring of a port as its guest, and let the kernel wake whom it concerns.
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
        if poll(&mut fds, Some(&now)).unwrap() > 0 {
            slot.loom_wake.notify();
        }
    }
}

/// Send a frame from a station at the port of this number.
fn send(shared: &Shared, port: u16, nic: &Mutex<Nic>, from: u16, to: u16) {
    let bytes = frame::numbered(frame::mac(to), frame::mac(from), 0, 64);
    on_ring(shared, port, transmit_ring(0), || {
        assert!(nic.lock().unwrap().send(&bytes, Layout::One));
    });
}

/// Let a worker sleep if there is nothing to do, and hear what has come.
fn rest(worker: &mut Worker, moved: bool) {
    if !moved && worker.prepare_to_sleep() {
        let shared = Arc::clone(&worker.shared);
        shared.slots[worker.context.worker].loom_wake.wait();
    }
    worker.wait(Some(Duration::ZERO)).unwrap();
}

/// Have a worker serve until `done`.
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
            rest(&mut worker, moved);
        }
    })
}

/// The stations that frames came from, in order.
fn got(nic: &Mutex<Nic>) -> Vec<u16> {
    let mut nic = nic.lock().unwrap();
    let frames = std::iter::from_fn(|| nic.receive());
    let senders = frames.map(|received| u16::from(received.frame[11]));
    senders.collect()
}

fn sent(nic: &Mutex<Nic>) -> u16 {
    nic.lock().unwrap().tx.used_index()
}

/// A VM goes while its frame is forwarded by another worker. One with another address comes to its
/// port, as to a data plane that has just started: a frame is in its ring, and nobody kicks for it.
#[test]
fn a_sender_is_replaced() {
    check(|| {
        let mut world = World::new(2);
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
            assert!(nic.queue_up(&[0; 12], &bytes, Layout::One));
            let _no_kick = nic.tx.publish();
        });
        worker.join().unwrap();
        let (reason, counters) = world.detached(1).unwrap();
        assert_eq!(reason, Reason::Asked);
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

/// A VM goes while another worker delivers to it, and another one comes to its port.
#[test]
fn a_receiver_is_replaced() {
    check(|| {
        let mut world = World::new(2);
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

/// A worker finds a receiver at fault while the first one sleeps.
#[test]
fn a_port_at_fault_is_ended() {
    check(|| {
        let mut world = World::new(2);
        world.pin(&[1, 2]);
        let bad = world.join(2, small());
        let sender = Arc::new(Mutex::new(world.join(1, small())));
        let shared = world.shared();
        // More buffers than the ring has.
        bad.rx.lie(1000);
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
            rest(&mut world.first, moved);
        }
        worker.join().unwrap();
        let (reason, _) = world.detached(2).unwrap();
        assert!(matches!(reason, Reason::Fault(_)), "{reason:?}");
        assert!(shared.read().port(2).is_none());
    });
}

/// Two workers wait for buffers of one receiver, who posts one after the other: nobody is forgotten.
#[test]
fn two_workers_wait_for_one_receiver() {
    check(|| {
        let mut world = World::new(3);
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
