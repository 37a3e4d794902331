//! Source addresses and services.

use front_end::wire::request;
use front_end::{Nic, frame};
use switch::guard::{Rules, SourceRules};
use switch::mac::Mac;

use crate::common::Plane;
use crate::frames::{
    LINK_LOCAL, are_dropped, arp, ethernet, from_station_1, ipv4, ipv6, neighbour, own, passes, udp,
};
use crate::{assert_lost, assert_nothing, nics};

#[test]
fn a_port_sends_with_its_own_mac_address() {
    let macs = vec![Mac::from_octets(frame::mac(1))];
    let rules = Rules {
        source: SourceRules {
            macs,
            ..SourceRules::default()
        },
        ..Rules::default()
    };
    passes(
        &rules,
        &[
            from_station_1(0x88b5, &[1; 60]),
            from_station_1(0x8100, &[0, 5, 8, 0, 1, 2]),
        ],
    );
    let foreign = [frame::mac(2), [0; 6], frame::BROADCAST];
    let foreign = foreign.map(|mac| ethernet(mac, 0x88b5, &[1; 60]));
    are_dropped(&rules, |drops| drops.mac_spoofed, &foreign);
}

#[test]
fn rfc826_arp_claims_own_addresses() {
    let (me, ip) = (frame::mac(1), [10, 0, 0, 1]);
    let probe = arp(1, me, [0; 4]);
    let rarp = [&[0, 1, 8, 0, 6, 4, 0, 3][..], &me, &[0; 4], &me, &[0; 4]].concat();
    passes(
        &own(),
        &[
            arp(1, me, ip),
            arp(2, me, ip),
            probe,
            from_station_1(0x8035, &rarp),
        ],
    );
    let spoofed = [
        arp(2, me, [10, 0, 0, 2]),
        arp(1, me, [10, 0, 0, 2]),
        arp(2, frame::mac(2), ip),
        arp(2, me, [0; 4]),
        from_station_1(
            0x8035,
            &[&rarp[..8], &frame::mac(2), &[0; 4], &me, &[0; 4]].concat(),
        ),
    ];
    are_dropped(&own(), |drops| drops.arp_spoofed, &spoofed);
    let mut odd = arp(1, me, ip);
    odd[18] = 8;
    let short = arp(1, me, ip)[..41].to_vec();
    are_dropped(&own(), |drops| drops.not_understood, &[odd, short]);
}

#[test]
fn rfc791_ipv4_has_an_own_source() {
    let me = [10, 0, 0, 1];
    passes(
        &own(),
        &[
            ipv4(me, 17, 0, 0, &udp(1000, 53)),
            ipv4(me, 6, 0x4000, 40, &[3; 600]),
            ipv4(me, 17, 0x2000, 0, &udp(1000, 53)),
            ipv4(me, 17, 0x00b9, 0, &[9; 40]),
            ipv4([0; 4], 17, 0, 0, &udp(68, 67)),
            ipv4([0; 4], 2, 0, 4, &[0x16, 0, 0, 0, 239, 1, 2, 3]),
            // Bytes that look like a service's header are in the middle of a packet.
            ipv4(me, 17, 0x00b9, 0, &udp(67, 68)),
            ipv4(me, 2, 0x00b9, 0, &[0x11, 10, 0, 0, 0, 0, 0, 0]),
        ],
    );
    are_dropped(
        &own(),
        |drops| drops.ip_spoofed,
        &[
            ipv4([10, 0, 0, 2], 17, 0, 0, &udp(1000, 53)),
            ipv4([10, 0, 0, 2], 6, 0x4000, 40, &[3; 600]),
            ipv4([10, 0, 0, 2], 17, 0x00b9, 0, &[9; 40]),
            ipv4([0; 4], 17, 0, 0, &udp(1000, 53)),
            ipv4([0; 4], 6, 0, 0, &[0; 20]),
            // Only a host without an address may use the unspecified address.
            ipv4([10, 0, 0, 2], 17, 0, 0, &udp(68, 67)),
            ipv4([10, 0, 0, 2], 2, 0, 4, &[0x16, 0, 0, 0, 239, 1, 2, 3]),
        ],
    );
    let whole = ipv4(me, 6, 0, 40, &[]);
    let mut no_length = ipv4(me, 6, 0, 0, &[0; 20]);
    no_length[14] = 0x44;
    let tagged = from_station_1(
        0x8100,
        &[&[0, 5][..], &ipv4(me, 6, 0, 0, &[0; 20])[12..]].concat(),
    );
    let mut other_version = ipv4(me, 6, 0, 0, &[0; 20]);
    other_version[14] = 0x65;
    let odd = [
        whole[..70].to_vec(),
        whole[..30].to_vec(),
        no_length,
        other_version,
        tagged,
        from_station_1(0x88b5, &[0; 50]),
        from_station_1(0x0022, &[0; 50]),
    ];
    are_dropped(&own(), |drops| drops.not_understood, &odd);
}

