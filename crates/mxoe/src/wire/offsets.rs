//! Tests of the codec against frames written by hand from the protocol's tables of offsets.

use super::*;

/// A frame with this packet, padded to 60 bytes.
pub(super) fn by_hand(index: [u8; 2], body: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, 2, 3, 4, 5, 6, 2, 7, 7, 7, 7, 7, 0x86, 0xdf];
    frame.extend(index);
    frame.extend(body);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Checks that a packet is encoded to this body and decoded from it.
fn assert_coding(packet: Packet<'_>, body: &[u8]) {
    let frame = Frame {
        destination: Mac([1, 2, 3, 4, 5, 6]),
        source: Mac([2, 7, 7, 7, 7, 7]),
        index: 0x1234,
        packet,
    };
    let bytes = by_hand([0x12, 0x34], body);
    assert_eq!(frame.encode(), bytes, "{packet:?}");
    assert_eq!(Frame::decode(&bytes), Some(frame));
}

const ENDS: Ends = Ends { to: 3, from: 4 };

/// Sequence number, acknowledgement, match value and session, which follow the length in messages
/// of every kind.
const HEAD: [u8; 16] = [0x40, 1, 0x80, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn head(data: &[u8]) -> Small<'_> {
    Small {
        ends: ENDS,
        seq: 0x4001,
        ack: 0x8002,
        value: 0x0102_0304_0506_0708,
        session: 0x090a_0b0c,
        data,
    }
}

/// The first 24 bytes of a message: type, endpoints, generation, length, two unused bytes, and
/// [`HEAD`].
fn common_header(kind: u8, length: u16) -> Vec<u8> {
    let [high, low] = length.to_be_bytes();
    [&[kind, 3, 4, 0, high, low, 0, 0][..], &HEAD].concat()
}

#[test]
fn mxoe_2_offsets_of_messages() {
    let tiny = [&common_header(37, 2)[..], b"hi"].concat();
    assert_coding(Packet::Small(head(b"hi")), &tiny);
    let data = [7; 33];
    let small = [&common_header(38, 33)[..], &data].concat();
    assert_coding(Packet::Small(head(&data)), &small);
    // The second fragment of 5000 bytes.
    let data = [8; 904];
    let places = [0x03, 0x88, 1, 12, 0, 0, 0, 0];
    let medium = [&common_header(39, 5000)[..], &places, &data].concat();
    let packet = Medium {
        head: head(&data),
        total: 5000,
        offset: 4096,
        pipeline: 12,
    };
    assert_coding(Packet::Medium(packet), &medium);
    let offer = [&common_header(40, 8)[..], &[0, 1, 0, 2, 6, 7, 0, 9]].concat();
    let packet = Offer {
        head: head(b""),
        length: 0x10002,
        region: 6,
        generation: 7,
        offset: 9,
    };
    assert_coding(Packet::Offer(packet), &offer);
}

#[test]
fn mxoe_2_offsets_of_a_pull_its_replies_and_a_notification() {
    let pull = [
        41, 3, 4, 0, 0, 0, 0, 5, 0, 1, 0, 0, 6, 7, 0, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 11, 0x80, 0,
        0, 0, 0, 12,
    ];
    let packet = Pull {
        ends: ENDS,
        session: 5,
        total: 0x10000,
        region: 6,
        generation: 7,
        offset: 8,
        handle: 9,
        magic: 10,
        first: 11,
        length: 0x8000,
        frame: 12,
    };
    assert_coding(Packet::Pull(packet), &pull);
    let reply = [
        42, 5, 0, 3, 0, 1, 0, 6, 0, 0, 0, 9, 0, 0, 0, 10, b'a', b'b', b'c',
    ];
    let packet = Reply {
        frame: 5,
        offset: 0x10006,
        handle: 9,
        magic: 10,
        data: b"abc",
    };
    assert_coding(Packet::Reply(packet), &reply);
    let notify = [
        43, 3, 4, 0, 0, 0, 0, 5, 0, 1, 0, 0, 6, 7, 0, 0, 0, 0, 0x40, 8, 0x40, 9, 0, 0,
    ];
    let packet = Notify {
        ends: ENDS,
        session: 5,
        total: 0x10000,
        region: 6,
        generation: 7,
        seq: 0x4008,
        ack: 0x4009,
    };
    assert_coding(Packet::Notify(packet), &notify);
}

