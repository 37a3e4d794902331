//! Invalid network headers.

use super::*;

fn with_header(flags: u8, gso: u8, words: [u16; 4], length: usize) -> String {
    let mut header = vec![flags, gso];
    for word in words {
        header.extend(word.to_le_bytes());
    }
    header.extend([0, 0]);
    let options = Options {
        features: features::LINUX,
        ..Options::default()
    };
    with_running_nic(options, |nic| {
        let bytes = frame::numbered(frame::mac(2), frame::mac(BAD), 0, length);
        nic.send_with(&header, &bytes, Layout::One);
    })
}

#[test]
fn cve_2024_11614_csum_start_past_frame() {
    for (start, offset) in [
        (100, 0),
        (99, 0),
        (65_535, 65_535),
        (34, 65),
        (13, 0),
        (0, 16),
    ] {
        let text = with_header(1, 0, [0, 0, start, offset], 100);
        assert_names(&text, "the checksum lies outside the frame");
    }
}

#[test]
fn gso_headers_that_contradict_themselves() {
    let cases = [
        ((1, 1, [54, 0, 34, 16]), "segments of no bytes"),
        ((0, 1, [54, 1000, 34, 16]), "no partial checksum"),
        ((1, 3, [54, 1000, 34, 16]), "unknown way to cut"),
        ((1, 0x7f, [54, 1000, 34, 16]), "unknown way to cut"),
        ((1, 5, [54, 1000, 34, 6]), "was not negotiated"),
        ((1, 0x81, [54, 1000, 34, 16]), "ECN without"),
    ];
    for ((flags, gso, words), cause) in cases {
        assert_names(&with_header(flags, gso, words, 3000), cause);
    }
}

#[test]
fn offloads_that_were_not_negotiated() {
    let options = Options {
        features: features::PLAIN | features::CSUM,
        ..Options::default()
    };
    let text = with_running_nic(options, |nic| {
        let bytes = frame::numbered(frame::mac(2), frame::mac(BAD), 0, 100);
        nic.send_with(
            &[1, 1, 0, 0, 100, 0, 34, 0, 16, 0, 0, 0],
            &bytes,
            Layout::One,
        );
    });
    assert_names(&text, "a way to cut the frame that was not negotiated");
}

#[test]
fn spec_5_1_3_1_a_header_is_ignored_without_csum() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let bytes = frame::numbered(frame::mac(2), frame::mac(1), 1, 100);
    for layout in [Layout::One, Layout::Pieces(3)] {
        a.send_with(&[1, 1, 0, 0, 1, 0, 255, 255, 16, 0, 0, 0], &bytes, layout);
        let received = b.wait_to_receive();
        assert_eq!(received.frame, bytes);
        assert_eq!(received.header, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    }
}

#[test]
fn cve_2022_2132_header_in_many_descriptors() {
    // Valid, although unusual: the frame is forwarded.
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for layout in [Layout::Pieces(1), Layout::Indirect(1), Layout::Pieces(3)] {
        let bytes = frame::numbered(frame::mac(2), frame::mac(1), 1, 100);
        a.wait_to_send(&bytes, layout);
        assert_eq!(b.wait_to_receive().frame, bytes);
    }
}

#[test]
fn cve_2024_11614_header_that_changes_while_it_is_checked() {
    // A guest rewrites its header continuously: every header that is delivered was checked.
    let mut plane = Plane::new();
    let options = Options {
        features: features::LINUX,
        ..Options::default()
    };
    let mut nics = [plane.nic(1, options), plane.nic(2, options)];
    common::learn_addresses(&mut nics, &[1, 2]);
    let [a, b] = &mut nics;
    let over = AtomicBool::new(false);
    let bytes = frame::tcp(frame::mac(2), frame::mac(1), 1, &[0; 500]);
    let at = 0x8000;
    let ram = std::sync::Arc::clone(&a.ram);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                ram.write(at, &[1, 0, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0]);
                // Only valid for a longer frame: a fault if this value is read.
                ram.write(at + 6, &34_u16.to_le_bytes());
                ram.write(at, &[0]);
            }
        });
        for _ in 0..2000 {
            ram.write(at + 12, &bytes);
            let length = 12 + bytes.len() as u32;
            assert!(
                a.tx.add(&[Buffer {
                    address: at,
                    length
                }])
                .is_some()
            );
            a.tx.publish_and_kick();
            let got = b.wait_to_receive();
            match got.header[0] {
                0 => assert_eq!(got.header[..10], [0; 10]),
                1 => assert_eq!(got.header[6..10], [34, 0, 16, 0]),
                other => panic!("flags {other}"),
            }
            while a.tx.take_used().is_none() {
                if !a.tx.ask_for_call() {
                    a.tx.wait_for_call();
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
