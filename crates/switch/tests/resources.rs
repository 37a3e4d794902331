//! A detached port leaves no descriptors and mappings. This is the only test of its binary, because it
//! counts those of the process.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod common;

use common::{Plane, exchange};
use front_end::wire::request;
use front_end::{Options, Ram, Region};
use switch::control::Reason;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of mappings of guest memory in this process.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:guest"))
        .count()
}

#[test]
fn cve_2019_14818_descriptor_leak_over_a_thousand_attachments() {
    let options = Options {
        size: 16,
        ..Options::default()
    };
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let before = (descriptors(), mappings());
    for round in 0..1000 {
        let nic = plane.nic(7, options);
        let spare = Ram::new(1 << 16);
        let region = Region {
            guest: 1 << 40,
            user: 1 << 41,
            ..spare.regions()[0]
        };
        let single = [vec![0; 8], region.to_bytes()].concat();
        // The same descriptors repeatedly, and one that REM_MEM_REG need not carry.
        for _ in 0..3 {
            nic.start_rings_again();
            let (table, fds) = nic.memory_table();
            assert!(nic.wire.send(request::SET_MEM_TABLE, &table, &fds));
            assert!(nic.wire.send(request::ADD_MEM_REG, &single, &[spare.fd()]));
        }
        assert!(nic.wire.send(request::REM_MEM_REG, &single, &[spare.fd()]));
        nic.sync();
        match round % 2 {
            0 => drop(nic),
            _ => {
                // A fault caused by a message with descriptors.
                assert!(
                    nic.wire
                        .send(request::GET_STATUS, &[], &[spare.fd(), spare.fd()])
                );
                nic.wire.wait_for_hang_up();
            }
        }
        let (reason, _) = plane.detached(7);
        assert_eq!(reason == Reason::Disconnected, round % 2 == 0, "{reason:?}");
        plane.forget_running(7);
    }
    assert_eq!((descriptors(), mappings()), before);
    exchange((&mut a, 1), (&mut b, 2), 100, 100);
    let fdb_entries = plane.report().1.fdb_entries;
    assert_eq!(fdb_entries, 2);
}
