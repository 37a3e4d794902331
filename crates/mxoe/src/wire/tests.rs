//! Tests of the codec. The numbers in their names are sections of the protocol's description.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::offsets::by_hand;
use super::*;

/// An address of UDP.
fn udp() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<([u8; 3], u16)>()
        .prop_map(|([a, b, c], port)| SocketAddr::from(([10, a, b, c], port.max(1))));
    let v6 = any::<([u16; 4], u16)>().prop_map(|([a, b, c, d], port)| {
        SocketAddr::from(([0xfe80, 0, 0, 0, a, b, c, d], port.max(1)))
    });
    prop_oneof![v4, v6]
}

/// The addresses that a connect may have: that of the node, or that of the program, or none.
fn addresses() -> impl Strategy<Value = (Option<SocketAddr>, Option<SocketAddr>)> {
    (option::of(udp()), any::<bool>()).prop_map(|(address, of_program)| match of_program {
        true => (None, address),
        false => (address, None),
    })
}

/// A packet, and separately its data, which a packet only borrows.
pub(crate) fn packet() -> impl Strategy<Value = (Packet<'static>, Vec<u8>)> {
    let ends = || (any::<u8>(), any::<u8>()).prop_map(|(to, from)| Ends { to, from });
    let head = move || {
        (ends(), any::<[u16; 2]>(), any::<u64>(), any::<u32>()).prop_map(
            |(ends, [seq, ack], value, session)| Small {
                ends,
                seq,
                ack,
                value,
                session,
                data: &[],
            },
        )
    };
    let none = |packet| (packet, Vec::new());
    prop_oneof![
        any::<(u64, u32)>().prop_map(move |(nic, serial)| none(Packet::Announce { nic, serial })),
        any::<(u16, u32)>()
            .prop_map(move |(index, magic)| none(Packet::HostQuery { index, magic })),
        (any::<(u16, u32)>(), vec(1u8.., 0..79)).prop_map(|((index, magic), name)| (
            Packet::HostReply {
                index,
                magic,
                name: &[]
            },
            name
        )),
        (
            ends(),
            any::<[u16; 2]>(),
            any::<[u32; 2]>(),
            any::<u8>(),
            prop_oneof![
                any::<(u8, Option<u8>)>().prop_map(|(status, pipeline)| (
                    Some(status),
                    None,
                    pipeline,
                    (None, None)
                )),
                (any::<u8>(), addresses()).prop_map(|(pipeline, addresses)| (
                    Some(INTRODUCED),
                    None,
                    Some(pipeline),
                    addresses
                )),
                any::<Option<u32>>().prop_map(|own_key| (None, own_key, None, (None, None))),
                (any::<(u32, u8)>(), addresses()).prop_map(|((own_key, pipeline), addresses)| (
                    None,
                    Some(own_key),
                    Some(pipeline),
                    addresses
                )),
            ]
        )
            .prop_map(
                move |(ends, [index, expected_seq], [session, key_or_session], number, kind)| {
                    let (status, own_key, pipeline, (udp, program)) = kind;
                    none(Packet::Connect(Connect {
                        ends,
                        index,
                        session,
                        key_or_session,
                        expected_seq,
                        number,
                        status,
                        own_key,
                        pipeline,
                        udp,
                        program,
                    }))
                }
            ),
        (head(), vec(any::<u8>(), 0..=128)).prop_map(|(head, data)| (Packet::Small(head), data)),
        (head(), 0..=32_768u16, 0..8u16, any::<u8>(), 12..=13u8).prop_map(
            |(head, total, number, seed, pipeline)| {
                let last = total.saturating_sub(1) >> pipeline;
                let offset = number.min(last) << pipeline;
                let length = usize::from(total - offset).min(1 << pipeline);
                (
                    Packet::Medium(Medium {
                        head,
                        total,
                        offset,
                        pipeline,
                    }),
                    vec![seed; length],
                )
            }
        ),
        (head(), any::<u32>(), any::<[u8; 2]>(), any::<u16>()).prop_map(
            move |(head, length, [region, generation], offset)| none(Packet::Offer(Offer {
                head,
                length,
                region,
                generation,
                offset
            }))
        ),
        (
            ends(),
            any::<[u32; 5]>(),
            any::<[u8; 2]>(),
            any::<[u16; 3]>()
        )
            .prop_map(
                move |(
                    ends,
                    [session, total, handle, magic, frame],
                    [region, generation],
                    [offset, first, length],
                )| {
                    none(Packet::Pull(Pull {
                        ends,
                        session,
                        total,
                        region,
                        generation,
                        offset,
                        handle,
                        magic,
                        first,
                        length,
                        frame,
                    }))
                }
            ),
        (any::<u8>(), any::<[u32; 3]>(), vec(any::<u8>(), 0..=4096)).prop_map(
            |(frame, [offset, handle, magic], data)| {
                (
                    Packet::Reply(Reply {
                        frame,
                        offset,
                        handle,
                        magic,
                        data: &[],
                    }),
                    data,
                )
            }
        ),
        (
            ends(),
            any::<[u32; 2]>(),
            any::<[u8; 2]>(),
            any::<[u16; 2]>()
        )
            .prop_map(
                move |(ends, [session, total], [region, generation], [seq, ack])| none(
                    Packet::Notify(Notify {
                        ends,
                        session,
                        total,
                        region,
                        generation,
                        seq,
                        ack
                    })
                )
            ),
        (ends(), any::<[u32; 2]>(), any::<u16>()).prop_map(
            move |(ends, [session, number], seq)| {
                none(Packet::Ack {
                    ends,
                    session,
                    seq,
                    number,
                })
            }
        ),
        (ends(), any::<u8>(), any::<[u16; 2]>()).prop_map(move |(ends, code, [index, seq])| {
            none(Packet::Nack {
                ends,
                code,
                index,
                seq,
            })
        }),
        (any::<[u8; 2]>(), any::<[u32; 2]>()).prop_map(move |([from, code], [handle, magic])| {
            none(Packet::PullNack {
                from,
                code,
                handle,
                magic,
            })
        }),
    ]
}

