//! When a driver learns that its packets were handled (`report.rs` of the crate).

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use front_end::VsockDevice;
use vsock::header::Operation;
use vsock::limits::REPORT_DELAY;

use crate::rig::{Rig, establish, header, received, send};

const CLIENT: (usize, u32) = (0, 1024);
const SERVER: (usize, u32) = (1, 22);

fn send_data(rig: &mut Rig, client: &mut VsockDevice) {
    send(
        client,
        &header(Operation::ReadWrite, CLIENT, SERVER, 1),
        &[7],
    );
    rig.turn();
}

#[test]
fn section_2_7_8_data_is_reported_by_quarters_of_the_ring_and_the_rest_after_a_pause() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    let quarter = 128 / 4;
    let began = client.tx.used_index();
    let mut counts = Vec::new();
    let started = Instant::now();
    for _ in 0..2 * quarter {
        send_data(&mut rig, &mut client);
        assert_eq!(received(&mut server).len(), 1, "delivered at once");
        counts.push(client.tx.used_index().wrapping_sub(began));
    }
    // A machine that pauses the test for longer than the delay reports more often.
    if started.elapsed() < REPORT_DELAY {
        counts.dedup();
        assert_eq!(counts, [0, quarter, 2 * quarter]);
    }
    send_data(&mut rig, &mut client);
    std::thread::sleep(2 * REPORT_DELAY);
    rig.turn();
    assert_eq!(client.tx.used_index().wrapping_sub(began), 2 * quarter + 1);
}

#[test]
fn a_pause_ends_the_wait_of_the_device_itself() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    let began = client.tx.used_index();
    send_data(&mut rig, &mut client);
    // Without an end of the pause, only this supervisor would end the wait.
    let (supervisor, mut theirs) = UnixStream::pair().unwrap();
    rig.plane.watch_control(supervisor.as_fd()).unwrap();
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        theirs.write_all(b"x")
    });
    assert!(!rig.plane.wait(false).unwrap(), "the supervisor ended it");
    late.join().unwrap().unwrap();
    rig.plane.work();
    assert_eq!(client.tx.used_index().wrapping_sub(began), 1);
}

#[test]
fn packets_that_begin_or_end_a_connection_are_reported_at_once() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    for (operation, to) in [
        (Operation::Request, SERVER),
        (Operation::Reset, SERVER),
        (Operation::Request, (96, 22)),
    ] {
        let began = client.tx.used_index();
        send(&mut client, &header(operation, CLIENT, to, 0), &[]);
        rig.turn();
        assert_eq!(
            client.tx.used_index().wrapping_sub(began),
            1,
            "{operation:?}"
        );
        received(&mut server);
    }
}

#[test]
fn a_ring_that_stops_has_reported_all() {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    establish(&mut rig, (&mut client, CLIENT), (&mut server, SERVER));
    send_data(&mut rig, &mut client);
    let base = client.stop_ring(1, || rig.turn());
    assert_eq!(client.tx.used_index(), base);
}
