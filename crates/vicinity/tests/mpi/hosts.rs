//! Ranks on two hosts, which are network namespaces. The ranks of a host serve its interface themselves.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::mx::succeed;
use crate::common::open_mpi::{OpenMpi, PARTS};
use crate::common::{Daemon, until, vicinity};
use crate::{BY_PML, LEFT_TO_TCP, ONLY_PLANE, passes, prepare, ranks_in, run_by};

const NAMES: [&str; 2] = ["alpha", "beta"];

/// Jobs that only start and end. Their ranks connect to each other at the same time, each with a key of its own.
const JOBS: usize = 3;

/// Two hosts with two links: `net` for the processes of `mpirun`, and `mx` for messages.
struct Hosts {
    namespaces: [String; 2],
}

fn ip(words: &[&str]) {
    succeed(Command::new("ip").args(words));
}

impl Hosts {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespaces = NAMES.map(|name| format!("mpi-{}-{number}-{name}", std::process::id()));
        let hosts = Self { namespaces };
        let [a, b] = &hosts.namespaces;
        for namespace in [a, b] {
            ip(&["netns", "add", namespace]);
        }
        for link in ["net", "mx"] {
            ip(&[
                "-n", a, "link", "add", link, "mtu", "9000", "type", "veth", "peer", "name", link,
                "mtu", "9000", "netns", b,
            ]);
        }
        for (namespace, address) in [(a, "192.0.2.1/24"), (b, "192.0.2.2/24")] {
            ip(&["-n", namespace, "address", "add", address, "dev", "net"]);
            for link in ["lo", "net", "mx"] {
                ip(&["-n", namespace, "link", "set", link, "up"]);
            }
        }
        hosts
    }

    /// Waits until programs can have the addresses of IPv6 for datagrams.
    fn wait_for_addresses(&self) {
        for namespace in &self.namespaces {
            let mut command = Command::new("ip");
            command.args(["-n", namespace, "-6", "addr", "show", "dev", "mx"]);
            until("the link-local address", || {
                let output = command.output().unwrap();
                let found = String::from_utf8_lossy(&output.stdout);
                found.contains("fe80:") && !found.contains("tentative")
            });
        }
    }

    /// Returns the words that begin a command of this host's shell.
    fn shell(&self, place: usize, how: &str) -> Vec<String> {
        let name = NAMES[place];
        let enter = ["ip", "netns", "exec", &self.namespaces[place]];
        let script = format!("hostname {name}; {how} \"$@\"");
        let shell = ["unshare", "--uts", "sh", "-c", &script, "sh"];
        enter.into_iter().chain(shell).map(str::to_owned).collect()
    }

    /// Returns a job with so many ranks on each host, each of which has its host's folder. The caller adds the program.
    fn job(&self, folder: &Path, ranks: u32, run: &Command) -> Command {
        // In place of ssh, whose first word is the host's name.
        let agent = folder.join("agent");
        let shell = self.shell(1, "eval");
        let quoted: Vec<_> = shell.iter().map(|word| format!("'{word}'")).collect();
        let text = format!("#!/bin/sh\nshift\nexec {} \"$@\"\n", quoted.join(" "));
        std::fs::write(&agent, text).unwrap();
        succeed(Command::new("chmod").arg("+x").arg(&agent));
        let shell = self.shell(0, "exec");
        let mut shell_of_host = Command::new(&shell[0]);
        shell_of_host.args(&shell[1..]);
        let mut job = run_by(shell_of_host, run);
        job.args(["--mca", "oob_tcp_if_include", "net"]);
        job.args(["--mca", "btl_tcp_if_include", "net"]);
        job.args(["--mca", "plm_rsh_agent"]).arg(&agent);
        job.args(["-x", "LD_LIBRARY_PATH", "-x", "TMPDIR"]);
        job.args(["-x", "OMPI_MCA_mca_base_component_path"]);
        let both = NAMES.map(|name| format!("{name}:{ranks}")).join(",");
        job.args(["-x", "VICINITY_INTERFACE=mx", "-H", &both]);
        let plane = format!("VICINITY_RUNTIME_DIR={}/$(hostname)", folder.display());
        job.args(["sh", "-c", &format!("{plane} exec \"$@\""), "sh"]);
        job
    }
}