#[test]
fn rfc8200_ipv6_has_an_own_source() {
    let hop_by_hop = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(1, 2)].concat();
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp(1, 2)].concat();
    let good = [
        ipv6("fd00::1", 17, &udp(1000, 53)),
        ipv6(LINK_LOCAL, 6, &[0; 700]),
        ipv6("fd00::1", 0, &hop_by_hop),
        ipv6("fd00::1", 44, &fragment),
        ipv6("::", 58, &[143, 0, 0, 0, 0, 0, 0, 0]),
        ipv6("::", 58, &[131, 0, 0, 0, 0, 0, 0, 0]),
        ipv6("::", 58, &[132, 0, 0, 0, 0, 0, 0, 0]),
        ipv6(
            "fd00::1",
            44,
            &[&[17, 0, 1, 0, 0, 0, 0, 9][..], &udp(547, 546)].concat(),
        ),
    ];
    passes(&own(), &good);
    let foreign = [
        ipv6("fd00::2", 17, &udp(1000, 53)),
        ipv6("fe80::1", 6, &[0; 700]),
        ipv6("fd00::2", 0, &hop_by_hop),
        ipv6("::", 17, &udp(1, 2)),
        ipv6("fd00::2", 58, &[128, 0, 0, 0, 0, 0, 0, 0]),
        ipv6("fd00::2", 58, &[143, 0, 0, 0, 0, 0, 0, 0]),
    ];
    are_dropped(&own(), |drops| drops.ip_spoofed, &foreign);
    // Extension headers behind the end of the snapshot, and a truncated header.
    let long = [&[17, 20][..], &[0; 166], &udp(1, 2)].concat();
    let mut other_version = ipv6("fd00::1", 17, &udp(1, 2));
    other_version[14] = 0x40;
    let odd = [
        ipv6("fd00::1", 60, &long),
        ipv6("fd00::1", 60, &[17]),
        ipv6("fd00::1", 17, &udp(1, 2))[..40].to_vec(),
        other_version,
    ];
    are_dropped(&own(), |drops| drops.not_understood, &odd);
}

#[test]
fn rfc4861_neighbour_discovery_claims_own_addresses() {
    let (me, other) = (Some(frame::mac(1)), Some(frame::mac(2)));
    let icmp = |source, body: Vec<u8>| ipv6(source, 58, &body);
    let good = [
        icmp("fd00::1", neighbour(135, "fd00::2", me)),
        icmp("fd00::1", neighbour(136, "fd00::1", me)),
        icmp("fd00::1", neighbour(136, LINK_LOCAL, None)),
        // Padding of the frame is not an option.
        [icmp("fd00::1", neighbour(136, "fd00::1", me)), vec![0; 10]].concat(),
        // Duplicate address detection.
        icmp("::", neighbour(135, "fd00::1", None)),
        icmp(
            "fd00::1",
            [&[133, 0, 0, 0, 0, 0, 0, 0, 1, 1][..], &frame::mac(1)].concat(),
        ),
    ];
    passes(&own(), &good);
    let bad = [
        icmp("fd00::1", neighbour(135, "fd00::2", other)),
        icmp("fd00::1", neighbour(136, "fd00::1", other)),
        icmp("fd00::1", neighbour(136, "fd00::2", me)),
        icmp(
            "fd00::1",
            [&[133, 0, 0, 0, 0, 0, 0, 0, 1, 1][..], &frame::mac(2)].concat(),
        ),
    ];
    are_dropped(&own(), |drops| drops.nd_spoofed, &bad);
    // From the unspecified address, neither a link-layer address option nor an advertisement is allowed.
    let nobodys = [
        icmp("::", neighbour(135, "fd00::1", me)),
        icmp("::", neighbour(136, "fd00::1", None)),
        icmp("::", neighbour(136, "fd00::1", me)),
    ];
    are_dropped(&own(), |drops| drops.ip_spoofed, &nobodys);
    let mut endless = neighbour(136, "fd00::1", me);
    endless[25] = 0;
    let mut two = neighbour(136, "fd00::1", me);
    two.extend(neighbour(136, "fd00::1", other).split_off(24));
    let mut past_its_end = neighbour(136, "fd00::1", me);
    past_its_end[25] = 2;
    let without_target = neighbour(135, "fd00::2", None)[..16].to_vec();
    let odd = [endless, two, past_its_end, without_target];
    let mut odd = odd.map(|message| icmp("fd00::1", message)).to_vec();
    // RFC 6980, 5: these messages must not be fragmented.
    for kind in 133..=137 {
        let message = neighbour(kind, "fd00::1", me);
        let fragment = [&[58, 0, 0, 0, 0, 0, 0, 9][..], &message].concat();
        odd.push(ipv6("fd00::1", 44, &fragment));
    }
    are_dropped(&own(), |drops| drops.not_understood, &odd);
}

