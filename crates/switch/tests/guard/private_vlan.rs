//! Roles of private VLANs (RFC 5517).

use front_end::frame;
use switch::guard::{Role, Rules};

use crate::common::Plane;
use crate::{assert_lost, assert_nothing, nics, send};

#[test]
fn private_ports_reach_only_promiscuous_ports() {
    let role = |role| Rules {
        role,
        ..Rules::default()
    };
    let mut plane = Plane::new();
    let rules = [
        role(Role::Private),
        role(Role::Private),
        role(Role::Open),
        role(Role::Promiscuous),
    ];
    let [mut a, mut b, mut open, mut all] = nics(&mut plane, rules);
    let hello = |station| frame::numbered(frame::BROADCAST, frame::mac(station), 1, 60);
    let to = |station, from| frame::numbered(frame::mac(station), frame::mac(from), 2, 80);
    send(&mut a, &hello(1));
    assert_eq!(all.wait_to_receive().frame, hello(1));
    send(&mut b, &hello(2));
    assert_eq!(all.wait_to_receive().frame, hello(2));
    send(&mut open, &hello(3));
    assert_eq!(all.wait_to_receive().frame, hello(3));
    for (nic, from, station) in [(&mut a, 1, 2), (&mut b, 2, 3), (&mut open, 3, 1)] {
        send(nic, &to(station, from));
    }
    for nic in [&mut a, &mut b, &mut open] {
        assert_nothing(nic);
    }
    for port in 1..=3 {
        assert_lost(&mut plane, port, |drops| drops.private, 1);
    }
    send(&mut all, &hello(4));
    for nic in [&mut a, &mut b, &mut open] {
        assert_eq!(nic.wait_to_receive().frame, hello(4));
    }
    for (station, nic) in [(1, &mut a), (2, &mut b), (3, &mut open)] {
        send(&mut all, &to(station, 4));
        assert_eq!(nic.wait_to_receive().frame, to(station, 4));
        send(nic, &to(4, station));
        assert_eq!(all.wait_to_receive().frame, to(4, station));
    }
}
