//! Parts of the components, tested without peers.

use std::process::Command;

use crate::common;
use crate::common::open_mpi::missing;

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
    let _text = unit_program("pml-test");
}

/// What leaves without segments.
#[test]
fn words_have_the_bytes_of_a_short_message() {
    // The program ends with an error if a check fails.
    let _text = unit_program("words-test");
}
