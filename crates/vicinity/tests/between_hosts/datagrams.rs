//! Replies to pulls in datagrams of UDP, between programs that serve their interfaces.

use crate::common::until;
use crate::hosts::{Hosts, V4, V6};
use crate::offered_interface;
use crate::shared_interface::Program;

/// Fewer than the datagrams of a ping's messages of 1,000,003 and 100,000 bytes, as the kernel counts them: joined.
const OF_A_PING: u64 = 15;

/// Two hosts with an MTU for datagrams of 8 KiB, and the address that such hosts have by themselves.
fn hosts() -> Hosts {
    let hosts = Hosts::new(false);
    hosts.set_mtu(9000);
    for place in [0, 1] {
        until("the link-local address", || {
            let found = hosts.ip(place, &["-6", "-o", "addr", "show", "dev", "mx"]);
            found.contains("fe80:") && !found.contains("tentative")
        });
    }
    hosts
}

/// Waits until the programs' probes of the path were answered: they send the reply of a pull in datagrams of this family.
fn until_datagrams(hosts: &Hosts, family: &str, programs: &mut [Program; 2]) {
    let [here, there] = programs;
    until("datagrams", || {
        let before = hosts.datagrams_received(1, family);
        assert_eq!(here.ping(&there.address()), "Success");
        hosts.datagrams_received(1, family) >= before + OF_A_PING
    });
}

fn assert_pings(hosts: &Hosts, family: &str, programs: &mut [Program; 2], by_datagrams: bool) {
    let received = || [0, 1].map(|place| hosts.datagrams_received(place, family));
    for (from, to) in [(0, 1), (1, 0)] {
        let to = programs[to].address();
        let before = received();
        assert_eq!(programs[from].ping(&to), "Success");
        let after = received();
        // The answer is as long as the request.
        for place in [0, 1] {
            let more = after[place] - before[place];
            assert_eq!(more >= OF_A_PING, by_datagrams, "{more} datagrams");
        }
    }
}

#[test]
fn large_messages_between_programs_travel_in_datagrams() {
    for family in [V6, V4] {
        let hosts = hosts();
        if family == V4 {
            for (place, address) in [(0, "10.77.0.1/24"), (1, "10.77.0.2/24")] {
                hosts.ip(place, &["addr", "add", address, "dev", "mx"]);
            }
        }
        let mut programs = [0, 1].map(|place| Program::start(&hosts, place, 3));
        until_datagrams(&hosts, family, &mut programs);
        assert_pings(&hosts, family, &mut programs, true);
    }
}

/// The programs are those of ordinary users, in another network namespace: the daemon gives them sockets of its own.
#[test]
fn so_they_do_between_programs_that_have_their_sockets_from_daemons() {
    let (hosts, _) = offered_interface::with_daemons_on(hosts(), offered_interface::SOCKETS);
    let mut programs = [0, 1].map(|place| offered_interface::start_program(&hosts, place, 3));
    until_datagrams(&hosts, V6, &mut programs);
    assert_pings(&hosts, V6, &mut programs, true);
}

/// As behind a firewall, or without a path for datagrams.
#[test]
fn where_datagrams_do_not_arrive_large_messages_travel_in_frames() {
    let hosts = hosts();
    let mut programs = [0, 1].map(|place| Program::start(&hosts, place, 3));
    until_datagrams(&hosts, V6, &mut programs);
    // Replies of host 0 do not arrive any more, and those of host 1 do.
    hosts.ip(0, &["-6", "route", "del", "fe80::/64", "dev", "mx"]);
    let [here, there] = &mut programs;
    let (here_at, there_at) = (here.address(), there.address());
    assert_eq!(here.ping(&there_at), "Success");
    let before = hosts.datagrams_received(1, V6);
    assert_eq!(there.ping(&here_at), "Success");
    assert_eq!(here.ping(&there_at), "Success");
    assert_eq!(hosts.datagrams_received(1, V6), before);
    assert!(hosts.datagrams_received(0, V6) >= before + OF_A_PING);
}

/// A program that begins on such hosts.
#[test]
fn a_program_begins_with_frames_where_datagrams_do_not_arrive() {
    let hosts = hosts();
    for place in [0, 1] {
        hosts.ip(place, &["-6", "route", "del", "fe80::/64", "dev", "mx"]);
    }
    let mut programs = [0, 1].map(|place| Program::start(&hosts, place, 3));
    assert_pings(&hosts, V6, &mut programs, false);
}
