//! The back-end accepts only eventfds as kick, call and error descriptors. It refuses other anonymous
//! files, which have no file type either: polling an epoll descriptor, for example, can block
//! without a limit.
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

/// Wraps the descriptor that a raw system call returned; `None` where the kernel refuses.
fn made(number: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(number).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just created it for this process.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A KVM VM, where KVM is available.
fn of_kvm() -> Option<OwnedFd> {
    let kvm = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .ok()?;
    // SAFETY: KVM_CREATE_VM takes a number and no memory.
    made(unsafe { libc::ioctl(kvm.as_raw_fd(), 0xae01, 0) }.into())
}

/// Anonymous files other than eventfds, as many kinds as this machine supports. io_uring is missing,
/// because the kernel does not send such descriptors over a socket (since Linux 6.7).
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

/// Returns the result of a message that carries this descriptor.
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
