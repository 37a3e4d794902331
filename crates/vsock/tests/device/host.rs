//! Connections between guests and host programs.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use front_end::VsockDevice;
use vsock::header::{HOST_CID, Header, Operation, SHUTDOWN_BOTH, SHUTDOWN_SEND};
use vsock::limits::{HOST_BUFFER, MAX_HANDSHAKES, MAX_HOST_STREAMS};

use crate::rig::{Rig, cid, header, operations, received, send};

/// Returns the header of a packet of guest 0 to the host.
fn to_host(op: Operation, (from, to): (u32, u32), len: u32) -> Header {
    Header {
        dst_cid: HOST_CID.into(),
        ..header(op, (0, from), (0, to), len)
    }
}

/// A guest with a socket for host programs.
fn with_socket(folder: &Path) -> (Rig, VsockDevice) {
    let mut rig = Rig::new(1);
    let guest = rig.boot(0);
    let listener = UnixListener::bind(folder.join("vm")).unwrap();
    listener.set_nonblocking(true).unwrap();
    rig.plane.listen(0, listener.into()).unwrap();
    (rig, guest)
}

fn connect(folder: &Path, line: &str) -> UnixStream {
    let mut program = UnixStream::connect(folder.join("vm")).unwrap();
    program.set_nonblocking(true).unwrap();
    program.write_all(line.as_bytes()).unwrap();
    program
}

/// Returns what has arrived, and whether it is all.
fn read(program: &mut UnixStream) -> (Vec<u8>, bool) {
    let (mut all, mut bytes) = (Vec::new(), [0; 65_536]);
    loop {
        match program.read(&mut bytes) {
            Ok(0) => return (all, true),
            Ok(count) => all.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (all, false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (all, true),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Connects a program to port 52 of the guest. Returns it with its port.
fn established(rig: &mut Rig, guest: &mut VsockDevice, folder: &Path) -> (UnixStream, u32) {
    let mut program = connect(folder, "CONNECT 52\n");
    rig.turn();
    let [(request, _)] = received(guest).try_into().unwrap();
    assert_eq!(
        (request.op, request.dst_port),
        (Operation::Request as u16, 52)
    );
    assert_eq!(
        (request.src_cid, request.buf_alloc),
        (HOST_CID.into(), HOST_BUFFER)
    );
    assert_eq!(
        read(&mut program),
        (Vec::new(), false),
        "not before the guest has answered"
    );
    let port = request.src_port;
    send(guest, &to_host(Operation::Response, (52, port), 0), &[]);
    rig.turn();
    assert_eq!(
        read(&mut program),
        (format!("OK {port}\n").into_bytes(), false)
    );
    (program, port)
}

#[test]
fn a_program_connects_to_a_guest_and_both_send_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rig, mut guest) = with_socket(folder.path());
    let (mut program, port) = established(&mut rig, &mut guest, folder.path());
    let (mut sent, mut got) = (0_u32, 0_u32);
    let (mut out, mut back) = (0_u32, 0_u32);
    let (mut host_fwd, mut host_alloc) = (0, HOST_BUFFER);
    let byte = |at: u32| (at % 251) as u8;
    const ALL: u32 = 3 << 20;
    for round in 0.. {
        assert!(round < 10_000, "{sent} {got} {out} {back}");
        // The program sends as much as its socket takes, and reads what there is.
        let bytes: Vec<u8> = (out..ALL.min(out + 30_000)).map(byte).collect();
        if let Ok(count) = program.write(&bytes) {
            out += count as u32;
        }
        let (bytes, _) = read(&mut program);
        for value in bytes {
            assert_eq!(value, byte(back));
            back += 1;
        }
        // The guest keeps to the host's credit, and tells its own.
        let credit = host_alloc - sent.wrapping_sub(host_fwd);
        let count = credit.min(40_000).min(ALL - sent);
        let payload: Vec<u8> = (sent..sent + count).map(byte).collect();
        let packet = Header {
            buf_alloc: 100_000,
            fwd_cnt: got,
            ..to_host(Operation::ReadWrite, (52, port), count)
        };
        if guest.send(&packet.to_bytes(), &payload) {
            sent += count;
        }
        rig.turn();
        for (header, bytes) in received(&mut guest) {
            (host_alloc, host_fwd) = (header.buf_alloc, header.fwd_cnt);
            for value in bytes {
                assert_eq!(value, byte(got));
                got += 1;
            }
        }
        if [sent, got, out, back] == [ALL; 4] {
            break;
        }
    }
    // The program ends one direction, then both.
    program.shutdown(std::net::Shutdown::Write).unwrap();
    rig.turn();
    let [(end, _)] = received(&mut guest).try_into().unwrap();
    assert_eq!(
        (end.op, end.flags),
        (Operation::Shutdown as u16, SHUTDOWN_SEND)
    );
    let packet = Header {
        fwd_cnt: got,
        ..to_host(Operation::ReadWrite, (52, port), 3)
    };
    send(&mut guest, &packet, b"end");
    rig.turn();
    assert_eq!(read(&mut program), (b"end".to_vec(), false));
    drop(program);
    rig.turn();
    let told = received(&mut guest);
    let (last, _) = told.last().unwrap();
    assert_eq!(
        (last.op, last.flags),
        (Operation::Shutdown as u16, SHUTDOWN_BOTH)
    );
    send(&mut guest, &to_host(Operation::Reset, (52, port), 0), &[]);
    rig.turn();
    assert_eq!(rig.plane.figures(0).connections, 0);
}

#[test]
fn a_guest_connects_to_a_program_and_the_end_of_both_directions_is_confirmed() {
    let mut rig = Rig::new(1);
    let mut guest = rig.boot(0);
    send(&mut guest, &to_host(Operation::Request, (7, 1024), 0), &[]);
    rig.turn();
    assert_eq!(rig.connects, [(0, 1024, 0)]);
    assert!(
        received(&mut guest).is_empty(),
        "not before the program is connected"
    );
    let (mut program, theirs) = UnixStream::pair().unwrap();
    program.set_nonblocking(true).unwrap();
    rig.plane.connected(0, Some(theirs.into()));
    rig.turn();
    assert_eq!(operations(&mut guest), [Operation::Response]);
    send(
        &mut guest,
        &to_host(Operation::ReadWrite, (7, 1024), 5),
        b"hello",
    );
    let flags = SHUTDOWN_BOTH;
    let end = Header {
        flags,
        ..to_host(Operation::Shutdown, (7, 1024), 0)
    };
    send(&mut guest, &end, &[]);
    rig.turn();
    assert_eq!(read(&mut program), (b"hello".to_vec(), true));
    assert_eq!(operations(&mut guest), [Operation::Reset]);
    assert_eq!(rig.plane.figures(0).connections, 0);
    // No program listens there, or the guest has given up.
    send(&mut guest, &to_host(Operation::Request, (8, 1025), 0), &[]);
    send(&mut guest, &to_host(Operation::Request, (9, 1025), 0), &[]);
    send(&mut guest, &to_host(Operation::Reset, (9, 1025), 0), &[]);
    rig.turn();
    rig.plane.connected(1, None);
    let (mut program, theirs) = UnixStream::pair().unwrap();
    rig.plane.connected(2, Some(theirs.into()));
    rig.turn();
    assert_eq!(operations(&mut guest), [Operation::Reset]);
    assert_eq!(read(&mut program), (Vec::new(), true));
}

#[test]
fn programs_that_say_nothing_or_nonsense_are_ended_and_limited() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rig, mut guest) = with_socket(folder.path());
    for line in [
        "GET / HTTP/1.1\r\n\r\n",
        "CONNECT x\n",
        "CONNECT 00000000000000000000",
    ] {
        let mut program = connect(folder.path(), line);
        rig.turn();
        assert_eq!(read(&mut program), (Vec::new(), true));
    }
    let mut silent: Vec<UnixStream> = Vec::new();
    for _ in 0..MAX_HANDSHAKES {
        silent.push(connect(folder.path(), "CONNECT"));
        rig.turn();
    }
    let mut one_more = connect(folder.path(), "CONNECT 52\n");
    rig.turn();
    assert_eq!(read(&mut one_more), (Vec::new(), true));
    // One of them says the rest.
    let mut program = silent.pop().unwrap();
    program.write_all(b" 52\n").unwrap();
    rig.turn();
    assert_eq!(operations(&mut guest), [Operation::Request]);
    // A program that hangs up before the guest answers.
    drop(program);
    rig.turn();
    assert_eq!(operations(&mut guest), [Operation::Reset]);
    drop(silent);
    rig.turn();
    established(&mut rig, &mut guest, folder.path());
}

