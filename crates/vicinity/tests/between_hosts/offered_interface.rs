//! Programs of ordinary users, to which a daemon offers the interface of its uplink, as ranks of MPI are.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use message::remote::{DATAGRAMS_VARIABLE, INTERFACE_VARIABLE};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{until, vicinity};
use crate::hosts::Hosts;
use crate::shared_interface::{Program, all_find_closed, all_pairs, all_reach};

/// Two ordinary users, and a group that exists as a number only.
pub(crate) const USERS: [&str; 2] = ["65534", "1"];
pub(crate) const GROUP: &str = "4711";

/// The keys of a daemon whose users of the group get sockets.
pub(crate) const SOCKETS: [&str; 2] = ["unix-group = \"4711\"", ", program-sockets = true"];

/// Two hosts with daemons of these keys, which know each other.
fn with_daemons(keys: [&str; 2]) -> (Hosts, [usize; 2]) {
    with_daemons_on(Hosts::new(false), keys)
}

/// Starts such daemons on hosts.
pub(crate) fn with_daemons_on(mut hosts: Hosts, keys: [&str; 2]) -> (Hosts, [usize; 2]) {
    // Ordinary users run the programs, which are not elsewhere for them.
    let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    open(hosts.folder.path());
    for program in [
        std::env::current_exe().unwrap(),
        vicinity().get_program().into(),
    ] {
        let copy = copy_of(&hosts, &program);
        fs::copy(&program, &copy).unwrap();
        open(&copy);
    }
    let daemons = [0, 1].map(|place| hosts.serve_with_keys(place, &[], keys));
    for (place, other) in [(0, " beta"), (1, " alpha")] {
        let board = hosts.runtime(place).join("message");
        until(other, || hosts.knows(&board, other));
    }
    (hosts, daemons)
}

pub(crate) fn copy_of(hosts: &Hosts, program: &Path) -> PathBuf {
    hosts.folder.path().join(program.file_name().unwrap())
}

/// Returns the command of a program that a user runs who is in these groups. It is not in the network namespace of its host.
fn as_user(hosts: &Hosts, user: &str, groups: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--groups", groups]);
    command.arg(copy_of(hosts, program));
    // Its addresses are not those of the host.
    command.env(DATAGRAMS_VARIABLE, "");
    command
}

/// Starts a program of a user of the group, which takes what the daemon offers.
fn start(hosts: &Hosts, place: usize, user: &str, endpoint: u32) -> Program {
    let program = std::env::current_exe().unwrap();
    let mut command = as_user(hosts, user, GROUP, &program);
    command.env("VICINITY_TEST_RUNTIME", hosts.runtime(place));
    Program::spawn(command, endpoint)
}

/// Starts such a program of an ordinary user.
pub(crate) fn start_program(hosts: &Hosts, place: usize, endpoint: u32) -> Program {
    start(hosts, place, USERS[0], endpoint)
}

