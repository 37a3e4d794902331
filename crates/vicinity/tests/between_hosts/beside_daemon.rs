//! Programs that serve the interface of a daemon's uplink, beside programs that use the daemon.

use std::path::PathBuf;
use std::thread;

use message::{Code, Endpoint, Options, Pattern};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::member::Member;
use crate::common::{HANG, until};
use crate::hosts::{Hosts, two_hosts};
use crate::shared_interface::{Program, all_find_closed, all_pairs, all_reach};

fn board(hosts: &Hosts, place: usize) -> PathBuf {
    hosts.runtime(place).join("message")
}

/// Two hosts with daemons that know each other, and their processes.
fn with_daemons() -> (Hosts, [usize; 2]) {
    let mut hosts = Hosts::new(false);
    let daemons = [0, 1].map(|place| hosts.serve_with(place, &[["web", "db"][place]]));
    until_known(&hosts);
    (hosts, daemons)
}

fn until_known(hosts: &Hosts) {
    for (place, other) in [(0, " beta"), (1, " alpha")] {
        until(other, || hosts.knows(&board(hosts, place), other));
    }
}

/// On each host, two programs that serve the interface, and one that uses the daemon, with endpoint 9.
fn six(hosts: &Hosts) -> Vec<Program> {
    let own = |(place, endpoint)| Program::start(hosts, place, endpoint);
    let mut programs: Vec<_> = [(0, 1), (0, 2), (1, 1), (1, 5)].map(own).into();
    for place in [0, 1] {
        let board = board(hosts, place);
        programs.push(Program::start_on(hosts, place, 9, Some(&board)));
    }
    programs
}

#[test]
fn all_programs_of_two_hosts_reach_each_other() {
    let (hosts, _) = with_daemons();
    let mut programs = six(&hosts);
    all_pairs(&mut programs);
    // All programs of a host are on one board, so each number is there once.
    assert_eq!(programs[0].obey("open 9"), "Busy");
    assert_eq!(programs[4].obey("open 1"), "Busy");
    // A number goes from one kind of program to the other.
    let (nic, _) = programs[0].address();
    assert_eq!(programs[0].obey("close"), "closed");
    assert_eq!(programs[4].obey("close"), "closed");
    until("the end", || {
        programs[2].ping(&(nic.clone(), 1)) == "Closed"
    });
    until("the end", || {
        programs[2].ping(&(nic.clone(), 9)) == "Closed"
    });
    until("the number", || programs[0].obey("open 9") == "open");
    until("the other number", || programs[4].obey("open 1") == "open");
    (programs[0].endpoint, programs[4].endpoint) = (9, 1);
    for endpoint in [1, 9] {
        let address = (nic.clone(), endpoint);
        all_reach(&mut programs, &address);
    }
    all_pairs(&mut programs);
}

/// The daemon's gateway carries these messages: the region that both ends map is the daemon's.
#[test]
fn programs_reach_the_virtual_machines_of_their_host_and_of_the_other() {
    let (hosts, _) = with_daemons();
    let join = |place: usize, name: &str| {
        let socket = hosts
            .runtime(place)
            .join(format!("message-plane/{name}.sock"));
        let member = Member::join(&socket, &hosts.folder.path().join(name));
        until("names", || {
            hosts.knows(&member.board, " alpha") && hosts.knows(&member.board, " beta")
        });
        member
    };
    let members = [join(0, "web"), join(1, "db")];
    let mut programs = vec![Program::start(&hosts, 0, 1), Program::start(&hosts, 1, 1)];
    for (place, member) in members.iter().enumerate() {
        // Their endpoints have the same number as those of the hosts' programs.
        programs.push(Program::start_on(&hosts, place, 1, Some(&member.board)));
    }
    all_pairs(&mut programs);
    let web = programs[2].address();
    assert_eq!(programs[1].obey("find web"), "true");
    programs.remove(2).kill();
    all_find_closed(&mut programs[..2], &web);
    all_pairs(&mut programs);
}

