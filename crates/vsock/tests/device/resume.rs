//! Another process continues with the front-ends of one that was killed.

use vsock::header::Operation;

use crate::rig::{Rig, establish, header, operations, received, send};

const CLIENT: (usize, u32) = (0, 1024);
const SERVER: (usize, u32) = (1, 22);

#[test]
fn a_restart_resets_every_connection_and_new_ones_work_at_once() {
    let mut rig = Rig::new(3);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    let mut idle = rig.boot(2);
    for round in 0..5 {
        for port in 0..10 {
            establish(&mut rig, (&mut client, (0, port)), (&mut server, SERVER));
        }
        // One has ended before.
        send(
            &mut client,
            &header(Operation::Reset, (0, 3), SERVER, 0),
            &[],
        );
        rig.turn();
        assert_eq!(operations(&mut server), [Operation::Reset]);
        rig.restart();
        for (device, others) in [(&mut client, 1), (&mut server, 0)] {
            let told = received(device);
            assert_eq!(told.len(), 9, "round {round}");
            for (header, _) in told {
                assert_eq!(header.op, Operation::Reset as u16);
                assert_eq!(header.src_cid, u64::from(crate::rig::cid(others)));
            }
        }
        assert!(received(&mut idle).is_empty());
        assert_eq!(rig.plane.figures(0).connections, 0);
    }
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    send(
        &mut client,
        &header(Operation::ReadWrite, CLIENT, SERVER, 5),
        b"hello",
    );
    rig.turn();
    assert_eq!(received(&mut server)[0].1, b"hello");
}

#[test]
fn what_a_guest_sent_while_there_was_no_process_is_read_by_the_next_one() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    send(
        &mut client,
        &header(Operation::Request, CLIENT, SERVER, 0),
        &[],
    );
    rig.restart();
    assert_eq!(operations(&mut server), [Operation::Request]);
    // A front-end that disconnects meanwhile is noticed.
    drop(client);
    rig.restart();
    assert!(rig.stores[0].ended.is_some());
    let mut told = operations(&mut server);
    told.dedup();
    assert_eq!(told, [Operation::Reset]);
}