#[test]
fn a_program_that_reads_nothing_takes_the_announced_space_and_more_is_a_reset() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rig, mut guest) = with_socket(folder.path());
    let (program, port) = established(&mut rig, &mut guest, folder.path());
    let (mut stuck, mut sent) = (false, 0_u64);
    for _ in 0..200 {
        let packet = to_host(Operation::ReadWrite, (52, port), 32 << 10);
        send(&mut guest, &packet, &[1; 32 << 10]);
        rig.turn();
        sent += 32 << 10;
        // The guest ignores the credit.
        stuck = operations(&mut guest).contains(&Operation::Reset);
        if stuck {
            break;
        }
    }
    assert!(stuck && sent >= u64::from(HOST_BUFFER), "{sent}");
    assert_eq!(rig.plane.figures(0).connections, 0);
    drop(program);
}

#[test]
fn section_5_10_6_3_a_forward_count_that_runs_backwards_or_ahead_resets_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rig, mut guest) = with_socket(folder.path());
    for fwd_cnt in [1, u32::MAX, 6] {
        let (mut program, port) = established(&mut rig, &mut guest, folder.path());
        program.write_all(b"hello").unwrap();
        rig.turn();
        received(&mut guest);
        let update = Header {
            fwd_cnt: 5,
            ..to_host(Operation::CreditUpdate, (52, port), 0)
        };
        send(&mut guest, &update, &[]);
        rig.turn();
        assert!(operations(&mut guest).is_empty());
        send(&mut guest, &Header { fwd_cnt, ..update }, &[]);
        rig.turn();
        assert_eq!(operations(&mut guest), [Operation::Reset], "{fwd_cnt}");
        assert!(read(&mut program).1);
    }
}

#[test]
fn connections_of_a_guest_to_programs_are_limited_and_end_with_it() {
    let mut rig = Rig::new(1);
    let mut guest = rig.boot(0);
    let mut resets = 0;
    for port in 0..MAX_HOST_STREAMS as u32 + 10 {
        send(
            &mut guest,
            &to_host(Operation::Request, (port, 1024), 0),
            &[],
        );
        rig.turn();
        resets += operations(&mut guest).len();
    }
    assert_eq!((resets, rig.connects.len()), (10, MAX_HOST_STREAMS));
    let (mut program, theirs) = UnixStream::pair().unwrap();
    program.set_nonblocking(true).unwrap();
    rig.plane.connected(5, Some(theirs.into()));
    rig.turn();
    assert_eq!(operations(&mut guest), [Operation::Response]);
    drop(guest);
    rig.turn();
    assert_eq!(read(&mut program), (Vec::new(), true));
    assert_eq!(rig.plane.figures(0).connections, 0);
    let _cid = cid(0);
}
