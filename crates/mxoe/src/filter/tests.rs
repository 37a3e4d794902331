//! Tests of the filter's program, by an interpreter of its instructions.

use proptest::prelude::*;

use super::*;
use crate::limits::ENDPOINTS;
use crate::wire::tests::{packet, with};
use crate::wire::{Destination, Frame, Mac, Packet, destination};

/// Runs a program as the kernel does: a load beyond the packet drops it.
fn run(program: &[sock_filter], packet: &[u8]) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [None; 16], 0usize);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let (code, place) = (u32::from(code), k as usize);
        let jump = |taken| usize::from(if taken { jt } else { jf });
        match code {
            _ if code == BPF_LD | BPF_B | BPF_ABS => match packet.get(place) {
                Some(byte) => a = (*byte).into(),
                None => return DROP,
            },
            _ if code == BPF_LD | BPF_W | BPF_ABS => match packet.get(place..place + 4) {
                Some(word) => a = u32::from_be_bytes(word.try_into().unwrap()),
                None => return DROP,
            },
            _ if code == BPF_LD | BPF_IMM => a = k,
            _ if code == BPF_LD | BPF_MEM => a = memory[place].unwrap(),
            _ if code == BPF_ST => memory[place] = Some(a),
            _ if code == BPF_ALU | BPF_RSH | BPF_K => a >>= k,
            _ if code == BPF_ALU | BPF_RSH | BPF_X => a >>= x,
            _ if code == BPF_ALU | BPF_AND | BPF_K => a &= k,
            _ if code == BPF_ALU | BPF_XOR | BPF_K => a ^= k,
            _ if code == BPF_MISC | BPF_TAX => x = a,
            _ if code == BPF_JMP | BPF_JA => at += place,
            _ if code == BPF_JMP | BPF_JEQ | BPF_K => at += jump(a == k),
            _ if code == BPF_JMP | BPF_JGT | BPF_K => at += jump(a > k),
            _ if code == BPF_RET | BPF_K => return k,
            _ => panic!("no such instruction: {code:#x}"),
        }
    }
}

/// Returns what a packet is for, from the packet as it was decoded.
fn destination_of(packet: &Packet<'_>) -> Option<Destination> {
    let to = match packet {
        Packet::Announce { .. } | Packet::HostQuery { .. } | Packet::HostReply { .. } => {
            return Some(Destination::Host);
        }
        Packet::Connect(connect) => connect.ends.to,
        Packet::Small(head) => head.ends.to,
        Packet::Medium(medium) => medium.head.ends.to,
        Packet::Offer(offer) => offer.head.ends.to,
        Packet::Pull(pull) => pull.ends.to,
        Packet::Notify(notify) => notify.ends.to,
        Packet::Ack { ends, .. } | Packet::Nack { ends, .. } => ends.to,
        Packet::Reply(reply) => u8::try_from(reply.magic ^ MAGIC).ok()?,
        Packet::PullNack { magic, .. } => u8::try_from(magic ^ MAGIC).ok()?,
    };
    Some(Destination::Endpoint(to))
}

fn set(numbers: &[u8]) -> Endpoints {
    let mut endpoints = Endpoints::default();
    numbers.iter().for_each(|number| endpoints.insert(*number));
    endpoints
}

proptest! {
    /// For packets of all types, the filter passes what the decoder finds to be for one of the endpoints.
    #[test]
    fn what_passes_is_for_the_endpoints_or_for_the_host(
        (packet, data) in packet(),
        near_magic in any::<Option<u16>>(),
        numbers in prop::collection::vec(any::<u8>(), 0..4),
        whose in any::<bool>(),
        complement in any::<bool>(),
    ) {
        let packet = match (with(packet, &data), near_magic) {
            // A random magic belongs to no endpoint.
            (Packet::Reply(reply), Some(near)) => {
                let magic = MAGIC ^ u32::from(near % 300);
                Packet::Reply(crate::wire::Reply { magic, ..reply })
            }
            (Packet::PullNack { from, code, handle, .. }, Some(near)) => {
                Packet::PullNack { from, code, handle, magic: MAGIC ^ u32::from(near % 300) }
            }
            (packet, _) => packet,
        };
        let frame = Frame { destination: Mac([2; 6]), source: Mac([4; 6]), index: 7, packet };
        let bytes = frame.encode();
        let decoded = Frame::decode(&bytes).unwrap().packet;
        let expected = destination_of(&decoded);
        prop_assert_eq!(destination(&bytes), expected);
        let mut endpoints = set(&numbers);
        if let (true, Some(Destination::Endpoint(own))) = (whose, expected) {
            endpoints.insert(own);
        }
        if complement {
            endpoints = endpoints.complement();
        }
        let passes = match expected {
            None => false,
            Some(Destination::Host) => true,
            Some(Destination::Endpoint(to)) => endpoints.contains(to),
        };
        let result = run(&program(&endpoints), &bytes);
        prop_assert_eq!(result, if passes { PASS } else { DROP });
    }

    /// A frame with a wrong byte, or cut anywhere, does not make the program leave its instructions, or pass what is for no
    /// endpoint.
    #[test]
    fn an_invalid_frame_ends_the_program(
        (packet, data) in packet(),
        (at, value) in (0..60usize, any::<u8>()),
        length in 0..80usize,
        numbers in any::<[u8; 3]>(),
    ) {
        let packet = with(packet, &data);
        let frame = Frame { destination: Mac([2; 6]), source: Mac([4; 6]), index: 7, packet };
        let mut bytes = frame.encode();
        bytes[at] = value;
        bytes.truncate(length);
        let endpoints = set(&numbers);
        let passes = match destination(&bytes) {
            None => false,
            Some(Destination::Host) => true,
            Some(Destination::Endpoint(to)) => endpoints.contains(to),
        };
        prop_assert_eq!(run(&program(&endpoints), &bytes), if passes { PASS } else { DROP });
    }
}

#[test]
fn every_number_is_looked_up_by_its_own_bit() {
    for own in 0..ENDPOINTS {
        let program = program(&set(&[own]));
        for to in 0..=u8::MAX {
            // An acknowledgement.
            let mut frame = [0; 60];
            (frame[16], frame[17]) = (35, to);
            let expected = if to == own { PASS } else { DROP };
            assert_eq!(run(&program, &frame), expected, "{own} {to}");
        }
    }
}
