//! Rate limits of a port. The limits of one port do not affect other ports.

use std::time::{Duration, Instant};

use front_end::wire::request;
use front_end::{Layout, Nic, frame};
use switch::control::{Drops, Order, PortId};
use switch::guard::{FloodRules, LimitRules, RateRules, Rules};
use switch::mac::Mac;

use crate::common::{Outside, Plane, exchange};
use crate::{assert_nothing, nics, send};

fn frames(rate: u64, burst_ms: u32) -> RateRules {
    RateRules {
        frames: Some(rate),
        burst_ms,
        ..RateRules::default()
    }
}

fn bytes(rate: u64, burst_ms: u32) -> RateRules {
    RateRules {
        bytes: Some(rate),
        burst_ms,
        ..RateRules::default()
    }
}

fn sends(send: RateRules) -> Rules {
    let limits = LimitRules {
        send,
        ..LimitRules::default()
    };
    Rules {
        limits,
        ..Rules::default()
    }
}

fn receives(receive: RateRules) -> Rules {
    let limits = LimitRules {
        receive,
        ..LimitRules::default()
    };
    Rules {
        limits,
        ..Rules::default()
    }
}

fn floods(floods: FloodRules) -> Rules {
    let limits = LimitRules {
        floods,
        ..LimitRules::default()
    };
    Rules {
        limits,
        ..Rules::default()
    }
}

/// Attaches a NIC for each set of rules, at ports 1 and up; the FDB has learnt their addresses.
fn learnt<const N: usize>(plane: &mut Plane, rules: [Rules; N]) -> [Nic; N] {
    for port in (1..).take(N) {
        let mac = Mac::from_octets(frame::mac(port));
        let port = PortId(port);
        plane.order(&Order::SetFdbEntry { mac, vlan: 0, port }, None);
    }
    nics(plane, rules)
}

fn to(station: u16, from: u16, number: u64, length: usize) -> Vec<u8> {
    frame::numbered(frame::mac(station), frame::mac(from), number, length)
}

#[test]
fn what_is_over_the_limit_waits_in_the_ring_and_none_is_lost() {
    const COUNT: u64 = 300;
    for (rules, seconds) in [
        // 0.3 s without the burst; the same for frames of 1000 bytes.
        (frames(1000, 10), 0.28),
        (bytes(1_000_000, 10), 0.28),
    ] {
        let mut plane = Plane::new();
        let mut nics = learnt(&mut plane, [sends(rules), Rules::default()]);
        let begin = Instant::now();
        let [a, b] = &mut nics;
        exchange((a, 1), (b, 2), COUNT, 1000);
        assert!(begin.elapsed() >= Duration::from_secs_f64(seconds));
        let counters = plane.counters(1);
        assert_eq!(counters.tx_frames, COUNT);
        assert_eq!(counters.drops, Drops::default());
        assert_eq!(plane.counters(2).drops, Drops::default());
        assert!(counters.limited > 0, "{counters:?}");
    }
}

#[test]
fn a_port_at_its_send_rate_does_not_delay_others() {
    let mut plane = Plane::new();
    // The rate allows the next frame after three hours.
    let rules = bytes(1, 1);
    let mut nics = learnt(
        &mut plane,
        [sends(rules), Rules::default(), Rules::default()],
    );
    let [a, b, c] = &mut nics;
    for number in 0..20 {
        assert!(a.send(&to(2, 1, number, 10_000), Layout::One));
    }
    assert_eq!(b.wait_to_receive().frame, to(2, 1, 0, 10_000));
    exchange((c, 3), (b, 2), 1000, 1500);
    // Frames from other ports to this port arrive, too.
    exchange((c, 3), (a, 1), 1000, 60);
    a.reclaim();
    assert_eq!(a.in_flight(), 19);
    assert_eq!(plane.counters(1).drops, Drops::default());
    // New rules apply at once, also to frames that wait.
    plane.rules(1, Rules::default());
    for number in 1..20 {
        assert_eq!(b.wait_to_receive().frame, to(2, 1, number, 10_000));
    }
    a.wait_until_sent();
}

#[test]
fn a_gso_frame_is_charged_for_its_segments() {
    let mut plane = Plane::new();
    let mut nics = learnt(&mut plane, [sends(frames(100, 1)), Rules::default()]);
    let [a, b] = &mut nics;
    let begin = Instant::now();
    // 20 segments each: the next frame waits for 0.2 s.
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    let bytes = frame::tcp(frame::mac(2), frame::mac(1), 0, &[5; 20_000]);
    for _ in 0..2 {
        assert!(a.send_with(&header, &bytes, Layout::One));
    }
    for _ in 0..2 {
        assert_eq!(b.wait_to_receive().frame, bytes);
    }
    assert!(begin.elapsed() >= Duration::from_millis(190));
    assert_eq!(plane.counters(1).drops, Drops::default());
}

