//! Programs of ordinary users without sockets of the daemon: the daemons introduce them to each other, and they send each other datagrams.

use std::path::Path;
use std::time::{Duration, Instant};

use message::remote::DATAGRAMS_VARIABLE;

use crate::common::until;
use crate::hosts::{Hosts, V4, V6};
use crate::offered_interface::{GROUP, SOCKETS, USERS, copy_of, with_daemons_on};
use crate::shared_interface::{Program, all_find_closed, all_pairs, all_reach};

/// Users of the group may use the board, and not the interface.
const NO_SOCKETS: [&str; 2] = [SOCKETS[0], ""];

/// The user's choice of an interface for datagrams.
const CHOSEN: Option<&str> = None;
const NONE: Option<&str> = Some("");

/// Two hosts with daemons, and an MTU. The hosts have the addresses that they have by themselves, or some of IPv4.
fn hosts(mtu: u32, family: &str) -> (Hosts, [usize; 2]) {
    let hosts = Hosts::new(false);
    hosts.set_mtu(mtu);
    if family == V4 {
        for (place, address) in [(0, "10.77.0.1/24"), (1, "10.77.0.2/24")] {
            hosts.ip(place, &["addr", "add", address, "dev", "mx"]);
        }
    }
    for place in [0, 1] {
        until("the link-local address", || {
            let found = hosts.ip(place, &["-6", "-o", "addr", "show", "dev", "mx"]);
            found.contains("fe80:") && !found.contains("tentative")
        });
    }
    with_daemons_on(hosts, NO_SOCKETS)
}

/// Starts a program of a user in the network namespace of a host.
fn start(hosts: &Hosts, place: usize, user: &str, endpoint: u32, chosen: Option<&str>) -> Program {
    let mut command = hosts.within(place, Path::new("setpriv"));
    command.args(["--reuid", user, "--regid", user, "--groups", GROUP]);
    command.arg(copy_of(hosts, &std::env::current_exe().unwrap()));
    command.env("VICINITY_TEST_RUNTIME", hosts.runtime(place));
    if let Some(chosen) = chosen {
        command.env(DATAGRAMS_VARIABLE, chosen);
    }
    Program::spawn(command, endpoint)
}

fn pair(hosts: &Hosts) -> [Program; 2] {
    [0, 1].map(|place| start(hosts, place, USERS[place], 3, CHOSEN))
}

/// Both programs connect to each other, and find the same way.
fn assert_way(programs: &mut [Program], way: &str) {
    let addresses = [0, 1].map(|place| programs[place].address());
    for place in [0, 1] {
        let other = &addresses[1 - place];
        assert_eq!(programs[place].ping(other), "Success");
        assert_eq!(programs[place].way(other), way);
    }
}

#[test]
fn programs_of_ordinary_users_send_each_other_datagrams() {
    for (mtu, family) in [(9000, V6), (4200, V4)] {
        let (hosts, _) = hosts(mtu, family);
        let before = [0, 1].map(|place| hosts.datagrams_received(place, family));
        let mut programs = pair(&hosts);
        assert_way(&mut programs, "datagrams");
        for place in [0, 1] {
            let more = hosts.datagrams_received(place, family) - before[place];
            assert!(more > 30, "{more} datagrams of {family}");
        }
    }
}

/// Several programs on each host, all pairs at the same time: members of one host share memory. Programs end, are killed and begin again.
#[test]
fn several_programs_of_two_hosts_begin_and_end() {
    let (hosts, _) = hosts(9000, V6);
    let places = [(0, 1), (0, 2), (1, 1), (1, 5)];
    let begin = |(place, endpoint)| start(&hosts, place, USERS[place], endpoint, CHOSEN);
    let mut programs: Vec<Program> = places.map(begin).into();
    all_pairs(&mut programs);
    let far = programs[2].address();
    assert_eq!(programs[0].way(&far), "datagrams");

    let address = programs[0].address();
    assert_eq!(programs[0].obey("close"), "closed");
    all_find_closed(&mut programs[1..], &address);
    assert_eq!(programs[0].obey("open 1"), "open");
    all_reach(&mut programs, &address);
    assert_eq!(programs[0].way(&far), "datagrams");

    let killed = programs.remove(2);
    killed.kill();
    all_find_closed(&mut programs, &far);
    programs.insert(2, begin((1, 1)));
    all_reach(&mut programs, &far);
    all_pairs(&mut programs);
    assert_eq!(programs[0].way(&far), "datagrams");
}

/// As behind a firewall: in one direction, or in both. The connects mostly wait, so all three run at the same time.
#[test]
fn where_datagrams_do_not_arrive_the_daemons_carry_the_messages() {
    let without_route = |places: &[usize]| {
        let (hosts, _) = hosts(9000, V6);
        for place in places {
            hosts.ip(*place, &["-6", "route", "del", "fe80::/64", "dev", "mx"]);
        }
        let mut programs = pair(&hosts);
        let began = Instant::now();
        assert_way(&mut programs, "frames");
        assert!(began.elapsed() < Duration::from_secs(10));
    };
    std::thread::scope(|scope| {
        for places in [&[0][..], &[1], &[0, 1]] {
            scope.spawn(move || without_route(places));
        }
    });
}

/// One of the two programs takes no datagrams.
#[test]
fn a_user_may_leave_all_messages_to_the_daemons() {
    let (hosts, _) = hosts(9000, V6);
    for place in [0, 1] {
        let choices = [[NONE, CHOSEN], [CHOSEN, NONE]][place];
        let mut programs = [0, 1].map(|place| start(&hosts, place, USERS[0], 3, choices[place]));
        assert_way(&mut programs, "frames");
    }
}

/// The programs' connections do not need the daemons.
#[test]
fn messages_arrive_while_the_daemons_restart() {
    let (mut hosts, daemons) = hosts(9000, V6);
    let mut programs = pair(&hosts);
    assert_way(&mut programs, "datagrams");
    for daemon in daemons {
        hosts.children[daemon].kill().unwrap();
        hosts.children[daemon].wait().unwrap();
    }
    assert_way(&mut programs, "datagrams");
    for place in [0, 1] {
        hosts.serve_with_keys(place, &[], NO_SOCKETS);
    }
    programs = pair_of_others(&hosts);
    assert_way(&mut programs, "datagrams");
}

fn pair_of_others(hosts: &Hosts) -> [Program; 2] {
    [0, 1].map(|place| start(hosts, place, USERS[0], 4, CHOSEN))
}
