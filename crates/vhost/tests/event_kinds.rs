//! Only an eventfd is taken to kick, to call and to report errors by. Descriptors of the kernel's own that
//! have no file type either are refused: polling an epoll descriptor, for one, can wait for ever.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use front_end::Wire;
use front_end::wire::{number, request};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::inotify;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use vhost::backend::Backend;
use vhost::fault::{Fault, ProtocolFault};

/// A descriptor by a call that has no safe form here; `None` where the kernel refuses.
fn made(number: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(number).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just made it for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A VM of KVM, where there is one.
fn of_kvm() -> Option<OwnedFd> {
    let kvm = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .ok()?;
    // SAFETY: KVM_CREATE_VM takes a number and no memory.
    made(unsafe { libc::ioctl(kvm.as_raw_fd(), 0xae01, 0) }.into())
}

/// Descriptors of the kernel's own, as many kinds as this machine gives. One of io_uring is missing: the
/// kernel does not send it over a socket (since Linux 6.7).
fn others() -> Vec<(&'static str, OwnedFd)> {
    // SAFETY: the set is valid for the calls that fill and read it.
    let (signals, fault) = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        (
            made(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC).into()),
            made(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC)),
        )
    };
    let found = [
        ("epoll", epoll::create(epoll::CreateFlags::CLOEXEC).ok()),
        (
            "timerfd",
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok(),
        ),
        ("inotify", inotify::init(inotify::CreateFlags::CLOEXEC).ok()),
        ("pidfd", pidfd_open(getpid(), PidfdFlags::empty()).ok()),
        ("signalfd", signals),
        ("userfaultfd", fault),
        ("KVM", of_kvm()),
    ];
    let found = found.into_iter();
    found.filter_map(|(name, fd)| Some((name, fd?))).collect()
}

/// What a back-end says of a descriptor that comes with this message.
fn answer(request: u32, fd: &OwnedFd) -> Result<(), Fault> {
    let (wire, theirs) = Wire::pair();
    let mut backend = Backend::<()>::new(theirs, 1).unwrap();
    assert!(wire.send(request, &number(0), &[fd.as_fd()]));
    let message = backend.receive()?.unwrap();
    backend.apply(message).map(drop)
}

#[test]
fn spec_set_vring_call_kick_and_err_take_eventfds_alone() {
    let others = others();
    assert!(others.len() >= 5, "{others:?}");
    for request in [
        request::SET_VRING_KICK,
        request::SET_VRING_CALL,
        request::SET_VRING_ERR,
    ] {
        for (name, fd) in &others {
            let fault = answer(request, fd).unwrap_err();
            let refused = matches!(fault, Fault::Protocol(ProtocolFault::WrongDescriptor));
            assert!(refused, "{name}: {fault}");
            assert!(fault.to_string().contains("eventfd"), "{fault}");
        }
    }
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    answer(request::SET_VRING_CALL, &event).unwrap();
}