#[test]
fn frames_above_the_receive_rate_are_dropped_and_the_sender_does_not_wait() {
    let mut plane = Plane::new();
    let rules = receives(bytes(1, 1));
    let mut nics = learnt(&mut plane, [Rules::default(), rules, Rules::default()]);
    let [a, b, c] = &mut nics;
    for number in 0..200 {
        a.wait_to_send(&to(2, 1, number, 500), Layout::One);
        a.wait_to_send(&to(3, 1, number, 500), Layout::One);
        assert_eq!(frame::number(&c.wait_to_receive().frame), number);
    }
    // The limit also applies to flooded frames and frames of the uplink.
    let hello = frame::numbered(frame::BROADCAST, frame::mac(1), 0, 60);
    send(a, &hello);
    assert_eq!(c.wait_to_receive().frame, hello);
    let outside = Outside::attach(&plane);
    outside.send(&[0; 12], &to(2, 90, 0, 60));
    plane.until(9, |counters| counters.tx_frames == 1);
    let after = plane.counters(2);
    // The first frame was within the limit.
    assert_eq!(b.wait_to_receive().frame, to(2, 1, 0, 500));
    assert_eq!(b.receive(), None);
    assert_eq!(after.rx_frames, 1);
    assert_eq!(after.drops.receive_limit, 201);
    assert_eq!(after.drops.total(), after.drops.receive_limit);
    assert_eq!(plane.counters(1).drops, Drops::default());
    assert_eq!(plane.counters(1).backpressured, 0);
    // The frames that the port sends are not limited.
    exchange((b, 2), (c, 3), 100, 60);
}

#[test]
fn a_port_receives_no_more_than_its_rate() {
    let mut plane = Plane::new();
    let rules = receives(frames(1000, 10));
    let begin = Instant::now();
    let mut nics = learnt(&mut plane, [Rules::default(), rules]);
    let [a, b] = &mut nics;
    for number in 0..2000 {
        a.wait_to_send(&to(2, 1, number, 60), Layout::One);
        while b.receive().is_some() {}
    }
    a.wait_until_sent();
    let after = plane.counters(2);
    let most = begin.elapsed().as_millis() as u64 + 10 + 2;
    let got = after.rx_frames;
    assert!((11..=most).contains(&got), "{got} of {most}");
    assert_eq!(got + after.drops.receive_limit, 2000);
}

#[test]
fn a_deferred_frame_is_charged_when_it_is_delivered() {
    let mut plane = Plane::new();
    let rules = receives(bytes(1, 1));
    let mut nics = learnt(&mut plane, [Rules::default(), rules, Rules::default()]);
    let [a, b, c] = &mut nics;
    b.options.post = false;
    b.restart();
    plane.running(2);
    // The first frame has no room, and blocks the second.
    for bytes in [to(2, 1, 0, 500), to(3, 1, 1, 500)] {
        assert!(a.enqueue(&[0; 12], &bytes, Layout::One));
    }
    a.tx.publish_and_kick();
    assert_eq!(c.wait_to_receive().frame, to(3, 1, 1, 500));
    b.post(1);
    b.rx.publish_and_kick();
    assert_eq!(b.wait_to_receive().frame, to(2, 1, 0, 500));
    b.post(u16::MAX);
    b.rx.publish_and_kick();
    send(a, &to(2, 1, 2, 500));
    assert_eq!(plane.counters(2).drops.receive_limit, 1);
    assert_nothing(b);
}

/// Frames that were deferred together do not pass together when the receiver posts buffers: the rate's promise
/// for any interval holds for them, too.
#[test]
fn deferred_frames_above_the_receive_rate_are_dropped() {
    const DEFERRED: u64 = 20;
    let mut plane = Plane::new();
    let rules = receives(bytes(1, 1));
    let mut nics = learnt(&mut plane, [Rules::default(), rules, Rules::default()]);
    let [a, b, c] = &mut nics;
    b.options.post = false;
    b.restart();
    plane.running(2);
    // The first frames have no room, and block the last.
    for number in 0..DEFERRED {
        // One burst each, so that the rate still admits each frame.
        assert!(a.enqueue(&[0; 12], &to(2, 1, number, 500), Layout::One));
        assert!(a.enqueue(&[0; 12], &to(3, 1, number, 500), Layout::One));
        a.tx.publish_and_kick();
        assert_eq!(c.wait_to_receive().frame, to(3, 1, number, 500));
    }
    b.post(u16::MAX);
    b.rx.publish_and_kick();
    assert_eq!(b.wait_to_receive().frame, to(2, 1, 0, 500));
    plane.until(2, |counters| {
        counters.rx_frames + counters.drops.receive_limit == DEFERRED
    });
    assert_eq!(plane.counters(2).rx_frames, 1);
    assert_eq!(plane.counters(1).drops, Drops::default());
    assert_nothing(b);
    a.wait_until_sent();
}

