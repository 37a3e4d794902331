//! Headers, packets and credit, against the specification (virtio 1.3, 5.10) and against models.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use vsock::credit::{Credit, CreditFault};
use vsock::header::{
    END_OF_MESSAGE, END_OF_RECORD, HOST_CID, Header, LAST_GUEST_CID, Operation, SHUTDOWN_BOTH,
    SocketType,
};
use vsock::limits::MAX_PAYLOAD;
use vsock::packet::{Invalid, Packet, reset_of_invalid};

const OWN: u32 = 7;

fn valid() -> Header {
    Header {
        src_cid: OWN.into(),
        dst_cid: 9,
        src_port: 1024,
        dst_port: 80,
        len: 5,
        kind: 1,
        op: Operation::ReadWrite as u16,
        flags: 0,
        buf_alloc: 1 << 18,
        fwd_cnt: 3,
    }
}

fn check(header: &Header) -> Result<Packet, Invalid> {
    Packet::check(header, OWN, 100, true)
}

#[test]
fn section_5_10_6_the_header_is_44_bytes_little_endian_in_this_order() {
    let bytes: [u8; 44] = std::array::from_fn(|at| at as u8);
    let header = Header::from_bytes(&bytes);
    assert_eq!(header.src_cid, 0x0706_0504_0302_0100);
    assert_eq!(header.dst_cid, 0x0f0e_0d0c_0b0a_0908);
    assert_eq!(
        (header.src_port, header.dst_port),
        (0x1312_1110, 0x1716_1514)
    );
    assert_eq!(
        (header.len, header.kind, header.op),
        (0x1b1a_1918, 0x1d1c, 0x1f1e)
    );
    assert_eq!(header.flags, 0x2322_2120);
    assert_eq!(
        (header.buf_alloc, header.fwd_cnt),
        (0x2726_2524, 0x2b2a_2928)
    );
    assert_eq!(header.to_bytes(), bytes);
}

#[test]
fn section_5_10_4_reserved_cids_and_the_own_one_are_no_destination() {
    for cid in [
        0,
        1,
        u64::from(OWN),
        u64::from(u32::MAX),
        1 << 32,
        (1 << 32) | 9,
        u64::MAX,
    ] {
        let header = Header {
            dst_cid: cid,
            ..valid()
        };
        assert_eq!(check(&header), Err(Invalid::Destination), "{cid}");
    }
    for cid in [HOST_CID, 3, LAST_GUEST_CID] {
        let header = Header {
            dst_cid: cid.into(),
            ..valid()
        };
        assert_eq!(check(&header).unwrap().destination.cid, cid);
    }
}

#[test]
fn section_5_10_6_4_1_a_foreign_source_is_dropped_without_an_answer() {
    for cid in [0, 1, 2, 8, u64::from(OWN) | 1 << 32] {
        let header = Header {
            src_cid: cid,
            ..valid()
        };
        let invalid = check(&header).unwrap_err();
        assert_eq!(invalid, Invalid::Source);
        assert_eq!(reset_of_invalid(&header, OWN, invalid), None);
    }
}

#[test]
fn section_5_10_6_5_unknown_types_and_operations_are_answered_with_a_reset() {
    for (header, why) in [
        (Header { kind: 0, ..valid() }, Invalid::SocketType),
        (Header { kind: 3, ..valid() }, Invalid::SocketType),
        (Header { op: 0, ..valid() }, Invalid::Operation),
        (Header { op: 8, ..valid() }, Invalid::Operation),
        (
            Header {
                len: 101,
                ..valid()
            },
            Invalid::Length,
        ),
        (
            Header {
                dst_cid: 1,
                ..valid()
            },
            Invalid::Destination,
        ),
    ] {
        let invalid = check(&header).unwrap_err();
        assert_eq!(invalid, why);
        let reset = reset_of_invalid(&header, OWN, invalid).unwrap();
        assert_eq!((reset.src_cid, reset.dst_cid), (header.dst_cid, OWN.into()));
        assert_eq!(
            (reset.src_port, reset.dst_port),
            (header.dst_port, header.src_port)
        );
        assert_eq!((reset.op, reset.kind, reset.len), (3, header.kind, 0));
    }
    // Resets do not answer each other without end.
    let header = Header {
        kind: 9,
        op: Operation::Reset as u16,
        ..valid()
    };
    assert_eq!(
        reset_of_invalid(&header, OWN, check(&header).unwrap_err()),
        None
    );
}

