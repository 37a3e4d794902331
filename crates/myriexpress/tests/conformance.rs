//! C programs, built and run with the libraries as an MX user would build them: one for each rule
//! of the interface (section 6 of the description), for what known programs rely on (section 7),
//! and for the content of the headers. Most of them run as two processes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{panic, panic::AssertUnwindSafe, thread};

use message::remote::{Broker, Gateway, Member, Transport};

/// The libraries and headers, built once.
static INSTALLED: LazyLock<PathBuf> = LazyLock::new(|| {
    // A static value is never dropped, so the folder is not a temporary one.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("myriexpress");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/myriexpress");
    let mut command = Command::new(script);
    command.arg(archive()).arg(&folder);
    succeed(&mut command);
    folder
});

/// Returns the newest static library that Cargo built, which is in the directory of this test.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = fs::read_dir(test.parent().unwrap()).unwrap().flatten();
    let archives = beside.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libmyriexpress") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.unwrap().path()
}

/// Runs a command, and returns what it printed.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stderr}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the command that compiles a program.
fn compiler(name: &str, to: &Path) -> Command {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut command = Command::new("cc");
    command.args([
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
    ]);
    command.arg("-I").arg(INSTALLED.join("include"));
    command.arg(sources.join(name)).arg("-o").arg(to);
    command.arg("-L").arg(INSTALLED.join("lib64"));
    command
}

/// Compiles and runs a program, on a board of its own.
fn run(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compile = compiler(name, &program);
    succeed(compile.arg("-lmyriexpress"));
    start(&program, folder.path());
}

fn start(program: &Path, board: &Path) {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", INSTALLED.join("lib64"));
    command.env("VICINITY_RUNTIME_DIR", board);
    succeed(&mut command);
}

macro_rules! programs {
    ($($test:ident: $file:literal;)*) => {
        $(
            #[test]
            fn $test() {
                run($file);
            }
        )*
    };
}

programs! {
    mx_2_wrong_arguments_get_their_codes: "arguments.c";
    mx_2_without_a_board_nothing_begins: "boards.c";
    mx_3_the_headers_have_every_name_value_and_layout: "headers.c";
    mx_3_the_header_brings_the_formats_of_its_integers: "formats.c";
    mx_4_programs_made_for_the_original_layouts_and_versions_run: "abi.c";
    mx_5_information: "information.c";
    mx_6_1_matching_and_order: "matching.c";
    mx_6_2_context_ids: "contexts.c";
    mx_6_3_lengths_and_completion: "lengths.c";
    mx_6_4_sizes_segments_and_oneself: "sizes.c";
    mx_6_5_threads_and_times: "threads.c";
    mx_6_5_progress_while_the_program_computes: "computing.c";
    mx_6_6_unexpected_handler: "handler.c";
    mx_6_6_polls_in_which_the_handler_takes_a_message: "polls.c";
    messages_are_read_where_they_arrived: "in_place.c";
    a_serialized_program_makes_one_call_at_a_time: "serialized.c";
    mx_6_7_connections_and_sessions: "sessions.c";
    mx_6_8_the_environment: "environment.c";
    mx_7_open_mpi_matching_transport: "openmpi_mtl.c";
    mx_7_open_mpi_byte_transport: "openmpi_btl.c";
    mx_7_mpich: "mpich.c";
    mx_7_netpipe: "netpipe.c";
    mx_7_ligo: "ligo.c";
    the_example_of_the_crate_page: "../../examples/hello.c";
}

#[test]
fn mx_7_netpipe_links_statically() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compile = compiler("netpipe.c", &program);
    succeed(compile.args(["-static", "-lmyriexpress", "-lpthread", "-lm"]));
    start(&program, folder.path());
}

