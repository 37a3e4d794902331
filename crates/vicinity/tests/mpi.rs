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

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::Daemon;
use common::member::Member;
use common::open_mpi::{DIRECT, OpenMpi, PARTS, collective, missing};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const ONLY_PLANE: &str = "self,vicinity";
/// Options for the component that matches messages itself. Windows use the other one.
const BY_CM: [&str; 6] = ["--mca", "pml", "cm", "--mca", "mtl", "vicinity"];
/// All components but those for ranks of one machine and for other networks. A list of names instead
/// would make a component that refuses to work an error.
const WITH_TCP: &str = "^vader,sm,openib,ofi,uct";

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

/// Returns a command that ends the job if it hangs.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", "120"]);
    limited.arg(command.get_program()).args(command.get_args());
    let variables = command.get_envs();
    limited.envs(variables.filter_map(|(key, value)| Some((key, value?))));
    limited
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

#[test]
fn every_chapter_passes_with_four_ranks() {
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    let mut run = mpi.run(ONLY_PLANE);
    passes(run.args(["-n", "4"]).arg(mpi.program()), PARTS);
    // Fragments that are too long to be read in place, and lists that run out of fragments.
    for (parameter, value, part) in [
        ("btl_vicinity_max_send_size", "131072", "lengths"),
        ("btl_vicinity_free_list_max", "8", "order_and_wildcards"),
    ] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(["--mca", parameter, value, "-n", "2"]);
        passes(run.arg(mpi.program()).arg(part), 1);
    }
}

/// The same below cm. `ranks_of_different_members_meet_below_cm` has the same parts, so this is not in `make test`.
#[test]
#[ignore = "run by make soak"]
fn every_chapter_passes_below_cm() {
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    let mut run = mpi.run(ONLY_PLANE);
    run.args(BY_CM).args(["--mca", "mtl_base_verbose", "10"]);
    let text = passes(run.args(["-n", "4"]).arg(mpi.program()), PARTS);
    // Each rank reaches three others, and those of the part with spawned processes.
    let reached = text.matches("mtl:vicinity: [").count();
    assert!(reached >= 4 * 3, "{text}");
}

/// The conformance program against Open MPI's own components. With 4.1.4, a compare-and-swap crashes with `vader`, which
/// does not reach spawned processes either, and `tcp` alone has no windows of the program's memory.
#[test]
#[ignore = "tests the test; run by make soak"]
fn every_chapter_passes_with_other_components() {
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    let vader = ["-remote_atomics", "-allocated_memory", "-spawned_processes"];
    for (components, without) in [
        ("self,vader", &vader[..]),
        (
            "self,tcp",
            &[
                "-long_one_sided",
                "-allocated_memory",
                "-single_accumulates",
            ],
        ),
    ] {
        let mut run = mpi.run(components);
        run.args(["-n", "4"]).arg(mpi.program()).args(without);
        passes(&mut run, PARTS - without.len());
    }
}

/// The packages, made on Debian 13 and installed on a clean one: Open MPI 5.0 and libfabric 2 find what they install.
#[test]
#[ignore = "downloads 250 MB; run by make soak"]
fn the_packages_of_debian_13_work_as_installed() {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut run = Command::new(common::root().join("mpi/openmpi/tests/debian-13"));
    run.arg(folder.path()).arg(env!("CARGO_BIN_EXE_vicinity"));
    run.arg(common::agent()).arg(common::archive());
    let text = common::mx::succeed(&mut run);
    // Five parts more have two ranks of different members. In `single_accumulates`, one accesses the other.
    let passed = text.matches(" passed in ").count();
    // Below cm, six parts with windows are left out.
    assert_eq!(passed, PARTS + (PARTS - 6) + 5, "{text}");
    assert_eq!(text.matches(DIRECT).count(), 4 * 2 + 1, "{text}");
    // The two sides of `fi_pingpong`.
    assert_eq!(text.matches("\n1m ").count(), 2, "{text}");
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

/// Each rank is a member of its own, as in VMs: two in a trust group, one by the relay.
#[test]
fn ranks_of_different_members_meet_below_cm() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let mut run = mpi.run(ONLY_PLANE);
    run.args(BY_CM);
    let program = mpi.program();
    ranks_in(&mut run, folder.path(), &["a", "b", "c"], &program, &[]);
    passes(&mut run, PARTS);
    drop(members);
}

