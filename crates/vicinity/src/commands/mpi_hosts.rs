//! `vicinity mpi-hosts`: the members of the message plane as the hostfile of an MPI launcher.
//!
//! Launchers fill hosts in the order of the file, so members of a trust group, between which messages are
//! direct, follow each other.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use observe::command_line::{self, Kind};
use observe::proc::Proc;

use super::failure::Failure;
use crate::client;
use crate::message_uplink::{HOST, UPLINK};
use crate::runtime_paths::member_socket;
use crate::status::{MemberStatus, MessageStatus};

/// The program that will read the file.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Launcher {
    /// `mpirun` of Open MPI
    #[value(name = "openmpi")]
    OpenMpi,
    /// `mpiexec` (Hydra) of MPICH and Intel MPI
    Hydra,
}

/// A member on which ranks can be started.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    /// Its CPUs; none if they are not known.
    slots: Option<usize>,
}

/// Returns the hostfile of the members that the daemon of `runtime_dir` has joined.
pub(crate) fn hostfile(runtime_dir: &Path, launcher: Launcher) -> Result<String, Failure> {
    let plane: Option<MessageStatus> = client::get(runtime_dir, "/v1/messages")?;
    let Some(plane) = plane else {
        let text = "the daemon has no message plane; add [[message.member]] to the configuration";
        return Err(Failure::Usage(text.to_owned()));
    };
    let machines = machines();
    let slots = |member: &str| match member {
        HOST => std::thread::available_parallelism().ok().map(Into::into),
        member => cpus(&machines, &member_socket(runtime_dir, member)),
    };
    let own = rustix::system::uname();
    text(&plane, launcher, &own.nodename().to_string_lossy(), slots)
}

/// A VM of this host: the sockets of its QEMU, and its CPUs.
type Machine = (Vec<PathBuf>, u32);

fn machines() -> Vec<Machine> {
    let proc = Proc::default();
    let machine = |process| match command_line::kind(&proc.command_line(process)?)? {
        Kind::Vm(machine) => {
            let sockets = machine
                .sockets
                .iter()
                .filter_map(|path| fs::canonicalize(path).ok());
            Some((sockets.collect(), machine.cpus))
        }
        _ => None,
    };
    proc.processes().into_iter().filter_map(machine).collect()
}

/// Returns the CPUs of the VM that is the member with this socket.
fn cpus(machines: &[Machine], socket: &Path) -> Option<usize> {
    let socket = fs::canonicalize(socket).ok()?;
    let (_, cpus) = machines
        .iter()
        .find(|(sockets, _)| sockets.contains(&socket))?;
    usize::try_from(*cpus).ok()
}

/// Returns why no rank can be started on a member.
fn unusable(member: &MemberStatus) -> Option<&'static str> {
    match (member.connected, member.joined, member.silent) {
        (false, ..) => Some("disconnected: start its VM"),
        (true, false, _) => Some("not joined: run `vicinity message join` in it"),
        (true, true, true) => Some("silent: its VM is paused or has no CPU time"),
        (true, true, false) => None,
    }
}

/// Returns the file; `own` is this host's name.
fn text(
    plane: &MessageStatus,
    launcher: Launcher,
    own: &str,
    slots: impl Fn(&str) -> Option<usize>,
) -> Result<String, Failure> {
    let members = plane.members.iter();
    let mut members: Vec<_> = members.filter(|member| member.name != UPLINK).collect();
    members.sort_by_key(|member| (member.group.is_none(), &member.group));
    let mut text = String::new();
    let mut is_usable = false;
    for member in members {
        let host = Host {
            name: match member.name.as_str() {
                HOST => own.to_owned(),
                name => name.to_owned(),
            },
            slots: slots(&member.name),
        };
        let reason = unusable(member);
        is_usable |= reason.is_none();
        // Writing to a string cannot fail.
        let _ = match reason {
            Some(reason) => writeln!(text, "# {}: {reason}", host.name),
            None => writeln!(text, "{}", line(&host, launcher)),
        };
    }
    match is_usable {
        false => Err(Failure::Usage(format!(
            "no member has joined the message plane:\n{text}"
        ))),
        true => Ok(text),
    }
}

/// Without a number, Open MPI uses the cores that it finds on the host, and Hydra one.
fn line(host: &Host, launcher: Launcher) -> String {
    let name = &host.name;
    match (host.slots, launcher) {
        (None, _) => name.clone(),
        (Some(slots), Launcher::OpenMpi) => format!("{name} slots={slots}"),
        (Some(slots), Launcher::Hydra) => format!("{name}:{slots}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, group: Option<&str>, state: [bool; 3]) -> serde_json::Value {
        let [connected, joined, silent] = state;
        json!({
            "name": name, "group": group, "nic": "0", "connected": connected, "joined": joined,
            "silent": silent, "links": 0, "joins": 0, "linked": 0, "messages": 0, "bytes": 0, "faults": 0,
        })
    }

    fn plane(members: &[serde_json::Value]) -> MessageStatus {
        serde_json::from_value(json!({ "up": true, "restarts": 0, "members": members })).unwrap()
    }

    const JOINED: [bool; 3] = [true, true, false];

    #[test]
    fn groups_follow_each_other_and_members_without_ranks_are_comments() {
        let plane = plane(&[
            member("shop", None, JOINED),
            member("web", Some("hpc"), JOINED),
            member("host", None, JOINED),
            member("new", Some("a"), [true, false, false]),
            member("db", Some("hpc"), JOINED),
            member("off", None, [false; 3]),
            member("idle", Some("hpc"), [true; 3]),
        ]);
        let slots = |name: &str| (name != "shop").then_some(name.len());
        let text = |launcher| text(&plane, launcher, "alpha", slots).unwrap();
        let expected = "# new: not joined: run `vicinity message join` in it\nweb slots=3\ndb slots=2\n\
                        # idle: silent: its VM is paused or has no CPU time\nshop\nalpha slots=4\n\
                        # off: disconnected: start its VM\n";
        assert_eq!(text(Launcher::OpenMpi), expected);
        assert!(text(Launcher::Hydra).contains("web:3\ndb:2\n"));
    }

    #[test]
    fn without_a_usable_member_the_error_says_why() {
        let plane = plane(&[member("off", None, [false; 3])]);
        let error = text(&plane, Launcher::OpenMpi, "alpha", |_| None).unwrap_err();
        assert!(error.to_string().contains("off: disconnected"), "{error}");
    }
}
