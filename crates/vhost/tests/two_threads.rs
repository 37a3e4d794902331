//! A driver and a device on two threads that share one pair of rings. A stress test of memory ordering
//! and of notifications: bytes that are read too early are corrupt, and a lost wake-up hangs the test.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use front_end::{Layout, Nic, Options, TEST_TIMEOUT, features, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost::backend::Backend;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::ring::Ring;

const FRAMES: u64 = 60_000;

fn ring(backend: &mut Backend, number: usize) -> &mut Ring {
    backend.vring_mut(number).unwrap().active_mut().unwrap()
}

/// Copies transmitted frames into receive buffers until `over` is set. Polls for a while, then enables
/// kicks and sleeps.
fn echo(backend: &mut Backend, kicks: &[OwnedFd; 2], over: &AtomicBool) {
    let memory = Arc::clone(backend.memory());
    let mut idle = 0;
    while !over.load(Ordering::Relaxed) {
        let (mut sent, mut posted) = (Batch::new(), Batch::new());
        ring(backend, 1).disable_kicks();
        ring(backend, 0).disable_kicks();
        ring(backend, 1).collect(&memory, 32, &mut sent).unwrap();
        ring(backend, 0).collect(&memory, 32, &mut posted).unwrap();
        let pairs = sent.chains().iter().zip(posted.chains());
        let mut count = 0;
        for (from, to) in pairs {
            let mut source = Cursor::new(sent.spans(from));
            let mut target = Cursor::new(posted.spans(to));
            let mut header = [0; 12];
            assert_eq!(source.read(&mut header), 12);
            header[10] = 1;
            assert_eq!(target.write(&header), 12);
            let copied = source.copy_to(&mut target, from.bytes - 12);
            assert_eq!(copied, from.bytes - 12, "room");
            ring(backend, 0).put_used(to.head, copied + 12);
            ring(backend, 1).put_used(from.head, 0);
            count += 1;
        }
        for number in [0, 1] {
            ring(backend, number).consume(count);
            if ring(backend, number).publish() {
                backend.vring(number).unwrap().call().unwrap();
            }
        }
        idle = if count > 0 { 0 } else { idle + 1 };
        if idle < 3 {
            continue;
        }
        // The driver must kick when it provides the entries that are missing.
        let [posted, sent] = [0, 1].map(|number| ring(backend, number).available().unwrap());
        let more = [(0, posted), (1, sent)]
            .map(|(number, seen)| ring(backend, number).enable_kicks(seen).unwrap());
        if more == [false, false] && (posted == 0 || sent == 0) {
            let mut fds = kicks
                .each_ref()
                .map(|kick| PollFd::new(kick, PollFlags::IN));
            let guard = Timespec {
                tv_sec: TEST_TIMEOUT.as_secs() as i64,
                tv_nsec: 0,
            };
            let ready = poll(&mut fds, Some(&guard)).unwrap();
            assert!(ready > 0, "no kick from the driver");
            for kick in kicks {
                let _ = rustix::io::read(kick, &mut [0; 8]);
            }
        }
        idle = 0;
    }
}

/// Sends and receives all frames, and sleeps whenever there is nothing to do.
fn drive(nic: &mut Nic) {
    let (mut sent, mut got) = (0, 0);
    while got < FRAMES {
        let mut moved = false;
        while sent < FRAMES {
            let length = frame::SHORTEST + (sent as usize * 37) % 1400;
            let layout = match sent % 5 {
                0 => Layout::Pieces(100),
                1 => Layout::Indirect(200),
                2 => Layout::SeparateHeader,
                _ => Layout::One,
            };
            let bytes = frame::numbered(frame::mac(2), frame::mac(1), sent, length);
            if !nic.send(&bytes, layout) {
                break;
            }
            sent += 1;
            moved = true;
        }
        while let Some(received) = nic.receive() {
            assert_eq!(frame::number(&received.frame), got, "order");
            got += 1;
            moved = true;
        }
        if !moved {
            front_end::nic::wait(&[nic]);
        }
    }
    nic.wait_until_sent();
}

fn both(options: Options) {
    let (mut nic, mut backend) = common::device(options);
    let kicks = [&nic.rx, &nic.tx].map(|queue| queue.kick_fd().try_clone().unwrap());
    let wake = kicks[1].try_clone().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let device = scope.spawn(|| echo(&mut backend, &kicks, &over));
        drive(&mut nic);
        over.store(true, Ordering::Relaxed);
        rustix::io::write(wake.as_fd(), &1_u64.to_ne_bytes()).unwrap();
        device.join().unwrap();
    });
}

#[test]
fn nothing_is_lost_or_seen_too_early_with_event_idx() {
    both(Options {
        base: 60_000,
        ..Options::default()
    });
}

#[test]
fn nothing_is_lost_or_seen_too_early_with_flags() {
    both(Options {
        features: features::PLAIN & !features::EVENT_IDX,
        ..Options::default()
    });
}

#[test]
fn nothing_is_lost_or_seen_too_early_in_tiny_rings() {
    both(Options {
        size: 16,
        ..Options::default()
    });
}