#[test]
fn only_allowed_ports_offer_services() {
    let router = [&[134, 0, 0, 0][..], &[0; 12]].concat();
    let behind = |header: &[u8; 4]| [&header[..], &[0; 4], &router].concat();
    let offers = [
        ipv6(LINK_LOCAL, 58, &router),
        ipv6(LINK_LOCAL, 58, &[&[137, 0, 0, 0][..], &[0; 36]].concat()),
        ipv4([10, 0, 0, 1], 17, 0, 0, &udp(67, 68)),
        // From another UDP port: clients check the destination port only (RFC 2131, 4.1; RFC 7610, 3).
        ipv4([10, 0, 0, 1], 17, 0, 0, &udp(4011, 68)),
        ipv4([10, 0, 0, 1], 17, 0, 4, &udp(40_000, 68)),
        ipv4([10, 0, 0, 1], 17, 0, 0, &udp(67, 40_000)),
        ipv6(LINK_LOCAL, 17, &udp(4011, 546)),
        ipv6(
            LINK_LOCAL,
            60,
            &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(4011, 546)].concat(),
        ),
        // A querier gets the frames of all groups.
        ipv4([10, 0, 0, 1], 2, 0, 4, &[0x11, 10, 0, 0, 0, 0, 0, 0]),
        ipv6(LINK_LOCAL, 58, &[&[130, 0, 0, 0][..], &[0; 20]].concat()),
        ipv6(LINK_LOCAL, 17, &udp(547, 546)),
        // Behind options, a routing header, and an authentication header.
        ipv6(LINK_LOCAL, 0, &behind(&[58, 0, 1, 4])),
        ipv6(LINK_LOCAL, 60, &behind(&[58, 0, 1, 4])),
        ipv6(LINK_LOCAL, 43, &behind(&[58, 0, 0, 0])),
        ipv6(LINK_LOCAL, 51, &[&[58, 4][..], &[0; 22], &router].concat()),
    ];
    are_dropped(&own(), |drops| drops.rogue_service, &offers);
    let mut may = own();
    (may.source.router, may.source.dhcp_server) = (true, true);
    passes(&may, &offers);
    // Addresses are unrestricted, and services are restricted.
    let only = Rules {
        source: SourceRules {
            router: false,
            dhcp_server: false,
            ..SourceRules::default()
        },
        ..Rules::default()
    };
    are_dropped(&only, |drops| drops.rogue_service, &offers);
    passes(
        &only,
        &[
            ipv4([10, 0, 0, 9], 17, 0, 0, &udp(9, 9)),
            from_station_1(0x88b5, &[0; 50]),
        ],
    );
}

/// Bytes behind the end of a packet are padding, not a transport header.
#[test]
fn rfc791_and_rfc8200_padding_is_not_parsed() {
    let mut four = ipv4([10, 0, 0, 1], 17, 0, 0, &udp(9, 9));
    four[14 + 2..14 + 4].copy_from_slice(&20_u16.to_be_bytes());
    let mut six = ipv6("fd00::1", 17, &udp(9, 9));
    six[14 + 4..14 + 6].copy_from_slice(&3_u16.to_be_bytes());
    are_dropped(&own(), |drops| drops.not_understood, &[four, six]);
}

/// A front-end may request the announcement of any address (vhost-user, `SEND_RARP`).
#[test]
fn a_port_is_not_announced_with_another_address() {
    let mut plane = Plane::new();
    let [a, mut b] = nics(&mut plane, [own(), Rules::default()]);
    let announce = |nic: &Nic, octets: [u8; 6]| {
        let payload = [&octets[..], &[0, 0]].concat();
        assert!(nic.wire.send(request::SEND_RARP, &payload, &[]));
        nic.sync();
    };
    announce(&a, frame::mac(2));
    announce(&a, [0x01, 0, 0x5e, 0, 0, 1]);
    assert_lost(&mut plane, 1, |drops| drops.mac_spoofed, 2);
    assert_nothing(&mut b);
    // If the announcement had been accepted, frames would go to the wrong port now.
    announce(&a, frame::mac(1));
    assert_eq!(b.wait_to_receive().frame[6..12], frame::mac(1));
    // A port without rules may use any address except a group address.
    announce(&b, frame::BROADCAST);
    assert_lost(&mut plane, 2, |drops| drops.mac_spoofed, 1);
}

/// Each rule is enforced when it is the only rule of a port.
#[test]
fn each_rule_is_enforced_alone() {
    let source = own().source;
    let alone = |source| Rules {
        source,
        ..Rules::default()
    };
    let ips = alone(SourceRules {
        ips: source.ips,
        ..SourceRules::default()
    });
    let foreign = ipv4([10, 0, 0, 2], 17, 0, 0, &udp(9, 9));
    are_dropped(&ips, |drops| drops.ip_spoofed, &[foreign]);
    let no_router = alone(SourceRules {
        router: false,
        ..SourceRules::default()
    });
    let advertisement = ipv6(LINK_LOCAL, 58, &[&[134, 0, 0, 0][..], &[0; 12]].concat());
    are_dropped(&no_router, |drops| drops.rogue_service, &[advertisement]);
    let no_server = alone(SourceRules {
        dhcp_server: false,
        ..SourceRules::default()
    });
    let answer = ipv4([10, 0, 0, 9], 17, 0, 0, &udp(67, 68));
    are_dropped(&no_server, |drops| drops.rogue_service, &[answer]);
}
