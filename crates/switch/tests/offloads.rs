//! Offloads: frames that a receiver accepts unchanged, and frames that are translated for it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use common::{Plane, learn_addresses, lost};
use front_end::{Layout, Nic, Options, features, frame};

/// The network header of a TCP over IPv4 GSO frame with segments of `mss` bytes.
fn gso_header(mss: u16) -> Vec<u8> {
    net_header(1, 1, mss)
}

fn net_header(flags: u8, gso: u8, mss: u16) -> Vec<u8> {
    let mut header = vec![flags, gso];
    for word in [54, mss, frame::TCP_START as u16, 16, 0] {
        header.extend(word.to_le_bytes());
    }
    header
}

fn payload(length: usize) -> Vec<u8> {
    (0..length)
        .map(|byte| (byte * 7 + byte / 251) as u8)
        .collect()
}

fn two(plane: &mut Plane, receiver: Options) -> [Nic; 2] {
    let sender = Options {
        features: features::LINUX,
        ..Options::default()
    };
    let mut nics = [plane.nic(1, sender), plane.nic(2, receiver)];
    learn_addresses(&mut nics, &[1, 2]);
    nics
}

#[test]
fn a_receiver_that_negotiated_gso_gets_64_kb_whole_in_mergeable_buffers() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(
        &mut plane,
        Options {
            features: features::LINUX,
            ..Options::default()
        },
    );
    for layout in [Layout::One, Layout::Pieces(4096), Layout::Indirect(1000)] {
        let bytes = frame::tcp(frame::mac(2), frame::mac(1), 1, &payload(65_000));
        assert!(a.send_with(&gso_header(1448), &bytes, layout));
        let got = b.wait_to_receive();
        assert_eq!(got.frame, bytes);
        assert_eq!(got.header[..10], gso_header(1448)[..10]);
        assert_eq!(usize::from(got.buffers), (bytes.len() + 12).div_ceil(1600));
    }
    let counters = plane.counters(2);
    assert_eq!((counters.segmented, counters.checksummed), (0, 0));
}

#[test]
fn a_receiver_without_mergeable_buffers_gets_64_kb_whole_in_big_ones() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(
        &mut plane,
        Options {
            features: features::LINUX & !features::MRG_RXBUF,
            receive_bytes: 65_562,
            receive_layout: Layout::Pieces(4096),
            size: 256,
            ..Options::default()
        },
    );
    for _ in 0..40 {
        let bytes = frame::tcp(frame::mac(2), frame::mac(1), 1, &payload(65_000));
        assert!(a.send_with(&gso_header(1448), &bytes, Layout::One));
        assert_eq!(b.wait_to_receive().frame, bytes);
    }
}

#[test]
fn a_receiver_with_small_unmergeable_buffers_loses_only_what_does_not_fit() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(
        &mut plane,
        Options {
            features: features::LINUX & !features::MRG_RXBUF,
            ..Options::default()
        },
    );
    let bytes = frame::tcp(frame::mac(2), frame::mac(1), 1, &payload(65_000));
    assert!(a.send_with(&gso_header(1448), &bytes, Layout::One));
    let small = frame::numbered(frame::mac(2), frame::mac(1), 5, 1500);
    a.wait_to_send(&small, Layout::One);
    assert_eq!(b.wait_to_receive().frame, small);
    a.wait_until_sent();
    assert_eq!(plane.counters(1).drops.receiver_small, 1);
}

#[test]
fn a_receiver_without_tso_gets_finished_segments() {
    for (taken, partial) in [
        (features::PLAIN, false),
        (features::PLAIN | features::GUEST_CSUM, true),
    ] {
        let mut plane = Plane::new();
        let [mut a, mut b] = two(
            &mut plane,
            Options {
                features: taken,
                ..Options::default()
            },
        );
        let data = payload(65_000);
        let bytes = frame::tcp(frame::mac(2), frame::mac(1), 77, &data);
        assert!(a.send_with(&gso_header(1448), &bytes, Layout::Pieces(3000)));
        let mut got = Vec::new();
        while got.len() < data.len() {
            let received = b.wait_to_receive();
            assert_eq!(received.header[1], 0, "a segment is not a GSO frame");
            assert_eq!(received.header[0] & 1 != 0, partial);
            let mut segment = received.frame;
            if partial {
                finish(&mut segment, &received.header);
            }
            let (sequence, part) = frame::checked_tcp(&segment);
            assert_eq!(sequence, 77 + got.len() as u32);
            assert!(part.len() == 1448 || got.len() + part.len() == data.len());
            got.extend(part);
        }
        assert_eq!(got, data);
        assert_eq!(plane.counters(2).segmented, 1);
        assert_eq!(lost(&plane.counters(1).drops), 0);
    }
}

