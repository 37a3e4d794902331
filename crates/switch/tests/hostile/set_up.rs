//! Invalid configurations of rings.

use super::*;

/// Starts ring 1 at these addresses of a front-end with 1 MiB of memory; returns the fault.
fn start_at(size: u32, place: [u64; 3]) -> String {
    let ram = Ram::new(1 << 20);
    let base = ram.regions()[0].user;
    let [descriptors, used, available] = place.map(|at| base.wrapping_add(at));
    let fds = junk(1);
    with_wire(|wire| {
        let table = [state(1, 0), ram.regions()[0].to_bytes()].concat();
        wire.send(request::SET_MEM_TABLE, &table, &[ram.fd()]);
        wire.send(request::SET_VRING_NUM, &state(1, size), &[]);
        let place = addresses(1, descriptors, used, available);
        wire.send(request::SET_VRING_ADDR, &place, &[]);
        wire.send(request::SET_VRING_KICK, &number(1), &borrowed(&fds));
    })
}

#[test]
fn ring_outside_memory() {
    let end = 1 << 20;
    assert_names(
        &start_at(256, [end, 0, 0]),
        "descriptor table is not in guest memory",
    );
    assert_names(
        &start_at(256, [end - 4080, 0, 0]),
        "descriptor table is not",
    );
    assert_names(&start_at(256, [0, end - 2052, 0]), "used ring is not");
    assert_names(&start_at(256, [0, 0, end - 516]), "available ring is not");
    assert_names(
        &start_at(256, [u64::MAX - 1024, 0, 0]),
        "descriptor table is not",
    );
    assert_names(
        &start_at(256, [0_u64.wrapping_sub(0x7f00_0000_1000), 0, 0]),
        "descriptor table is not",
    );
}

#[test]
fn ring_that_is_not_aligned() {
    assert_names(&start_at(256, [8, 0, 0]), "not aligned");
    assert_names(&start_at(256, [0, 2, 0]), "not aligned");
    assert_names(&start_at(256, [0, 0, 1]), "not aligned");
}

#[test]
fn ring_of_impossible_size() {
    for size in [0, 3, 65_536, u32::MAX] {
        assert_names(&start_at(size, [0; 3]), "not a power of two");
    }
}

#[test]
fn a_kick_before_the_ring_is_described() {
    let fds = junk(1);
    let text = with_wire(|wire| {
        wire.send(request::SET_VRING_KICK, &number(0), &borrowed(&fds));
    });
    assert_names(&text, "started before its size and addresses");
}

#[test]
fn a_running_ring_is_not_resized() {
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_VRING_NUM, &state(0, 128), &[])));
    assert_names(&text, "changes ring 0 while it runs");
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_VRING_BASE, &state(1, 5), &[])));
    assert_names(&text, "changes ring 1 while it runs");
}

#[test]
fn a_base_past_the_last_index() {
    let text = with_wire(|wire| ignore(wire.send(request::SET_VRING_BASE, &state(0, 65_536), &[])));
    assert_names(&text, "message 10");
}

#[test]
fn a_kick_descriptor_that_does_not_signal() {
    let ram = Ram::new(1 << 20);
    let text = with_nic(|nic| {
        ignore(
            nic.wire
                .send(request::SET_VRING_KICK, &number(1), &[ram.fd()]),
        );
    });
    assert_names(&text, "descriptor");
}

/// Causes a call of the guest: enables calls, and sends a frame.
fn have_called(nic: &mut Nic) {
    nic.tx.ask_for_call();
    // The frame is for the guest itself, so that no other port gets it.
    let bytes = frame::numbered(frame::mac(1), frame::mac(BAD), 0, 13 + 17);
    nic.send(&bytes[..13], Layout::One);
}

/// A pipe with and without a reader, a socket, memory, and an epoll descriptor (which has no file type,
/// like an eventfd): writing to, polling or closing these could block.
#[test]
fn event_descriptors_of_the_wrong_kind() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let ram = Ram::new(4096);
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let all = [&read, &write, &epoll].map(AsFd::as_fd);
    for fd in all.into_iter().chain([socket.as_fd(), ram.fd()]) {
        for (request, payload) in [
            (request::SET_VRING_KICK, number(1)),
            (request::SET_VRING_CALL, number(1)),
            (request::SET_VRING_ERR, number(1)),
            (request::SET_LOG_FD, Vec::new()),
        ] {
            let text = with_nic(|nic| ignore(nic.wire.send(request, &payload, &[fd])));
            assert_names(&text, "a descriptor of the wrong kind");
        }
    }
    let region = [vec![0; 8], ram.regions()[0].to_bytes()].concat();
    let text = with_nic(|nic| {
        ignore(
            nic.wire
                .send(request::REM_MEM_REG, &region, &[socket.as_fd()]),
        );
    });
    assert_names(&text, "a descriptor of the wrong kind");
}

/// The front-end shares the descriptor's flags. It makes the descriptor blocking again, and fills the counter.
#[test]
fn a_call_descriptor_that_is_made_to_block() {
    let text = with_nic(|nic| {
        let call = nic.tx.call_fd();
        let _ = nic.tx.calls();
        let flags = rustix::fs::fcntl_getfl(call).unwrap();
        rustix::fs::fcntl_setfl(call, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        have_called(nic);
    });
    assert_names(
        &text,
        "the front-end filled its call descriptor and made it block",
    );
}

#[test]
fn a_call_descriptor_that_would_block() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let full = event();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let nic = plane.nic(BAD, Options::default());
    nic.wire
        .send(request::SET_VRING_CALL, &number(0), &[full.as_fd()]);
    nic.sync();
    nic.rx.ask_for_call();
    for number in 0..3 {
        let bytes = frame::numbered(frame::BROADCAST, frame::mac(1), number, 60);
        a.wait_to_send(&bytes, Layout::One);
        assert_eq!(b.wait_to_receive().frame, bytes);
    }
    exchange((&mut a, 1), (&mut b, 2), 100, 100);
}