/// The same with ob1.
#[test]
fn ranks_of_different_members_meet_on_the_plane() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let mut run = mpi.run(ONLY_PLANE);
    run.args(["--mca", "btl_base_verbose", "10"]);
    let program = mpi.program();
    ranks_in(&mut run, folder.path(), &["a", "b", "c"], &program, &[]);
    let text = passes(&mut run, PARTS);
    // `a` and `b` reach each other's heap. Nobody reaches a heap of `c`, which has none.
    assert_eq!(text.matches(DIRECT).count(), 2, "{text}");
    let ordinary = "that MPI allocates are ordinary memory";
    // 40 times in `repeated_collectives`.
    assert_eq!(text.matches(ordinary).count(), 47, "{text}");
    assert!(!text.contains(&collective(3)), "{text}");
    // The relay passed on what `c` sent.
    let output = daemon.command(&["message", "counters", "--json"]);
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = counters["members"].as_array().unwrap();
    let c = all.iter().find(|member| member["name"] == "c").unwrap();
    assert!(c["messages"].as_u64().unwrap() > 1000, "{counters}");
    drop(members);
}

/// Puts, gets and atomic operations need no work of the target, within a member and between members of a group.
#[test]
fn a_rank_that_makes_no_calls_is_accessed_on_its_heap() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let program = mpi.program();
    // `one_sided` has memory of MPI_Win_allocate only. In `single_accumulates`, all access one rank.
    for (part, accesses) in [
        ("idle_target", 3),
        ("idle_counter", 3),
        ("allocated_memory", 3),
        ("single_accumulates", 2),
        ("one_sided", 3),
    ] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(["--mca", "btl_base_verbose", "10"]);
        ranks_in(&mut run, folder.path(), &["a", "a", "b"], &program, &[part]);
        let text = passes(&mut run, 1);
        assert!(text.matches(DIRECT).count() >= accesses, "{text}");
    }
    drop(members);
}

/// Two ranks of a member and one of another one in its group read what each contributes from each other's heaps.
#[test]
fn short_collective_operations_of_a_group_use_its_heaps() {
    const PARTS: [&str; 4] = [
        "collectives",
        "short_collectives",
        "repeated_collectives",
        "threads_with_communicators",
    ];
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let program = mpi.program();
    let run = |names: &[&str], parts: &[&str], without: &[&str]| {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(["--mca", "btl_base_verbose", "10"]).args(without);
        ranks_in(&mut run, folder.path(), names, &program, parts);
        passes(&mut run, parts.len())
    };
    let text = run(&["a", "a", "b"], &PARTS, &[]);
    assert!(text.contains(&collective(3)), "{text}");
    // Not between ranks of one member, which Open MPI's own components serve, nor without the component.
    let text = run(&["a", "a"], &PARTS[..1], &[]);
    assert!(!text.contains(&collective(2)), "{text}");
    let without = ["--mca", "coll", "^vicinity"];
    let text = run(&["a", "a", "b"], &PARTS[..1], &without);
    assert!(!text.contains(&collective(3)), "{text}");
    drop(members);
}

/// Starts a process that looks like the QEMU of a member with this number of CPUs. It ends when its standard input
/// is closed.
fn start_fake_qemu(folder: &Path, socket: &Path, cpus: u32) -> Child {
    let program = folder.join("qemu-system-x86_64");
    std::fs::copy("/bin/bash", &program).unwrap();
    let chardev = format!("socket,id=message,path={}", socket.display());
    let mut qemu = Command::new(program);
    qemu.args(["-c", "read -r", "qemu", "-smp", &cpus.to_string()]);
    qemu.args(["-chardev", &chardev]);
    qemu.stdin(Stdio::piped()).spawn().unwrap()
}

