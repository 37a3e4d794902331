//! The message codec: decoding and framing.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use front_end::wire::{self, VERSION, addresses, message, number, request, state};
use front_end::{Region, Wire};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use vhost::channel::Channel;
use vhost::fault::{Fault, ProtocolFault};
use vhost::memory::RegionInfo;
use vhost::message::{Header, Request, RingAddresses, decode};

const REGION: Region = Region {
    guest: 0x1000,
    size: 0x2000,
    user: 0x7f00_0000_0000,
    offset: 0x3000,
};

fn region() -> RegionInfo {
    RegionInfo {
        guest: REGION.guest,
        size: REGION.size,
        user: REGION.user,
        offset: REGION.offset,
    }
}

/// A message's number, payload and descriptors, and what it decodes to.
type Row = (u32, Vec<u8>, usize, Request);

/// Every message.
fn table() -> Vec<Row> {
    let padded = |body: Vec<u8>| [vec![0; 8], body].concat();
    let regions = |count: u32| [state(count, 0), REGION.to_bytes().repeat(count as usize)].concat();
    let many = |count| std::iter::repeat_n(region(), count).collect();
    let place = RingAddresses {
        descriptors: 1,
        used: 2,
        available: 3,
        log: None,
    };
    vec![
        (1, vec![], 0, Request::GetFeatures),
        (2, number(5), 0, Request::SetFeatures(5)),
        (3, vec![], 0, Request::SetOwner),
        (4, vec![], 0, Request::ResetOwner),
        (5, regions(1), 1, Request::SetMemTable(many(1))),
        (5, regions(8), 8, Request::SetMemTable(many(8))),
        (
            6,
            wire::log(5, 7),
            1,
            Request::SetLogBase { size: 5, offset: 7 },
        ),
        (7, vec![], 1, Request::SetLogFd),
        (8, state(1, 256), 0, Request::SetVringNum(1, 256)),
        (9, addresses(1, 1, 2, 3), 0, Request::SetVringAddr(1, place)),
        (
            9,
            wire::logged_addresses(1, [1, 2, 3], 9),
            0,
            Request::SetVringAddr(
                1,
                RingAddresses {
                    log: Some(9),
                    ..place
                },
            ),
        ),
        (10, state(0, 65_535), 0, Request::SetVringBase(0, 65_535)),
        (11, state(31, 9), 0, Request::GetVringBase(31)),
        (12, number(1), 1, Request::SetVringKick(1)),
        (12, number(1 << 8 | 1), 0, Request::SetVringKick(1)),
        (13, number(0), 1, Request::SetVringCall(0)),
        (13, number(1 << 8), 0, Request::SetVringCall(0)),
        (14, number(0), 1, Request::SetVringErr(0)),
        (14, number(1 << 8), 0, Request::SetVringErr(0)),
        (15, vec![], 0, Request::GetProtocolFeatures),
        (16, number(1), 0, Request::SetProtocolFeatures(1)),
        (17, vec![], 0, Request::GetQueueNum),
        (18, state(0, 1), 0, Request::SetVringEnable(0, true)),
        (18, state(0, 0), 0, Request::SetVringEnable(0, false)),
        (
            19,
            vec![1, 2, 3, 4, 5, 6, 0, 0],
            0,
            Request::SendRarp([1, 2, 3, 4, 5, 6]),
        ),
        (20, number(1500), 0, Request::SetMtu(1500)),
        (34, vec![], 0, Request::ResetDevice),
        (36, vec![], 0, Request::GetMaxMemSlots),
        (
            37,
            padded(REGION.to_bytes()),
            1,
            Request::AddMemReg(region()),
        ),
        (
            38,
            padded(REGION.to_bytes()),
            0,
            Request::RemMemReg(region()),
        ),
        // Some front-ends send the region's descriptor along.
        (
            38,
            padded(REGION.to_bytes()),
            1,
            Request::RemMemReg(region()),
        ),
        (39, number(15), 0, Request::SetStatus(15)),
        (40, vec![], 0, Request::GetStatus),
    ]
}

fn header(request: u32, payload: &[u8]) -> Header {
    Header {
        request,
        flags: VERSION,
        size: payload.len() as u32,
    }
}

#[test]
fn every_message_decodes_to_what_was_encoded() {
    for (number, payload, fds, expected) in table() {
        let decoded = decode(&header(number, &payload), &payload, fds);
        assert_eq!(decoded, Ok(expected), "message {number}");
    }
}

