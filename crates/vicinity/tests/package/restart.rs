//! The daemon under real systemd, with the unit of the package. After it is killed, restarted and upgraded
//! under load, the files that VMs published still exist, and the switch forwards frames again within a
//! second.
//!
//! In the clean root, the script starts this same program, which acts as the VMs: [`act`].

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use front_end::frame::{mac, number, numbered};
use front_end::wire::request;
use front_end::{Layout, Nic, Options, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vm_harness::host::{command, run};
use vm_harness::image::clean_root;

use crate::common::mount::Mount;
use crate::common::root;

const CONFIG: &str = r#"
[[network]]
name = "lan"
uplink = { tap = "vic0" }
[[network.port]]
vm = "a"
[[network.port]]
vm = "b"

[[space]]
vm = "red"
slots = 64
listen = "127.0.0.1:8080"
allow = ["127.0.0.1"]
"#;

/// The script that kills, restarts and upgrades the daemon. Each line must succeed.
const SCRIPT: &str = r#"
set -eux
trap 'systemctl show vicinity.service | grep -E "^(Result|ExecMain|Status|NRes|Active|Sub)" || true' ERR
getent group kvm || groupadd --system kvm
mkdir -p /run/vicinity
chgrp kvm /run/vicinity
systemctl start vicinity.service
act() { ACT="$1" /act restart::act --exact --ignored --nocapture; }
of() { systemctl show --property "$1" --value vicinity.service; }
act publish
act gap >/gap 2>&1 &
readonly gap=$!
until test -e /going; do sleep 0.1; done

# Its processes are as confined as without systemd, and it could make its tap.
! grep 'the sandbox is incomplete' /log
test -e /sys/class/net/vic0
main=$(of MainPID)
for name in net-lan space-red; do
    id=$(grep -lx "$name" /proc/[0-9]*/comm | cut -d/ -f3)
    grep -x 'Seccomp:	2' "/proc/$id/status"
    grep -x 'NoNewPrivs:	1' "/proc/$id/status"
    grep -x 'CapEff:	0000000000000000' "/proc/$id/status"
    grep -x 'Uid:	65534	65534	65534	65534' "/proc/$id/status"
done
grep -x 'Seccomp:	2' "/proc/$main/status"
test "$(of NFileDescriptorStore)" = 2
test "$(stat --format %G:%a /run/vicinity/lan)" = kvm:750

kill -KILL "$main"
until test "$(of NRestarts)" = 1 && systemctl is-active vicinity.service; do sleep 0.1; done
act check
sleep 0.5
systemctl restart vicinity.service
act check
sleep 0.5
# An upgrade, and settings that were changed at work.
vicinity port set lan a vlan=5
vicinity port set lan b vlan=5
vicinity space set red slots=100
cp /usr/bin/vicinity /usr/bin/vicinity.new
mv /usr/bin/vicinity.new /usr/bin/vicinity
systemctl restart vicinity.service
act check
vicinity space show red | grep '"slots": 100'
test "$(vicinity config --running | grep -c 'vlan = 5')" = 2
test "$(of NFileDescriptorStore)" = 2
sleep 0.5
# What hangs is killed by the watchdog, and started again.
kill -STOP "$(of MainPID)"
until test "$(of NRestarts)" = 1 && systemctl is-active vicinity.service; do sleep 0.1; done
act check
sleep 1
touch /over
wait "$gap"
# Crashes do not use up a number of starts.
for kill in 2 3 4 5 6 7 8; do
    kill -KILL "$(of MainPID)"
    until test "$(of NRestarts)" = "$kill" && systemctl is-active vicinity.service; do sleep 0.1; done
done
act check
! grep -E 'removed .* from the service manager|is not usable|when this process ends' /log
# Stopped is stopped: the memory goes.
systemctl stop vicinity.service
test "$(of NFileDescriptorStore)" = 0
"#;

/// Number of files that the VM publishes, and their length in bytes.
const FILES: usize = 20;

fn content(number: usize) -> Vec<u8> {
    (0..100_000 + number)
        .map(|at| (at * 31 + number) as u8)
        .collect()
}

#[test]
fn killed_restarted_and_upgraded_under_systemd_it_loses_nothing() {
    let home = crate::home().join("package");
    let clean = clean_root(&["man-db", "systemd", "systemd-sysv"], &home).unwrap();
    let folder = tempfile::tempdir_in(&home).unwrap();
    let place = folder.path().join("root");
    std::fs::create_dir(&place).unwrap();
    let mut unpack = command("tar");
    unpack.arg("--extract").arg("--file").arg(clean);
    unpack.arg("--directory").arg(&place);
    run(unpack).unwrap();
    let put = |from: &Path, to: &str| {
        std::fs::create_dir_all(place.join(to).parent().unwrap()).unwrap();
        std::fs::copy(from, place.join(to)).unwrap();
    };
    put(
        Path::new(env!("CARGO_BIN_EXE_vicinity")),
        "usr/bin/vicinity",
    );
    put(&std::env::current_exe().unwrap(), "act");
    let units = root().join("packaging/systemd");
    for unit in ["vicinity.service", "vicinity.socket"] {
        put(&units.join(unit), &format!("usr/lib/systemd/system/{unit}"));
    }
    let write = |to: &str, text: &str| {
        std::fs::create_dir_all(place.join(to).parent().unwrap()).unwrap();
        std::fs::write(place.join(to), text).unwrap();
    };
    write("etc/vicinity/vicinity.toml", CONFIG);
    // The test reads the log from a file. The unit's watchdog time of half a minute is too long for
    // a test.
    let test = "[Service]\nStandardError=append:/log\nWatchdogSec=2\n";
    write("etc/systemd/system/vicinity.service.d/test.conf", test);
    write("try", SCRIPT);
    let mut boot = command("unshare");
    boot.arg("--mount");
    boot.arg(root().join("crates/vicinity/tests/package/boot.sh"));
    boot.arg(&place).stdin(Stdio::null());
    let output = boot.output().unwrap();
    let read = |file| std::fs::read_to_string(place.join(file)).unwrap_or_default();
    let said = format!("{}\n{}\n{}", read("said"), read("log"), read("gap"));
    assert!(output.status.success(), "{said}\n{output:?}");
    println!("{}", read("gap"));
}

/// Acts as the VMs, in the way that `ACT` says.
#[test]
#[ignore = "it is a part of the test of this file, which runs it in a clean root"]
fn act() {
    match std::env::var("ACT").unwrap().as_str() {
        "publish" => publish(),
        "check" => check(),
        "gap" => gap(),
        other => panic!("{other}"),
    }
}

fn publish() {
    let mut mount = Mount::new(Path::new("/run/vicinity/space/red.sock")).unwrap();
    for number in 0..FILES {
        let name = format!("f{number}");
        mount.publish(&name, &content(number)).unwrap();
    }
}

fn check() {
    for number in 0..FILES {
        let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
        let head = format!("GET /f{number} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "f{number}");
        assert!(answer[end + 4..] == content(number), "f{number}");
    }
}

/// A VM's NIC, which reconnects as QEMU does with `reconnect-ms=100`: 100 ms after the daemon closed or
/// refused the connection.
struct Station {
    socket: String,
    nic: Nic,
    again: Option<Instant>,
}

const RECONNECT: Duration = Duration::from_millis(100);

impl Station {
    fn new(vm: &str) -> Self {
        let socket = format!("/run/vicinity/lan/{vm}.sock");
        let wire = Wire::new(UnixStream::connect(&socket).unwrap().into());
        let mut nic = Nic::new(wire, Options::default());
        nic.start(|| {});
        let again = None;
        Self { socket, nic, again }
    }

    /// Returns whether the NIC is connected.
    fn look(&mut self) -> bool {
        if let Some(again) = self.again {
            if Instant::now() < again {
                return false;
            }
            self.again = Some(Instant::now() + RECONNECT);
            let Ok(stream) = UnixStream::connect(&self.socket) else {
                return false;
            };
            let wire = Wire::new(stream.into());
            if !wire.send(request::GET_FEATURES, &[], &[]) || wire.reply().is_none() {
                return false;
            }
            self.nic.resume(wire, || {});
            self.again = None;
        }
        let mut fds = [PollFd::from_borrowed_fd(
            self.nic.wire.as_fd(),
            PollFlags::RDHUP,
        )];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut fds, Some(&now)).unwrap() > 0 {
            self.again = Some(Instant::now() + RECONNECT);
        }
        self.again.is_none()
    }
}

/// Sends frames from one VM to another all the time. Prints the longest times without a frame, in
/// milliseconds.
fn gap() {
    let [mut from, mut to] = ["a", "b"].map(Station::new);
    let (mut sent, mut last, mut gaps) = (0, None, Vec::new());
    while !Path::new("/over").exists() {
        if from.look() {
            from.nic.reclaim();
            sent += 1;
            from.nic
                .send(&numbered(mac(2), mac(1), sent, 64), Layout::One);
        }
        if to.look() {
            while let Some(received) = to.nic.receive() {
                if received.frame[12..14] != [0x88, 0xb5] {
                    continue;
                }
                assert!(number(&received.frame) <= sent);
                let now = Instant::now();
                let since = last.replace(now).map(|last| now - last);
                gaps.push(since.unwrap_or_default().as_millis());
                if gaps.len() == 100 {
                    std::fs::write("/going", "").unwrap();
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    gaps.sort_unstable();
    // The daemon was killed, restarted and upgraded: gaps below 1 s. The longest gap includes the
    // watchdog's two seconds.
    let longest: Vec<_> = gaps.iter().rev().take(6).collect();
    println!("longest gaps in ms: {longest:?} of {}", gaps.len());
    assert!(*longest[0] < 4000, "{longest:?}");
    assert!(*longest[1] < 1000, "{longest:?}");
}