#[test]
fn mxoe_2_offsets_of_a_connect_and_its_reply() {
    let connect = Connect {
        ends: ENDS,
        index: 0x0102,
        session: 5,
        key_or_session: 6,
        expected_seq: 0x4001,
        number: 9,
        status: None,
        own_key: None,
        pipeline: None,
        udp: None,
        program: None,
    };
    let mut body = vec![36, 3, 4, 0, 16, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0];
    body.extend([0, 0, 0, 5, 0, 0, 0, 6, 0x40, 1, 0, 9, 0, 0, 0, 0]);
    assert_coding(Packet::Connect(connect), &body);
    let answer = Connect {
        status: Some(BAD_KEY),
        ..connect
    };
    body[26] = 1;
    body[28] = 11;
    assert_coding(Packet::Connect(answer), &body);
    // Our own addition to MX, behind its bytes.
    let with_key = Connect {
        own_key: Some(0x0102_0304),
        ..connect
    };
    body[26] = 0;
    body[28] = 0;
    body[4] = 20;
    body.extend([1, 2, 3, 4]);
    assert_coding(Packet::Connect(with_key), &body);
    let with_pipeline = Connect {
        pipeline: Some(13),
        ..with_key
    };
    body[4] = 24;
    body.extend([13, 0, 0, 0]);
    assert_coding(Packet::Connect(with_pipeline), &body);
    for (address, ip) in [
        (
            "10.1.2.3:258",
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3],
        ),
        (
            "[fe80::7]:258",
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        ),
    ] {
        let with_udp = Connect {
            udp: Some(address.parse().unwrap()),
            ..with_pipeline
        };
        let mut body = body.clone();
        body[4] = 44;
        body.extend(ip);
        body.extend([1, 2, 0, 0]);
        assert_coding(Packet::Connect(with_udp), &body);
        let with_program = Connect {
            udp: None,
            program: with_udp.udp,
            ..with_pipeline
        };
        let mut of_program = body.clone();
        of_program[58] = 1;
        assert_coding(Packet::Connect(with_program), &of_program);
        // The address of something else, which a later release may send.
        let mut of_another = body.clone();
        of_another[58] = 2;
        let frame = by_hand([0x12, 0x34], &of_another);
        let decoded = Frame::decode(&frame).unwrap();
        assert_eq!(decoded.packet, Packet::Connect(with_pipeline));
        // No port, and no address of a host.
        for unusable in [
            &[(56, 0), (57, 0)][..],
            &[(40, 0xff)],
            &[
                (40, 0),
                (41, 0),
                (50, 0),
                (51, 0),
                (52, 0),
                (53, 0),
                (54, 0),
                (55, 0),
            ],
        ] {
            let mut body = body.clone();
            for (at, byte) in unusable {
                body[*at] = *byte;
            }
            let frame = by_hand([0x12, 0x34], &body);
            assert_eq!(
                Frame::decode(&frame).unwrap().packet,
                Packet::Connect(with_pipeline)
            );
        }
    }
    // The place of the key is empty in a reply.
    let answer = Connect {
        status: Some(0),
        own_key: None,
        ..with_pipeline
    };
    body[26] = 1;
    body[32..36].fill(0);
    assert_coding(Packet::Connect(answer), &body);
}

#[test]
fn mxoe_2_offsets_of_acknowledgements_and_refusals() {
    let ack = [
        35, 3, 4, 0, 16, 0, 0, 0, 0, 0, 0, 5, 0x55, 0, 0x40, 8, 0, 0, 0, 5, 0, 0, 0, 9, 0x40, 8, 0,
        0,
    ];
    let packet = Packet::Ack {
        ends: ENDS,
        session: 5,
        seq: 0x4008,
        number: 9,
    };
    assert_coding(packet, &ack);
    let nack = [44, 4, 0, 2, 0, 0, 0, 0, 0, 3, 1, 2, 0x40, 8, 0, 0];
    let packet = Packet::Nack {
        ends: ENDS,
        code: 2,
        index: 0x0102,
        seq: 0x4008,
    };
    assert_coding(packet, &nack);
    let nack = [45, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 10];
    let packet = Packet::PullNack {
        from: 4,
        code: 4,
        handle: 9,
        magic: 10,
    };
    assert_coding(packet, &nack);
}

#[test]
fn mxoe_2_and_6_offsets_of_queries_replies_and_announcements() {
    let query = [3, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
    let (index, magic) = (0x0102, 5);
    assert_coding(Packet::HostQuery { index, magic }, &query);
    let reply = [
        &[4, 5, 1, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0][..],
        b"beta\0",
    ]
    .concat();
    let name = b"beta";
    assert_coding(Packet::HostReply { index, magic, name }, &reply);
    // At offsets 32, 36 and 40 of the frame.
    let mut announcement = [0; 48];
    announcement[0] = 1;
    announcement[16..28].copy_from_slice(&[0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 9]);
    let packet = Packet::Announce {
        nic: 0x0102_0304_0506,
        serial: 9,
    };
    assert_coding(packet, &announcement);
}
