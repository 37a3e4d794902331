//! The bytes that the switch checked are those that it delivers.

use front_end::{Layout, Nic, frame};
use switch::guard::Rules;

use crate::common::Plane;
use crate::frames::{arp, ipv4, ipv6, own, udp};
use crate::{assert_lost, assert_nothing, nics};

#[test]
fn a_partial_checksum_must_be_the_transport_headers() {
    let mut plane = Plane::new();
    let [mut a, mut b] = nics(&mut plane, [own(), Rules::default()]);
    let me = [10, 0, 0, 1];
    let header = |start: u8, offset: u8| [1, 0, 0, 0, 0, 0, start, 0, offset, 0, 0, 0];
    let four = |protocol| ipv4(me, protocol, 0, 0, &[0; 40]);
    let echo = [&[128, 0, 0, 0][..], &[0; 36]].concat();
    let six = ipv6("fd00::1", 58, &echo);
    for (bytes, start, offset) in [
        (four(6), 34, 16),
        (ipv4(me, 17, 0, 0, &udp(1000, 53)), 34, 6),
        (four(132), 34, 8),
        (six, 54, 2),
    ] {
        assert!(a.send_with(&header(start, offset), &bytes, Layout::One));
        let got = b.wait_to_receive();
        assert_eq!((got.frame, got.header[0]), (bytes, 1), "{start} {offset}");
    }
    a.wait_until_sent();
    // A checksum that begins elsewhere, one of a protocol without a checksum, and checksums of later fragments.
    let fragment = [&[17, 0, 1, 0, 0, 0, 0, 9][..], &udp(1, 2)].concat();
    for (bytes, start, offset) in [
        (ipv4(me, 17, 0, 0, &udp(1000, 53)), 20, 6),
        (four(47), 34, 0),
        (ipv4(me, 17, 0x00b9, 0, &udp(1000, 53)), 34, 6),
        (ipv6("fd00::1", 44, &fragment), 62, 6),
    ] {
        assert!(a.send_with(&header(start, offset), &bytes, Layout::One));
    }
    a.wait_until_sent();
    assert_lost(&mut plane, 1, |drops| drops.not_understood, 4);
    assert_nothing(&mut b);
}

#[test]
fn a_checksum_is_not_written_over_checked_bytes() {
    let mut plane = Plane::new();
    let [mut a, mut b] = nics(&mut plane, [own(), Rules::default()]);
    let bytes = ipv4([10, 0, 0, 1], 17, 0, 0, &udp(1000, 53));
    let header = |start: u8, offset: u8| [1, 0, 0, 0, 0, 0, start, 0, offset, 0, 0, 0];
    // Into the source address, into the ports, and from another start.
    for (start, offset) in [(14, 12), (34, 0), (26, 14), (34, 2)] {
        assert!(a.send_with(&header(start, offset), &bytes, Layout::One));
    }
    let arp = arp(2, frame::mac(1), [10, 0, 0, 1]);
    assert!(a.send_with(&header(14, 14), &arp, Layout::One));
    a.wait_until_sent();
    let drops = plane.counters(1).drops;
    assert_eq!(
        (drops.not_understood, drops.arp_spoofed),
        (4, 1),
        "{drops:?}"
    );
    assert!(a.send_with(&header(34, 6), &bytes, Layout::One));
    let got = b.wait_to_receive();
    assert_eq!((got.frame, got.header[6]), (bytes, 34));
}

#[test]
fn the_bytes_that_were_checked_are_delivered() {
    const TIMES: usize = 20_000;
    let mut plane = Plane::new();
    let [mut a, mut b] = nics(&mut plane, [own(), Rules::default()]);
    let honest = arp(2, frame::mac(1), [10, 0, 0, 1]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ram = std::sync::Arc::clone(&a.ram);
    // The position of the sender's address in every buffer from which the NIC sends.
    let places: Vec<u64> = a.send_places().map(|place| place + 12 + 28).collect();
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for last in [2, 1] {
                    for place in &places {
                        ram.write(*place, &[10, 0, 0, last]);
                    }
                }
            }
        });
        let mut seen = 0;
        let receive = |b: &mut Nic, seen: &mut usize| {
            while let Some(received) = b.receive() {
                assert_eq!(received.frame, honest, "a forged frame came through");
                *seen += 1;
            }
        };
        for _ in 0..TIMES {
            a.wait_to_send(&honest, Layout::One);
            receive(&mut b, &mut seen);
        }
        a.wait_until_sent();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        receive(&mut b, &mut seen);
        seen
    });
    let counters = plane.counters(1);
    let lost = counters.drops.arp_spoofed as usize + plane.counters(2).drops.receiver_full as usize;
    assert_eq!(seen + lost, TIMES, "{counters:?}");
}
