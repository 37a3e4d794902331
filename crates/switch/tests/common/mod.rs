//! A data plane on its own thread, and the supervisor's side of it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary uses its own part of this"
)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

pub mod bare;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Instant;

use front_end::{Layout, Nic, Options, TEST_TIMEOUT, Wire, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use switch::control::{
    ControlSocket, Counters, Drops, Event, FdbEntry, Order, PortId, PortReport, Reason, RemotePeer,
    UplinkKind, WorkerReport,
};
use switch::guard::Rules;

/// A running data plane.
pub struct Plane {
    control: ControlSocket,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// Events that arrived while the test waited for another one.
    early: Vec<Event>,
}

impl Plane {
    pub fn new() -> Self {
        Self::with_workers(1)
    }

    /// Starts a data plane with `workers` workers.
    pub fn with_workers(workers: usize) -> Self {
        let (control, theirs) = ControlSocket::pair().unwrap();
        let thread = std::thread::spawn(move || switch::run(theirs, workers));
        Self {
            control,
            thread: Some(thread),
            early: Vec::new(),
        }
    }

    pub fn order(&self, order: &Order, fd: Option<BorrowedFd<'_>>) {
        loop {
            match self.control.send(order, fd) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_for(PollFlags::OUT);
                }
                Err(error) => panic!("the data plane is gone: {error}"),
            }
        }
    }

    fn wait_for(&self, flags: PollFlags) {
        let guard = Timespec {
            tv_sec: TEST_TIMEOUT.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.control, flags)];
        let ready = poll(&mut fds, Some(&guard)).unwrap();
        assert!(ready > 0, "the data plane does not respond");
    }

    /// Waits for the next event of any kind.
    pub fn next(&self) -> Event {
        loop {
            match self.control.receive() {
                Ok(Some((event, _))) => return event,
                Ok(None) => panic!("the data plane ended"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_for(PollFlags::IN);
                }
                Err(error) => panic!("an event cannot be read: {error}"),
            }
        }
    }

    /// Waits for an event for which `wanted` returns a value.
    pub fn event<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        if let Some(place) = self.early.iter().position(|event| wanted(event).is_some()) {
            return wanted(&self.early.remove(place)).unwrap();
        }
        loop {
            let event = self.next();
            match wanted(&event) {
                Some(made) => return made,
                None => self.early.push(event),
            }
        }
    }

    /// Attaches a front-end that has not sent any message yet.
    pub fn attach(&self, port: u16) -> Wire {
        let (wire, theirs) = Wire::pair();
        let order = Order::Attach {
            port: PortId(port),
            name: format!("vm{port}"),
        };
        self.order(&order, Some(theirs.as_fd()));
        wire
    }

    /// Attaches a NIC and starts it.
    pub fn nic(&mut self, port: u16, options: Options) -> Nic {
        let mut nic = Nic::new(self.attach(port), options);
        nic.start(|| {});
        self.running(port);
        // `Running` is sent when the first pair runs; wait for the other pairs.
        nic.sync();
        nic
    }

    /// Sets the rules of a port.
    pub fn rules(&self, port: u16, rules: Rules) {
        let (port, rules) = (PortId(port), Box::new(rules));
        self.order(&Order::SetRules { port, rules }, None);
    }

    /// Attaches two NICs, stations `a` and `b`, whose addresses the FDB has learnt.
    pub fn pair(&mut self, a: u16, b: u16) -> [Nic; 2] {
        let mut nics = [a, b].map(|port| self.nic(port, Options::default()));
        learn_addresses(&mut nics, &[a, b]);
        nics
    }

    pub fn running(&mut self, port: u16) {
        self.event(|event| match event {
            Event::Running { port: at } if at.0 == port => Some(()),
            _ => None,
        });
    }

    /// Waits until a port is detached; returns the reason and its final counters.
    pub fn detached(&mut self, port: u16) -> (Reason, Counters) {
        self.event(|event| match event {
            Event::Detached {
                port: at,
                reason,
                counters,
            } if at.0 == port => Some((reason.clone(), **counters)),
            _ => None,
        })
    }

    /// Waits until a port is detached for a fault; returns the text of the fault.
    pub fn fault(&mut self, port: u16) -> String {
        match self.detached(port).0 {
            Reason::Fault(text) => text,
            other => panic!("port {port} was detached with {other:?}"),
        }
    }

    /// Removes early `Running` events of a port.
    pub fn forget_running(&mut self, port: u16) {
        self.early
            .retain(|event| !matches!(event, Event::Running { port: at } if at.0 == port));
    }

    /// Asserts that no further `Detached` event of a port has arrived.
    pub fn assert_not_detached_again(&mut self, port: u16) {
        drop(self.report());
        for event in &self.early {
            if let Event::Detached {
                port: at, reason, ..
            } = event
            {
                assert!(at.0 != port, "detached again: {reason:?}");
            }
        }
    }

    /// Requests a report; returns the state of every port and of the workers.
    pub fn report(&mut self) -> (Vec<PortReport>, WorkerReport) {
        self.order(&Order::Report, None);
        let mut ports = Vec::new();
        loop {
            match self.next() {
                Event::Report(reports) => ports.extend(reports),
                Event::RemotePeers(_) => {}
                Event::ReportEnd(worker) => return (ports, worker),
                other => self.early.push(other),
            }
        }
    }

    /// Returns the remote peers of a report.
    pub fn remote_peers(&mut self) -> Vec<RemotePeer> {
        self.order(&Order::Report, None);
        let mut peers = Vec::new();
        loop {
            match self.next() {
                Event::RemotePeers(some) => peers.extend(some),
                Event::ReportEnd(_) => return peers,
                Event::Report(_) => {}
                other => self.early.push(other),
            }
        }
    }

    /// Returns the entries of the FDB.
    pub fn fdb(&mut self) -> Vec<FdbEntry> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            self.order(&Order::ListFdb { from }, None);
            match self.next() {
                Event::FdbEntries { entries, next } => {
                    all.extend(entries);
                    match next {
                        Some(next) => from = next,
                        None => return all,
                    }
                }
                other => self.early.push(other),
            }
        }
    }

    /// Waits until the data plane has executed all orders. Forwarding by other workers does not wait for
    /// orders.
    pub fn wait_for_orders(&mut self) {
        drop(self.report());
    }

    pub fn counters(&mut self, port: u16) -> Counters {
        self.port(port).counters
    }

    /// Waits until a port's counters satisfy a condition.
    pub fn until(&mut self, port: u16, mut condition: impl FnMut(&Counters) -> bool) {
        let begin = Instant::now();
        while !condition(&self.counters(port)) {
            assert!(begin.elapsed() < TEST_TIMEOUT, "{:?}", self.counters(port));
        }
    }

    pub fn port(&mut self, port: u16) -> PortReport {
        let (ports, _) = self.report();
        let found = ports.into_iter().find(|report| report.port == port);
        found.unwrap_or_else(|| panic!("port {port} is not attached"))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        let sent = self.control.send(&Order::Stop, None);
        // A test that fails already must not wait for a data plane that may hang.
        if std::thread::panicking() {
            return;
        }
        sent.expect("the data plane runs");
        thread.join().expect("no panic").expect("no error");
    }
}

