//! MPI programs on the message plane, by Open MPI's component. Open MPI is the distribution's.
//!
//! Most jobs are given no other component for peers: a rank that the message plane does not reach
//! would end the job.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../../../message/tests/common/refused.rs"]
mod refused;

mod chapters;
mod ends;
mod fall_back;
mod heaps;
mod hostfile;
mod hosts;
mod members;
mod mpi4py;
mod units;

use std::path::Path;
use std::process::{Command, Output};

use common::Daemon;
use common::member::Member;
use common::open_mpi::{OpenMpi, missing};
use tempfile::TempDir;

const ONLY_PLANE: &str = "self,vicinity";
/// Each rank says so of each rank on another host, if `tcp` is in use.
const LEFT_TO_TCP: &str = "is on another host: long messages are left to tcp";
/// Options for the component that matches messages itself. Windows use the other one.
const BY_PML: [&str; 3] = ["--mca", "pml", "vicinity"];

/// Builds the component, unless this machine has no Open MPI for it.
fn prepare() -> Option<(TempDir, OpenMpi)> {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let mpi = OpenMpi::new(folder.path());
    Some((folder, mpi))
}

/// Returns the command that has another one run this command, with its variables.
fn run_by(mut other: Command, command: &Command) -> Command {
    other.arg(command.get_program()).args(command.get_args());
    let variables = command.get_envs();
    other.envs(variables.filter_map(|(key, value)| Some((key, value?))));
    other
}

/// Returns a command that ends the job if it hangs.
fn limited(command: &Command) -> Command {
    let mut limit = Command::new("timeout");
    limit.args(["--kill-after=5", "120"]);
    run_by(limit, command)
}

/// Returns both outputs of a job.
fn output(command: &Command) -> (Output, String) {
    let output = limited(command).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output, text)
}

/// Runs a job that must pass this number of parts.
fn passes(command: &mut Command, parts: usize) -> String {
    let (output, text) = output(command);
    assert!(output.status.success(), "{command:?}: {text}");
    assert_eq!(text.matches(" passed in ").count(), parts, "{text}");
    text
}

const MEMBERS: &str = r#"
[[message.member]]
name = "a"
group = "g"
[[message.member]]
name = "b"
group = "g"
[[message.member]]
name = "c"
"#;

/// Joins the three members of a daemon, each of which has a folder with its name.
fn join_all(folder: &Path, daemon: &Daemon) -> [Member; 3] {
    ["a", "b", "c"].map(|name| {
        let socket = daemon.path(&format!("message-plane/{name}.sock"));
        Member::join(&socket, &folder.join(name).join("message"))
    })
}

/// Adds a rank in each of these members.
fn ranks_in(run: &mut Command, folder: &Path, names: &[&str], program: &Path, words: &[&str]) {
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            run.arg(":");
        }
        run.args(["-n", "1", "-x"]);
        let directory = folder.join(name);
        run.arg(format!("VICINITY_RUNTIME_DIR={}", directory.display()));
        run.arg(program).args(words);
    }
}
