//! Random messages, and valid messages at the wrong time.

use std::os::fd::{AsFd, OwnedFd};

use front_end::Wire;
use front_end::wire::{NEED_REPLY, VERSION, addresses, message, number, request, state};
use rustix::event::{EventfdFlags, eventfd};

use crate::attacker::Device;
use crate::memory;
use crate::random::Random;

/// Sends a random message; returns false when the back-end has closed the socket.
pub(crate) fn any(random: &mut Random, wire: &Wire) -> bool {
    let length = random.pick(&[0, 4, 8, 8, 8, 40, 40, 12, 72, 300]);
    let payload = match random.one_in(2) {
        true => random.bytes(length),
        false => {
            let words = (0..length.div_ceil(8)).flat_map(|_| random.edge().to_ne_bytes());
            words.take(length).collect()
        }
    };
    let flags = match random.one_in(10) {
        true => random.next() as u32 & 0xf,
        false => VERSION | random.pick(&[0, NEED_REPLY]),
    };
    let count = if random.one_in(2) { 0 } else { random.below(9) };
    let fds: Vec<OwnedFd> = (0..count).map(|_| memory::descriptor(random)).collect();
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    wire.send_raw(&message(random.below(46) as u32, flags, &payload), &fds)
}

/// Sends a valid message, possibly at the wrong time; returns false when the back-end has closed the socket.
pub(crate) fn plausible(random: &mut Random, device: &Device) -> bool {
    let nic = &device.nic;
    let ring = match random.one_in(20) {
        true => random.edge() as u32,
        false => random.below(2) as u32,
    };
    let queue = if ring == 0 { &nic.rx } else { &nic.tx };
    let [descriptors, used, available] = queue.user_addresses();
    let mut near = |address: u64| match random.below(12) {
        0 => random.edge(),
        1 => address + 16 * random.below(64),
        _ => address,
    };
    let place = addresses(ring, near(descriptors), near(used), near(available));
    let size = match random.one_in(4) {
        true => random.edge() as u32,
        false => u32::from(queue.size()),
    };
    let say = |request, payload: &[u8]| nic.wire.send(request, payload, &[]);
    let start = number(u64::from(ring));
    match random.below(16) {
        0 => say(request::SET_VRING_ADDR, &place),
        1 => say(request::SET_VRING_NUM, &state(ring, size)),
        2 => say(
            request::SET_VRING_BASE,
            &state(ring, random.below(65_536) as u32),
        ),
        3 | 4 => say(request::GET_VRING_BASE, &state(ring, 0)),
        5 | 6 => say(
            request::SET_VRING_ENABLE,
            &state(ring, random.below(2) as u32),
        ),
        7 => say(request::SET_FEATURES, &number(nic.options.features)),
        8 => say(request::SET_FEATURES, &number(random.next())),
        9 => say(request::SET_STATUS, &number(random.below(16))),
        10 => say(request::NET_SET_MTU, &number(random.edge())),
        11 => say(request::SEND_RARP, &number(0x66 | (random.next() << 8))),
        12 => say(
            random.pick(&[request::RESET_OWNER, request::RESET_DEVICE]),
            &[],
        ),
        13 => signal(random, nic, &start),
        _ => {
            // Stop and resume.
            say(request::GET_VRING_BASE, &state(ring, 0))
                && say(request::SET_VRING_ADDR, &place)
                && nic
                    .wire
                    .send(request::SET_VRING_KICK, &start, &[queue.kick_fd().as_fd()])
        }
    }
}

/// Sends another kick, call or error descriptor, of a valid or invalid kind, or makes the present call
/// descriptor block.
fn signal(random: &mut Random, nic: &front_end::Nic, ring: &[u8]) -> bool {
    if random.one_in(4) {
        make_blocking(nic.rx.call_fd());
        nic.rx.ask_for_call();
        return true;
    }
    let request = random.pick(&[
        request::SET_VRING_KICK,
        request::SET_VRING_CALL,
        request::SET_VRING_ERR,
    ]);
    let fd = match random.below(3) {
        0 => event(),
        1 => rustix::pipe::pipe().unwrap().1,
        _ => memory::descriptor(random),
    };
    nic.wire.send(request, ring, &[fd.as_fd()])
}

/// Fills an eventfd and makes it block, so that the next write blocks.
fn make_blocking(call: &OwnedFd) {
    // Empty the counter first. If the back-end calls now, the fill fails and the descriptor does not block.
    let _ = rustix::io::read(call, &mut [0; 8]);
    let _ = rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes());
    let flags = rustix::fs::fcntl_getfl(call).unwrap();
    rustix::fs::fcntl_setfl(call, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
}

/// Returns an eventfd with the flags that QEMU uses.
pub(crate) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}