/// Has each station send a broadcast once, so that the FDB learns its address.
pub fn learn_addresses(nics: &mut [Nic], stations: &[u16]) {
    for place in 0..nics.len() {
        let hello = frame::numbered(frame::BROADCAST, frame::mac(stations[place]), 0, 60);
        nics[place].wait_to_send(&hello, Layout::One);
        nics[place].wait_until_sent();
        for (other, nic) in nics.iter_mut().enumerate() {
            if other != place {
                assert_eq!(nic.wait_to_receive().frame, hello);
            }
        }
    }
}

/// Sends `count` frames from one NIC to another, and checks that all arrive in order and unchanged.
pub fn exchange(from: (&mut Nic, u16), to: (&mut Nic, u16), count: u64, length: usize) {
    let ((sender, a), (receiver, b)) = (from, to);
    let addresses = [frame::mac(b), frame::mac(a)].concat();
    let (mut sent, mut got) = (0, 0);
    while got < count {
        let mut moved = false;
        while sent < count {
            let bytes = frame::numbered(frame::mac(b), frame::mac(a), sent, length);
            if !sender.send(&bytes, Layout::One) {
                break;
            }
            sent += 1;
            moved = true;
        }
        while let Some(received) = receiver.receive() {
            moved = true;
            // Ignore flooded frames of other ports.
            if !received.frame.starts_with(&addresses) {
                continue;
            }
            assert_eq!(frame::number(&received.frame), got, "order");
            got += 1;
        }
        if !moved {
            front_end::nic::wait(&[sender, receiver]);
        }
    }
    sender.wait_until_sent();
}

/// Returns the number of dropped frames, for any reason.
pub fn lost(drops: &Drops) -> u64 {
    drops.total()
}

/// A host outside the network, behind the uplink at port 9.
pub struct Outside(OwnedFd);

impl Outside {
    pub fn attach(plane: &Plane) -> Self {
        Self::by(
            plane,
            &Order::AttachUplink {
                port: PortId(9),
                name: "up".into(),
                kind: UplinkKind::Tap,
            },
        )
    }

    /// Adds the next queue of that uplink.
    pub fn next_queue(plane: &Plane) -> Self {
        Self::by(plane, &Order::AddUplinkQueue { port: PortId(9) })
    }

    fn by(plane: &Plane, order: &Order) -> Self {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        set_socket_timeout(&ours, Timeout::Recv, Some(TEST_TIMEOUT)).unwrap();
        plane.order(order, Some(theirs.as_fd()));
        Self(ours)
    }

    pub fn send(&self, header: &[u8], bytes: &[u8]) {
        rustix::io::write(&self.0, &[header, bytes].concat()).unwrap();
    }

    pub fn receive(&self) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = vec![0; 70_000];
        let got = rustix::io::read(&self.0, &mut bytes).unwrap();
        bytes.truncate(got);
        let frame = bytes.split_off(12);
        (bytes, frame)
    }
}
