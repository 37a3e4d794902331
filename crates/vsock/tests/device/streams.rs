//! Connections between guests that keep to the rules.

use vsock::header::{END_OF_MESSAGE, Header, Operation, SHUTDOWN_BOTH, SocketType};

use crate::rig::{Rig, cid, establish, header, operations, received, send};

const CLIENT: (usize, u32) = (0, 1024);
const SERVER: (usize, u32) = (1, 22);

#[test]
fn section_5_10_6_a_stream_begins_carries_64_kb_packets_both_ways_and_ends() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    let mut sides = [(client, CLIENT), (server, SERVER)];
    for round in 0..40_u8 {
        let payload: Vec<u8> = (0..65_536_u32).map(|at| (at % 251) as u8 ^ round).collect();
        let [(source, from), (sink, to)] = &mut sides;
        let sent = Header {
            fwd_cnt: u32::from(round / 2) * 65_536,
            ..header(Operation::ReadWrite, *from, *to, 65_536)
        };
        send(source, &sent, &payload);
        rig.turn();
        let pieces = received(sink);
        assert_eq!(pieces.len(), 18, "buffers of 3776 bytes");
        for (piece, _) in &pieces {
            let whole = Header {
                len: sent.len,
                ..*piece
            };
            assert_eq!(whole, sent, "unchanged but for its length");
        }
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(bytes, payload);
        sides.swap(0, 1);
    }
    let [(mut client, _), (mut server, _)] = sides;
    let shutdown = Header {
        flags: SHUTDOWN_BOTH,
        ..header(Operation::Shutdown, CLIENT, SERVER, 0)
    };
    send(&mut client, &shutdown, &[]);
    rig.turn();
    assert_eq!(received(&mut server)[0].0, shutdown);
    send(
        &mut server,
        &header(Operation::Reset, SERVER, CLIENT, 0),
        &[],
    );
    rig.turn();
    assert_eq!(operations(&mut client), [Operation::Reset]);
    let figures = rig.plane.figures(0);
    assert_eq!((figures.connections, figures.begun), (0, 1));
    assert_eq!(
        (figures.sent_bytes, figures.received_bytes),
        (20 << 16, 20 << 16)
    );
}

#[test]
fn section_5_10_6_7_2_the_end_of_a_message_is_in_its_last_piece() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    let kind = SocketType::SeqPacket as u16;
    let header = |op, from, to, len| Header {
        kind,
        ..header(op, from, to, len)
    };
    send(
        &mut client,
        &header(Operation::Request, CLIENT, SERVER, 0),
        &[],
    );
    rig.turn();
    received(&mut server);
    send(
        &mut server,
        &header(Operation::Response, SERVER, CLIENT, 0),
        &[],
    );
    let flags = END_OF_MESSAGE;
    rig.turn();
    let sent = Header {
        flags,
        ..header(Operation::ReadWrite, CLIENT, SERVER, 9000)
    };
    send(&mut client, &sent, &[7; 9000]);
    rig.turn();
    let pieces = received(&mut server);
    let flags: Vec<_> = pieces.iter().map(|(header, _)| header.flags).collect();
    assert_eq!(flags, [0, 0, END_OF_MESSAGE]);
}

#[test]
fn section_5_10_6_3_credit_of_each_end_reaches_the_other_unchanged() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    for operation in [Operation::CreditUpdate, Operation::CreditRequest] {
        let sent = Header {
            buf_alloc: 0x1234_5678,
            fwd_cnt: 0xfedc_ba98,
            ..header(operation, SERVER, CLIENT, 0)
        };
        send(&mut server, &sent, &[]);
        rig.turn();
        assert_eq!(received(&mut client)[0].0, sent);
    }
}

#[test]
fn a_request_that_is_not_allowed_or_has_no_receiver_is_reset() {
    let mut rig = Rig::new(4);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    // Guest 2 has a front-end without a driver, guest 3 has none; nobody has CID 99.
    let _wire = rig.connect(2);
    let requests = [(1, 1), (2, 22), (3, 22), (96, 22)];
    for to in requests {
        send(&mut client, &header(Operation::Request, CLIENT, to, 0), &[]);
        rig.turn();
        let answers = received(&mut client);
        let expected = Header {
            buf_alloc: 0,
            ..header(Operation::Reset, to, CLIENT, 0)
        };
        assert_eq!(
            answers
                .iter()
                .map(|(header, _)| *header)
                .collect::<Vec<_>>(),
            [expected]
        );
    }
    assert!(received(&mut server).is_empty());
    let figures = rig.plane.figures(0);
    assert_eq!((figures.not_allowed, figures.no_connection), (1, 3));
}

#[test]
fn a_thousand_connections_at_once_do_not_mix() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    for port in 0..1000 {
        establish(&mut rig, (&mut client, (0, port)), (&mut server, SERVER));
    }
    assert_eq!(rig.plane.figures(1).connections, 1000);
    for port in 0..1000_u32 {
        let text = port.to_le_bytes();
        send(
            &mut client,
            &header(Operation::ReadWrite, (0, port), SERVER, 4),
            &text,
        );
        rig.turn();
        let [(header, bytes)] = received(&mut server).try_into().unwrap();
        assert_eq!((header.src_port, &bytes[..]), (port, &text[..]));
    }
    // The end of the server's VM resets them all.
    drop(server);
    let mut resets = 0;
    for _ in 0..100 {
        rig.turn();
        let told = received(&mut client);
        resets += told.len();
        for (header, _) in told {
            assert_eq!(header.op, Operation::Reset as u16);
            assert_eq!((header.src_cid, header.src_port), (u64::from(cid(1)), 22));
        }
    }
    assert_eq!(resets, 1000);
    assert_eq!(rig.plane.figures(0).connections, 0);
}

#[test]
fn a_driver_that_was_reset_has_no_connections_and_one_that_was_paused_has() {
    for resets in [false, true] {
        let mut rig = Rig::new(2);
        let (mut client, mut server) = (rig.boot(0), rig.boot(1));
        establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
        let bases = [0, 1].map(|ring| server.stop_ring(ring, || rig.turn()));
        rig.turn();
        assert_eq!(rig.plane.figures(0).connections, 1);
        if resets {
            server.rx.restart(0);
            server.tx.restart(0);
            server.start_rings([0, 0], || rig.turn());
        } else {
            server.start_rings(bases, || rig.turn());
        }
        rig.turn();
        let told = operations(&mut client);
        assert_eq!(told, vec![Operation::Reset; usize::from(resets)]);
        assert_eq!(rig.plane.figures(0).connections, u64::from(!resets));
        if !resets {
            send(
                &mut client,
                &header(Operation::ReadWrite, CLIENT, SERVER, 3),
                b"abc",
            );
            rig.turn();
            assert_eq!(received(&mut server)[0].1, b"abc");
        }
    }
}