#[test]
fn section_5_10_3_seqpacket_needs_its_feature() {
    let header = Header { kind: 2, ..valid() };
    assert_eq!(
        Packet::check(&header, OWN, 100, false),
        Err(Invalid::SocketType)
    );
    assert_eq!(check(&header).unwrap().kind, SocketType::SeqPacket);
}

#[test]
fn section_5_10_6_only_data_has_a_payload_and_no_more_than_its_chain() {
    for op in 1..=7 {
        let header = |len| Header { op, len, ..valid() };
        let is_data = op == Operation::ReadWrite as u16;
        assert!(check(&header(0)).is_ok());
        assert_eq!(check(&header(1)).is_ok(), is_data, "{op}");
        assert_eq!(check(&header(100)).is_ok(), is_data);
        assert_eq!(check(&header(101)), Err(Invalid::Length));
    }
    let header = |len| Header { len, ..valid() };
    let check = |len| Packet::check(&header(len), OWN, u32::MAX, true);
    assert!(check(MAX_PAYLOAD).is_ok());
    assert_eq!(check(MAX_PAYLOAD + 1), Err(Invalid::Length));
    assert_eq!(check(u32::MAX), Err(Invalid::Length));
}

#[test]
fn section_5_10_6_7_2_the_end_of_a_message_is_in_its_last_piece() {
    let flags = END_OF_MESSAGE | END_OF_RECORD;
    let packet = check(&Header {
        kind: 2,
        flags: u32::MAX,
        ..valid()
    })
    .unwrap();
    assert_eq!(packet.flags, flags, "unknown bits are cleared");
    assert_eq!(packet.header().piece(3, false).flags, 0);
    assert_eq!(packet.header().piece(2, true).flags, flags);
    let stream = check(&Header {
        flags: u32::MAX,
        ..valid()
    })
    .unwrap();
    assert_eq!(stream.header().piece(5, true).flags, 0);
    let op = Operation::Shutdown as u16;
    let shutdown = check(&Header {
        op,
        len: 0,
        flags: u32::MAX,
        ..valid()
    })
    .unwrap();
    assert_eq!(shutdown.header().piece(0, true).flags, SHUTDOWN_BOTH);
}

fn header() -> impl Strategy<Value = Header> {
    let cid = || prop_oneof![Just(u64::from(OWN)), 0..12_u64, any::<u64>()];
    let len = prop_oneof![0..120_u32, Just(MAX_PAYLOAD), any::<u32>()];
    (
        cid(),
        cid(),
        any::<(u32, u32)>(),
        len,
        prop_oneof![4 => 1..3_u16, 1 => any::<u16>()],
        prop_oneof![6 => 1..8_u16, 1 => any::<u16>()],
        any::<(u32, u32, u32)>(),
    )
        .prop_map(|(src_cid, dst_cid, ports, len, kind, op, rest)| Header {
            src_cid,
            dst_cid,
            src_port: ports.0,
            dst_port: ports.1,
            len,
            kind,
            op,
            flags: rest.0,
            buf_alloc: rest.1,
            fwd_cnt: rest.2,
        })
}

