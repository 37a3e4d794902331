//! Ranks and gateways that are killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::open_mpi::{OpenMpi, collective};
use crate::common::{self, Daemon};
use crate::{BY_PML, MEMBERS, ONLY_PLANE, limited, prepare, ranks_in};

/// Runs a command of `mpirun` whose program is `endless`, and this function when rank 1 runs, with the process id
/// of that rank. Then the job must end soon. Returns what the job says.
fn interrupted(run: &Command, interrupt: impl FnOnce(Pid)) -> Output {
    let mut job = limited(run)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let id = line.strip_prefix("rank 1 is process ").unwrap();
    let id = Pid::from_raw(id.parse().unwrap()).unwrap();
    interrupt(id);
    let start = Instant::now();
    let output = job.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(start.elapsed() < Duration::from_secs(30), "{text}");
    output
}

/// Kills a rank of a job of three.
fn killed(mut run: Command, mpi: &OpenMpi) -> Output {
    run.args(["-n", "3"]).arg(mpi.program()).arg("endless");
    interrupted(&run, |rank| kill_process(rank, Signal::KILL).unwrap())
}

#[test]
fn a_killed_rank_ends_the_job() {
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    let output = killed(mpi.run(ONLY_PLANE), &mpi);
    assert!(!output.status.success(), "{output:?}");
    // Here `mpirun` leaves the others alone, as if the rank's VM had been killed.
    for (component, options) in [("btl", &[][..]), ("pml", &BY_PML[..])] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(options).arg("--enable-recovery");
        let output = killed(run, &mpi);
        let text = String::from_utf8_lossy(&output.stderr);
        let sentence = format!("{component}:vicinity: the peer [");
        assert!(text.contains(&sentence), "{text}");
        assert!(text.contains("is lost: "), "{text}");
    }
}

/// A member's gateway, as a process that is killed when this value is dropped.
struct Gateway(Child);

impl Gateway {
    fn start(socket: &Path, runtime_dir: &Path) -> Self {
        let mut join = common::vicinity();
        join.arg("--runtime-dir").arg(runtime_dir);
        join.args(["message", "join", "--socket"]).arg(socket);
        let child = join.stdout(Stdio::null()).spawn().unwrap();
        let gateway = Self(child);
        let socket = runtime_dir.join("message/gateway.sock");
        common::until("a gateway", || socket.exists());
        gateway
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Without its gateway, a member of the host has left, and its links end.
#[test]
fn a_killed_gateway_ends_the_job() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let socket = |name: &str| daemon.path(&format!("message-plane/{name}.sock"));
    for (component, options) in [("btl", &[][..]), ("pml", &BY_PML[..])] {
        let place = |name: &str| folder.path().join(component).join(name);
        let [a, b, c] = ["a", "b", "c"].map(|name| Gateway::start(&socket(name), &place(name)));
        // `mpirun` itself does not end the job.
        let mut run = mpi.run(ONLY_PLANE);
        run.args(options).arg("--enable-recovery");
        let members = folder.path().join(component);
        let words = ["endless"];
        ranks_in(&mut run, &members, &["a", "b", "c"], &mpi.program(), &words);
        let output = interrupted(&run, |_| drop(b));
        let text = String::from_utf8_lossy(&output.stderr);
        let sentence = format!("{component}:vicinity: the peer ");
        assert!(text.contains(&sentence), "{text}");
        drop((a, c));
    }
}

/// A rank that waits for the other one's part of a collective operation, on its heap, ends with that one: with its
/// process, and with its gateway. `mpirun` does not help.
#[test]
fn a_wait_for_a_word_on_a_heap_ends_when_the_peer_is_killed() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let socket = |name: &str| daemon.path(&format!("message-plane/{name}.sock"));
    let start = |name| Gateway::start(&socket(name), &folder.path().join(name));
    let [a, b] = ["a", "b"].map(start);
    let mut run = mpi.run(ONLY_PLANE);
    run.args(["--enable-recovery", "--mca", "btl_base_verbose", "10"]);
    ranks_in(
        &mut run,
        folder.path(),
        &["a", "b"],
        &mpi.program(),
        &["endless"],
    );
    let lost = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(&collective(2)), "{text}");
        assert!(text.contains("is lost: "), "{text}");
    };
    lost(&interrupted(&run, |rank| {
        kill_process(rank, Signal::KILL).unwrap();
    }));
    lost(&interrupted(&run, |_| drop(b)));
    drop(a);
}
