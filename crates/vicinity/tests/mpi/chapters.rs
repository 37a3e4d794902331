//! The chapters of MPI that the conformance program has, with ranks of one member.

use std::process::Command;

use crate::common;
use crate::common::open_mpi::{DIRECT, PARTS, missing};
use crate::refused::{READ, WRITE, refuse};
use crate::{BY_PML, LEFT_TO_TCP, ONLY_PLANE, passes, prepare};

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

/// A rank that the kernel does not let read the other one's memory grants credits: messages of up to 64 KiB are sent without being announced.
#[test]
fn point_to_point_passes_with_credits() {
    const CHAPTER: [&str; 15] = [
        "lengths",
        "long_messages",
        "order_and_wildcards",
        "probes",
        "matched_probes",
        "cancels",
        "modes",
        "persistent",
        "many_unexpected",
        "completion",
        "truncation",
        "persistent_modes",
        "freed_requests",
        "sends_to_self",
        "attached_buffer",
    ];
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    // The filter is for this thread and what it starts.
    refuse(&[READ, WRITE]);
    for options in [&[][..], &BY_PML] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(options).args(["-n", "3"]).arg(mpi.program());
        passes(run.args(CHAPTER), CHAPTER.len());
    }
}

/// Persistent buffered sends, and one without room, which ob1 of Open MPI 4.1.4 has wrong; and sends to a rank itself, which MPICH completes
/// later.
#[test]
fn what_other_components_have_otherwise_passes_by_the_pml() {
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    for part in ["buffered", "complete_at_once"] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(BY_PML).args(["-n", "3"]).arg(mpi.program());
        passes(run.arg(part), 1);
    }
}

/// The chapters by `pml vicinity`. `ranks_of_different_members_meet_by_the_pml` has the same parts, so this is not in `make test`.
#[test]
#[ignore = "run by make soak"]
fn every_chapter_passes_by_the_pml() {
    let Some((_folder, mpi)) = prepare() else {
        return;
    };
    let mut run = mpi.run(ONLY_PLANE);
    run.args(BY_PML).args(["--mca", "pml_base_verbose", "10"]);
    let text = passes(run.args(["-n", "4"]).arg(mpi.program()), PARTS);
    // Each rank reaches three others, and those of the part with spawned processes.
    let reached = text.matches("pml:vicinity: [").count();
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
    let passed = text.matches(" passed in ").count();
    // All parts below ob1 and by `pml vicinity`. Five parts have two ranks on each of two hosts, and five two ranks of different members, below ob1 and
    // by `pml vicinity`.
    assert_eq!(passed, 2 * PARTS + 5 + 2 * 5, "{text}");
    assert_eq!(text.matches(LEFT_TO_TCP).count(), 4 * 2, "{text}");
    // In `single_accumulates`, one rank accesses the other.
    assert_eq!(text.matches(DIRECT).count(), 2 * (4 * 2 + 1), "{text}");
    // The two sides of `fi_pingpong`.
    assert_eq!(text.matches("\n1m ").count(), 2, "{text}");
}
