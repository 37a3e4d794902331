//! Dirty logs that are invalid, too short or truncated, and rings with invalid log addresses.

use std::time::{Duration, Instant};

use front_end::features::LOG_ALL;
use front_end::wire::{log, logged_addresses};
use front_end::{Log, TEST_TIMEOUT};

use super::*;

/// Sends a log that must be refused, from a NIC whose rings run; returns the fault.
fn with_log(size: u64, offset: u64, fds: &[BorrowedFd<'_>]) -> String {
    with_nic(|nic| {
        ignore(
            nic.wire
                .send(request::SET_LOG_BASE, &log(size, offset), fds),
        );
    })
}

#[test]
fn cve_2020_10722_log_whose_size_and_offset_overflow() {
    let ram = Ram::new(1 << 16);
    for (size, offset) in [(1 << 16, u64::MAX - 100), (u64::MAX, 4096), (0, 0)] {
        let text = with_log(size, offset, &[ram.fd()]);
        assert_names(&text, "offset and size are out of range");
    }
}

#[test]
fn a_log_past_the_end_of_its_file() {
    let ram = Ram::new(1 << 16);
    let text = with_log(1 << 16, 8, &[ram.fd()]);
    assert_names(&text, "ends after its file (65536 bytes)");
    // Larger than the address space.
    let huge = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&huge, 1 << 62).unwrap();
    let text = with_log(1 << 62, 0, &[huge.as_fd()]);
    assert_names(&text, "its dirty log");
}

#[test]
fn a_log_that_is_not_memory_or_not_there() {
    let fd = event();
    assert_names(&with_log(4096, 0, &[fd.as_fd()]), "neither a memfd");
    let text = with_log(4096, 0, &[]);
    assert_names(&text, "message 6 came with 0 descriptors instead of 1");
    let text = with_log(4096, 0, &[fd.as_fd(), fd.as_fd()]);
    assert_names(&text, "message 6 came with 2 descriptors instead of 1");
}

#[test]
fn cve_2022_0669_extra_descriptors_with_a_log() {
    let fds = junk(3);
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_LOG_FD, &[], &borrowed(&fds))));
    assert_names(&text, "message 7 came with 3 descriptors instead of 1");
}

#[test]
fn cve_2019_14835_a_log_shorter_than_memory() {
    let text = with_nic(|nic| {
        let short = Log::new(4096);
        nic.set_log_base(&short, || {});
        let all = number(nic.options.features | LOG_ALL);
        ignore(nic.wire.send(request::SET_FEATURES, &all, &[]));
    });
    assert_names(&text, "the dirty log is too short for it");
}

#[test]
fn cve_2019_14835_a_used_ring_logged_past_the_log() {
    for past in [1 << 40, u64::MAX, u64::MAX - 2048] {
        let text = with_nic(|nic| {
            let log = nic.log();
            nic.start_log(&log, || {});
            let places = logged_addresses(1, nic.tx.user_addresses(), past);
            ignore(nic.wire.send(request::SET_VRING_ADDR, &places, &[]));
        });
        assert_names(&text, "past the end of the dirty log");
    }
}

#[test]
fn a_log_truncated_in_use_sigbus() {
    let text = with_receiving_nic(|nic| {
        let log = nic.log();
        nic.start_log(&log, || {});
        nic.sync();
        log.ram.truncate(0);
        nic.post(4);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn a_log_that_is_never_sent_stops_only_its_own_port() {
    let text = against(|plane| {
        let mut nic = plane.nic(BAD, Options::default());
        nic.log_all([0; 2], || {});
        nic.sync();
        let hello = frame::numbered(frame::BROADCAST, frame::mac(BAD), 0, 60);
        assert!(nic.send(&hello, Layout::One));
        nic.sync();
        assert_eq!(nic.reclaim(), 0, "sent without a log");
        nic.wire.send(99, &[], &[]);
        nic.wire.wait_for_hang_up();
    });
    assert_names(&text, "an unknown message 99");
}

/// Logs of all sizes, started and stopped while frames are forwarded, leave no mapping.
#[test]
fn cve_2019_14818_a_thousand_logs() {
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("memfd")).count()
    };
    let text = against(|plane| {
        let nic = plane.nic(BAD, Options::default());
        let before = mappings();
        for round in 0..1000 {
            let log = nic.log();
            nic.set_log_base(&log, || {});
            if round % 3 > 0 {
                nic.log_all([nic.rx.used, nic.tx.used], || {});
            }
            if round % 3 > 1 {
                nic.stop_log(|| {});
            }
        }
        nic.stop_log(|| {});
        nic.sync();
        let begin = Instant::now();
        // Other tests of this process create and remove mappings, too.
        while mappings() > before + 100 {
            assert!(begin.elapsed() < TEST_TIMEOUT, "{} mappings", mappings());
            std::thread::sleep(Duration::from_millis(10));
        }
        nic.wire.send(99, &[], &[]);
        nic.wire.wait_for_hang_up();
    });
    assert_names(&text, "an unknown message 99");
}