proptest! {
    #[test]
    fn a_header_survives_its_encoding(header in header()) {
        prop_assert_eq!(Header::from_bytes(&header.to_bytes()), header);
    }

    /// An accepted packet has the sender's own address and a length within its chain. The device passes the
    /// packet on with its ports and credit unchanged.
    #[test]
    fn what_is_accepted_is_passed_on_unchanged(header in header(), room in 0..200_u32) {
        match Packet::check(&header, OWN, room, true) {
            Ok(packet) => {
                prop_assert!(packet.length <= room.min(MAX_PAYLOAD));
                let sent = packet.header().piece(packet.length, true);
                prop_assert_eq!(Header { flags: header.flags, ..sent }, header);
                prop_assert_eq!(sent.flags & !header.flags, 0);
            }
            Err(invalid) => {
                if let Some(reset) = reset_of_invalid(&header, OWN, invalid) {
                    prop_assert_eq!(reset.dst_cid, u64::from(OWN));
                    prop_assert_eq!(header.src_cid, u64::from(OWN));
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The peer reads this share of what it has, and tells it with a space of this size.
    Peer(u32, u32),
    /// The peer tells a forward count this far ahead of what it may be.
    Lie(u32),
    Send(u32),
    Receive(u32),
    Take(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..1000_u32, prop_oneof![0..5000_u32, any::<u32>()]).prop_map(|(a, b)| Step::Peer(a, b)),
        (1..u32::MAX).prop_map(Step::Lie),
        prop_oneof![0..3000_u32, any::<u32>()].prop_map(Step::Send),
        prop_oneof![0..3000_u32, any::<u32>()].prop_map(Step::Receive),
        (0..3000_u32).prop_map(Step::Take),
    ]
}

/// The counts without a modulus.
#[derive(Default)]
struct Model {
    sent: u64,
    peer_took: u64,
    peer_space: u64,
    received: u64,
    took: u64,
}

const SPACE: u32 = 4000;

/// How often the property below sent something, and refused a count.
static SENT: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

#[test]
fn section_5_10_6_3_credit_is_that_of_a_model_with_64_bits() {
    credit_is_that_of_a_model();
    let reached = [&SENT, &REFUSED].map(|count| count.load(Ordering::Relaxed));
    assert!(reached.iter().all(|count| *count > 1000), "{reached:?}");
}

proptest! {
    /// Section 5.10.6.3, with counts that start anywhere, so that they wrap.
    fn credit_is_that_of_a_model(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let (mut credit, mut model) = (Credit::new(SPACE), Model::default());
        for step in steps {
            match step {
                Step::Peer(read, space) => {
                    let on_the_way = model.sent - model.peer_took;
                    model.peer_took += on_the_way.min(read.into());
                    model.peer_space = space.into();
                    prop_assert_eq!(credit.update(space, model.peer_took as u32), Ok(()));
                }
                Step::Lie(ahead) => {
                    let on_the_way = model.sent - model.peer_took;
                    // A count that is ahead by this much, or behind by the rest of the modulus.
                    let told = (model.peer_took as u32).wrapping_add(ahead);
                    let wrong = u64::from(ahead) > on_the_way;
                    if wrong {
                        REFUSED.fetch_add(1, Ordering::Relaxed);
                        prop_assert_eq!(credit.update(1, told), Err(CreditFault::ForwardCount));
                    }
                }
                Step::Send(count) => {
                    let free = model.peer_space.saturating_sub(model.sent - model.peer_took);
                    prop_assert_eq!(u64::from(credit.available()), free);
                    let count = u64::from(count).min(free);
                    credit.sent(count as u32);
                    model.sent += count;
                    SENT.fetch_add(u64::from(count > 0), Ordering::Relaxed);
                }
                Step::Receive(count) => {
                    let fits = model.received - model.took + u64::from(count) <= SPACE.into();
                    let result = credit.received(count);
                    prop_assert_eq!(result.is_ok(), fits);
                    if fits {
                        model.received += u64::from(count);
                    }
                }
                Step::Take(count) => {
                    let count = u64::from(count).min(model.received - model.took);
                    credit.taken(count as u32);
                    model.took += count;
                    if credit.is_update_due() {
                        prop_assert_eq!(credit.tell(), (SPACE, model.took as u32));
                        prop_assert!(!credit.is_update_due());
                    }
                }
            }
        }
    }
}
