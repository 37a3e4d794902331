//! Frames in valid chains with invalid network headers.

use front_end::queue::NEXT;
use front_end::{Buffer, frame};

use crate::attacker::Device;
use crate::random::Random;
use crate::{ATTACKERS, GOOD};

/// Sends a few frames to any port.
pub(crate) fn send(random: &mut Random, device: &mut Device, port: u16) {
    let nic = &mut device.nic;
    let memory: u64 = nic.ram.regions().iter().map(|region| region.size).sum();
    let header_size = nic.header_size();
    let size = u64::from(nic.options.size);
    for _ in 0..random.below(16) {
        let bytes = [header(random, header_size), frame(random, port)].concat();
        let at = (memory / 2 + random.below(memory / 2 - bytes.len() as u64)) & !1;
        nic.ram.write(at, &bytes);
        let head = random.below(size) as u16;
        let cut = 1 + random.below(bytes.len() as u64 - 1);
        let rest = Buffer {
            address: at + cut,
            length: (bytes.len() as u64 - cut) as u32,
        };
        let next = (head + 1) % nic.options.size;
        let first = Buffer {
            address: at,
            length: cut as u32,
        };
        nic.tx.set_descriptor(head, first, NEXT, next);
        nic.tx.set_descriptor(next, rest, 0, 0);
        nic.tx.offer(head);
    }
    nic.tx.publish_and_kick();
}

/// Returns an invalid network header (virtio 1.3, 5.1.6).
fn header(random: &mut Random, size: usize) -> Vec<u8> {
    if random.one_in(3) {
        return vec![0; size];
    }
    let flags = random.pick(&[0, 1, 1, 1, 2, 4, 0xff]);
    let gso = random.pick(&[0, 0, 1, 3, 4, 5, 0x80, 0x81, 0x84, 0x85, 0xff]);
    let mut bytes = vec![flags, gso];
    let mut half = |usual: [u16; 4]| match random.one_in(6) {
        true => random.edge() as u16,
        false => random.pick(&usual),
    };
    let fields = [
        half([0, 54, 66, 74]),
        half([0, 1, 536, 1448]),
        half([0, 34, 54, 14]),
        half([0, 6, 16, 2]),
        half([0, 1, 2, 0xffff]),
    ];
    bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    bytes.truncate(size);
    bytes
}

/// Returns a frame that is nearly valid. Its source is never the address of a well-behaved VM.
fn frame(random: &mut Random, port: u16) -> Vec<u8> {
    let neighbours = GOOD.concat();
    let to = match random.below(6) {
        0 => frame::BROADCAST,
        1 => frame::mac(random.pick(&neighbours)),
        2 => [0x01, 0, 0x5e, 0, 0, random.next() as u8],
        3 => [0x02, 0, 0, 0, 0, random.next() as u8],
        _ => frame::mac(random.pick(&ATTACKERS)),
    };
    let from = match random.below(4) {
        0 => [0x66, 0, 0, 0, random.next() as u8, random.next() as u8],
        1 => [0; 6],
        _ => frame::mac(port),
    };
    let payload = match random.below(4) {
        0 => random.below(64),
        1 => random.below(1500),
        2 => random.below(9000),
        _ => random.below(66_000),
    };
    let mut bytes = frame::tcp(to, from, 7, &vec![0x5a; payload.min(65_000) as usize]);
    for _ in 0..random.below(4) {
        // A random position in the headers behind the addresses.
        let at = 12 + random.below(42) as usize;
        bytes[at] = random.next() as u8;
    }
    if random.one_in(4) {
        bytes.truncate(random.below(70) as usize + 1);
    }
    bytes
}