/// The libraries export the functions of MX and no other symbol of this crate.
#[test]
fn mx_1_only_the_interface_is_visible() {
    let list = |file: &str, dynamic: &[&str]| {
        let mut command = Command::new("nm");
        command.args(["--defined-only", "--extern-only", "--format=posix"]);
        command.args(dynamic);
        let text = succeed(command.arg(INSTALLED.join("lib64").join(file)));
        let symbols = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        });
        let kinds = symbols.filter(|(_, kind)| ["T", "D", "R"].contains(&kind.as_str()));
        let mut names: Vec<_> = kinds.map(|(name, _)| name).collect();
        names.sort();
        names
    };
    let shared = list("libmyriexpress.so", &["--dynamic"]);
    let mut plain: Vec<_> = shared
        .iter()
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect();
    plain.sort();
    assert_eq!(plain, list("libmyriexpress.a", &[]));
    let (data, functions): (Vec<_>, Vec<_>) = plain
        .iter()
        .partition(|name| name.starts_with("MX_ERRORS_"));
    assert_eq!((functions.len(), data.len()), (82, 2), "{plain:?}");
    let versioned: Vec<_> = shared.iter().filter(|name| name.contains('@')).collect();
    assert_eq!(
        versioned,
        [
            "mx__init_api@@MX_0.92",
            "mx_decompose_endpoint_addr@@MX_0.9",
            "mx_get_info@@MX_0.91",
            "mx_iprobe@@MX_0.91",
            "mx_open_endpoint@@MX_0.9",
            "mx_test@@MX_0.91",
            "mx_wait@@MX_0.91",
        ]
    );
    let mut command = Command::new("readelf");
    let library = INSTALLED.join("lib64/libmyriexpress.so");
    let dynamic = succeed(command.args(["--dynamic", "--wide"]).arg(&library));
    assert!(dynamic.contains("soname: [libmyriexpress.so]"), "{dynamic}");
    // The version nodes, each followed by the one that it inherits from.
    let mut command = Command::new("readelf");
    let text = succeed(command.args(["--version-info", "--wide"]).arg(&library));
    let (nodes, _) = text.split_once("Version needs").unwrap();
    let nodes: Vec<_> = nodes
        .lines()
        .filter_map(|line| line.split_once("Name: ").or(line.split_once("Parent 1: ")))
        .map(|(_, name)| name)
        .collect();
    assert_eq!(
        nodes,
        [
            "libmyriexpress.so",
            "MX_0.0",
            "MX_0.9",
            "MX_0.0",
            "MX_0.91",
            "MX_0.9",
            "MX_0.92",
            "MX_0.91"
        ]
    );
}

/// A program that sets no error handler ends at its first error.
#[test]
fn mx_2_errors_are_fatal_unless_a_handler_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compile = compiler("fatal.c", &program);
    succeed(compile.arg("-lmyriexpress"));
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", INSTALLED.join("lib64"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(output.stderr, b"libmyriexpress: call mx_init first\n");
}

/// Runs `work` on a host with two members, joined as `vicinity message serve` and `join` join them.
fn message_plane(folder: &Path, members: [&str; 2], group: Option<&str>, work: impl FnOnce()) {
    let member = |name: &str| Member {
        name: name.to_owned(),
        group: group.map(str::to_owned),
        ..Member::default()
    };
    let host = folder.join("host");
    let mut broker = Broker::new(&host, &members.map(member)).unwrap();
    let active = AtomicBool::new(true);
    let running = || active.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| broker.serve(|_| running()).unwrap());
        for name in members {
            let board = folder.join(name).join("message");
            let transport = Transport::Socket(host.join(format!("{name}.sock")));
            let mut gateway = Gateway::join(&board, &transport).unwrap();
            let running = &running;
            // The broker may end before the gateway.
            scope.spawn(move || drop(gateway.run(running)));
        }
        // The threads end even if `work` panics.
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        active.store(false, Ordering::Relaxed);
        result.unwrap();
    });
}

/// Runs a program in two members. The first words are its own member and the other one.
fn between_members(name: &str, group: Option<&str>, words: [&[&str]; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    succeed(compiler(name, &program).arg("-lmyriexpress"));
    let run = |own: &str, other: &str, words: &[&str]| {
        let mut command = Command::new(&program);
        command.args([own, other]).args(words);
        command.env("LD_LIBRARY_PATH", INSTALLED.join("lib64"));
        command.env("VICINITY_RUNTIME_DIR", folder.path().join(own));
        succeed(&mut command);
    };
    message_plane(folder.path(), ["web", "db"], group, || {
        thread::scope(|scope| {
            scope.spawn(|| run("web", "db", words[0]));
            run("db", "web", words[1]);
        });
    });
}

#[test]
fn members_of_the_message_plane_talk_through_the_host() {
    between_members("members.c", None, [&["1", "2"], &["2", "1"]]);
}

#[test]
fn members_of_a_trust_group_talk_directly() {
    between_members("members.c", Some("group"), [&["1", "2"], &["2", "1"]]);
}

/// Also after the process that had the memory was killed, and with handles that no process made.
#[test]
fn members_of_a_trust_group_access_each_others_heap_and_nothing_else() {
    between_members("heap.c", Some("group"), [&["own"], &["origin"]]);
}

#[test]
fn members_without_a_group_have_no_heap() {
    let roles: [&[&str]; 2] = [&["relay", "own"], &["relay", "origin"]];
    between_members("heap.c", None, roles);
}