/// Floods frames of one kind, whose rate the rules limit.
fn flood(rules: FloodRules, destination: [u8; 6], reason: fn(&Drops) -> u64) {
    const COUNT: u64 = 100;
    let mut plane = Plane::new();
    let begin = Instant::now();
    let mut nics = learnt(&mut plane, [floods(rules), Rules::default()]);
    let [a, b] = &mut nics;
    let bytes = frame::numbered(destination, frame::mac(1), 7, 60);
    let mut got = 0;
    for number in 0..COUNT {
        send(a, &bytes);
        // Unicast frames to a known address are not limited.
        send(a, &to(2, 1, number, 60));
        loop {
            let received = b.wait_to_receive().frame;
            if received != bytes {
                assert_eq!(received, to(2, 1, number, 60));
                break;
            }
            got += 1;
        }
    }
    let drops = plane.counters(1).drops;
    // The burst is the number of frames of one second.
    let most = begin.elapsed().as_millis() as u64 / 100 + 12;
    assert!((11..=most).contains(&got), "{got} of {most}");
    assert_eq!((reason(&drops), drops.total()), (COUNT - got, COUNT - got));
    // The other port has no limit.
    for _ in 0..COUNT {
        send(b, &frame::numbered(destination, frame::mac(2), 8, 60));
    }
    let mut got = 0;
    while a.receive().is_some() {
        got += 1;
    }
    assert_eq!(got, COUNT);
}

const NONE: FloodRules = FloodRules {
    broadcast: None,
    multicast: None,
    unknown: None,
};

#[test]
fn broadcasts_are_limited() {
    let broadcast = Some(10);
    flood(
        FloodRules { broadcast, ..NONE },
        frame::BROADCAST,
        |drops| drops.broadcast_limit,
    );
}

#[test]
fn multicasts_are_limited() {
    let multicast = Some(10);
    let group = [1, 0, 0x5e, 1, 2, 3];
    flood(FloodRules { multicast, ..NONE }, group, |drops| {
        drops.multicast_limit
    });
}

#[test]
fn frames_to_unknown_destinations_are_limited() {
    let unknown = Some(10);
    flood(FloodRules { unknown, ..NONE }, frame::mac(77), |drops| {
        drops.unknown_limit
    });
}

#[test]
fn announcements_count_as_broadcasts() {
    const COUNT: u64 = 50;
    let mut plane = Plane::new();
    let broadcast = Some(1);
    let rules = floods(FloodRules { broadcast, ..NONE });
    let [a, mut b] = learnt(&mut plane, [rules, Rules::default()]);
    let [m, n, o, p, q, r] = frame::mac(1);
    for _ in 0..COUNT {
        let said = [m, n, o, p, q, r, 0, 0];
        assert!(a.wire.send(request::SEND_RARP, &said, &[]));
    }
    a.sync();
    let mut got = 0;
    while b.receive().is_some() {
        got += 1;
    }
    let lost = plane.counters(1).drops.broadcast_limit;
    assert!(got >= 1 && lost >= 1, "{got} and {lost}");
    assert_eq!(got + lost, COUNT);
}

#[test]
fn flooded_frames_of_an_uplink_with_limits_are_limited() {
    const COUNT: u64 = 50;
    let mut plane = Plane::new();
    let broadcast = Some(1);
    plane.rules(9, floods(FloodRules { broadcast, ..NONE }));
    let [mut a] = nics(&mut plane, [Rules::default()]);
    let outside = Outside::attach(&plane);
    for number in 0..COUNT {
        let hello = frame::numbered(frame::BROADCAST, frame::mac(90), number, 60);
        outside.send(&[0; 12], &hello);
    }
    plane.until(9, |counters| counters.tx_frames == COUNT);
    let mut got = 0;
    while a.receive().is_some() {
        got += 1;
    }
    let lost = plane.counters(9).drops.broadcast_limit;
    assert!(got >= 1 && lost >= 1, "{got} and {lost}");
    assert_eq!(got + lost, COUNT);
}

#[test]
fn an_excess_that_lasts_is_reported_as_a_storm() {
    let mut plane = Plane::new();
    let broadcast = Some(1);
    let rules = floods(FloodRules { broadcast, ..NONE });
    let [mut a, b] = nics(&mut plane, [rules, Rules::default()]);
    let hello = frame::numbered(frame::BROADCAST, frame::mac(1), 0, 60);
    // Sends until the storm is reported. A unit test checks that a pause ends the excess.
    let end = Instant::now() + front_end::TEST_TIMEOUT;
    while !plane.port(1).storm {
        assert!(Instant::now() < end, "{:?}", plane.port(1));
        a.wait_to_send(&hello, Layout::One);
        a.wait_until_sent();
    }
    assert!(plane.counters(1).drops.broadcast_limit > 0);
    assert!(!plane.port(2).storm);
    // The port still works.
    send(&mut a, &to(2, 1, 1, 60));
    drop(b);
}
