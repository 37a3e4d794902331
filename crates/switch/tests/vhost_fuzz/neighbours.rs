//! Two well-behaved VMs, which verify every frame that they receive from each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use front_end::{Layout, Nic, Options, TEST_TIMEOUT, features, frame};
use switch::control::{Order, PortId};
use switch::mac::Mac;

use crate::common::Plane;
use crate::random::Random;

/// The frames that a VM has sent, and those that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    arrived: u64,
    /// Attackers' frames with its source address.
    pub(crate) forged: u64,
    /// The number of the next frame, if none is dropped.
    next: u64,
}

impl Traffic {
    /// Returns the number of frames that did not arrive.
    pub(crate) fn lost(&self) -> u64 {
        self.sent - self.arrived
    }

    fn is_complete(&self) -> bool {
        self.next == self.sent
    }
}

/// Returns the first bytes of every frame from one VM to the other.
fn head(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    frame::numbered(to, from, 0, frame::SHORTEST)[..14].to_vec()
}

/// A pair of well-behaved VMs. Their addresses are pinned, so their frames reach each other whatever source
/// addresses an attacker uses.
pub(crate) struct Neighbours {
    ports: [u16; 2],
    nics: [Nic; 2],
    /// By sender.
    traffic: [Traffic; 2],
    random: Random,
}

impl Neighbours {
    pub(crate) fn new(plane: &mut Plane, ports: [u16; 2]) -> Self {
        let nics = ports.map(|port| {
            let order = Order::SetFdbEntry {
                mac: Mac::from_octets(frame::mac(port)),
                vlan: 0,
                port: PortId(port),
            };
            plane.order(&order, None);
            // One VM with the features of Linux, one without offloads and with small buffers.
            let options = match port % 4 {
                1 | 2 => Options {
                    features: features::LINUX,
                    ..Options::default()
                },
                _ => Options {
                    size: 1024,
                    receive_bytes: 512,
                    receive_layout: Layout::Pieces(256),
                    ..Options::default()
                },
            };
            plane.nic(port, options)
        });
        Self {
            ports,
            nics,
            traffic: Default::default(),
            random: Random::new(u64::from(ports[0])),
        }
    }

    pub(crate) fn traffic(&self) -> &[Traffic; 2] {
        &self.traffic
    }

    /// Exchanges frames until `over` is set, and then until the last frame has arrived.
    pub(crate) fn exchange_until(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            for sender in 0..2 {
                while self.send(sender) {}
            }
            if !self.take() {
                let [a, b] = &self.nics;
                front_end::nic::wait(&[a, b]);
            }
        }
        // Frames stay in order, so when a final frame arrives, all earlier ones have arrived or were
        // dropped. The final frame may be dropped too, so it is repeated.
        let begin = Instant::now();
        while !self.traffic.iter().all(Traffic::is_complete) {
            assert!(begin.elapsed() < TEST_TIMEOUT, "{:?}", self.traffic);
            for sender in 0..2 {
                self.nics[sender].reclaim();
                if self.nics[sender].in_flight() == 0 && !self.traffic[sender].is_complete() {
                    self.send(sender);
                }
            }
            self.take();
            std::thread::yield_now();
        }
    }

    /// Sends one frame; returns false when there is no room.
    fn send(&mut self, sender: usize) -> bool {
        let [from, to] = [self.ports[sender], self.ports[1 - sender]].map(frame::mac);
        let length = frame::SHORTEST + self.random.below(1500) as usize;
        let layout = self.random.pick(&[
            Layout::One,
            Layout::SeparateHeader,
            Layout::Pieces(300),
            Layout::Indirect(128),
        ]);
        let traffic = &mut self.traffic[sender];
        let bytes = frame::numbered(to, from, traffic.sent, length);
        let sent = self.nics[sender].send(&bytes, layout);
        traffic.sent += u64::from(sent);
        sent
    }

    /// Receives frames at both VMs; returns whether any frame arrived.
    fn take(&mut self) -> bool {
        let mut any = false;
        for receiver in 0..2 {
            let sender = 1 - receiver;
            let [from, to] = [self.ports[sender], self.ports[receiver]].map(frame::mac);
            let (addresses, head) = ([to, from].concat(), head(to, from));
            while let Some(received) = self.nics[receiver].receive() {
                any = true;
                let traffic = &mut self.traffic[sender];
                // Attackers send to any address with any source address: a chain may begin in one of their
                // frames and continue in the middle of another, and the ports have no guard. They do not
                // use the EtherType of these VMs, however. If the head of a VM's frame is corrupted, the
                // count detects it; if the body is, the checksum does.
                if !received.frame.starts_with(&head) {
                    traffic.forged += u64::from(received.frame.starts_with(&addresses));
                    continue;
                }
                let number = frame::number(&received.frame);
                assert!(number >= traffic.next, "{number} again: {traffic:?}");
                assert!(number < traffic.sent, "{number} was not sent");
                traffic.next = number + 1;
                traffic.arrived += 1;
            }
        }
        any
    }
}
