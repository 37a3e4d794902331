//! Trust groups of the direct channel as a part of `vicinity serve`, without any VM.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use common::{Daemon, until};
use rustix::process::Signal;
use serde_json::Value;

const CONFIG: &str = "
[[direct.group]]
name = \"g\"
members = [\"a\", \"b\"]
";

fn groups(daemon: &Daemon) -> Value {
    let output = daemon.command(&["direct", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_group_is_served_by_a_process_that_is_kept_running() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    until("the members", || {
        groups(&daemon)[0]["members"][1]["state"] == "absent"
    });
    assert!(daemon.path("direct").exists());
    daemon.signal_process("direct-g", Signal::KILL);
    until("another process", || {
        let group = &groups(&daemon)[0];
        group["restarts"] == 1 && group["members"][0]["vm"] == "a"
    });

    // An absent member counts as having left. A VM that is not a member cannot leave.
    assert!(daemon.command(&["direct", "leave", "a"]).status.success());
    let output = daemon.command(&["direct", "leave", "c"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no trust group has a VM `c`"), "{said}");

    daemon.write(&CONFIG.replace("\"b\"", "\"c\""));
    let output = daemon.command(&["reload"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`direct` cannot change"), "{said}");

    assert_eq!(daemon.stop(), Some(0));
    assert!(!folder.path().join("run").exists());
}