/// Starts a host's daemon, whose uplink has the interface of the ranks, and waits until it serves the interface. The daemon has
/// these keys of `[message]` and of its uplink.
fn start_daemon(
    hosts: &Hosts,
    folder: &Path,
    place: usize,
    [keys, of_uplink]: [&str; 2],
) -> Daemon {
    let daemon = folder.join(format!("daemon-{place}"));
    std::fs::create_dir(&daemon).unwrap();
    // The ranks' runtime directory.
    let runtime = folder.join(NAMES[place]);
    std::os::unix::fs::symlink(daemon.join("run"), &runtime).unwrap();
    let shell = hosts.shell(place, "exec");
    let mut command = Command::new(&shell[0]);
    command.args(&shell[1..]).arg(vicinity().get_program());
    let config = format!(
        "[message]\n{keys}\nuplink = {{ interface = \"mx\"{of_uplink} }}\n[[message.member]]\nname = \"host\"\n"
    );
    let started = Daemon::start_by(command, &daemon, Some(&config));
    until("the uplink", || {
        std::fs::read_to_string(runtime.join("message-mx/session"))
            .is_ok_and(|session| session.ends_with(" ../message\n"))
    });
    started
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let mut command = Command::new("ip");
            drop(command.args(["netns", "del", namespace]).output());
        }
    }
}

/// Runs all parts of the program with so many ranks on each host, by ob1 and by `pml vicinity`, by the message plane only.
fn all_parts_pass(hosts: &Hosts, folder: &Path, mpi: &OpenMpi, ranks: u32) {
    let program = mpi.program();
    for options in [&[][..], &BY_PML] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(options);
        for _ in 0..JOBS {
            let mut job = hosts.job(folder, ranks, &run);
            passes(job.arg(&program).arg("persistent"), 1);
        }
        // Open MPI starts no processes in a job of several hosts, also with tcp alone.
        let mut job = hosts.job(folder, ranks, &run);
        passes(job.arg(&program).arg("-spawned_processes"), PARTS - 1);
    }
}

#[test]
fn ranks_of_two_hosts_meet_by_their_own_interfaces() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    all_parts_pass(&Hosts::new(), folder.path(), &mpi, 1);
}

/// Each of four ranks reaches each other one by the message plane: those of its host in shared memory, and those of the other host by
/// the interface that it shares with another rank.
#[test]
fn two_ranks_of_each_host_share_its_interface() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let hosts = Hosts::new();
    all_parts_pass(&hosts, folder.path(), &mpi, 2);
    let program = mpi.program();
    let mut run = mpi.run("self,vader,vicinity,tcp");
    run.args(["--mca", "btl_base_verbose", "10"]);
    let mut job = hosts.job(folder.path(), 2, &run);
    let text = passes(job.arg(&program).arg("persistent"), 1);
    let reached = text.matches("is reached by the message plane").count();
    assert_eq!(reached, 4 * 3, "{text}");
}

/// Returns how many bytes the first host has sent on a link.
fn sent_bytes(hosts: &Hosts, link: &str) -> u64 {
    let path = format!("/sys/class/net/{link}/statistics/tx_bytes");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.namespaces[0], "cat", &path]);
    let found = String::from_utf8(command.output().unwrap().stdout).unwrap();
    found.trim().parse().unwrap()
}

/// Runs parts of the program. Returns the output, and which part of the bytes that the first host sent went by the message plane.
fn part_of_plane(hosts: &Hosts, job: &mut Command, parts: &[&str]) -> (String, f64) {
    let sent = || ["mx", "net"].map(|link| sent_bytes(hosts, link));
    let before = sent();
    let text = passes(job.args(parts), parts.len());
    let [plane, tcp] = [0, 1].map(|link| (sent()[link] - before[link]) as f64);
    (text, plane / (plane + tcp))
}

