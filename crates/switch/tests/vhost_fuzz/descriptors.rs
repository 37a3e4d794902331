//! Rings and descriptors that are mostly valid: the first check would refuse completely invalid ones.

use front_end::queue::{INDIRECT, NEXT, WRITE, descriptor};
use front_end::{Buffer, Queue};

use crate::attacker::Device;
use crate::random::Random;

/// The guest-physical address of [`Device::spare`] while it is mapped.
pub(crate) const SPARE: u64 = 1 << 40;

/// Writes some descriptors of one ring and makes some of them available.
pub(crate) fn write(random: &mut Random, device: &mut Device) {
    let nic = &mut device.nic.pairs[0];
    let memory = nic.ram.regions().iter().map(|region| region.size).sum();
    let border = nic.ram.regions()[0].size;
    let transmit = random.one_in(2);
    let (queue, right) = match transmit {
        true => (&mut nic.tx, 0),
        false => (&mut nic.rx, WRITE),
    };
    let size = u64::from(queue.size());
    for _ in 0..random.below(size.min(24)) {
        let buffer = buffer(random, memory, border);
        let next = match random.one_in(12) {
            true => random.edge() as u16,
            false => random.below(size) as u16,
        };
        let flags = flags(random, right);
        let index = random.below(size) as u16;
        if random.one_in(6) {
            table(random, nic.ram.as_ref(), queue, index, right, memory);
        } else {
            queue.set_descriptor(index, buffer, flags, next);
        }
    }
    for _ in 0..random.below(12) {
        let wrong = random.one_in(40);
        queue.offer(match wrong {
            true => random.edge() as u16,
            false => random.below(size) as u16,
        });
    }
    let wanted = queue.publish();
    if wanted || random.one_in(2) {
        queue.kick();
    }
}

/// Sets an available index that is too high or too low.
pub(crate) fn set_wrong_index(random: &mut Random, device: &mut Device) {
    let nic = &device.nic;
    let queue = random.pick(&[&nic.rx, &nic.tx]);
    let index = match random.below(3) {
        0 => random.edge() as u16,
        1 => queue.published().wrapping_sub(1),
        _ => queue.published().wrapping_add(queue.size()),
    };
    queue.publish_wrong_index(index);
    queue.kick();
}

fn flags(random: &mut Random, right: u16) -> u16 {
    match random.below(24) {
        0 => random.next() as u16,
        1 => right ^ WRITE,
        2 => right | INDIRECT,
        3 => right | INDIRECT | NEXT,
        4..12 => right | NEXT,
        _ => right,
    }
}

/// Returns a buffer that may be in guest memory.
fn buffer(random: &mut Random, memory: u64, border: u64) -> Buffer {
    let address = match random.below(20) {
        0 => random.edge(),
        1 => memory - random.below(100),
        2..4 => (border - random.below(2000)) & !1,
        4 => SPARE + random.below(1 << 20),
        // The guest's own rings: the device overwrites the entries that it reads.
        5 => random.below(0x2000),
        _ => random.below(memory),
    };
    let length = match random.below(12) {
        0 => random.edge() as u32,
        1 => random.below(70_000) as u32,
        _ => random.pick(&[1, 2, 11, 12, 13, 14, 26, 54, 60, 100, 600, 1514, 1600]),
    };
    Buffer { address, length }
}

/// Makes a descriptor indirect, and writes its table.
fn table(
    random: &mut Random,
    ram: &front_end::Ram,
    queue: &Queue,
    index: u16,
    right: u16,
    memory: u64,
) {
    let entries = random.below(20) + 1;
    let at = random.below(memory - 16 * 20);
    for entry in 0..entries {
        let buffer = buffer(random, memory, memory / 2);
        let last = entry + 1 == entries && !random.one_in(6);
        let flags = if last {
            right
        } else {
            flags(random, right | NEXT)
        };
        ram.write(
            at + 16 * entry,
            &descriptor(buffer, flags, entry as u16 + 1),
        );
    }
    let length = match random.one_in(6) {
        true => random.edge() as u32,
        false => 16 * entries as u32,
    };
    let buffer = Buffer {
        address: at,
        length,
    };
    queue.set_descriptor(index, buffer, INDIRECT, 0);
}
