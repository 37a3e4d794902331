//! A QEMU that fills the eventfds of its connection and makes them block: its own connection ends,
//! and others are unaffected.
//!
//! QEMU itself makes each descriptor that it receives block: `qio_channel_socket_copy_fds` in its
//! `io/channel-socket.c` calls `qemu_socket_set_block`.
#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "common/attack.rs"]
mod attack;
mod common;
#[path = "common/honest.rs"]
mod honest;

use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use honest::Honest;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use window::region::Region;

/// What QEMU received from the host.
struct Qemu {
    socket: UnixStream,
    region: Region,
    /// The eventfd that wakes the host, and the one that interrupts this VM.
    doorbell: OwnedFd,
    interrupt: OwnedFd,
}

impl Qemu {
    fn connect(path: &Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut fds = Vec::new();
        // Version, id, region, the host's doorbell, and its own.
        for _ in 0..5 {
            fds.extend(receive(&socket));
        }
        let [region, doorbell, interrupt] = fds.try_into().unwrap();
        for fd in [&doorbell, &interrupt] {
            fcntl_setfl(fd, OFlags::empty()).unwrap();
        }
        Self {
            socket,
            region: Region::attach(region).unwrap(),
            doorbell,
            interrupt,
        }
    }

    /// A gateway in the VM asks to join, and the host has to interrupt it.
    fn begin(&self, number: u32) {
        let page = self.region.page(0).unwrap();
        page.set_interruptible(true);
        page.request_join(number);
    }

    fn is_joined(&self, number: u32) -> bool {
        self.region.page(0).unwrap().joined_number() == number
    }
}

fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut bytes = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    assert_eq!(got.unwrap().bytes, 8);
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

fn fill(event: &OwnedFd) {
    let full = u64::MAX - 1;
    assert_eq!(rustix::io::write(event, &full.to_ne_bytes()), Ok(8));
}

fn within(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_member_that_fills_its_eventfd_is_disconnected_and_the_next_one_has_another() {
    let mut honest = Honest::new(false);
    let path = honest.folder.path().join("host/a.sock");
    let mut qemu = Qemu::connect(&path);
    fill(&qemu.interrupt);
    qemu.begin(1);
    let ended = qemu.socket.read(&mut [0; 8]);
    assert_eq!(ended.ok(), Some(0), "the connection stays open");
    honest.talk();
    // The next QEMU of this name is interrupted.
    let next = Qemu::connect(&path);
    next.begin(2);
    within("the next one cannot join", || next.is_joined(2));
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&next.interrupt, &mut count), Ok(8));
    honest.talk();
}

#[test]
fn a_member_that_fills_its_doorbell_blocks_no_other() {
    let mut honest = Honest::new(false);
    let path = honest.folder.path().join("host/a.sock");
    let qemu = Qemu::connect(&path);
    fill(&qemu.doorbell);
    // The gateways of others ring the host all the time.
    honest.talk();
    drop(qemu);
    // Its successor has an eventfd that takes a ring; a full one would block for ever.
    let next = Qemu::connect(&path);
    assert_eq!(
        rustix::io::write(&next.doorbell, &1u64.to_ne_bytes()),
        Ok(8)
    );
    honest.talk();
}
