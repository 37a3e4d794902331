//! Guests that break rules, beside guests that do not.

use front_end::queue::Buffer;
use front_end::{VsockDevice, VsockOptions};
use vsock::header::{Header, Operation};
use vsock::limits::{MAX_INITIATED, MAX_PAYLOAD, MAX_REPLIES};

use crate::rig::{Rig, establish, header, operations, received, send};

const CLIENT: (usize, u32) = (0, 1024);
const SERVER: (usize, u32) = (1, 22);

/// Two guests with a connection, and a hostile third one.
fn beside(hostile: impl FnOnce(&mut Rig, &mut VsockDevice)) {
    let mut rig = Rig::new(3);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    let mut third = rig.boot(2);
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    hostile(&mut rig, &mut third);
    rig.turn();
    received(&mut client);
    received(&mut server);
    for _ in 0..10 {
        send(
            &mut client,
            &header(Operation::ReadWrite, CLIENT, SERVER, 5),
            b"hello",
        );
        rig.turn();
        assert_eq!(received(&mut server).last().unwrap().1, b"hello");
    }
    assert_eq!(rig.plane.figures(0).connections, 1);
}

#[test]
fn section_5_10_6_4_1_packets_in_the_name_of_another_guest_go_nowhere() {
    beside(|rig, third| {
        for operation in 1..=7 {
            let operation = Operation::from_number(operation).unwrap();
            send(third, &header(operation, CLIENT, SERVER, 0), &[]);
            send(third, &header(operation, SERVER, CLIENT, 0), &[]);
        }
        rig.turn();
        assert!(received(third).is_empty());
        assert_eq!(rig.plane.figures(2).invalid, 14);
    });
}

#[test]
fn packets_of_connections_that_do_not_exist_reach_nobody() {
    beside(|rig, third| {
        for operation in 2..=7 {
            let operation = Operation::from_number(operation).unwrap();
            for port in [22, 1024] {
                send(third, &header(operation, (2, 1024), (1, port), 0), &[]);
                send(third, &header(operation, (2, 22), (0, port), 0), &[]);
            }
        }
        rig.turn();
        let told = operations(third);
        // All but the resets are answered.
        assert_eq!(told, vec![Operation::Reset; 20]);
    });
}

#[test]
fn wrong_lengths_types_operations_and_destinations_are_refused() {
    beside(|rig, third| {
        let good = header(Operation::ReadWrite, (2, 9), SERVER, 10);
        let wrong = [
            Header { len: 11, ..good },
            Header {
                len: u32::MAX,
                ..good
            },
            Header {
                len: MAX_PAYLOAD + 1,
                ..good
            },
            Header { kind: 0, ..good },
            Header { kind: 77, ..good },
            Header { op: 0, ..good },
            Header { op: 8, ..good },
            Header { dst_cid: 0, ..good },
            Header { dst_cid: 1, ..good },
            Header {
                dst_cid: good.src_cid,
                ..good
            },
            Header {
                dst_cid: u64::MAX,
                ..good
            },
            Header {
                dst_cid: u64::from(u32::MAX),
                ..good
            },
            Header {
                op: Operation::Request as u16,
                ..good
            },
        ];
        for header in &wrong {
            send(third, header, &[0; 10]);
        }
        assert!(third.send(&[1; 43], &[]), "less than a header");
        assert!(third.send(&[1], &[]));
        rig.turn();
        let told = operations(third);
        assert_eq!(told, vec![Operation::Reset; wrong.len()]);
        assert_eq!(rig.plane.figures(2).invalid, wrong.len() as u64 + 2);
    });
}

#[test]
fn a_guest_that_reads_no_answer_stops_itself() {
    beside(|rig, third| {
        // Its buffers are used up, and it posts no more.
        let mut sent = 0;
        for _ in 0..20 {
            while third.send(
                &header(Operation::ReadWrite, (2, 9), SERVER, 0).to_bytes(),
                &[],
            ) {
                sent += 1;
            }
            rig.turn();
        }
        third.take_sent();
        let handled = sent - third.tx.outstanding();
        let most = MAX_REPLIES + 128;
        assert!(
            handled <= most,
            "{handled} packets were handled, with {most} answers"
        );
        // When it reads, it continues.
        let mut told = 0;
        for _ in 0..20 {
            told += operations(third).len();
            rig.turn();
        }
        assert_eq!(told, sent);
    });
}

#[test]
fn half_open_connections_are_limited() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    let (mut requests, mut resets) = (0, 0);
    for port in 0..10_000 {
        send(
            &mut client,
            &header(Operation::Request, (0, port), SERVER, 0),
            &[],
        );
        if port % 64 == 0 || port == 9999 {
            rig.turn();
            requests += operations(&mut server).len();
            resets += operations(&mut client).len();
        }
    }
    assert_eq!((requests, resets), (MAX_INITIATED, 10_000 - MAX_INITIATED));
    assert_eq!(rig.plane.figures(0).too_many, resets as u64);
    // The server's guest can still connect.
    establish(&mut rig, (&mut server, (1, 5)), (&mut client, (0, 22)));
}

#[test]
fn ring_faults_end_the_guest_and_nobody_else() {
    type Act = fn(&mut VsockDevice);
    let acts: [Act; 5] = [
        // A head past the table.
        |device| {
            device.tx.offer(4000);
            device.tx.publish_and_kick();
        },
        // A chain that loops.
        |device| {
            let buffer = Buffer {
                address: 0,
                length: 8,
            };
            device.tx.set_descriptor(5, buffer, 1, 5);
            device.tx.offer(5);
            device.tx.publish_and_kick();
        },
        // A buffer outside the memory.
        |device| {
            let address = 1 << 50;
            device
                .tx
                .add(&[Buffer {
                    address,
                    length: 100,
                }])
                .unwrap();
            device.tx.publish_and_kick();
        },
        // An index that runs ahead.
        |device| {
            device.tx.publish_wrong_index(30_000);
            device.tx.kick();
        },
        // A writable buffer in the transmit ring.
        |device| {
            let buffer = Buffer {
                address: 0,
                length: 44,
            };
            device.tx.set_descriptor(5, buffer, 2, 0);
            device.tx.offer(5);
            device.tx.publish_and_kick();
        },
    ];
    for act in acts {
        beside(|rig, third| {
            act(third);
            rig.turn();
            assert!(rig.stores[2].ended.is_some());
            third.wire.wait_for_hang_up();
        });
    }
}

#[test]
fn receive_buffers_without_room_for_a_packet_end_their_guest() {
    let mut rig = Rig::new(2);
    let mut client = rig.boot(0);
    let options = VsockOptions {
        receive_bytes: 44,
        ..VsockOptions::default()
    };
    let _server = rig.boot_with(1, options, usize::MAX);
    send(
        &mut client,
        &header(Operation::Request, CLIENT, SERVER, 0),
        &[],
    );
    rig.turn();
    assert!(rig.stores[1].ended.is_some());
    // Its sender is told.
    rig.turn();
    assert_eq!(operations(&mut client), [Operation::Reset]);
}

#[test]
fn a_front_end_that_ends_in_the_middle_of_a_stream_resets_it() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    for _ in 0..3 {
        let sent = header(Operation::ReadWrite, CLIENT, SERVER, 60_000);
        send(&mut client, &sent, &[1; 60_000]);
    }
    drop(server);
    rig.turn();
    let mut told = operations(&mut client);
    told.dedup();
    assert_eq!(told, [Operation::Reset]);
    let mut server = rig.boot(1);
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
}