/// `mpirun` itself reads the file, and says which hosts it found there.
#[test]
fn the_hostfile_has_every_joined_member_with_its_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{MEMBERS}[[message.member]]\nname = \"host\"\n");
    let daemon = Daemon::start(folder.path(), Some(&config));
    let socket = |name: &str| daemon.path(&format!("message-plane/{name}.sock"));
    let join = |name: &str| Member::join(&socket(name), &folder.path().join(name).join("message"));
    let members = ["a", "c"].map(join);
    let mut qemu = start_fake_qemu(folder.path(), &socket("c"), 3);
    let hostfile = || {
        let output = daemon.command(&["mpi-hosts"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let own = rustix::system::uname();
    let own = own.nodename().to_str().unwrap();
    common::until("the host's gateway", || {
        hostfile().contains(&format!("\n{own} slots="))
    });
    let text = hostfile();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..2],
        ["a", "# b: disconnected: start its VM"],
        "{text}"
    );
    assert!(lines.contains(&"c slots=3"), "{text}");
    let hydra = daemon.command(&["mpi-hosts", "--launcher", "hydra"]);
    assert!(String::from_utf8(hydra.stdout).unwrap().contains("\nc:3\n"));
    if missing().is_none() {
        let file = folder.path().join("hosts");
        std::fs::write(&file, &text).unwrap();
        let mut run = Command::new("mpirun");
        // Enough ranks for every slot, so that each host appears in the map.
        run.args(["--allow-run-as-root", "--do-not-launch", "--display-map"]);
        run.args(["--oversubscribe", "-n", "100", "--hostfile"]);
        let (_, text) = output(run.arg(file).arg("true"));
        assert!(text.contains("Data for node: c\tNum slots: 3"), "{text}");
    }
    drop(qemu.stdin.take());
    qemu.wait().unwrap();
    drop(members);
}

/// Runs a short job with TCP as the alternative, and returns what it says about components.
fn explained(mpi: &OpenMpi, change: impl FnOnce(&mut Command)) -> String {
    let mut run = mpi.run(WITH_TCP);
    run.args(["--mca", "btl_base_verbose", "10", "-n", "2"]);
    change(&mut run);
    passes(run.arg(mpi.program()).arg("persistent"), 1)
}

#[test]
fn without_the_plane_tcp_is_used() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let tcp = "Using tcp btl for send to";
    let text = explained(&mpi, |_| {});
    assert!(text.contains("is reached by the message plane"), "{text}");
    assert!(
        text.contains("Using vicinity btl") && !text.contains(tcp),
        "{text}"
    );
    let text = explained(&mpi, |run| {
        run.env("LD_LIBRARY_PATH", folder.path());
    });
    let sentence = "the message plane is not used, because it cannot be opened: libmyriexpress.so";
    assert!(text.contains(sentence) && text.contains(tcp), "{text}");
    let text = explained(&mpi, |run| {
        run.env("VICINITY_RUNTIME_DIR", "/proc/nothing");
    });
    assert!(
        text.contains("there is no board") && text.contains(tcp),
        "{text}"
    );
    // The second rank is on another board, as on another host: the address is not enough. Then Open MPI does
    // not call the component in each turn of its progress.
    let watching = watched_progress(folder.path());
    let progress = "progress of mca_btl_vicinity.so";
    let text = explained(&mpi, |run| {
        run.arg("-x").arg(format!("LD_PRELOAD={watching}"));
    });
    assert!(text.contains(progress), "{text}");
    let text = explained(&mpi, |run| {
        run.arg("-x").arg(format!("LD_PRELOAD={watching}"));
        run.args(["-n", "1"]).arg(mpi.program());
        run.args(["persistent", ":", "-n", "1", "-x"]);
        let other = folder.path().join("other");
        run.arg(format!("VICINITY_RUNTIME_DIR={}", other.display()));
    });
    let sentence = "cannot be reached by the message plane";
    assert!(text.contains(sentence) && text.contains(tcp), "{text}");
    assert!(!text.contains(progress), "{text}");
}

/// A library that says of each function that Open MPI calls in every turn of its progress where it is.
fn watched_progress(folder: &Path) -> String {
    let (source, library) = (folder.join("watched.c"), folder.join("watched.so"));
    let text = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        static int add(const char *how, int (*function)(void)) {
          Dl_info place;
          int (*next)(int (*)(void)) = dlsym(RTLD_NEXT, how);
          if (dladdr(function, &place))
            fprintf(stderr, "progress of %s\n", basename(place.dli_fname));
          return next(function);
        }
        int opal_progress_register(int (*function)(void)) { return add(__func__, function); }
        int opal_progress_register_lp(int (*function)(void)) { return add(__func__, function); }
    "#;
    std::fs::write(&source, text).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]);
    compile.arg(&library).arg(&source).arg("-ldl");
    common::mx::succeed(&mut compile);
    library.display().to_string()
}

