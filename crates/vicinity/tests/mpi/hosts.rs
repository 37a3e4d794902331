//! Ranks on two hosts, which are network namespaces. Each rank serves its host's interface itself.

use std::path::Path;
use std::process::Command;

use crate::common::mx::succeed;
use crate::common::open_mpi::{OpenMpi, PARTS};
use crate::{BY_CM, ONLY_PLANE, passes, prepare};

const NAMES: [&str; 2] = ["alpha", "beta"];

/// Jobs that only start and end. Their ranks connect to each other at the same time, each with a key of its own.
const JOBS: usize = 6;

/// Two hosts with two links: `net` for the processes of `mpirun`, and `mx` for messages.
struct Hosts {
    namespaces: [String; 2],
}

fn ip(words: &[&str]) {
    succeed(Command::new("ip").args(words));
}

impl Hosts {
    fn new() -> Self {
        let namespaces = NAMES.map(|name| format!("mpi-{}-{name}", std::process::id()));
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

    /// Returns the words that begin a command of this host's shell.
    fn shell(&self, place: usize, how: &str) -> Vec<String> {
        let name = NAMES[place];
        let enter = ["ip", "netns", "exec", &self.namespaces[place]];
        let script = format!("hostname {name}; {how} \"$@\"");
        let shell = ["unshare", "--uts", "sh", "-c", &script, "sh"];
        enter.into_iter().chain(shell).map(str::to_owned).collect()
    }

    /// Returns a job with a rank on each host.
    fn job(&self, folder: &Path, mpi: &OpenMpi, options: &[&str], words: &[&str]) -> Command {
        // In place of ssh, whose first word is the host's name.
        let agent = folder.join("agent");
        let quoted: Vec<_> = self
            .shell(1, "eval")
            .iter()
            .map(|word| format!("'{word}'"))
            .collect();
        let text = format!("#!/bin/sh\nshift\nexec {} \"$@\"\n", quoted.join(" "));
        std::fs::write(&agent, text).unwrap();
        succeed(Command::new("chmod").arg("+x").arg(&agent));
        let run = mpi.run(ONLY_PLANE);
        let shell = self.shell(0, "exec");
        let mut job = Command::new(&shell[0]);
        job.args(&shell[1..])
            .arg(run.get_program())
            .args(run.get_args());
        job.args(["--mca", "oob_tcp_if_include", "net"]);
        job.args(["--mca", "plm_rsh_agent"])
            .arg(&agent)
            .args(options);
        for name in [
            "LD_LIBRARY_PATH",
            "TMPDIR",
            "OMPI_MCA_mca_base_component_path",
        ] {
            job.args(["-x", name]);
        }
        job.args(["-x", "VICINITY_INTERFACE=mx", "-H", "alpha,beta", "-n", "2"]);
        let plane = format!("VICINITY_RUNTIME_DIR={}/$(hostname)", folder.display());
        job.args(["sh", "-c", &format!("{plane} exec \"$@\""), "sh"]);
        job.arg(mpi.program()).args(words);
        job.envs(
            run.get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
        job
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            drop(
                Command::new("ip")
                    .args(["netns", "del", namespace])
                    .output(),
            );
        }
    }
}

#[test]
fn ranks_of_two_hosts_meet_by_their_own_interfaces() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let hosts = Hosts::new();
    for options in [&[][..], &BY_CM] {
        for _ in 0..JOBS {
            passes(
                &mut hosts.job(folder.path(), &mpi, options, &["persistent"]),
                1,
            );
        }
        // A process that a rank starts cannot have the interface of that rank's host.
        let others = ["-spawned_processes"];
        passes(
            &mut hosts.job(folder.path(), &mpi, options, &others),
            PARTS - 1,
        );
    }
}
