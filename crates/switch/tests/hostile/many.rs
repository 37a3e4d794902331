//! Many connections, tear-down at any time, and random input.

use super::*;

#[test]
fn hundred_connects() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for round in 0..100 {
        let wire = plane.attach(BAD);
        match round % 3 {
            0 => assert!(wire.send(99, &[], &[])),
            1 => assert!(wire.send_raw(&[0; 5], &[])),
            _ => {}
        }
        drop(wire);
        let (reason, _) = plane.detached(BAD);
        match round % 3 {
            0 => assert!(matches!(reason, Reason::Fault(_)), "{reason:?}"),
            _ => assert_eq!(reason, Reason::Disconnected),
        }
        exchange((&mut a, 1), (&mut b, 2), 10, 100);
    }
}

#[test]
fn dpdk_21d9fb6bad_teardown_in_any_state() {
    // The front-end closes its socket after each message of the handshake in turn.
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for stop_after in 0..24 {
        let nic = Nic::new(plane.attach(BAD), Options::default());
        let said = std::cell::Cell::new(0);
        let mut nic = Some(nic);
        let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut nic = nic.take().unwrap();
            nic.start(|| {
                said.set(said.get() + 1);
                if said.get() > stop_after {
                    std::panic::resume_unwind(Box::new(()));
                }
            });
        }));
        drop(gone);
        assert_eq!(plane.detached(BAD).0, Reason::Disconnected);
        exchange((&mut a, 1), (&mut b, 2), 10, 100);
    }
}

#[test]
fn everything_at_random() {
    // The test does not require a fault, only that the other VMs are unaffected.
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let mut nic = plane.nic(
            BAD,
            Options {
                size: 16,
                features: features::LINUX,
                ..Options::default()
            },
        );
        for _ in 0..20 {
            let queue = if random() % 2 == 0 {
                &mut nic.tx
            } else {
                &mut nic.rx
            };
            for index in 0..16 {
                let buffer = Buffer {
                    address: random() % 0x9000,
                    length: (random() % 3000) as u32,
                };
                queue.set_descriptor(index, buffer, (random() % 8) as u16, (random() % 18) as u16);
            }
            for _ in 0..random() % 5 {
                queue.offer((random() % 17) as u16);
            }
            let _ = queue.publish();
            queue.kick();
        }
        drop(nic);
        plane.detached(BAD);
        exchange((&mut a, 1), (&mut b, 2), 5, 100);
        while b.receive().is_some() {}
    }
}