/// cm has no other component for a rank that the plane does not reach. Without a word about cm, ob1 stays the default.
#[test]
fn below_cm_the_plane_must_reach_each_rank() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let fails = |change: &dyn Fn(&mut Command)| {
        let mut run = mpi.run(WITH_TCP);
        change(run.args(BY_CM));
        let (output, text) = output(&run);
        assert!(!output.status.success(), "{text}");
        text
    };
    let text = fails(&|run| {
        run.args(["-n", "1"]).arg(mpi.program());
        run.args(["persistent", ":", "-n", "1", "-x"]);
        let other = folder.path().join("other");
        run.arg(format!("VICINITY_RUNTIME_DIR={}", other.display()));
        run.arg(mpi.program()).arg("persistent");
    });
    let sentence = "mtl:vicinity: rank 1 on ";
    let advice = "leave out `--mca pml cm`";
    assert!(text.contains(sentence) && text.contains(advice), "{text}");
    let text = fails(&|run| {
        run.env("LD_LIBRARY_PATH", folder.path());
        run.args(["-n", "2"]).arg(mpi.program()).arg("persistent");
    });
    let sentence = "mtl:vicinity: the message plane cannot be opened: libmyriexpress.so";
    assert!(text.contains(sentence), "{text}");
    let fake = fake_version(folder.path(), "5.0.7");
    let text = fails(&|run| {
        run.arg("-x").arg(format!("LD_PRELOAD={fake}"));
        run.args(["-n", "2"]).arg(mpi.program()).arg("persistent");
    });
    let sentence = "mtl:vicinity: this component was compiled for Open MPI 4.1.x";
    assert!(text.contains(sentence), "{text}");
    let mut run = mpi.run(ONLY_PLANE);
    run.args(["--mca", "mtl_base_verbose", "10", "-n", "2"]);
    let text = passes(run.arg(mpi.program()).arg("persistent"), 1);
    let chosen = "Selected component [vicinity]";
    assert!(!text.contains(chosen), "{text}");
}

/// An Open MPI with this version, as far as the component can tell.
fn fake_version(folder: &Path, version: &str) -> String {
    let source = folder.join("fake.c");
    let text = format!("const char opal_version_string[] = \"{version}\";\n");
    std::fs::write(&source, text).unwrap();
    let fake = folder.join(format!("fake-{version}.so"));
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-o"])
        .arg(&fake)
        .arg(&source);
    common::mx::succeed(&mut compile);
    fake.display().to_string()
}

#[test]
fn another_open_mpi_is_refused_with_a_sentence() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    for (version, refused) in [("4.1.9", false), ("4.10.0", true), ("5.0.7", true)] {
        let fake = fake_version(folder.path(), version);
        let text = explained(&mpi, |run| {
            run.arg("-x").arg(format!("LD_PRELOAD={fake}"));
        });
        let sentence = format!("compiled for Open MPI 4.1.x, and this is Open MPI {version}.");
        assert_eq!(text.contains(&sentence), refused, "{text}");
        assert_eq!(text.contains("Using tcp btl"), refused, "{text}");
    }
}

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
    for (component, options) in [("btl", &[][..]), ("mtl", &BY_CM[..])] {
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
    for (component, options) in [("btl", &[][..]), ("mtl", &BY_CM[..])] {
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

/// Compiles a program of `mpi/openmpi/tests/unit`, and runs it. Returns its output, or `None` without Open MPI's headers.
fn unit_program(name: &str) -> Option<String> {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    let mut make = Command::new("make");
    make.arg("--directory")
        .arg(common::root().join("mpi/openmpi"));
    make.arg(format!("BUILD={}", folder.path().display()));
    common::mx::succeed(make.arg(&program));
    Some(common::mx::succeed(&mut Command::new(program)))
}

/// Runs the requests that no component sends.
#[test]
fn a_peer_accesses_registered_memory_and_no_other() {
    if let Some(text) = unit_program("rma-test") {
        assert!(text.contains(" carried out, "), "{text}");
    }
}

/// What the two ends of a message agree on.
#[test]
fn an_envelope_has_its_fields() {
    // The program ends with an error if a check fails.
    let _text = unit_program("mtl-test");
}
