//! A libvirt VM with the output of `vicinity libvirt-xml`.
//!
//! Needs root, libvirt and the programs that the lab needs. There are two hosts, each with its own libvirtd
//! and `vicinity serve`. The test does not change the libvirt of this machine.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../vms/arp.rs"]
mod arp;
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::neighbours::started;
use common::{Daemon, until, vicinity};
use front_end::{Layout, Options, Wire};
use serde_json::Value;
use vm_harness::host::{ChildProcess, command};
use vm_harness::image::{Image, Recipe};
use vm_harness::scope::RunFolder;

/// The group of the daemon's sockets. `host.sh` makes QEMU a member of it.
const GROUP: &str = "64056";

const CONFIG: &str = "
[[network]]
name = \"lan\"
[[network.port]]
vm = \"web\"
mac = \"52:54:00:00:00:01\"
[[network.port]]
vm = \"peer\"
[[network.port]]
vm = \"all\"
[[network]]
name = \"more\"
[[network.port]]
vm = \"web\"
[[network.port]]
vm = \"one\"

[[message.member]]
name = \"all\"

[[space]]
vm = \"all\"
slots = 8
listen = \"127.0.0.1:0\"
allow = [\"127.0.0.1\"]

[[vsock]]
vm = \"all\"

[[direct.group]]
name = \"g\"
members = [\"one\", \"two\"]
";

const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 9];
const IP: [u8; 4] = [10, 0, 0, 1];

/// A host. When it is dropped, its VMs end first.
struct Host {
    _libvirtd: ChildProcess,
    daemon: Daemon,
    folder: RunFolder,
}

impl Host {
    fn start(name: &str, image: &Image) -> Self {
        let folder = RunFolder::new().unwrap();
        let run = folder.path().join("run");
        // In the folder of the direct channel libvirt's QEMUs make their monitors.
        let direct = run.join("direct");
        fs::create_dir_all(&direct).unwrap();
        for folder in [&run, &direct] {
            std::os::unix::fs::chown(folder, None, GROUP.parse().ok()).unwrap();
        }
        fs::set_permissions(&direct, fs::Permissions::from_mode(0o1770)).unwrap();
        let cache = home().join("cache");
        fs::create_dir_all(&cache).unwrap();
        let mut libvirtd = command("unshare");
        libvirtd.args(["--mount", "--uts", "--pid", "--fork", "--kill-child"]);
        libvirtd.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/libvirt/host.sh"
        ));
        libvirtd.arg(name).arg(folder.path());
        libvirtd.arg(image.kernel.parent().unwrap()).arg(cache);
        libvirtd.stdin(Stdio::null());
        let mut daemon = command("setpriv");
        daemon.args(["--regid", GROUP, "--clear-groups"]);
        daemon.arg(env!("CARGO_BIN_EXE_vicinity"));
        let host = Self {
            _libvirtd: ChildProcess::spawn(libvirtd).unwrap(),
            daemon: Daemon::start_by(daemon, folder.path(), Some(CONFIG)),
            folder,
        };
        until("libvirtd", || host.virsh(&["version"]).is_ok());
        host
    }

    fn uri(&self) -> String {
        let socket = self.folder.path().join("libvirt-sock");
        format!("qemu+unix:///system?socket={}", socket.display())
    }

    /// Returns the output of virsh, or its error message.
    fn virsh(&self, arguments: &[&str]) -> Result<String, String> {
        let mut virsh = command("virsh");
        virsh.args(["--quiet", "--connect", &self.uri()]);
        let output = virsh.args(arguments).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// Returns the output of virsh, which must not fail.
    fn done(&self, arguments: &[&str]) -> String {
        match self.virsh(arguments) {
            Ok(said) => said,
            Err(error) => {
                let log = fs::read_to_string(self.folder.path().join("libvirtd.log"));
                panic!("virsh {arguments:?}: {error}\n{}", log.unwrap_or_default())
            }
        }
    }

    /// Writes the output of `vicinity libvirt-xml` to a file for virsh.
    fn xml(&self, vm: &str, name: &str, arguments: &[&str]) -> String {
        let output = vicinity()
            .args(["libvirt-xml", vm, "--runtime-dir", "/run/vicinity"])
            .arg("--config")
            .arg(self.folder.path().join("vicinity.toml"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        self.file(name, &String::from_utf8(output.stdout).unwrap())
    }

    /// Writes a file for virsh, and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let file = self.folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.into_os_string().into_string().unwrap()
    }

    /// Returns the answer of the program with `--json`.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.daemon.command(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the output of `vicinity direct qemu-args` for a member on a `q35` machine, as elements.
    fn direct_arguments(&self, vm: &str) -> String {
        let arguments = [
            "direct",
            "qemu-args",
            vm,
            "--ports",
            "1",
            "--memory",
            "64M",
            "--json",
        ];
        let output = vicinity()
            .args(arguments)
            .args(["--runtime-dir", "/run/vicinity"])
            .output()
            .unwrap();
        let words: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
        let elements = words.iter();
        elements
            .map(|word| format!("    <qemu:arg value='{word}'/>\n"))
            .collect()
    }

    /// Returns whether a process is connected to a socket of the daemon.
    fn is_connected(&self, socket: &str) -> bool {
        let path = self.daemon.path(socket).display().to_string();
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        // The state 03 is SS_CONNECTED.
        let mut lines = sockets.lines().map(|line| line.split_whitespace());
        lines.any(|mut words| words.nth(5) == Some("03") && words.next_back() == Some(&path))
    }

    /// Waits until the VM answers a neighbour on its network.
    fn answers(&self) {
        let socket = UnixStream::connect(self.daemon.path("lan/peer.sock")).unwrap();
        let mut peer = started(Wire::new(socket.into()), Options::default());
        // The guest answers only after it has booted.
        until("an answer of the VM's", || {
            let request = arp::request(MAC, [10, 0, 0, 9], IP);
            peer.wait_to_send(&request, Layout::One);
            std::iter::from_fn(|| peer.receive())
                .any(|received| arp::is_answer(&received.frame, MAC, IP))
        });
    }
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("libvirt")
}

/// An operator's domain, which contains nothing of Vicinity.
const DOMAIN: &str = "<domain type='qemu'>
  <name>web</name>
  <memory unit='MiB'>320</memory>
  <vcpu>1</vcpu>
  <features><acpi/></features>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>/var/lib/libvirt/images/vmlinuz</kernel>
    <initrd>/var/lib/libvirt/images/initrd.cpio</initrd>
    <cmdline>console=ttyS0 panic=-1 lab.host=web lab.nic=52:54:00:00:00:01,10.0.0.1/24</cmdline>
  </os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
";

#[test]
fn a_domain_starts_gets_and_loses_a_nic_and_migrates() {
    // The tests of vicinity-vm-harness use the same image.
    let image = Recipe::default().build(&home().join("../lab")).unwrap();
    let [here, there] = ["here", "there"].map(|name| Host::start(name, &image));
    let plain = here.folder.path().join("plain.xml");
    fs::write(&plain, DOMAIN).unwrap();
    let domain = here.xml(
        "web",
        "web.xml",
        &["--network", "lan", "--domain", plain.to_str().unwrap()],
    );
    here.done(&["create", "--validate", &domain]);
    here.answers();
    assert_eq!(here.daemon.port("web")["state"], "running");

    let state = |host: &Host, network: &str| {
        let ports = host.daemon.ports().into_iter();
        let mut ports = ports.filter(|port| port["vm"] == "web");
        ports.find(|port| port["network"] == network).unwrap()["state"].clone()
    };
    let nic = here.xml("web", "nic.xml", &["--network", "more", "--interface"]);
    here.done(&["attach-device", "web", &nic, "--live"]);
    until("the second NIC", || state(&here, "more") == "running");
    here.done(&["detach-device", "web", &nic, "--live"]);
    until("its end", || state(&here, "more") == "waiting");
    assert_eq!(
        here.done(&["domiflist", "web"])
            .matches("vhostuser")
            .count(),
        1
    );

    here.done(&[
        "migrate",
        "--live",
        "web",
        &there.uri(),
        "--migrateuri",
        "tcp:127.0.0.1",
    ]);
    there.answers();
    assert_eq!(state(&there, "lan"), "running");
    until("the source's end", || state(&here, "lan") == "waiting");
    for host in [&here, &there] {
        assert_eq!(host.daemon.port("web")["quarantines"], 0);
    }
    other_planes(&here);
}

/// A domain whose firmware finds nothing to boot.
fn idle(name: &str, machine: &str, more: &str) -> String {
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <features><acpi/></features>
  <os><type arch='x86_64' machine='{machine}'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
{more}</domain>
"
    )
}

