//! The file of `vicinity mpi-hosts`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::member::Member;
use crate::common::open_mpi::missing;
use crate::common::{self, Daemon};
use crate::{MEMBERS, output};

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
