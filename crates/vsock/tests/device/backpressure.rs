//! Receivers without buffers.

use std::time::{Duration, Instant};

use front_end::{VsockDevice, VsockOptions};
use vsock::header::{Header, Operation};
use vsock::limits::{MAX_DEFERRED_PACKETS, STUCK_TIMEOUT};

use crate::rig::{Rig, establish, header, operations, received, send};

const CLIENT: (usize, u32) = (0, 1024);
const SERVER: (usize, u32) = (1, 22);
const OTHER: (usize, u32) = (2, 22);

/// Connects guest 0 to guest 1, which posts no further buffer. The response is in the server's ring afterwards.
fn connect(rig: &mut Rig, client: &mut VsockDevice, server: &mut VsockDevice) {
    send(client, &header(Operation::Request, CLIENT, SERVER, 0), &[]);
    rig.turn();
    server.receive().unwrap();
    send(server, &header(Operation::Response, SERVER, CLIENT, 0), &[]);
}

#[test]
fn a_packet_waits_in_the_ring_of_its_sender_and_continues_where_it_was() {
    let mut rig = Rig::new(2);
    let mut client = rig.boot(0);
    let mut server = rig.boot_with(1, VsockOptions::default(), 3);
    connect(&mut rig, &mut client, &mut server);
    rig.turn();
    let payload: Vec<u8> = (0..65_536_u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..3 {
        send(
            &mut client,
            &header(Operation::ReadWrite, CLIENT, SERVER, 65_536),
            &payload,
        );
    }
    let mut bytes = Vec::new();
    for round in 0.. {
        rig.turn();
        while let Some((header, piece)) = server.receive() {
            assert_eq!(Header::from_bytes(&header).op, Operation::ReadWrite as u16);
            bytes.extend(piece);
        }
        if bytes.len() == 3 << 16 {
            break;
        }
        assert!(round < 200, "{} bytes", bytes.len());
        // One or two buffers at a time.
        server.post(1 + round % 2);
    }
    assert_eq!(bytes, payload.repeat(3));
    assert_eq!(rig.plane.figures(0).deferred, 0, "it never left the ring");
}

#[test]
fn a_receiver_that_never_reads_delays_no_connection_to_others() {
    let mut rig = Rig::new(3);
    let (mut client, mut other) = (rig.boot(0), rig.boot(2));
    let mut silent = rig.boot_with(1, VsockOptions::default(), 1);
    establish(&mut rig, (&mut client, CLIENT), (&mut other, OTHER));
    connect(&mut rig, &mut client, &mut silent);
    rig.turn();
    assert_eq!(operations(&mut client), [Operation::Response]);
    let mut order = Vec::new();
    for number in 0..500_u32 {
        let text = number.to_le_bytes();
        send(
            &mut client,
            &header(Operation::ReadWrite, CLIENT, SERVER, 4),
            &text,
        );
        send(
            &mut client,
            &header(Operation::ReadWrite, CLIENT, OTHER, 4),
            &text,
        );
        rig.turn();
        let [(_, bytes)] = received(&mut other).try_into().unwrap();
        assert_eq!(bytes, text, "at once, and in order");
        order.push(number);
    }
    assert_eq!(rig.plane.figures(0).deferred, 500);
    // It reads again, and gets everything in order.
    let mut numbers = Vec::new();
    for _ in 0..100 {
        silent.post(10);
        rig.turn();
        while let Some((_, bytes)) = silent.receive() {
            numbers.push(u32::from_le_bytes(bytes.try_into().unwrap()));
        }
    }
    assert_eq!(numbers, order);
    assert_eq!(rig.plane.figures(1).received_bytes, 4 * 500);
    assert_eq!(rig.plane.figures(0).stuck, 0);
}

#[test]
fn a_packet_for_another_receiver_that_comes_later_passes_one_that_waits() {
    let mut rig = Rig::new(3);
    let (mut client, mut other) = (rig.boot(0), rig.boot(2));
    let mut silent = rig.boot_with(1, VsockOptions::default(), 1);
    establish(&mut rig, (&mut client, CLIENT), (&mut other, OTHER));
    connect(&mut rig, &mut client, &mut silent);
    for _ in 0..60 {
        send(
            &mut client,
            &header(Operation::ReadWrite, CLIENT, SERVER, 1),
            b"x",
        );
    }
    rig.turn();
    send(
        &mut client,
        &header(Operation::ReadWrite, CLIENT, OTHER, 1),
        b"y",
    );
    rig.turn();
    assert_eq!(received(&mut other)[0].1, b"y");
}

#[test]
fn when_the_room_for_its_packets_is_used_up_only_connections_to_the_stuck_receiver_are_reset() {
    let mut rig = Rig::new(3);
    let (mut client, mut other) = (rig.boot(0), rig.boot(2));
    let mut silent = rig.boot_with(1, VsockOptions::default(), 1);
    establish(&mut rig, (&mut client, CLIENT), (&mut other, OTHER));
    connect(&mut rig, &mut client, &mut silent);
    rig.turn();
    operations(&mut client);
    // More than there is room for; the last ones stay in the ring, and block it.
    let mut sent = 0;
    let mut delivered = 0;
    while sent < MAX_DEFERRED_PACKETS + 10 {
        let to_silent = header(Operation::ReadWrite, CLIENT, SERVER, 1);
        let to_other = header(Operation::ReadWrite, CLIENT, OTHER, 1);
        if !client.send(&to_silent.to_bytes(), b"x") || !client.send(&to_other.to_bytes(), b"y") {
            break;
        }
        sent += 1;
        rig.turn();
        delivered += received(&mut other).len();
    }
    assert!(
        delivered >= MAX_DEFERRED_PACKETS - 1 && delivered < sent,
        "{delivered} of {sent}"
    );
    let waited = Instant::now();
    while rig.plane.figures(0).stuck == 0 {
        assert!(waited.elapsed() < 10 * STUCK_TIMEOUT);
        std::thread::sleep(Duration::from_millis(20));
        rig.turn();
    }
    rig.turn();
    delivered += received(&mut other).len();
    assert_eq!(delivered, sent, "the other connection lost nothing");
    let mut told = operations(&mut client);
    told.dedup();
    assert_eq!(told, [Operation::Reset]);
    silent.post(10);
    rig.turn();
    assert_eq!(operations(&mut silent), [Operation::Reset]);
    send(
        &mut client,
        &header(Operation::ReadWrite, CLIENT, OTHER, 1),
        b"z",
    );
    rig.turn();
    assert_eq!(received(&mut other)[0].1, b"z");
}

#[test]
fn guests_that_wait_for_each_other_continue() {
    let mut rig = Rig::new(2);
    let mut one = rig.boot_with(0, VsockOptions::default(), 1);
    let mut two = rig.boot_with(1, VsockOptions::default(), 1);
    connect(&mut rig, &mut one, &mut two);
    rig.turn();
    one.receive().unwrap();
    // Neither posts buffers before the other one has taken all its packets.
    for _ in 0..60 {
        send(
            &mut one,
            &header(Operation::ReadWrite, CLIENT, SERVER, 1),
            b"x",
        );
        send(
            &mut two,
            &header(Operation::ReadWrite, SERVER, CLIENT, 1),
            b"y",
        );
    }
    rig.turn();
    one.take_sent();
    two.take_sent();
    let waiting = one.tx.outstanding().min(two.tx.outstanding());
    assert_eq!(waiting, 0, "packets of one of them were copied out");
    for device in [&mut one, &mut two] {
        device.post(usize::MAX);
    }
    rig.turn();
    assert_eq!(
        (received(&mut one).len(), received(&mut two).len()),
        (60, 60)
    );
}