/// Returns the packet with its data.
pub(crate) fn with<'a>(packet: Packet<'static>, bytes: &'a [u8]) -> Packet<'a> {
    match packet {
        Packet::HostReply { index, magic, .. } => Packet::HostReply {
            index,
            magic,
            name: bytes,
        },
        Packet::Small(small) => Packet::Small(Small {
            data: bytes,
            ..small
        }),
        Packet::Medium(medium) => Packet::Medium(Medium {
            head: Small {
                data: bytes,
                ..medium.head
            },
            ..medium
        }),
        Packet::Reply(reply) => Packet::Reply(Reply {
            data: bytes,
            ..reply
        }),
        other => other,
    }
}

proptest! {
    #[test]
    fn mxoe_2_frames_are_read_as_they_were_written((packet, data) in packet(), index: u16, cut: usize) {
        let frame = Frame {
            destination: Mac([2, 0, 0, 0, 0, 1]),
            source: Mac([2, 0, 0, 0, 0, 2]),
            index,
            packet: with(packet, &data),
        };
        let bytes = frame.encode();
        prop_assert!((60..=8240).contains(&bytes.len()));
        prop_assert_eq!(Frame::decode(&bytes), Some(frame));
        // Trailing bytes are ignored; a frame that is cut within its data is refused.
        let mut padded = bytes.clone();
        padded.extend([0xee; 20]);
        prop_assert_eq!(Frame::decode(&padded), Some(frame));
        if !data.is_empty() && bytes.len() > 60 {
            prop_assert_eq!(Frame::decode(&bytes[..bytes.len() - 1]), None);
        }
        let _any = Frame::decode(&bytes[..cut % bytes.len()]);
    }
}

/// A valid frame, of which up to three bytes after the addresses are changed and the end may be
/// cut, is either refused or decodes to a frame that survives another round trip.
#[test]
fn changed_frames_are_refused_or_decoded() {
    use std::cell::Cell;
    let changes = vec((12..60usize, any::<u8>()), 0..4);
    let keep = prop_oneof![4 => Just(usize::MAX), 1 => 0..100usize];
    let [read, refused] = [Cell::new(0), Cell::new(0)];
    let mut runner = proptest::test_runner::TestRunner::default();
    let checked = runner.run(
        &(packet(), changes, keep),
        |((packet, data), changes, keep)| {
            let frame = Frame {
                destination: Mac([2, 0, 0, 0, 0, 1]),
                source: Mac([2, 0, 0, 0, 0, 2]),
                index: 1,
                packet: with(packet, &data),
            };
            let mut bytes = frame.encode();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(keep);
            let count = match Frame::decode(&bytes) {
                Some(frame) => {
                    let again = frame.encode();
                    prop_assert_eq!(Frame::decode(&again), Some(frame));
                    &read
                }
                None => &refused,
            };
            count.set(count.get() + 1);
            Ok(())
        },
    );
    checked.unwrap();
    let counts = (read.get(), refused.get());
    assert!(counts.0 > 50 && counts.1 > 10, "{counts:?}");
}

#[test]
fn mxoe_7_wrong_lengths_are_refused() {
    let mut tiny = vec![37, 0, 0, 0, 0, 33];
    tiny.resize(100, 0);
    assert_eq!(
        Frame::decode(&by_hand([0, 0], &tiny)),
        None,
        "tiny above 32"
    );
    let medium = |total: u16, length: u16, number: u8, pipeline: u8| {
        let mut body = vec![0; 32 + 8192];
        body[0] = 39;
        body[4..6].copy_from_slice(&total.to_be_bytes());
        body[24..26].copy_from_slice(&length.to_be_bytes());
        body[26] = number;
        body[27] = pipeline;
        Frame::decode(&by_hand([0, 0], &body)).is_some()
    };
    assert!(medium(5000, 4096, 0, 12) && medium(5000, 904, 1, 12));
    assert!(!medium(5000, 904, 2, 12), "behind its end");
    assert!(!medium(5000, 905, 1, 12), "over its end");
    assert!(
        !medium(5000, 903, 1, 12) && !medium(5000, 4095, 0, 12),
        "gaps"
    );
    assert!(medium(9000, 8192, 0, 13) && medium(9000, 808, 1, 13));
    assert!(!medium(9000, 4096, 0, 13), "a short one in front");
    assert!(!medium(5000, 904, 1, 13), "another pipeline");
    assert!(!medium(5000, 2048, 0, 11) && !medium(20_000, 16_384, 0, 14));
    assert!(!medium(5000, 5000, 0, 255), "a shift by more than the word");
    assert!(!medium(32_769, 4096, 0, 12), "too long");
    assert!(!medium(4096, 0, 1, 12), "empty");
    let mut reply = vec![42, 0, 0x20, 1];
    reply.resize(9000, 0);
    assert_eq!(Frame::decode(&by_hand([0, 0], &reply)), None, "above 8192");
    let mut name = vec![4, 81];
    name.resize(200, b'x');
    assert_eq!(Frame::decode(&by_hand([0, 0], &name)), None, "a long name");
}
