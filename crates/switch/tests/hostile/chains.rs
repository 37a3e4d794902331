//! Invalid rings and descriptor chains.

use super::*;

#[test]
fn descriptor_loop() {
    let text = with_nic(|nic| transmit(nic, SOME, NEXT, 0));
    assert_names(&text, "loops or is too long");
    let text = with_nic(|nic| {
        nic.tx.set_descriptor(1, SOME, NEXT, 2);
        nic.tx.set_descriptor(2, SOME, NEXT, 1);
        transmit(nic, SOME, NEXT, 1);
    });
    assert_names(&text, "loops or is too long");
}

#[test]
fn descriptor_loop_in_a_receive_ring() {
    let text = with_receiving_nic(|nic| {
        nic.rx.set_descriptor(0, SOME, NEXT | WRITE, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "ring 0: a descriptor chain loops");
}

#[test]
fn huge_chain() {
    let options = Options {
        size: 2048,
        ..Options::default()
    };
    let text = with_running_nic(options, |nic| {
        for index in 0..2047 {
            let buffer = Buffer {
                address: 0x40000,
                length: 1,
            };
            nic.tx.set_descriptor(index, buffer, NEXT, index + 1);
        }
        nic.tx.offer(0);
        nic.tx.publish_and_kick();
    });
    assert_names(&text, "loops or is too long");
}

#[test]
fn huge_chain_of_many_gigabytes() {
    let text = with_nic(|nic| {
        let all = Buffer {
            address: 0,
            length: 1 << 20,
        };
        for index in 0..255 {
            nic.tx.set_descriptor(index, all, NEXT, index + 1);
        }
        nic.tx.set_descriptor(
            255,
            Buffer {
                length: u32::MAX,
                ..all
            },
            0,
            0,
        );
        nic.tx.offer(0);
        nic.tx.publish_and_kick();
    });
    assert_names(&text, "ring 1:");
}

#[test]
fn zero_length_descriptor() {
    let text = with_nic(|nic| transmit(nic, Buffer { length: 0, ..SOME }, 0, 0));
    assert_names(&text, "has no bytes");
}

#[test]
fn a_chain_shorter_than_the_network_header() {
    let text = with_nic(|nic| transmit(nic, Buffer { length: 11, ..SOME }, 0, 0));
    assert_names(&text, "11 bytes has no room for the network header");
}

#[test]
fn cve_2018_1059_buffer_that_is_not_all_in_memory() {
    let cases = [(u64::MAX - 50, 100), (1 << 45, 100)];
    for (address, length) in cases {
        let text = with_nic(|nic| transmit(nic, Buffer { address, length }, 0, 0));
        assert_names(&text, "outside guest memory");
    }
    // The buffer begins inside the last region.
    let text = with_nic(|nic| {
        let end = nic.ram.regions().last().map(|last| last.guest + last.size);
        let buffer = Buffer {
            address: end.unwrap() - 50,
            length: 100,
        };
        transmit(nic, buffer, 0, 0);
    });
    assert_names(&text, "outside guest memory");
}

#[test]
fn cve_2019_18960_buffer_across_regions_is_followed_not_overrun() {
    // Two regions that are not adjacent in this process: a frame across both arrives whole.
    let mut plane = Plane::new();
    let options = Options {
        regions: 2,
        ..Options::default()
    };
    let mut nics = [plane.nic(1, options), plane.nic(2, Options::default())];
    common::learn_addresses(&mut nics, &[1, 2]);
    let [a, b] = &mut nics;
    let border = a.ram.regions()[1].guest;
    let bytes = frame::numbered(frame::mac(2), frame::mac(1), 9, 1000);
    a.ram
        .write(border - 500, &[vec![0; 12], bytes.clone()].concat());
    assert!(
        a.tx.add(&[Buffer {
            address: border - 500,
            length: 1012
        }])
        .is_some()
    );
    a.tx.publish_and_kick();
    assert_eq!(b.wait_to_receive().frame, bytes);
}

#[test]
fn cve_2018_1059_hole_between_regions() {
    let text = against(|plane| {
        let mut nic = Nic::new(plane.attach(BAD), Options::default());
        nic.start(|| {});
        plane.running(BAD);
        let spare = Ram::new(1 << 20);
        let end = nic.ram.regions()[0].size;
        let region = Region {
            guest: end + 4096,
            user: 1 << 41,
            ..spare.regions()[0]
        };
        let payload = [vec![0; 8], region.to_bytes()].concat();
        nic.wire.send(request::ADD_MEM_REG, &payload, &[spare.fd()]);
        nic.sync();
        transmit(
            &mut nic,
            Buffer {
                address: end - 100,
                length: 5000,
            },
            0,
            0,
        );
        nic.wire.wait_for_hang_up();
    });
    assert_names(&text, "outside guest memory");
}

#[test]
fn buffers_of_the_wrong_direction() {
    let text = with_nic(|nic| transmit(nic, SOME, WRITE, 0));
    assert_names(&text, "writable in a transmit ring");
    let text = with_receiving_nic(|nic| {
        nic.rx.set_descriptor(0, LARGE, 0, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "ring 0: a descriptor is read-only in a receive ring");
}

#[test]
fn cve_2020_10725_receive_buffer_outside_memory() {
    let text = with_receiving_nic(|nic| {
        let buffer = Buffer {
            address: 1 << 45,
            ..LARGE
        };
        nic.rx.set_descriptor(0, buffer, WRITE, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(
        &text,
        "ring 0: a descriptor names 1600 bytes at 0x200000000000",
    );
}

#[test]
fn cve_2021_3748_mergeable_buffers_too_small_for_the_header() {
    let text = with_receiving_nic(|nic| {
        let buffer = Buffer {
            length: 11,
            ..LARGE
        };
        for head in 0..60 {
            nic.rx.set_descriptor(head, buffer, WRITE, 0);
            nic.rx.offer(head);
        }
        nic.rx.publish_and_kick();
    });
    assert_names(
        &text,
        "ring 0: a chain of 11 bytes has no room for the network header",
    );
}

#[test]
fn an_available_index_of_a_receive_ring_that_runs_ahead() {
    let text = with_receiving_nic(|nic| nic.rx.publish_wrong_index(300));
    assert_names(&text, "ring 0: available index 300");
}

#[test]
fn chain_heads_past_the_table() {
    let text = with_nic(|nic| {
        nic.tx.offer(256);
        nic.tx.publish_and_kick();
    });
    assert_names(&text, "chain head 256 is past the descriptor table");
    let text = with_nic(|nic| transmit(nic, SOME, NEXT, 256));
    assert_names(&text, "points to 256, past its table");
}

#[test]
fn an_available_index_that_runs_ahead() {
    let text = with_nic(|nic| {
        nic.tx.publish_wrong_index(257);
        nic.tx.kick();
    });
    assert_names(&text, "available index 257 is more than 256 ahead of 0");
    let text = with_nic(|nic| {
        nic.tx.publish_wrong_index(0xffff);
        nic.tx.kick();
    });
    assert_names(&text, "available index 65535");
}

/// Sends through an indirect table that `fill` writes at 0x4000; returns the fault.
fn through_table(length: u32, flags: u16, fill: impl FnOnce(&Ram)) -> String {
    with_nic(|nic| {
        fill(&nic.ram);
        transmit(
            nic,
            Buffer {
                address: 0x4000,
                length,
            },
            flags,
            0,
        );
    })
}

#[test]
fn indirect_in_indirect() {
    let text = through_table(32, INDIRECT, |ram| {
        ram.write(0x4000, &descriptor(SOME, INDIRECT, 0));
    });
    assert_names(&text, "inside another");
}

#[test]
fn invalid_indirect_tables() {
    for length in [0, 8, 17] {
        let text = through_table(length, INDIRECT, |_| {});
        assert_names(&text, "not a whole number of descriptors long");
    }
    let text = through_table(16, INDIRECT | NEXT, |_| {});
    assert_names(&text, "followed by another");
    let text = through_table(0x4000_0000, INDIRECT, |_| {});
    assert_names(&text, "not in one memory region");
    let text = through_table(32, INDIRECT, |ram| {
        ram.write(0x4000, &descriptor(SOME, NEXT, 2));
    });
    assert_names(&text, "points to 2, past its table");
    let text = through_table(32, INDIRECT, |ram| {
        ram.write(0x4000, &descriptor(SOME, NEXT, 0));
    });
    assert_names(&text, "loops or is too long");
}

#[test]
fn indirect_without_being_negotiated() {
    let options = Options {
        features: features::PLAIN & !features::INDIRECT_DESC,
        ..Options::default()
    };
    let text = with_running_nic(options, |nic| {
        nic.ram.write(0x4000, &descriptor(SOME, 0, 0));
        transmit(
            nic,
            Buffer {
                address: 0x4000,
                length: 16,
            },
            INDIRECT,
            0,
        );
    });
    assert_names(&text, "without being negotiated");
}
