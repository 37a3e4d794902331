//! Tests of the filter's program, by an interpreter of its instructions.

use proptest::prelude::*;

use super::*;
use crate::limits::ENDPOINTS;
use crate::wire::tests::{packet, with};
use crate::wire::{Frame, Packet};

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
            _ if code == BPF_LD | BPF_H | BPF_ABS => match packet.get(place..place + 2) {
                Some(half) => a = u16::from_be_bytes(half.try_into().unwrap()).into(),
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

const OWN: Mac = Mac([2; 6]);

fn filter(endpoints: Endpoints) -> Filter {
    Filter {
        mac: OWN,
        endpoints,
        passes_other_addresses: false,
    }
}

fn set(numbers: &[u8]) -> Endpoints {
    let mut endpoints = Endpoints::default();
    numbers.iter().for_each(|number| endpoints.insert(*number));
    endpoints
}

/// An acknowledgement for an endpoint.
fn acknowledgement(to: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&OWN.0);
    (frame[16], frame[17]) = (35, to);
    frame
}

/// Addresses of hosts that differ in either part.
fn host() -> impl Strategy<Value = Mac> {
    let byte = || prop::sample::select(vec![2u8, 4]);
    (byte(), byte()).prop_map(|(first, last)| Mac([first, 2, 2, 2, last, 2]))
}

/// Addresses in frames, some of them of groups.
fn address() -> impl Strategy<Value = Mac> {
    let half_broadcast = Mac([0xff, 0xff, 0xff, 0xff, 2, 2]);
    prop_oneof![4 => host(), 1 => Just(Mac::BROADCAST), 1 => Just(half_broadcast)]
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
        let frame = Frame { destination: OWN, source: Mac([4; 6]), index: 7, packet };
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
        let filter = filter(endpoints);
        prop_assert_eq!(filter.passes(&bytes), passes);
        prop_assert_eq!(run(&filter.program(), &bytes), if passes { PASS } else { DROP });
    }

    /// A frame with a wrong byte, or cut anywhere, does not make the program leave its instructions, or pass what is for no
    /// endpoint.
    #[test]
    fn an_invalid_frame_ends_the_program(
        (packet, data) in packet(),
        (at, value) in (0..60usize, any::<u8>()),
        length in 0..80usize,
        numbers in any::<[u8; 3]>(),
        passes_other_addresses in any::<bool>(),
    ) {
        let packet = with(packet, &data);
        let frame = Frame { destination: OWN, source: Mac([4; 6]), index: 7, packet };
        let mut bytes = frame.encode();
        bytes[at] = value;
        bytes.truncate(length);
        let filter = Filter { passes_other_addresses, ..filter(set(&numbers)) };
        let expected = if filter.passes(&bytes) { PASS } else { DROP };
        prop_assert_eq!(run(&filter.program(), &bytes), expected);
    }

    /// Only frames for the address are looked up: all others pass, or none. A broadcast is for all addresses.
    #[test]
    fn frames_for_other_addresses_have_endpoints_of_their_own(
        own in host(),
        other in address(),
        to in 0..3u8,
        passes_other_addresses in any::<bool>(),
    ) {
        let filter = Filter { mac: own, endpoints: set(&[1]), passes_other_addresses };
        let broadcast = other == Mac::BROADCAST;
        let expected = match other == own || broadcast {
            true => to == 1,
            false => passes_other_addresses,
        };
        let mut frame = acknowledgement(to);
        frame[..6].copy_from_slice(&other.0);
        prop_assert_eq!(filter.passes(&frame), expected);
        prop_assert_eq!(run(&filter.program(), &frame), if expected { PASS } else { DROP });
    }
}

#[test]
fn every_number_is_looked_up_by_its_own_bit() {
    for own in 0..ENDPOINTS {
        let program = filter(set(&[own])).program();
        for to in 0..=u8::MAX {
            let expected = if to == own { PASS } else { DROP };
            assert_eq!(run(&program, &acknowledgement(to)), expected, "{own} {to}");
        }
    }
}
