//! A waiter where the kernel, or a container's filter, has no `epoll_pwait2(2)`.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use window::waiter::Waiter;

/// From now on, the call fails with this error in this thread.
fn fail_epoll_pwait2(error: i32) {
    let rules = [(libc::SYS_epoll_pwait2, Vec::new())].into();
    let fails = SeccompAction::Errno(u32::try_from(error).unwrap());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

fn waits() {
    let waiter = Waiter::new().unwrap();
    let start = Instant::now();
    let limit = Duration::from_micros(300);
    let none = waiter.wait(Some(limit)).unwrap();
    assert!(!none.by_waker && none.tokens.is_empty() && start.elapsed() >= limit);
    let (here, there) = UnixStream::pair().unwrap();
    waiter.add(&here, 7).unwrap();
    waiter.waker().wake();
    assert!(waiter.wait(None).unwrap().by_waker);
    let none = waiter.wait(Some(Duration::ZERO)).unwrap();
    assert!(!none.by_waker && none.tokens.is_empty());
    drop(there);
    assert_eq!(waiter.wait(None).unwrap().tokens.as_slice(), [7]);
}

#[test]
fn a_waiter_needs_no_epoll_pwait2() {
    for error in [libc::ENOSYS, libc::EPERM] {
        let thread = std::thread::spawn(move || {
            fail_epoll_pwait2(error);
            waits();
        });
        thread.join().unwrap();
    }
}
