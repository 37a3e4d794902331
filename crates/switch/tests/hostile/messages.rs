//! Messages that are invalid or come at the wrong time.

use super::*;

#[test]
fn malformed_message_of_an_unknown_number() {
    let text = with_wire(|wire| ignore(wire.send(99, &[], &[])));
    assert_names(&text, "an unknown message 99");
}

#[test]
fn malformed_message_of_another_version() {
    let text = with_wire(|wire| ignore(wire.send_raw(&message(1, 2, &[]), &[])));
    assert_names(&text, "version 2");
}

#[test]
fn malformed_message_that_was_not_negotiated() {
    for request in [21, 26, 31, 32, 33, 35, 41, 42, 43] {
        let text = with_wire(|wire| ignore(wire.send(request, &number(0), &[])));
        assert_names(&text, "not negotiated");
    }
}

#[test]
fn wrong_size_of_a_payload() {
    let text = with_wire(|wire| ignore(wire.send(request::SET_FEATURES, &[0; 7], &[])));
    assert_names(&text, "payload of 7 bytes");
}

#[test]
fn wrong_size_larger_than_any_message() {
    let header: Vec<u8> = [request::SET_MEM_TABLE, VERSION, 0x4000_0000]
        .iter()
        .flat_map(|word: &u32| word.to_ne_bytes())
        .collect();
    let text = with_wire(|wire| ignore(wire.send_raw(&header, &[])));
    assert_names(&text, "payload of 1073741824 bytes");
}

#[test]
fn cve_2022_0669_extra_descriptors() {
    let fds = junk(1);
    for request in [
        request::GET_FEATURES,
        request::SET_OWNER,
        request::GET_STATUS,
    ] {
        let text = with_wire(|wire| ignore(wire.send(request, &[], &borrowed(&fds))));
        assert_names(&text, "1 descriptors instead of 0");
    }
    let fds = junk(20);
    let text =
        with_wire(|wire| ignore(wire.send(request::SET_VRING_CALL, &number(0), &borrowed(&fds))));
    assert_names(&text, "descriptors");
}

#[test]
fn missing_descriptors() {
    let ram = Ram::new(1 << 20);
    let region = ram.regions()[0].to_bytes();
    let table = [state(1, 0), region.clone()].concat();
    let single = [vec![0; 8], region].concat();
    for (request, payload) in [
        (request::SET_MEM_TABLE, table),
        (request::ADD_MEM_REG, single),
        (request::SET_VRING_KICK, number(0)),
        (request::SET_VRING_CALL, number(1)),
    ] {
        let text = with_wire(|wire| ignore(wire.send(request, &payload, &[])));
        assert_names(&text, "0 descriptors instead of 1");
    }
}

#[test]
fn cve_2020_10723_ring_number_past_the_last() {
    let fds = junk(1);
    for (request, payload, fds) in [
        (request::SET_VRING_NUM, state(32, 256), &[][..]),
        (request::SET_VRING_NUM, state(0x8000_0000, 256), &[]),
        (request::SET_VRING_BASE, state(200, 0), &[]),
        (request::SET_VRING_ADDR, addresses(255, 0, 0, 0), &[]),
        (request::GET_VRING_BASE, state(33, 0), &[]),
        (request::SET_VRING_ENABLE, state(u32::MAX, 1), &[]),
        (request::SET_VRING_KICK, number(0xff), &borrowed(&fds)),
        (request::SET_VRING_CALL, number(0x2f), &borrowed(&fds)),
    ] {
        let text = with_wire(|wire| ignore(wire.send(request, &payload, fds)));
        assert_names(&text, "there is no ring");
    }
}

#[test]
fn features_that_were_not_offered() {
    let text = with_wire(|wire| ignore(wire.send(request::SET_FEATURES, &number(1 << 63), &[])));
    assert_names(&text, "0x8000000000000000");
    let backend_req = number(1 << 5);
    let text =
        with_wire(|wire| ignore(wire.send(request::SET_PROTOCOL_FEATURES, &backend_req, &[])));
    assert_names(&text, "not offered: 0x20");
}

#[test]
fn replies_that_are_never_read() {
    let text = against(|plane| {
        let wire = plane.attach(BAD);
        while wire.send(request::GET_FEATURES, &[], &[]) {}
    });
    assert_names(&text, "does not read its replies");
}

#[test]
fn a_message_cut_short_is_no_fault_but_the_end() {
    let mut plane = Plane::new();
    let wire = plane.attach(BAD);
    assert!(wire.send_raw(
        &message(request::SET_FEATURES, VERSION, &number(0))[..15],
        &[]
    ));
    drop(wire);
    assert_eq!(plane.detached(BAD).0, Reason::Disconnected);
}

#[test]
fn a_failure_is_acknowledged_before_the_port_is_lost() {
    let mut plane = Plane::new();
    let wire = plane.attach(BAD);
    wire.send(
        request::SET_PROTOCOL_FEATURES,
        &number(features::protocol::REPLY_ACK),
        &[],
    );
    let bad = message(request::SET_VRING_NUM, VERSION | NEED_REPLY, &state(0, 3));
    assert!(wire.send_raw(&bad, &[]));
    assert_eq!(wire.number(request::SET_VRING_NUM), 1);
    assert_names(&plane.fault(BAD), "not a power of two");
}