/// Completes a partial checksum as a driver does.
fn finish(frame: &mut [u8], header: &[u8]) {
    let start = usize::from(u16::from_le_bytes([header[6], header[7]]));
    let field = start + usize::from(u16::from_le_bytes([header[8], header[9]]));
    let sum = frame::internet_checksum(0, &frame[start..]);
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn a_receiver_without_csum_gets_finished_checksums() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, Options::default());
    for length in [0, 1, 2, 999, 1400] {
        let data = payload(length);
        let bytes = frame::tcp(frame::mac(2), frame::mac(1), 3, &data);
        assert!(a.send_with(&net_header(1, 0, 0), &bytes, Layout::One));
        let received = b.wait_to_receive();
        assert_eq!(received.header[..10], [0; 10]);
        assert_eq!(frame::checked_tcp(&received.frame), (3, data));
    }
    assert_eq!(plane.counters(2).checksummed, 5);
}

#[test]
fn a_segmented_frame_survives_a_receiver_that_posts_few_buffers() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, Options::default());
    b.options.post = false;
    b.restart();
    plane.running(2);
    let data = payload(60_000);
    let bytes = frame::tcp(frame::mac(2), frame::mac(1), 0, &data);
    assert!(a.send_with(&gso_header(1000), &bytes, Layout::One));
    let mut got = Vec::new();
    while got.len() < data.len() {
        b.post(7);
        b.rx.publish_and_kick();
        for _ in 0..7.min((data.len() - got.len()).div_ceil(1000)) {
            let (sequence, part) = frame::checked_tcp(&b.wait_to_receive().frame);
            assert_eq!(
                sequence as usize,
                got.len(),
                "no segment twice, none missing"
            );
            got.extend(part);
        }
    }
    assert_eq!(got, data);
    a.wait_until_sent();
    assert_eq!(lost(&plane.counters(1).drops), 0);
}

#[test]
fn a_partly_segmented_frame_resumes_after_it_was_deferred() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, Options::default());
    b.options.post = false;
    b.restart();
    plane.running(2);
    let mut c = plane.nic(3, Options::default());
    let hello = frame::numbered(frame::mac(1), frame::mac(3), 0, 60);
    c.wait_to_send(&hello, Layout::One);
    assert_eq!(a.wait_to_receive().frame, hello);
    let sent = payload(10_000);
    let bytes = frame::tcp(frame::mac(2), frame::mac(1), 0, &sent);
    b.post(4);
    b.rx.publish_and_kick();
    assert!(a.send_with(&gso_header(1000), &bytes, Layout::One));
    let mut got = Vec::new();
    let mut take = |b: &mut Nic, segments: usize| {
        for _ in 0..segments {
            let (sequence, part) = frame::checked_tcp(&b.wait_to_receive().frame);
            assert_eq!(sequence as usize, got.len());
            got.extend(part);
        }
    };
    take(&mut b, 4);
    // The rest of the frame blocks this one, and is deferred.
    let other = frame::numbered(frame::mac(3), frame::mac(1), 7, 60);
    assert!(a.send_with(&net_header(0, 0, 0), &other, Layout::One));
    assert_eq!(c.wait_to_receive().frame, other);
    a.wait_until_sent();
    for segments in [4, 2] {
        b.post(4);
        b.rx.publish_and_kick();
        take(&mut b, segments);
    }
    assert_eq!(got, sent);
    assert_eq!(lost(&plane.counters(1).drops), 0);
}

#[test]
fn a_frame_that_cannot_be_translated_is_dropped_and_counted() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane, Options::default());
    // A TCP GSO header on a frame that is not IP.
    let bytes = frame::numbered(frame::mac(2), frame::mac(1), 1, 4000);
    assert!(a.send_with(&gso_header(1000), &bytes, Layout::One));
    let good = frame::numbered(frame::mac(2), frame::mac(1), 2, 100);
    a.wait_to_send(&good, Layout::One);
    assert_eq!(b.wait_to_receive().frame, good);
    a.wait_until_sent();
    assert_eq!(plane.counters(1).drops.untranslatable, 1);
}
