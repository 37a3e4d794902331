//! libfabric's provider for the message plane: libfabric's own tools, programs against each part of
//! the interface, and MPI libraries that speak libfabric.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::Daemon;
use common::libfabric::{Libfabric, missing, wheel};
use common::member::Member;
use common::open_mpi::{self, PARTS};
use tempfile::TempDir;

/// Scenarios of the test program.
const SCENARIOS: usize = 14;

/// Builds the provider, unless this machine has no libfabric for it.
fn prepare() -> Option<(TempDir, Libfabric)> {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let provider = Libfabric::new(folder.path());
    Some((folder, provider))
}

/// Returns both outputs of a command.
fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// Runs a command that must succeed, and returns both outputs.
fn passes(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn every_scenario_passes() {
    let Some((_folder, provider)) = prepare() else {
        return;
    };
    let text = passes(&mut provider.command(provider.scenarios()));
    assert_eq!(text.matches(" passed\n").count(), SCENARIOS, "{text}");
}

#[test]
fn the_tools_of_libfabric_work() {
    let Some((folder, provider)) = prepare() else {
        return;
    };
    let found = passes(provider.command("fi_info").args(["-p", "vicinity"]));
    assert!(found.contains("type: FI_EP_RDM"), "{found}");
    // Why something is not offered is in libfabric's log.
    let ask = |arguments: &[&str]| {
        let mut ask = provider.command("fi_info");
        ask.args(["-p", "vicinity"]).args(arguments);
        ask.env("FI_LOG_LEVEL", "info");
        ask
    };
    let refused = |ask: &mut Command, sentence: &str| {
        let output = ask.output().unwrap();
        let text = text(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(sentence), "{text}");
    };
    refused(&mut ask(&["-c", "FI_ATOMIC"]), "not offered: FI_ATOMIC");
    let other = "not offered: endpoints of another type than FI_EP_RDM";
    refused(&mut ask(&["-t", "FI_EP_MSG"]), other);
    let closed = "the message plane cannot be opened: ";
    let mut nowhere = ask(&[]);
    nowhere.env("VICINITY_RUNTIME_DIR", "/proc/nothing");
    refused(&mut nowhere, closed);
    let mut without = ask(&[]);
    without.env("LD_LIBRARY_PATH", folder.path());
    refused(&mut without, &format!("{closed}libmyriexpress.so"));
    for method in ["msg", "tagged"] {
        pingpong(&provider, method);
    }
}

/// `fi_pingpong` in two processes, with all its sizes.
fn pingpong(provider: &Libfabric, method: &str) {
    let common = [
        "-p", "vicinity", "-e", "rdm", "-m", method, "-I", "100", "-c",
    ];
    let port = free_port().to_string();
    let mut server = provider.command("fi_pingpong");
    server.args(common).args(["-B", &port]);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut client = provider.command("fi_pingpong");
    client.args(common).args(["-P", &port, "127.0.0.1"]);
    // The server does not say that it listens.
    let output = loop {
        let output = client.output().unwrap();
        if output.status.success() || server.try_wait().unwrap().is_some() {
            break output;
        }
    };
    let server = server.wait_with_output().unwrap();
    assert!(server.status.success(), "{}", text(&server));
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("\n1m "), "{}", text(&output));
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Open MPI uses `vader` for the one-sided operations of ranks of one host, and 4.1.4 crashes in this part.
const WITHOUT: &str = "-remote_atomics";

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

/// Four ranks of the host, then three that are each a member, as in VMs: two in a trust group, one by
/// the relay.
#[test]
fn open_mpi_uses_the_provider() {
    let Some((folder, provider)) = prepare() else {
        return;
    };
    if let Some(reason) = open_mpi::missing() {
        eprintln!("skipped: {reason}");
        return;
    }
    let program = folder.path().join("conformance");
    open_mpi::compile(Path::new("mpicc"), &program);
    let mpirun = || {
        let mut run = provider.command("mpirun");
        run.args(["--oversubscribe", "--bind-to", "none"]);
        run.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
        run.args(["--mca", "mtl_ofi_provider_include", "vicinity"]);
        run.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
        run.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        run.env("TMPDIR", folder.path());
        run
    };
    let text = passes(mpirun().args(["-n", "4"]).arg(&program).arg(WITHOUT));
    assert_eq!(text.matches(" passed in ").count(), PARTS - 1, "{text}");

    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let names = ["a", "b", "c"];
    let members = names.map(|name| {
        let socket = daemon.path(&format!("message-plane/{name}.sock"));
        Member::join(&socket, &folder.path().join(name).join("message"))
    });
    let mut run = mpirun();
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            run.arg(":");
        }
        let directory = folder.path().join(name);
        run.args(["-n", "1", "-x"]);
        run.arg(format!("VICINITY_RUNTIME_DIR={}", directory.display()));
        run.arg(&program).arg(WITHOUT);
    }
    let text = passes(&mut run);
    assert_eq!(text.matches(" passed in ").count(), PARTS - 1, "{text}");
    drop(members);
}

/// MPICH, and Intel MPI, which runs the same binary; each with the libfabric that it brings.
#[test]
#[ignore = "downloads 150 MB; run by make soak"]
fn mpich_and_intel_mpi_use_the_provider() {
    let Some((folder, provider)) = prepare() else {
        return;
    };
    let mpich = wheel(folder.path(), "mpich");
    let intel = wheel(folder.path(), "impi-rt");
    let program = folder.path().join("conformance");
    open_mpi::compile(&mpich.join("bin/mpicc"), &program);
    let mut run = provider.command(mpich.join("bin/mpiexec"));
    run.args(["-n", "4"]).env("MPIR_CVAR_CH4_NETMOD", "ofi");
    run.env("MPIR_CVAR_NOLOCAL", "1");
    run.env("MPIR_CVAR_CH4_OFI_CAPABILITY_SETS_DEBUG", "1");
    let text = passes(run.arg(&program));
    assert!(text.contains("libfabric provider: vicinity"), "{text}");
    assert!(text.contains("MPIDI_OFI_ENABLE_RMA: 1"), "{text}");
    assert_eq!(text.matches(" passed in ").count(), PARTS, "{text}");
    let mut run = provider.command(intel.join("bin/mpiexec"));
    let libraries = [intel.join("lib"), provider.libraries()];
    run.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap());
    run.args(["-n", "4"]).env("I_MPI_FABRICS", "ofi");
    run.env("I_MPI_DEBUG", "1");
    let text = passes(run.arg(&program));
    assert!(text.contains("libfabric provider: vicinity"), "{text}");
    assert_eq!(text.matches(" passed in ").count(), PARTS, "{text}");
}