/// Runs `vicinity message` as a user, and returns its result and errors.
fn message(hosts: &Hosts, groups: &str, interface: Option<&str>, words: &[&str]) -> (bool, String) {
    let program: PathBuf = vicinity().get_program().into();
    let mut command = as_user(hosts, USERS[0], groups, &program);
    command.arg("--runtime-dir").arg(hosts.runtime(0));
    command.arg("message").args(words);
    if let Some(interface) = interface {
        command.env(INTERFACE_VARIABLE, interface);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

/// Returns how many programs serve the interface of a host.
fn serving(hosts: &Hosts, place: usize) -> usize {
    let folder = hosts.runtime(place).join("message-mx/processes");
    fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn programs_of_several_users_serve_the_interface_that_a_daemon_offers() {
    let (mut hosts, [daemon, _]) = with_daemons(SOCKETS);
    let [nobody, other] = USERS;
    let mut programs: Vec<_> = [(0, nobody, 1), (0, other, 2), (1, nobody, 1), (1, other, 5)]
        .map(|(place, user, endpoint)| start(&hosts, place, user, endpoint))
        .into();
    assert_eq!([serving(&hosts, 0), serving(&hosts, 1)], [2, 2]);
    // On the same boards, a program of root that uses the daemon.
    for place in [0, 1] {
        let board = hosts.runtime(place).join("message");
        programs.push(Program::start_on(&hosts, place, 9, Some(&board)));
    }
    all_pairs(&mut programs);

    // A killed program leaves its folder and sockets, which a program of another user replaces.
    let killed = programs.remove(0);
    let address = killed.address();
    killed.kill();
    all_find_closed(&mut programs, &address);
    programs.insert(0, start(&hosts, 0, other, 1));
    assert_eq!(serving(&hosts, 0), 2);
    all_reach(&mut programs, &address);

    // The programs' connections do not need the daemon, but those that begin without it use what it has left.
    let uplink = hosts.process(daemon, "message-uplink");
    let uplink = Pid::from_raw(uplink.try_into().unwrap()).unwrap();
    kill_process(uplink, Signal::KILL).unwrap();
    all_pairs(&mut programs[..4]);
    programs.push(start(&hosts, 0, nobody, 7));
    assert_eq!(serving(&hosts, 0), 3);
    hosts.children[daemon].kill().unwrap();
    hosts.children[daemon].wait().unwrap();
    all_pairs(&mut programs[..4]);
    hosts.serve_with_keys(0, &[], SOCKETS);
    let address = programs[4].address();
    until("the way there", || programs[2].ping(&address) == "Success");
    programs.push(start(&hosts, 0, other, 8));
    let address = programs.last().unwrap().address();
    all_reach(&mut programs, &address);
}

#[test]
fn only_users_of_the_group_use_the_board_and_only_with_the_key_its_interface() {
    let (hosts, _) = with_daemons([SOCKETS[0], ""]);
    let mut programs = vec![
        start(&hosts, 0, USERS[0], 1),
        start(&hosts, 0, USERS[1], 2),
        start(&hosts, 1, USERS[0], 3),
    ];
    all_pairs(&mut programs);
    assert_eq!(
        [serving(&hosts, 0), serving(&hosts, 1)],
        [0, 0],
        "by the daemons"
    );
    // Root's programs have the interface without the key.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("VICINITY_TEST_RUNTIME", hosts.runtime(0));
    programs.push(Program::spawn(command, 4));
    assert_eq!(serving(&hosts, 0), 1);
    all_pairs(&mut programs);

    let ping = ["ping", "beta:77"];
    let (done, said) = message(&hosts, GROUP, None, &ping);
    assert!(!done && said.contains("endpoint is not open"), "{said}");
    let (done, said) = message(&hosts, "4712", None, &ping);
    assert!(!done && said.contains("Permission denied"), "{said}");
    let (done, said) = message(&hosts, GROUP, Some("mx"), &ping);
    assert!(
        !done && said.contains("give the program CAP_NET_RAW"),
        "{said}"
    );
}

#[test]
fn a_user_may_leave_the_interface_to_the_daemon() {
    let (hosts, _) = with_daemons(SOCKETS);
    let mut answer = start(&hosts, 1, USERS[0], 7);
    assert_eq!(answer.obey("find alpha"), "true");
    // Links by the daemon, also those that are refused.
    let links = || {
        let counters = hosts.counters(0);
        let members = counters["members"].as_array().unwrap();
        let host = members.iter().find(|member| member["name"] == "host");
        host.unwrap()["links_total"].as_u64().unwrap()
    };
    for (interface, is_by_daemon) in [(None, false), (Some(""), true)] {
        let before = links();
        let (done, said) = message(&hosts, GROUP, interface, &["ping", "beta:77"]);
        assert!(!done && said.contains("endpoint is not open"), "{said}");
        assert_eq!(links() > before, is_by_daemon);
    }
}