/// Short messages are faster by the message plane, and long ones by `tcp`. One-sided operations of windows with ranks on both hosts
/// need one component, which is the message plane. A rank that wants the plane for all messages has its way, because both ends of a pair
/// choose alike.
#[test]
fn tcp_carries_the_long_messages_between_hosts() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let hosts = Hosts::new();
    let job = |components, wants_the_plane| {
        let mut run = mpi.run(components);
        run.args(["--mca", "btl_base_verbose", "10"]);
        let mut job = hosts.job(folder.path(), 2, &run);
        let script =
            "[ $(hostname) = $0 ] && export OMPI_MCA_btl_vicinity_long_by_tcp=0; exec \"$@\"";
        job.args(["sh", "-c", script, wants_the_plane])
            .arg(mpi.program());
        job
    };
    let all = "self,vader,vicinity,tcp";
    let left = |text: &str| text.matches(LEFT_TO_TCP).count();
    let parts = [
        "long_messages",
        "order_and_wildcards",
        "modes",
        "indexed_types",
        "large_collectives",
        "one_sided",
        "remote_atomics",
    ];
    let (text, plane) = part_of_plane(&hosts, &mut job(all, "none"), &parts);
    assert_eq!(left(&text), 4 * 2, "{text}");
    assert!(0.01 < plane && plane < 0.3, "{plane} of the bytes");
    for mut job in [job(all, "alpha"), job("self,vader,vicinity", "none")] {
        let (text, plane) = part_of_plane(&hosts, &mut job, &parts[..1]);
        assert_eq!(left(&text), 0, "{text}");
        assert!(plane > 0.9, "{plane} of the bytes");
    }
}

/// The ranks of the first host have their endpoints on the daemon's board.
#[test]
fn ranks_serve_the_interface_of_a_daemon() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let hosts = Hosts::new();
    let _daemon = start_daemon(&hosts, folder.path(), 0, ["", ""]);
    let program = mpi.program();
    for options in [&[][..], &BY_PML] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(options);
        let mut job = hosts.job(folder.path(), 2, &run);
        passes(job.arg(&program).arg("persistent"), 1);
    }
}

/// An ordinary user, and a group that exists as a number only.
const USER: u32 = 65534;
const GROUP: &str = "4711";

/// Returns what the two ranks of an ordinary user say with each list of components. Each rank is on a host with a daemon, of which these
/// give programs their interface. Both ranks are in this network namespace, or in that of the first host, where they have an interface for datagrams.
/// `tcp` connects them in both.
fn said_by_users_ranks(
    program_sockets: [bool; 2],
    has_interface: bool,
    lists: &[&str],
) -> Option<Vec<String>> {
    let (folder, mpi) = prepare()?;
    let hosts = Hosts::new();
    let group = format!("unix-group = \"{GROUP}\"");
    let _daemons = [0, 1].map(|place| {
        let key = match program_sockets[place] {
            true => ", program-sockets = true",
            false => "",
        };
        start_daemon(&hosts, folder.path(), place, [&group, key])
    });
    hosts.wait_for_addresses();
    let mpi = mpi.of_user(USER);
    let said = |components: &&str| {
        let mut run = mpi.run(components);
        run.args(["--mca", "btl_base_verbose", "10"]);
        ranks_in(
            &mut run,
            folder.path(),
            &NAMES,
            &mpi.program(),
            &["persistent"],
        );
        let user = USER.to_string();
        let namespace = has_interface.then_some(&hosts.namespaces[0]);
        let enter = namespace.map(|namespace| ["ip", "netns", "exec", namespace]);
        let mut as_user = Command::new("env");
        as_user.args(enter.iter().flatten());
        as_user.args([
            "setpriv", "--reuid", &user, "--regid", &user, "--groups", GROUP,
        ]);
        passes(&mut run_by(as_user, &run), 1)
    };
    Some(lists.iter().map(said).collect())
}

/// Ranks that poll leave an uplink's process little time, and `tcp` is faster. Both ends decide alike, also if only one of them
/// needs the uplink. Without another network, the uplinks have to do. Datagrams between ordinary users' ranks need no uplink.
#[test]
fn ranks_that_need_an_uplink_use_another_network() {
    let lists = ["self,vicinity,tcp", ONLY_PLANE];
    let Some(said) = said_by_users_ranks([true, false], false, &lists) else {
        return;
    };
    let [plane, tcp] = ["is reached by the message plane", "Using tcp btl for send"];
    for (text, by, not_by) in [(&said[0], tcp, plane), (&said[1], plane, tcp)] {
        assert_eq!(text.matches(by).count(), 2, "{text}");
        assert!(!text.contains(not_by), "{text}");
    }
    assert!(said[0].contains("has no `program-sockets`"), "{}", said[0]);
    // Both serve the interface, or send each other datagrams.
    for program_sockets in [true, false] {
        let said = said_by_users_ranks([program_sockets; 2], !program_sockets, &lists[..1]);
        let said = &said.unwrap()[0];
        for sentence in [plane, LEFT_TO_TCP] {
            assert_eq!(said.matches(sentence).count(), 2, "{said}");
        }
    }
}