#[test]
fn every_message_is_refused_at_any_other_size() {
    for (number, payload, fds, _) in table() {
        for size in 0..400 {
            // A longer table has room for more regions than it has, and is accepted.
            if size == payload.len() || (number == 5 && size > payload.len()) {
                continue;
            }
            let mut other = payload.clone();
            other.resize(size, 0);
            let refused = decode(&header(number, &other), &other, fds);
            let fault = ProtocolFault::Size {
                request: number,
                size: size as u32,
            };
            assert_eq!(refused, Err(fault));
        }
    }
}

#[test]
fn every_message_is_refused_with_other_descriptors() {
    for (number, payload, fds, _) in table() {
        for got in 0..10 {
            if got == fds || number == 38 && got == 1 - fds {
                continue;
            }
            let refused = decode(&header(number, &payload), &payload, got);
            assert!(
                matches!(refused, Err(ProtocolFault::Descriptors { request, got: had, .. }) if request == number && had == got),
                "message {number}, {got} descriptors: {refused:?}"
            );
        }
    }
}

#[test]
fn a_longer_memory_table_as_user_mode_linux_sends_it_is_accepted() {
    let mut payload = [state(1, 0), REGION.to_bytes()].concat();
    payload.resize(8 + 8 * 32, 0xee);
    let decoded = decode(&header(5, &payload), &payload, 1).unwrap();
    assert_eq!(
        decoded,
        Request::SetMemTable([region()].into_iter().collect())
    );
}

#[test]
fn memory_tables_that_count_wrong_are_refused() {
    for count in [0, 2, 9, u32::MAX] {
        let payload = [state(count, 0), REGION.to_bytes()].concat();
        let refused = decode(&header(5, &payload), &payload, count.min(16) as usize);
        assert!(
            matches!(refused, Err(ProtocolFault::Size { .. })),
            "{count}"
        );
    }
}

#[test]
fn ring_numbers_past_the_last_are_refused() {
    for (request, payload) in [
        (8, state(32, 1)),
        (9, addresses(32, 0, 0, 0)),
        (10, state(1 << 31, 0)),
        (11, state(u32::MAX, 0)),
        (12, number(0x120)),
        (13, number(0x1ff)),
        (18, state(32, 1)),
    ] {
        let refused = decode(&header(request, &payload), &payload, 0);
        assert!(
            matches!(refused, Err(ProtocolFault::RingNumber(32..))),
            "{request}: {refused:?}"
        );
    }
}

#[test]
fn unknown_and_not_negotiated_messages_have_different_faults() {
    for number in (0..100).chain([u32::MAX]) {
        let known = table().iter().any(|row| row.0 == number);
        let refused = decode(&header(number, &[]), &[], 0);
        match number {
            _ if known => continue,
            24 => assert!(matches!(refused, Err(ProtocolFault::Size { .. }))),
            0 | 45.. => assert_eq!(refused, Err(ProtocolFault::Unknown(number))),
            _ => assert_eq!(refused, Err(ProtocolFault::NotNegotiated(number))),
        }
    }
}

