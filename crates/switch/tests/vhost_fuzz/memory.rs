//! Changes of the memory table while rings run, with descriptors that may be memory.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use front_end::Region;
use front_end::wire::{request, state};

use crate::attacker::Device;
use crate::descriptors::SPARE;
use crate::messages;
use crate::random::Random;

/// Makes a random change; returns false when the back-end has closed the socket.
pub(crate) fn change(random: &mut Random, device: &mut Device) -> bool {
    let Device { nic, spare } = device;
    let region = Region {
        guest: SPARE,
        user: 1 << 41,
        ..spare.regions()[0]
    };
    let single = [vec![0; 8], region.to_bytes()].concat();
    match random.below(8) {
        0 => {
            let (table, fds) = nic.memory_table();
            nic.wire.send(request::SET_MEM_TABLE, &table, &fds)
        }
        1 | 2 => nic.wire.send(request::ADD_MEM_REG, &single, &[spare.fd()]),
        3 => nic.wire.send(request::REM_MEM_REG, &single, &[]),
        4 => {
            // The attacker never accesses this memory.
            spare.truncate(random.pick(&[0, 4096, 1 << 19, 1 << 20]));
            true
        }
        5 => {
            let own = nic.ram.regions()[0];
            let own = [vec![0; 8], own.to_bytes()].concat();
            nic.wire.send(request::REM_MEM_REG, &own, &[])
        }
        _ => table(random, device),
    }
}

/// Sends an invalid memory table.
fn table(random: &mut Random, device: &Device) -> bool {
    let count = random.below(10);
    let mut payload = state(count as u32, 0);
    let mut fds: Vec<OwnedFd> = Vec::new();
    for number in 0..count {
        let right = Region {
            guest: number << 32,
            size: 1 << 16,
            user: (1 << 44) + (number << 32),
            offset: 0,
        };
        let mut odd = |value| match random.one_in(8) {
            true => random.edge(),
            false => value,
        };
        let region = Region {
            guest: odd(right.guest),
            size: odd(right.size),
            user: odd(right.user),
            offset: odd(right.offset),
        };
        payload.extend(region.to_bytes());
        fds.push(descriptor(random));
    }
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    device.nic.wire.send(request::SET_MEM_TABLE, &payload, &fds)
}

/// Returns a descriptor that may be memory.
pub(crate) fn descriptor(random: &mut Random) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let memory = |bytes| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("fuzz", flags).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fd
    };
    match random.below(10) {
        0 => File::open("/dev/zero").unwrap().into(),
        1 => File::open("/proc/self/maps").unwrap().into(),
        2 => messages::event(),
        3 => memory(0),
        4 => memory(1 << 12),
        5 => {
            let fd = memory(1 << 16);
            fcntl_add_seals(&fd, SealFlags::WRITE).unwrap();
            fd
        }
        _ => memory(1 << 16),
    }
}