#[test]
fn a_program_that_is_killed_leaves_its_endpoint_to_the_daemon() {
    let (hosts, _) = with_daemons();
    let mut programs = six(&hosts);
    all_pairs(&mut programs);
    let killed = programs.remove(0);
    let address = killed.address();
    killed.kill();
    all_find_closed(&mut programs, &address);
    programs.push(Program::start_on(&hosts, 0, 1, Some(&board(&hosts, 0))));
    all_reach(&mut programs, &address);
    all_pairs(&mut programs);
}

#[test]
fn programs_go_on_while_the_daemon_or_its_uplink_starts_again() {
    let (mut hosts, [daemon, _]) = with_daemons();
    let mut programs = six(&hosts);
    all_pairs(&mut programs);
    let uplink = hosts.process(daemon, "message-uplink");
    let uplink = Pid::from_raw(uplink.try_into().unwrap()).unwrap();
    kill_process(uplink, Signal::KILL).unwrap();
    // The programs' own connections do not notice.
    all_pairs(&mut programs[..4]);
    let reach_again = |programs: &mut [Program]| {
        let mediated = programs[4].address();
        let other = programs[2].address();
        until("the way there", || programs[2].ping(&mediated) == "Success");
        until("the way back", || programs[4].ping(&other) == "Success");
    };
    reach_again(&mut programs);
    hosts.children[daemon].kill().unwrap();
    hosts.children[daemon].wait().unwrap();
    all_pairs(&mut programs[..4]);
    // Without the daemon, a program answers for the host.
    let closed = (programs[0].address().0, 77);
    assert_eq!(programs[2].ping(&closed), "Closed");
    // A program that begins now has the same board as the others.
    programs.push(Program::start(&hosts, 0, 3));
    hosts.serve_with(0, &["web"]);
    reach_again(&mut programs);
    for place in [0, 1, 2, 3, 5, 6] {
        let address = programs[place].address();
        all_reach(&mut programs, &address);
    }
}

#[test]
fn a_daemon_does_not_serve_an_interface_that_programs_have_begun_to_serve() {
    let mut hosts = Hosts::new(false);
    let mut programs = vec![Program::start(&hosts, 0, 1), Program::start(&hosts, 1, 1)];
    all_pairs(&mut programs);
    hosts.serve(0);
    until("restarts of the uplink", || {
        hosts.counters(0)["uplink_restarts"].as_u64() > Some(0)
    });
    all_pairs(&mut programs);
    programs.remove(0).kill();
    hosts.serve(1);
    programs.remove(0).kill();
    until_known(&hosts);
}

#[test]
fn a_number_is_free_when_the_daemon_has_sent_everything() {
    const MESSAGES: u64 = 20;
    const LENGTH: usize = 40;
    let receive = |endpoint: &mut Endpoint, value| {
        let receive = endpoint.irecv(Pattern::ANY, vec![0; LENGTH]).unwrap();
        let got = endpoint.wait(receive, Some(HANG)).unwrap().unwrap().status;
        assert_eq!((got.code, got.value), (Code::Success, value));
    };
    let (hosts, first, mut b) = two_hosts(Some(["0", "0", "1"]));
    drop(first);
    let options = Options {
        endpoint: Some(5),
        ..Options::default()
    };
    let mut a = Endpoint::open(&hosts.board(0), &options).unwrap();
    let address = b.address();
    // Both wait in calls, which accept connects also where other programs want the processor.
    let to_b = thread::scope(|scope| {
        let receives = scope.spawn(|| receive(&mut b, 0));
        let to_b = a.connect(address, 0, Some(HANG)).unwrap();
        let sent = a.isend(to_b, 0, vec![0; LENGTH]).unwrap();
        a.wait(sent, Some(HANG)).unwrap().unwrap();
        receives.join().unwrap();
        to_b
    });
    let mut program = Program::start(&hosts, 0, 6);
    // The wire between the hosts.
    let wire = Pid::from_child(&hosts.children[0]);
    kill_process(wire, Signal::STOP).unwrap();
    for value in 1..MESSAGES {
        let sent = a.isend(to_b, value, vec![0; LENGTH]).unwrap();
        assert!(a.is_ended(sent).unwrap());
    }
    drop(a);
    assert_eq!(program.obey("open 5"), "Busy");
    kill_process(wire, Signal::CONT).unwrap();
    until("the number", || program.obey("open 5") == "open");
    for value in 1..MESSAGES {
        receive(&mut b, value);
    }
}
