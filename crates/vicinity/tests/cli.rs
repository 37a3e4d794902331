//! Tests of the commands that need no daemon.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::vicinity;

fn run(arguments: &[&str]) -> Output {
    vicinity().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn without_a_daemon_the_error_says_how_to_start_one() {
    let output = run(&["port", "list", "--runtime-dir", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "said once: {said}");
    assert!(
        said.contains("error: no Vicinity daemon serves /nonexistent"),
        "{said}"
    );
    assert!(said.contains("`vicinity serve`"), "{said}");
}

#[test]
fn options_are_of_the_daemon_or_of_a_configuration_that_is_given() {
    for arguments in [["qemu-args", "web"], ["libvirt-xml", "web"]] {
        let output = run(&[&arguments[..], &["--runtime-dir", "/nonexistent"]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("no Vicinity daemon serves /nonexistent"),
            "{said}"
        );
        assert!(
            said.contains("give a configuration file with --config"),
            "{said}"
        );
    }
}

#[test]
fn the_runtime_folder_comes_from_the_environment_too() {
    let output = vicinity()
        .env("VICINITY_RUNTIME_DIR", "/elsewhere")
        .args(["network", "list"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("no Vicinity daemon serves /elsewhere"));
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    assert_eq!(run(&["sevre"]).status.code(), Some(2));
    assert_eq!(
        run(&["qemu-args", "web", "--memory", "much"]).status.code(),
        Some(2)
    );
    let (_folder, file) = printed_configuration();
    for wrong in [&["a/b"][..], &["web", "--network", "x"]] {
        let output = run(&[&["qemu-args", "--config", &file][..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

/// Writes the output of `vicinity config` to a file.
fn printed_configuration() -> (tempfile::TempDir, String) {
    let printed = run(&["config"]).stdout;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vicinity.toml");
    std::fs::write(&file, printed).unwrap();
    (folder, file.into_os_string().into_string().unwrap())
}

#[test]
fn the_printed_configuration_is_one() {
    let (_folder, file) = printed_configuration();
    let output = run(&["qemu-args", "web", "--one-line", "--config", &file]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let options = text(&output.stdout);
    assert!(options.contains("path=/run/vicinity/default/web.sock,server=on,wait=off"));
    assert_eq!(options.lines().count(), 1);
}

#[test]
fn an_old_key_works_with_a_warning_that_names_the_new_one() {
    let (_folder, file) = printed_configuration();
    let plain = std::fs::read_to_string(&file).unwrap();
    for (key, warned) in [("look-ups", true), ("fdb-lookups", false)] {
        let network = "name = \"default\"\n";
        let with = plain.replace(network, &format!("{network}{key} = 3\n"));
        assert_ne!(with, plain);
        std::fs::write(&file, with).unwrap();
        let output = run(&["qemu-args", "web", "--config", &file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stderr);
        let warning =
            "`look-ups` is deprecated, and the next release refuses it; write `fdb-lookups`";
        assert_eq!(said.contains(warning), warned, "{said}");
    }
}

#[test]
fn old_options_work_with_a_warning_that_names_the_new_one() {
    let serve = ["message", "serve", "web", "--uplink", "nowhere0"];
    let peer_timeout =
        "`--give-up` is deprecated, and the next release refuses it; write `--peer-timeout`";
    let fdb = "`residents` is deprecated, and the next release refuses it; write `fdb`";
    for (arguments, warning, failure) in [
        // The command ends with an error that does not concern the option.
        (
            [&serve[..], &["--give-up", "9"]].concat(),
            peer_timeout,
            "cannot use the uplink nowhere0",
        ),
        (
            vec!["bench", "switch", "--parts", "residents,none"],
            fdb,
            "there is no such part",
        ),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(warning) && said.contains(failure), "{said}");
    }
    let output = run(&[&serve[..], &["--peer-timeout", "9"]].concat());
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot use the uplink") && !said.contains("deprecated"),
        "{said}"
    );
}

#[test]
fn configuration_and_options_are_there_for_programs() {
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&run(arguments).stdout).unwrap()
    };
    let config = json(&["config", "--json"]);
    assert_eq!(config["network"][0]["accept"], true, "{config}");
    let (_folder, file) = printed_configuration();
    let words = json(&["qemu-args", "web", "--json", "--config", &file]);
    let line = text(&run(&["qemu-args", "web", "--one-line", "--config", &file]).stdout);
    let words: Vec<_> = words
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    assert_eq!(
        Some(words.iter().map(|it| (*it).to_owned()).collect()),
        shlex::split(&line)
    );
    for what in ["message", "direct", "space"] {
        let words = json(&[what, "qemu-args", "web", "--json"]);
        let line = text(&run(&[what, "qemu-args", "web"]).stdout);
        let split: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, serde_json::json!(split), "{what}");
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    assert!(text(&run(&["completions", "bash"]).stdout).contains("qemu-args"));
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = std::fs::read_to_string(folder.path().join("vicinity-serve.1")).unwrap();
    assert!(page.contains("SIGTERM"), "{page}");
}

#[test]
fn the_doctor_looks_at_everything() {
    let output = run(&["doctor", "--json"]);
    let checks: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    for name in [
        "qemu",
        "accelerator",
        "memfd",
        "tun",
        "landlock",
        "seccomp",
        "user namespaces",
        "memory",
        "socat",
        "dpdk-testpmd",
    ] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}");
    }
    let missing = checks
        .iter()
        .any(|check| check["purpose"] == "serve" && check["verdict"] == "missing");
    assert_eq!(output.status.code(), Some(i32::from(missing)));
}

#[test]
fn the_doctor_finds_what_is_missing() {
    let nowhere = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_vicinity"))
        .arg("doctor")
        .env("PATH", nowhere.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("MISSING  qemu"), "{said}");
    assert!(said.contains("apt-get install"), "{said}");
}

#[test]
fn the_doctor_names_a_qemu_that_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = folder.path().join("qemu-system-x86_64");
    let script = "#!/bin/sh\necho 'QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)'\n";
    std::fs::write(&qemu, script).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_vicinity"))
        .arg("doctor")
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("7.2 is too old; Vicinity needs 8.2"),
        "{said}"
    );
    assert!(said.contains("apt-get install"), "{said}");
}

#[test]
fn the_lab_lists_every_experiment_with_a_word_for_it() {
    let output = run(&["lab", "list"]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    let rows = said
        .lines()
        .filter(|line| line.starts_with(['X', 'N', 'W']));
    let words = ["RUNNABLE", "EMULATED"];
    assert!(
        rows.clone()
            .all(|row| words.iter().any(|w| row.contains(w)))
    );
    assert_eq!(rows.count(), 53, "{said}");
    assert!(said.contains("control groups: v1 "), "{said}");
    let output = run(&["lab", "list", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in found["experiments"].as_array().unwrap() {
        let line = format!(
            "{:<4} {:<12}",
            row["id"].as_str().unwrap(),
            row["ability"].as_str().unwrap()
        );
        assert!(said.contains(&line), "{line}");
    }
}

#[test]
fn an_experiment_that_is_not_there_is_wrong_usage() {
    let output = run(&["lab", "run", "W28"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("no experiment W28; the nearest is W2"),
        "{said}"
    );
    let output = run(&["lab", "run", "X4", "--only", "sise=64"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("no factor sise; the nearest is size"),
        "{said}"
    );
    let output = run(&["lab", "resume", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is there a run?"));
}
