//! Tests of the module's interface: plans, segments, refusals and hostile input.

use proptest::prelude::*;

use super::frames::{Flow, bytes, flow, gso_size, payload_length, sum};
use super::reference::segments;
use super::*;

const KINDS: [Gso; 4] = [Gso::Tcp4, Gso::Tcp6, Gso::Udp4, Gso::Udp6];

/// Segments `frame` completely.
fn cut(frame: &[u8], offload: &Offload, full: bool) -> Result<Vec<Vec<u8>>, Untranslatable> {
    let segmenter = Segmenter::new(frame, offload, full)?;
    let mut out = vec![0xee; frame.len()];
    let mut all = vec![];
    for index in 0..segmenter.count() {
        let segment = segmenter.write(index, &mut out).unwrap();
        let given = segment.offload;
        assert_eq!(given.needs_csum, !full);
        if offload.needs_csum && !full {
            assert_eq!(given.csum_start, offload.csum_start);
            assert_eq!(given.csum_offset, offload.csum_offset);
        }
        all.push(out[..segment.len].to_vec());
    }
    assert!(segmenter.write(segmenter.count(), &mut out).is_none());
    Ok(all)
}

/// Returns a payload that is no longer than an IP packet of this flow allows.
fn payload_for(flow: &Flow, length: usize, seed: u32) -> Vec<u8> {
    let counted = if flow.ipv4() {
        flow.ip()
    } else {
        flow.ip() + 40
    };
    bytes(length.min(65_535 - (flow.payload() - counted)), seed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn virtio_5_1_6_2_segments_are_those_of_a_sender_without_offloads(
        flow in flow(), length in payload_length(), size in gso_size(), full: bool, seed: u32,
    ) {
        let payload = payload_for(&flow, length, seed);
        let frame = flow.frame(&payload, false);
        let seen = cut(&frame, &flow.offload(size), full).unwrap();
        let expected = segments(&flow, &payload, size, full);
        prop_assert_eq!(seen.len(), expected.len());
        for (seen, expected) in seen.iter().zip(&expected) {
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn rfc9293_3_4_payloads_in_order_are_the_senders_bytes(
        flow in flow(), length in payload_length(), size in gso_size(), seed: u32,
    ) {
        let payload = payload_for(&flow, length, seed);
        let frame = flow.frame(&payload, false);
        let seen = cut(&frame, &flow.offload(size), true).unwrap();
        let joined: Vec<u8> = seen.iter().flat_map(|s| s[flow.payload()..].to_vec()).collect();
        prop_assert_eq!(joined, payload);
    }

    #[test]
    fn rfc1071_every_checksum_of_every_segment_verifies(
        flow in flow(), length in payload_length(), size in gso_size(), full: bool, seed: u32,
    ) {
        let payload = payload_for(&flow, length, seed);
        let frame = flow.frame(&payload, false);
        for mut segment in cut(&frame, &flow.offload(size), full).unwrap() {
            let (ip, transport) = (flow.ip(), flow.transport());
            if !full {
                let offload = flow.offload(size);
                fill_checksum(&mut segment, offload.csum_start, offload.csum_offset).unwrap();
            }
            let addresses = if flow.ipv4() {
                prop_assert_eq!(sum(&segment[ip..transport]), 0xffff);
                &segment[ip + 12..ip + 20]
            } else {
                &segment[ip + 8..ip + 40]
            };
            let length = u32::try_from(segment.len() - transport).unwrap();
            let mut covered = addresses.to_vec();
            covered.extend(length.to_be_bytes());
            covered.extend([0, if flow.tcp() { 6 } else { 17 }]);
            covered.extend(&segment[transport..]);
            prop_assert_eq!(sum(&covered), 0xffff);
        }
    }

    #[test]
    fn segments_do_not_depend_on_each_other_and_stay_in_their_buffer(
        flow in flow(), size in gso_size(), index in any::<prop::sample::Index>(), seed: u32,
    ) {
        let payload = payload_for(&flow, 5000, seed);
        let frame = flow.frame(&payload, false);
        let expected = segments(&flow, &payload, size, true);
        let index = index.index(expected.len());
        let segmenter = Segmenter::new(&frame, &flow.offload(size), true).unwrap();
        let len = expected[index].len();
        prop_assert!(segmenter.write(index, &mut vec![0; len - 1]).is_none());
        let mut out = vec![0xee; len + 100];
        prop_assert_eq!(segmenter.write(index, &mut out).unwrap().len, len);
        prop_assert_eq!(&out[..len], &expected[index]);
        prop_assert_eq!(&out[len..], &[0xee; 100]);
    }

    #[test]
    fn rfc894_link_padding_never_becomes_payload(
        flow in flow(), length in 0_usize..40, padding in 1_usize..60, size in gso_size(),
    ) {
        let payload = payload_for(&flow, length, 1);
        let mut frame = flow.frame(&payload, false);
        frame.extend(vec![0xaa; padding]);
        let seen = cut(&frame, &flow.offload(size), true).unwrap();
        prop_assert_eq!(seen, segments(&flow, &payload, size, true));
    }

    #[test]
    fn an_ip_length_of_zero_means_the_whole_frame(
        flow in flow(), length in payload_length(), size in gso_size(), seed: u32,
    ) {
        let payload = payload_for(&flow, length, seed);
        let mut frame = flow.frame(&payload, false);
        let at = flow.ip() + if flow.ipv4() { 2 } else { 4 };
        frame[at..at + 2].copy_from_slice(&[0, 0]);
        let seen = cut(&frame, &flow.offload(size), true).unwrap();
        prop_assert_eq!(seen, segments(&flow, &payload, size, true));
    }
}

#[test]
fn hostile_changes_to_a_good_frame_never_panic_and_lengths_stay_bounded() {
    use std::cell::Cell;
    let size = prop_oneof![3 => gso_size(), 1 => any::<u16>()];
    let header = (0_usize..3000, size, any::<bool>(), any::<bool>());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let keep = prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..200];
    let [cuts, refused] = [Cell::new(0), Cell::new(0)];
    let mut runner = proptest::test_runner::TestRunner::default();
    let checked = runner.run(
        &(flow(), header, changes, keep),
        |(flow, header, changes, keep)| {
            let (length, size, full, needs_csum) = header;
            let mut frame = flow.frame(&payload_for(&flow, length, 2), false);
            frame.truncate(keep);
            let headers = frame.len().min(flow.payload());
            for (at, value) in &changes {
                if headers > 0 {
                    frame[at.index(headers)] = *value;
                }
            }
            let offload = Offload {
                needs_csum,
                ..flow.offload(size)
            };
            let count = match cut(&frame, &offload, full) {
                Ok(seen) => {
                    let most = frame.len() / MIN_GSO_SIZE + 1;
                    prop_assert!(seen.len() <= most, "{} segments", seen.len());
                    prop_assert!(seen.iter().all(|segment| segment.len() <= frame.len()));
                    &cuts
                }
                Err(_) => &refused,
            };
            count.set(count.get() + 1);
            Ok(())
        },
    );
    checked.unwrap();
    let counts = (cuts.get(), refused.get());
    assert!(counts.0 > 20 && counts.1 > 20, "{counts:?}");
}

/// The input is the beginning of a valid frame, followed by arbitrary bytes, with an arbitrary network header.
#[test]
fn hostile_bytes_never_panic() {
    use std::cell::Cell;
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    let place = || prop_oneof![0_u16..80, any::<u16>()];
    let header = (
        prop::option::weighted(0.5, 0_usize..4),
        any::<bool>(),
        place(),
        place(),
        place(),
        any::<bool>(),
    );
    let [cuts, refused, filled] = [Cell::new(0), Cell::new(0), Cell::new(0)];
    let mut runner = proptest::test_runner::TestRunner::default();
    let checked = runner.run(&(flow(), bytes, header), |(flow, bytes, header)| {
        let (kind, needs_csum, gso_size, csum_start, csum_offset, full) = header;
        let mut frame = flow.frame(&[], false);
        frame.extend(bytes);
        let offload = Offload {
            needs_csum,
            // That of the frame, or another one: few frames are cut as another kind.
            gso: kind.map_or(flow.gso, |kind| KINDS[kind]),
            gso_size,
            csum_start,
            csum_offset,
            ..Offload::default()
        };
        let count = match cut(&frame, &offload, full) {
            Ok(_) => &cuts,
            Err(_) => &refused,
        };
        count.set(count.get() + 1);
        let had = fill_checksum(&mut frame.clone(), csum_start, csum_offset).is_ok();
        filled.set(filled.get() + u32::from(had));
        let _kind = Gso::udp(&frame);
        Ok(())
    });
    checked.unwrap();
    let counts = (cuts.get(), refused.get(), filled.get());
    assert!(
        counts.0 > 20 && counts.1 > 50 && counts.2 > 20,
        "{counts:?}"
    );
}

/// Changes a frame of a plain flow; returns the reason why it is refused.
fn refusal(gso: Gso, change: impl FnOnce(&mut Vec<u8>, &mut Offload)) -> Untranslatable {
    let flow = Flow::plain(gso);
    let mut frame = flow.frame(&bytes(3000, 3), false);
    let mut offload = flow.offload(1000);
    change(&mut frame, &mut offload);
    cut(&frame, &offload, true).unwrap_err()
}

#[test]
fn virtio_5_1_6_2_gso_sizes_out_of_range_are_refused() {
    for gso in KINDS {
        let size = |size| move |_: &mut Vec<u8>, o: &mut Offload| o.gso_size = size;
        assert_eq!(refusal(gso, size(0)), Untranslatable::NoGsoSize);
        assert_eq!(refusal(gso, size(1)), Untranslatable::SmallGsoSize);
        assert_eq!(refusal(gso, size(47)), Untranslatable::SmallGsoSize);
        let none = refusal(gso, |_, o| o.gso = Gso::None);
        assert_eq!(none, Untranslatable::NotGso);
    }
}

#[test]
fn a_small_gso_size_is_accepted_for_a_single_segment() {
    for gso in KINDS {
        let flow = Flow::plain(gso);
        for length in [0, 1, 40] {
            let payload = bytes(length, 4);
            let frame = flow.frame(&payload, false);
            let seen = cut(&frame, &flow.offload(40), true).unwrap();
            assert_eq!(seen, segments(&flow, &payload, 40, true));
        }
    }
}

#[test]
fn virtio_5_1_6_2_a_checksum_elsewhere_than_in_the_transport_header_is_refused() {
    for gso in KINDS {
        let start = refusal(gso, |_, o| o.csum_start += 2);
        assert_eq!(start, Untranslatable::ChecksumPlace);
        let offset = refusal(gso, |_, o| o.csum_offset = 22 - o.csum_offset);
        assert_eq!(offset, Untranslatable::ChecksumPlace);
    }
}

#[test]
fn truncated_headers_are_refused_by_the_header_that_is_short() {
    for gso in KINDS {
        let flow = Flow::plain(gso);
        for keep in 0..flow.payload() {
            let seen = refusal(gso, |frame, _| {
                frame.truncate(keep);
                let at = flow.ip() + if flow.ipv4() { 2 } else { 4 };
                if let Some(length) = frame.get_mut(at..at + 2) {
                    length.copy_from_slice(&[0, 0]);
                }
            });
            let expected = match keep {
                0..14 => Untranslatable::ShortEthernet,
                _ if keep < flow.transport() => Untranslatable::ShortIp,
                _ => Untranslatable::ShortTransport,
            };
            assert_eq!(seen, expected, "{gso:?}, {keep} bytes");
        }
    }
}

#[test]
fn rfc791_3_1_inconsistent_ipv4_headers_are_refused() {
    for gso in [Gso::Tcp4, Gso::Udp4] {
        let ip = |at: usize, value: u8| refusal(gso, move |frame, _| frame[14 + at] = value);
        assert_eq!(ip(0, 0x65), Untranslatable::WrongIpVersion);
        assert_eq!(ip(0, 0x44), Untranslatable::BadIpHeaderLength);
        assert_eq!(ip(2, 0xff), Untranslatable::IpLengthBeyondFrame);
        let short = refusal(gso, |frame, _| frame[16..18].copy_from_slice(&[0, 19]));
        assert_eq!(short, Untranslatable::IpLengthInsideHeaders);
        let no_transport = refusal(gso, |frame, _| frame[16..18].copy_from_slice(&[0, 27]));
        assert_eq!(no_transport, Untranslatable::ShortTransport);
        assert_eq!(ip(6, 0x20), Untranslatable::Fragment);
        assert_eq!(ip(7, 0x01), Untranslatable::Fragment);
        assert_eq!(ip(9, 1), Untranslatable::WrongProtocol);
        assert_eq!(
            ip(9, if gso == Gso::Tcp4 { 17 } else { 6 }),
            Untranslatable::WrongProtocol
        );
    }
}

#[test]
fn rfc8200_3_inconsistent_ipv6_headers_are_refused() {
    for gso in [Gso::Tcp6, Gso::Udp6] {
        let ip = |at: usize, value: u8| refusal(gso, move |frame, _| frame[14 + at] = value);
        assert_eq!(ip(0, 0x45), Untranslatable::WrongIpVersion);
        assert_eq!(ip(4, 0xff), Untranslatable::IpLengthBeyondFrame);
        let short = refusal(gso, |frame, _| frame[18..20].copy_from_slice(&[0, 7]));
        assert_eq!(short, Untranslatable::ShortTransport);
        assert_eq!(ip(6, 58), Untranslatable::WrongProtocol);
        assert_eq!(ip(6, 44), Untranslatable::Fragment);
    }
}

#[test]
fn rfc8200_4_extension_headers_a_segment_cannot_repeat_are_refused() {
    let with = |kind: u8, contents: Vec<u8>| {
        let flow = Flow {
            extensions: vec![(60, vec![0; 6]), (kind, contents)],
            ..Flow::plain(Gso::Tcp6)
        };
        let frame = flow.frame(&bytes(3000, 5), false);
        cut(&frame, &flow.offload(1000), true)
    };
    assert_eq!(with(44, vec![0; 6]).unwrap_err(), Untranslatable::Fragment);
    assert_eq!(
        with(51, vec![0; 6]).unwrap_err(),
        Untranslatable::WrongProtocol
    );
    let source_routed = with(43, vec![4, 1, 0, 0, 0, 0]);
    assert_eq!(source_routed.unwrap_err(), Untranslatable::SourceRouted);
    assert!(with(43, vec![4, 0, 0, 0, 0, 0]).is_ok());
    assert_eq!(
        with(0, vec![0; 510]).unwrap_err(),
        Untranslatable::HeadersTooLong
    );
    assert_eq!(
        with(0, vec![0; 430]).unwrap_err(),
        Untranslatable::HeadersTooLong
    );
    let inside = refusal(Gso::Tcp6, |frame, _| {
        frame[20] = 60; // The TCP header read as an extension header of 8 bytes or more.
        frame[55] = 0;
        frame[18..20].copy_from_slice(&[0, 1]);
        frame[54] = 6;
    });
    assert_eq!(inside, Untranslatable::IpLengthInsideHeaders);
}

#[test]
fn rfc8200_4_a_long_chain_of_extension_headers_is_not_walked_to_its_end() {
    let flow = Flow {
        extensions: vec![(60, vec![0; 6]); 100],
        ..Flow::plain(Gso::Tcp6)
    };
    let mut frame = flow.frame(&bytes(3000, 5), false);
    frame[flow.transport() - 8] = 58; // The chain does not end with TCP.
    let refused = cut(&frame, &flow.offload(1000), true);
    assert_eq!(refused.unwrap_err(), Untranslatable::HeadersTooLong);
}

#[test]
fn rfc768_a_segments_computed_zero_is_sent_as_all_ones_for_udp_only() {
    for gso in KINDS {
        let flow = Flow::plain(gso);
        let at = flow.transport() + if flow.tcp() { 16 } else { 6 };
        // Adding the checksum to the payload makes the sum all ones.
        let mut payload = bytes(1000, 7);
        payload[..2].copy_from_slice(&[0, 0]);
        let first = flow.frame(&payload, true);
        payload[..2].copy_from_slice(&first[at..at + 2]);
        let frame = flow.frame(&payload, false);
        let seen = cut(&frame, &flow.offload(1000), true).unwrap();
        let expected = if flow.tcp() { [0, 0] } else { [0xff, 0xff] };
        assert_eq!(seen[0][at..at + 2], expected, "{gso:?}");
    }
}

#[test]
fn rfc9293_3_1_an_inconsistent_tcp_header_is_refused() {
    for (gso, at) in [(Gso::Tcp4, 46), (Gso::Tcp6, 66)] {
        let short = refusal(gso, |frame, _| frame[at] = 0x40);
        assert_eq!(short, Untranslatable::BadTcpHeaderLength);
    }
}

#[test]
fn ieee_802_1q_the_ethertype_must_fit_the_gso_type() {
    for gso in KINDS {
        let other = refusal(gso, |frame, _| frame[12..14].copy_from_slice(&[0x08, 0x06]));
        assert_eq!(other, Untranslatable::WrongEtherType);
        let ip = if Flow::plain(gso).ipv4() {
            [0x86, 0xdd]
        } else {
            [0x08, 0x00]
        };
        let other = refusal(gso, |frame, _| frame[12..14].copy_from_slice(&ip));
        assert_eq!(other, Untranslatable::WrongEtherType);
        let flow = Flow {
            tags: vec![0x88a8, 0x8100, 0x8100],
            ..Flow::plain(gso)
        };
        let three = cut(
            &flow.frame(&bytes(3000, 6), false),
            &flow.offload(1000),
            true,
        );
        assert_eq!(three.unwrap_err(), Untranslatable::WrongEtherType);
    }
}

#[test]
fn a_packet_longer_than_the_ip_length_field_allows_is_refused() {
    for gso in KINDS {
        let zero_length = |frame: &mut Vec<u8>| {
            let at = if Flow::plain(gso).ipv4() { 16 } else { 18 };
            frame[at..at + 2].copy_from_slice(&[0, 0]);
        };
        let seen = refusal(gso, |frame, _| {
            zero_length(frame);
            frame.resize(70_000, 0);
        });
        assert_eq!(seen, Untranslatable::FrameTooLong);
    }
}

#[test]
fn virtio_5_1_6_4_1_a_udp_gso_frame_is_classified_by_its_ethertype() {
    for (gso, tags) in [(Gso::Udp4, vec![]), (Gso::Udp6, vec![0x88a8, 0x8100])] {
        let frame = Flow {
            tags,
            ..Flow::plain(gso)
        }
        .frame(&[], true);
        assert_eq!(Gso::udp(&frame[..22]), Some(gso));
    }
    assert_eq!(Gso::udp(&[0; 22]), None);
    assert_eq!(Gso::udp(&[0; 13]), None);
}