#[test]
fn headers_with_other_versions_or_too_large_payloads_are_refused() {
    let bytes = |flags: u32, size: u32| {
        let mut bytes = [0; 12];
        for (to, word) in bytes.chunks_exact_mut(4).zip([1, flags, size]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    };
    for version in [0, 2, 3] {
        let refused = Header::from_bytes(bytes(version, 0));
        assert_eq!(
            refused,
            Err(ProtocolFault::Version {
                request: 1,
                version
            })
        );
    }
    assert!(Header::from_bytes(bytes(1, 1024)).is_ok());
    let refused = Header::from_bytes(bytes(1, 1025));
    assert_eq!(
        refused,
        Err(ProtocolFault::Size {
            request: 1,
            size: 1025
        })
    );
    assert!(Header::from_bytes(bytes(9, 0)).unwrap().needs_reply());
    assert_eq!(Header::reply(1, 8), bytes(5, 8));
}

fn channel() -> (Wire, Channel) {
    let (wire, theirs) = Wire::pair();
    (wire, Channel::new(theirs).unwrap())
}

fn events(count: usize) -> Vec<OwnedFd> {
    let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    (0..count).map(|_| event()).collect()
}

fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

#[test]
fn a_message_in_many_small_writes_is_one_message() {
    let (wire, mut channel) = channel();
    for (number, payload, fds, expected) in table() {
        let bytes = message(number, VERSION, &payload);
        let fds = events(fds);
        for (place, byte) in bytes.iter().enumerate() {
            assert!(channel.receive().unwrap().is_none());
            let with: &[_] = if place == 0 { &borrowed(&fds) } else { &[] };
            assert!(wire.send_raw(&[*byte], with));
        }
        let whole = channel.receive().unwrap().unwrap();
        assert_eq!(
            (whole.request, whole.descriptors.len()),
            (expected, fds.len())
        );
    }
}

#[test]
fn descriptors_may_come_with_any_byte_of_their_message() {
    let (wire, mut channel) = channel();
    let bytes = message(request::SET_VRING_KICK, VERSION, &number(1));
    let fds = events(1);
    for split in 1..bytes.len() {
        assert!(wire.send_raw(&bytes[..split], &[]));
        assert!(channel.receive().unwrap().is_none());
        assert!(wire.send_raw(&bytes[split..], &borrowed(&fds)));
        assert_eq!(channel.receive().unwrap().unwrap().descriptors.len(), 1);
    }
}

#[test]
fn two_messages_in_one_write_are_two() {
    let (wire, mut channel) = channel();
    let both = [
        message(2, VERSION, &number(7)),
        message(18, VERSION, &state(1, 1)),
    ]
    .concat();
    assert!(wire.send_raw(&both, &[]));
    let first = channel.receive().unwrap().unwrap();
    assert_eq!(first.request, Request::SetFeatures(7));
    let second = channel.receive().unwrap().unwrap();
    assert_eq!(second.request, Request::SetVringEnable(1, true));
    assert!(channel.receive().unwrap().is_none());
}

#[test]
fn descriptors_stay_with_their_own_message() {
    let (wire, mut channel) = channel();
    let fds = events(2);
    assert!(wire.send(request::GET_FEATURES, &[], &[]));
    assert!(wire.send(request::SET_VRING_KICK, &number(0), &borrowed(&fds[..1])));
    assert!(wire.send(request::SET_VRING_CALL, &number(0), &borrowed(&fds[1..])));
    let counts: Vec<usize> = (0..3)
        .map(|_| channel.receive().unwrap().unwrap().descriptors.len())
        .collect();
    assert_eq!(counts, [0, 1, 1]);
}

#[test]
fn a_front_end_that_hangs_up_is_gone_whatever_it_sent_before() {
    for said in [0, 5, 12, 15] {
        let (wire, mut channel) = channel();
        assert!(wire.send_raw(&message(2, VERSION, &number(0))[..said], &[]) || said == 0);
        drop(wire);
        assert_eq!(channel.receive().unwrap_err(), Fault::Disconnected);
    }
}

/// Bytes in pieces: half of the pieces are messages.
/// Runs so many cases, and keeps no file of those that fail.
fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

/// A message of the table, possibly changed: its number, up to three words of its payload, its length, and
/// the number of descriptors.
fn changed() -> impl Strategy<Value = (u32, Vec<u8>, usize)> {
    let word = prop_oneof![0_u64..16, any::<u64>()];
    let words = prop::collection::vec((any::<prop::sample::Index>(), word), 0..4);
    let length = prop_oneof![6 => Just(None), 1 => (0_usize..300).prop_map(Some)];
    let number = prop_oneof![6 => Just(None), 1 => (0_u32..48).prop_map(Some), 1 => any::<u32>().prop_map(Some)];
    let fds = prop_oneof![6 => Just(None), 1 => (0_usize..12).prop_map(Some)];
    let row = prop::sample::select(table());
    (row, words, length, number, fds).prop_map(|(row, words, length, number, fds)| {
        let (known, mut payload, own, _) = row;
        for (at, word) in words {
            let count = payload.len() / 8;
            if count > 0 {
                let at = 8 * at.index(count);
                payload[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        payload.resize(length.unwrap_or(payload.len()), 1);
        (number.unwrap_or(known), payload, fds.unwrap_or(own))
    })
}

#[test]
fn decoding_anything_never_panics() {
    let [read, refused] = [Cell::new(0), Cell::new(0)];
    let checked = runner().run(&changed(), |(number, payload, fds)| {
        let count = match decode(&header(number, &payload), &payload, fds) {
            Ok(_) => &read,
            Err(_) => &refused,
        };
        count.set(count.get() + 1);
        Ok(())
    });
    checked.unwrap();
    let counts = (read.get(), refused.get());
    assert!(counts.0 > 400 && counts.1 > 400, "{counts:?}");
}

#[test]
fn headers_of_any_bytes_never_panic() {
    let [read, refused] = [Cell::new(0), Cell::new(0)];
    let flags = prop_oneof![Just(VERSION), 0_u32..16, any::<u32>()];
    let size = prop_oneof![0_u32..1100, any::<u32>()];
    let checked = runner().run(&(any::<u32>(), flags, size), |(request, flags, size)| {
        let mut bytes = [0; 12];
        for (to, word) in bytes.chunks_exact_mut(4).zip([request, flags, size]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let good = size <= 1024 && flags & 3 == VERSION;
        let count = match Header::from_bytes(bytes) {
            Ok(header) => {
                prop_assert!(good);
                prop_assert_eq!(
                    header,
                    Header {
                        request,
                        flags,
                        size
                    }
                );
                &read
            }
            Err(_) => {
                prop_assert!(!good || flags & 4 != 0, "{flags:x} {size}");
                &refused
            }
        };
        count.set(count.get() + 1);
        Ok(())
    });
    checked.unwrap();
    let counts = (read.get(), refused.get());
    assert!(counts.0 > 400 && counts.1 > 400, "{counts:?}");
}

/// Messages in pieces, unchanged or changed, and noise: each complete message is received once.
#[test]
fn framing_any_bytes_in_any_pieces_never_panics() {
    let noise = prop::collection::vec(any::<u8>(), 1..40);
    let whole = changed().prop_map(|(number, payload, _)| message(number, VERSION, &payload));
    let said = prop::collection::vec(prop_oneof![1 => noise, 6 => whole], 1..20);
    let [received, refused] = [Cell::new(0), Cell::new(0)];
    let checked = runner().run(&(said, 1_usize..40), |(said, piece)| {
        let (wire, mut channel) = channel();
        for piece in said.concat().chunks(piece) {
            if !wire.send_raw(piece, &[]) {
                break;
            }
            loop {
                match channel.receive() {
                    Ok(Some(_)) => received.set(received.get() + 1),
                    Ok(None) => break,
                    Err(_) => {
                        refused.set(refused.get() + 1);
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    });
    checked.unwrap();
    let counts = (received.get(), refused.get());
    assert!(counts.0 > 400 && counts.1 > 400, "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_round_trip(value: u64, ring in 0_u32..32, size: u32, base: u16, places: [u64; 3]) {
        let decoded = |request, payload: Vec<u8>| decode(&header(request, &payload), &payload, 0).unwrap();
        let at = ring as usize;
        prop_assert_eq!(decoded(2, number(value)), Request::SetFeatures(value));
        prop_assert_eq!(decoded(8, state(ring, size)), Request::SetVringNum(at, size));
        prop_assert_eq!(decoded(10, state(ring, base.into())), Request::SetVringBase(at, base));
        let [descriptors, used, available] = places;
        let expected = Request::SetVringAddr(at, RingAddresses { descriptors, used, available, log: None });
        prop_assert_eq!(decoded(9, addresses(ring, descriptors, used, available)), expected);
        let logged = RingAddresses { descriptors, used, available, log: Some(value) };
        prop_assert_eq!(decoded(9, wire::logged_addresses(ring, [descriptors, used, available], value)), Request::SetVringAddr(at, logged));
    }

    #[test]
    fn regions_round_trip(regions in prop::collection::vec(any::<[u64; 4]>(), 1..=8)) {
        let mut payload = state(regions.len() as u32, 0);
        for [guest, size, user, offset] in &regions {
            payload.extend(Region { guest: *guest, size: *size, user: *user, offset: *offset }.to_bytes());
        }
        let expected = regions.iter().map(|[guest, size, user, offset]| RegionInfo { guest: *guest, size: *size, user: *user, offset: *offset }).collect();
        let decoded = decode(&header(5, &payload), &payload, regions.len()).unwrap();
        prop_assert_eq!(decoded, Request::SetMemTable(expected));
    }
}
