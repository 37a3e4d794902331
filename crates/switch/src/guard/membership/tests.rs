//! Tests of the membership parser: valid messages, and messages with an error in every byte.

use front_end::membership::{igmp, mld};

use super::*;

fn group(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const ROUTER: [u8; 4] = [10, 0, 0, 254];
const HOST: [u8; 4] = [10, 0, 0, 1];
const ALL: [u8; 4] = [224, 0, 0, 1];

fn query(family: Family, packet: &[u8]) -> Option<Query> {
    match read(family, packet) {
        Message::Query(query) => Some(query),
        _ => None,
    }
}

fn changes(family: Family, packet: &[u8]) -> Vec<Change> {
    match read(family, packet) {
        Message::Report(report) => report.changes().collect(),
        _ => Vec::new(),
    }
}

#[test]
fn rfc2236_and_rfc3376_queries() {
    let asks = |general, response| {
        Some(Query {
            general,
            from_router: true,
            response,
        })
    };
    let v3 = |code, group: [u8; 4]| [&[0x11, code, 0, 0][..], &group, &[2, 125, 0, 0]].concat();
    for (message, expected) in [
        // Version 1 has no code.
        (vec![0x11, 0, 0, 0, 0, 0, 0, 0], asks(true, 10)),
        (vec![0x11, 25, 0, 0, 0, 0, 0, 0], asks(true, 3)),
        (vec![0x11, 255, 0, 0, 0, 0, 0, 0], asks(true, 26)),
        (vec![0x11, 10, 0, 0, 239, 1, 2, 3], asks(false, 1)),
        (v3(100, [0; 4]), asks(true, 10)),
        // 16 << 3 tenths; and the longest.
        (v3(128, [0; 4]), asks(true, 13)),
        (v3(255, [0; 4]), asks(true, MAX_RESPONSE)),
        (v3(10, [239, 1, 2, 3]), asks(false, 1)),
    ] {
        let packet = igmp(ROUTER, ALL, &message);
        assert_eq!(query(Family::V4, &packet), expected, "{message:x?}");
    }
    // A query to the members of one group is not a general query.
    let elsewhere = igmp(ROUTER, [239, 0, 0, 1], &v3(100, [0; 4]));
    assert_eq!(query(Family::V4, &elsewhere), asks(false, 10));
    // RFC 4541, 2.1.1: a switch that queries in place of a router.
    let proxy = igmp([0; 4], ALL, &v3(100, [0; 4]));
    assert!(query(Family::V4, &proxy).is_some_and(|query| !query.from_router));
}

#[test]
fn rfc1112_and_rfc2236_reports() {
    let joins = vec![Change::Join(group("239.1.2.3"))];
    let leaves = vec![Change::Leave(group("239.1.2.3"))];
    for (kind, expected) in [(0x12, &joins), (0x16, &joins), (0x17, &leaves)] {
        let packet = igmp(HOST, [239, 1, 2, 3], &[kind, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(changes(Family::V4, &packet), *expected);
        // Ethernet pads short frames.
        let padded = [packet, vec![0; 14]].concat();
        assert_eq!(changes(Family::V4, &padded), *expected);
    }
    for other in [[224, 0, 0, 251], [10, 0, 0, 1], [0, 0, 0, 0]] {
        let message = [&[0x16, 0, 0, 0][..], &other].concat();
        assert_eq!(changes(Family::V4, &igmp(HOST, other, &message)), []);
    }
}

#[test]
fn rfc3376_4_2_each_record_is_a_change() {
    let record = |kind: u8, last: u8, sources: u8, extra: u8| {
        let head = [kind, extra, 0, sources, 239, 0, 0, last];
        let behind = vec![9; 4 * usize::from(sources + extra)];
        [&head[..], &behind].concat()
    };
    let records = [
        record(1, 1, 0, 0),
        record(1, 2, 2, 0),
        record(2, 3, 0, 1),
        record(3, 4, 0, 0),
        record(3, 5, 1, 2),
        record(4, 6, 3, 0),
        record(5, 7, 1, 0),
        record(6, 8, 1, 0),
        record(9, 9, 0, 0),
        record(4, 10, 0, 0),
    ];
    let message = |count: u8| [&[0x22, 0, 0, 0, 0, 0, 0, count][..], &records.concat()].concat();
    let leave = |last: u8| Change::Leave(group(&format!("239.0.0.{last}")));
    let join = |last: u8| Change::Join(group(&format!("239.0.0.{last}")));
    let all = [
        leave(1),
        join(2),
        join(3),
        leave(4),
        join(5),
        join(6),
        join(7),
        join(10),
    ];
    let to = [224, 0, 0, 22];
    assert_eq!(changes(Family::V4, &igmp(HOST, to, &message(10))), all);
    // The count exceeds the records: the records that are present count.
    assert_eq!(changes(Family::V4, &igmp(HOST, to, &message(11))), all);
    assert_eq!(changes(Family::V4, &igmp(HOST, to, &message(2))), all[..2]);
}

#[test]
fn rfc2710_and_rfc3810_queries() {
    let message = |code: u16, more: usize| {
        let [high, low] = code.to_be_bytes();
        [
            &[130, 0, 0, 0, high, low, 0, 0][..],
            &[0; 16],
            &vec![0; more],
        ]
        .concat()
    };
    let response = |packet: &[u8]| query(Family::V6, packet).map(|query| query.response);
    for (code, more, expected) in [
        (10_000, 0, 10),
        (1, 0, 1),
        (0, 0, 1),
        (10_000, 4, 10),
        (0x8000, 4, 33),
        (0x8100, 4, 35),
        (0xffff, 4, MAX_RESPONSE),
    ] {
        let packet = mld("fe80::1", "ff02::1", &message(code, more));
        assert_eq!(response(&packet), Some(expected), "{code} {more}");
        assert!(query(Family::V6, &packet).is_some_and(|query| query.general));
    }
    let elsewhere = mld("fe80::1", "ff05::7", &message(1, 4));
    assert!(query(Family::V6, &elsewhere).is_some_and(|query| !query.general));
    let mut of_one = message(1000, 4);
    of_one[8] = 0xff;
    let packet = mld("fe80::1", "ff02::1", &of_one);
    assert!(query(Family::V6, &packet).is_some_and(|query| !query.general));
    // RFC 3810, 5.1.14.
    for source in ["fd00::1", "::"] {
        assert_eq!(response(&mld(source, "ff02::1", &message(1, 4))), None);
    }
}

#[test]
fn rfc2710_and_rfc3810_reports() {
    let address: Ipv6Addr = "ff05::1:3".parse().unwrap();
    let one = |kind: u8| [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &address.octets()].concat();
    let packet = |message: &[u8]| mld("fe80::1", "ff02::16", message);
    let (join, leave) = (Change::Join(address.into()), Change::Leave(address.into()));
    assert_eq!(changes(Family::V6, &packet(&one(131))), [join]);
    assert_eq!(changes(Family::V6, &packet(&one(132))), [leave]);
    let record = |kind: u8, sources: u8, text: &str| {
        let address: Ipv6Addr = text.parse().unwrap();
        let behind = vec![1; 16 * usize::from(sources)];
        [&[kind, 0, 0, sources][..], &address.octets(), &behind].concat()
    };
    let records = [
        record(4, 0, "ff05::1:3"),
        record(5, 2, "ff05::1:3"),
        record(3, 0, "ff05::1:3"),
        // All nodes, neighbour discovery, and interface-local scope.
        record(4, 0, "ff02::1"),
        record(4, 0, "ff02::1:ff12:3456"),
        record(4, 0, "ff01::5"),
        record(4, 0, "fd0f::5"),
        record(4, 0, "ff02::fb"),
    ];
    let many = [&[143, 0, 0, 0, 0, 0, 0, 8][..], &records.concat()].concat();
    let mdns = Change::Join(group("ff02::fb"));
    assert_eq!(
        changes(Family::V6, &packet(&many)),
        [join, join, leave, mdns]
    );
}

#[test]
fn messages_that_hosts_would_ignore_are_ignored() {
    let v4 = igmp(HOST, [239, 1, 2, 3], &[0x16, 0, 0, 0, 239, 1, 2, 3]);
    let address: Ipv6Addr = "ff05::1:3".parse().unwrap();
    let message = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &address.octets()].concat();
    let v6 = mld("fe80::1", "ff05::1:3", &message);
    for (family, good) in [(Family::V4, v4), (Family::V6, v6)] {
        assert_eq!(changes(family, &good).len(), 1);
        assert!(concerns_groups(family, &good));
        for length in 0..good.len() {
            assert_eq!(read(family, &good[..length]), Message::Other, "{length}");
        }
        // Bytes that no checksum covers: version and class, flow label, and the padding of the router alert.
        let free: &[usize] = match family {
            Family::V4 => &[],
            Family::V6 => &[0, 1, 2, 3],
        };
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 0x20;
            let read = read(family, &bad);
            let same = free.contains(&place) && place > 0;
            assert_eq!(read != Message::Other, same, "{family:?} {place}");
        }
    }
    // A fragment, and a header length above the length of the packet.
    for (place, value) in [(6, 0x20), (7, 1), (0, 0x56), (0, 0x4f), (0, 0x44)] {
        let mut bad = igmp(HOST, [239, 1, 2, 3], &[0x16, 0, 0, 0, 239, 1, 2, 3]);
        bad[place] = value;
        bad[10..12].fill(0);
        let header = 4 * usize::from(bad[0] & 0xf).min(6);
        let fixed = !sum(0, &bad[..header]);
        bad[10..12].copy_from_slice(&fixed.to_be_bytes());
        assert_eq!(read(Family::V4, &bad), Message::Other);
    }
}