/// A domain has a NIC, a region, a space and a socket device, and two others see each other's memory.
fn other_planes(host: &Host) {
    let plain = host.file("plain.xml", &idle("all", "pc", ""));
    let domain = host.xml("all", "all.xml", &["--domain", &plain]);
    host.done(&["define", "--validate", &domain]);
    host.done(&["start", "all"]);
    host.daemon.until_state("all", "running");
    until("the region", || {
        host.json(&["message", "info"])["plane"]["members"][0]["connected"] == true
    });
    assert_eq!(host.json(&["space", "list"])[0]["up"], true);
    assert!(host.is_connected("space/all.sock"));
    let is_attached = || host.json(&["vsock", "list"])[0]["attached"] == true;
    until("the socket device", is_attached);

    let region = host.xml("all", "region.xml", &["--region"]);
    let space = host.xml("all", "space.xml", &["--space"]);
    for part in [region, space] {
        // The domain that is there has one: with what is printed, libvirt finds it.
        host.done(&["detach-device", "all", &part, "--config"]);
        host.done(&["attach-device", "all", &part, "--config"]);
    }
    host.done(&["destroy", "all"]);
    until("the end of the region", || {
        host.json(&["message", "info"])["plane"]["members"][0]["connected"] == false
    });
    assert!(!host.is_connected("space/all.sock"));
    until("the end of the socket device", || !is_attached());

    let memory = "  <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\n";
    for vm in ["one", "two"] {
        let arguments = host.direct_arguments(vm);
        let arguments = format!("{memory}  <qemu:commandline>\n{arguments}  </qemu:commandline>\n");
        let port = "<controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' model='pcie-root-port'/>
    <memballoon";
        let domain = idle(vm, "q35", &arguments).replace("<memballoon", port);
        let domain = host.file(&format!("{vm}.xml"), &domain);
        host.done(&["create", "--validate", &domain]);
    }
    let members = || host.json(&["direct", "list"])[0]["members"].clone();
    until("both to join", || {
        let members = members();
        (0..2).all(|at| members[at]["state"] == "joined" && members[at]["reason"].is_null())
    });
    // libvirt does not know these devices, and its own next device still finds a place.
    let nic = host.xml("one", "nic.xml", &["--network", "more", "--interface"]);
    host.done(&["attach-device", "one", &nic, "--live"]);
    until("the NIC", || host.daemon.port("one")["connections"] == 1);
}
