//! One malicious front-end, from its connection to its tear-down.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use front_end::wire::{VERSION, message, request};
use front_end::{Layout, Nic, Options, Ram, Wire, features};

use crate::common::Plane;
use crate::random::Random;
use crate::{descriptors, frames, memory, messages};

/// Most steps of one attack.
const STEPS: u64 = 60;

/// A malicious front-end.
pub(crate) struct Attacker<'a> {
    plane: &'a Plane,
    pub(crate) port: u16,
    pub(crate) random: Random,
}

/// The resources of an attacker whose device is set up.
pub(crate) struct Device {
    pub(crate) nic: Nic,
    /// Memory that it adds and removes, and never accesses itself.
    pub(crate) spare: Ram,
}

impl<'a> Attacker<'a> {
    pub(crate) fn new(plane: &'a Plane, port: u16, seed: u64) -> Self {
        Self {
            plane,
            port,
            random: Random::new(seed),
        }
    }

    /// Runs one attack.
    pub(crate) fn run(mut self) {
        let wire = self.plane.attach(self.port);
        if self.random.one_in(8) {
            return self.noise(&wire);
        }
        let nic = Nic::new(wire, self.options());
        let spare = Ram::new(1 << 20);
        let mut device = Device { nic, spare };
        if self.random.one_in(8) {
            return self.leave_early(device.nic);
        }
        device.nic.start(|| {});
        self.attack(&mut device);
        self.leave(device);
    }

    fn options(&mut self) -> Options {
        let random = &mut self.random;
        let features = random.pick(&[
            features::LINUX,
            features::LINUX,
            features::PLAIN,
            features::LINUX & !features::EVENT_IDX,
            features::PROTOCOL_FEATURES,
            features::PROTOCOL_FEATURES | features::VERSION_1,
        ]);
        Options {
            features,
            size: random.pick(&[2, 16, 64, 256, 1024]),
            receive_bytes: random.pick(&[64, 600, 1600, 70_000]),
            receive_layout: random.pick(&[Layout::One, Layout::SeparateHeader]),
            pairs: random.pick(&[1, 1, 1, 4, 16]),
            regions: random.pick(&[1, 1, 2, 5]),
            post: random.one_in(2),
            base: random.edge() as u16,
            // The back-end may not reply, because it has detected a fault.
            replies: false,
        }
    }

    /// Sends messages without setting a device up.
    fn noise(&mut self, wire: &Wire) {
        for _ in 0..self.random.below(10) {
            if !messages::any(&mut self.random, wire) {
                return;
            }
        }
        if self.random.one_in(2) {
            let whole = message(request::SET_MEM_TABLE, VERSION, &self.random.bytes(40));
            let cut = self.random.below(whole.len() as u64) as usize;
            if cut > 0 {
                let _hung_up = wire.send_raw(&whole[..cut], &[]);
            }
        }
    }

    /// Closes the socket in the middle of the handshake.
    fn leave_early(&mut self, mut nic: Nic) {
        let mut left = self.random.below(24);
        // Suppress the panic message: the panic ends the handshake.
        let _gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            nic.start(|| {
                if left == 0 {
                    std::panic::resume_unwind(Box::new(()));
                }
                left -= 1;
            });
        }));
    }

    /// Takes attack steps, while another thread writes into the rings.
    fn attack(&mut self, device: &mut Device) {
        let ram = std::sync::Arc::clone(&device.nic.ram);
        let rings = device.nic.tx.used + 8 * u64::from(device.nic.options.size);
        let over = AtomicBool::new(false);
        let scribble = self.random.one_in(3);
        let mut other = Random::new(self.random.next());
        std::thread::scope(|scope| {
            if scribble {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        ram.store(2 * other.below(rings / 2), other.edge() as u16);
                    }
                });
            }
            for _ in 0..self.random.below(STEPS) {
                if !self.step(device) {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    /// Takes one attack step; returns false when the back-end has closed the socket.
    fn step(&mut self, device: &mut Device) -> bool {
        let random = &mut self.random;
        match random.below(20) {
            0..6 => frames::send(random, device, self.port),
            6..12 => descriptors::write(random, device),
            12 => descriptors::set_wrong_index(random, device),
            13..15 => return memory::change(random, device),
            15..18 => return messages::plausible(random, device),
            18 => return messages::any(random, &device.nic.wire),
            _ => return device.nic.wire.send(request::GET_FEATURES, &[], &[]),
        }
        true
    }

    /// Tears the device down in a random order, while frames are in flight.
    fn leave(&mut self, mut device: Device) {
        for _ in 0..self.random.below(4) {
            frames::send(&mut self.random, &mut device, self.port);
        }
        let Device { nic, spare } = device;
        match self.random.below(4) {
            0 => drop(nic),
            1 => {
                // From here on only the back-end touches this memory.
                nic.ram.truncate(self.random.pick(&[0, 4096, 0x8000]));
                spare.truncate(0);
                nic.tx.kick();
                nic.rx.kick();
            }
            2 => {
                let _ = rustix::net::shutdown(nic.wire.as_fd(), rustix::net::Shutdown::Write);
                nic.wire.wait_for_hang_up();
            }
            _ => {
                for ring in 0..2 {
                    let stop = front_end::wire::state(ring, 0);
                    let _hung_up = nic.wire.send(request::GET_VRING_BASE, &stop, &[]);
                }
            }
        }
    }
}
