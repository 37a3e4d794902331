//! A front-end that sends any bytes: framing, decoding, and the state machine behind them.
//!
//! An input is a list of writes. The first byte has the number of descriptors in its high half and
//! a quarter of the number of bytes in its low half; then the bytes follow.
#![no_main]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use front_end::{Ram, Wire};
use libfuzzer_sys::fuzz_target;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::RecvFlags;
use vhost::backend::Backend;

/// Descriptors that come with messages: memory and an eventfd in turn.
fn descriptors() -> &'static (Ram, OwnedFd) {
    static ALL: OnceLock<(Ram, OwnedFd)> = OnceLock::new();
    ALL.get_or_init(|| {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        (Ram::new(1 << 16), eventfd(0, flags).expect("eventfd"))
    })
}

/// Handles all pending messages. Returns false if the device ended.
fn serve(backend: &mut Backend) -> bool {
    loop {
        match backend.receive() {
            Ok(Some(message)) => {
                for ring in message.releases(backend.vring_count()) {
                    assert!(ring < backend.vring_count());
                }
                if backend.apply(message).is_err() {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (ram, event) = descriptors();
    let (wire, theirs) = Wire::pair();
    let mut backend = Backend::new(theirs, 2).expect("a socket");
    let mut rest = data;
    while let Some((control, after)) = rest.split_first() {
        let length = (usize::from(control & 0xf) * 4).min(after.len());
        let (bytes, remaining) = after.split_at(length);
        rest = remaining;
        if bytes.is_empty() {
            continue;
        }
        let count = usize::from(control >> 4);
        let fds: Vec<BorrowedFd<'_>> = (0..count)
            .map(|index| {
                if index % 2 == 0 {
                    ram.fd()
                } else {
                    event.as_fd()
                }
            })
            .collect();
        if !wire.send_raw(bytes, &fds) || !serve(&mut backend) {
            return;
        }
        // A well-behaved front-end reads the replies, so the target drains them.
        let mut reply = [0; 4096];
        let _ = rustix::net::recv(&wire, &mut reply, RecvFlags::DONTWAIT);
    }
});
