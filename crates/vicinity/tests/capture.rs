//! `vicinity capture`: forwarded frames are in the file, and a capture that fails affects no VM and no other
//! process.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::holdings::Holdings;
use common::neighbours::{NEIGHBOURS, started};
use common::{Daemon, until, vicinity};
use front_end::{Layout, Nic, Options, Wire, frame};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const CONFIG: &str = r#"
[[network]]
name = "lan"
[[network.port]]
vm = "vm1"
mac = "52:54:00:00:00:01"
[[network.port]]
vm = "vm2"
mac = "52:54:00:00:00:02"
[[network]]
name = "other"
[[network.port]]
vm = "vm2"
"#;

fn connect(daemon: &Daemon) -> [Nic; 2] {
    NEIGHBOURS.map(|station| {
        let socket = daemon.path(&format!("lan/vm{station}.sock"));
        let stream = UnixStream::connect(socket).unwrap();
        started(Wire::new(stream.into()), Options::default())
    })
}

fn numbered(number: u64) -> Vec<u8> {
    frame::numbered(frame::mac(2), frame::mac(1), number, 200)
}

fn exchange([a, b]: &mut [Nic; 2], numbers: std::ops::Range<u64>) {
    for number in numbers {
        a.wait_to_send(&numbered(number), Layout::One);
        assert_eq!(b.wait_to_receive().frame, numbered(number));
    }
}

/// Starts `vicinity capture` with these arguments.
fn capture(daemon: &Daemon, arguments: &[&str]) -> Child {
    let mut command = vicinity();
    command.arg("capture").args(arguments).arg("--runtime-dir");
    command.arg(daemon.path(""));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until the file of a capture has its header. From then on, the switch captures frames.
fn begun(child: &mut Child, file: &Path) {
    until("the file", || {
        if child.try_wait().unwrap().is_some() {
            let mut said = String::new();
            let errors = child.stderr.as_mut().unwrap();
            errors.read_to_string(&mut said).unwrap();
            panic!("the capture has ended: {said}");
        }
        file.metadata().is_ok_and(|it| it.len() > 0)
    });
}

/// Returns the frames of a file by interface and direction: 1 is inbound, 2 is outbound.
fn frames(file: impl Read) -> BTreeMap<(String, u32), Vec<Vec<u8>>> {
    let mut reader = PcapNgReader::new(file).unwrap();
    let (mut names, mut found) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap().into_owned() {
            Block::InterfaceDescription(interface) => {
                names.extend(interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                }));
            }
            Block::EnhancedPacket(packet) => {
                let flags = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => Some(*flags),
                    _ => None,
                });
                let name = names[packet.interface_id as usize].clone();
                let place = found.entry((name, flags.unwrap())).or_default();
                place.push(packet.data.to_vec());
            }
            _ => {}
        }
    }
    found
}

/// Returns the number of complete frames in a growing file. A long frame is written in pieces.
fn count(file: &Path) -> usize {
    let mut reader = PcapNgReader::new(File::open(file).unwrap()).unwrap();
    let mut count = 0;
    while let Some(Ok(block)) = reader.next_block() {
        count += usize::from(matches!(block, Block::EnhancedPacket(_)));
    }
    count
}

fn ended(mut child: Child, signal: Option<Signal>) -> Output {
    if let Some(signal) = signal {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    drop(child.stdin.take());
    child.wait_with_output().unwrap()
}

#[test]
fn what_passes_is_in_the_file_also_when_the_data_plane_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let file = folder.path().join("both.pcapng");
    let name = file.to_str().unwrap();
    let mut child = capture(&daemon, &["vm1", "lan/vm2", "-w", name]);
    begun(&mut child, &file);
    let mut nics = connect(&daemon);
    exchange(&mut nics, 0..500);
    // The capture has each frame twice.
    until("frames", || count(&file) == 500 * 2);
    let old = daemon.signal_data_plane("lan", Signal::KILL);
    drop(nics);
    until("another one", || {
        daemon.data_plane("lan").is_some_and(|new| new != old)
    });
    let mut nics = connect(&daemon);
    exchange(&mut nics, 500..600);
    until("frames", || count(&file) == 600 * 2);
    let output = ended(child, Some(Signal::INT));
    assert!(output.status.success(), "{output:?}");
    let all: Vec<_> = (0..600).map(numbered).collect();
    let expected = [("lan/vm1", 2), ("lan/vm2", 1)];
    let expected = expected.map(|(name, flags)| ((name.to_owned(), flags), all.clone()));
    let found = frames(File::open(&file).unwrap());
    for (place, expected) in expected {
        let numbers = found[&place].iter().map(|bytes| frame::number(bytes));
        assert!(
            found[&place] == expected,
            "{place:?}: {:?}",
            numbers.collect::<Vec<_>>()
        );
    }
    assert_eq!(found.len(), 2, "{:?}", found.keys());
}

#[test]
fn captures_that_end_leave_nothing_and_do_not_affect_ports() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let mut nics = connect(&daemon);
    exchange(&mut nics, 0..10);
    let held = Holdings::settled(&daemon, "lan");
    let mut number = 10;
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let file = folder.path().join("some.pcapng");
        let mut child = capture(&daemon, &["vm1", "-w", file.to_str().unwrap()]);
        begun(&mut child, &file);
        exchange(&mut nics, number..number + 50);
        number += 50;
        drop(ended(child, Some(signal)));
        std::fs::remove_file(file).unwrap();
    }
    // Frames of the longest length, more than fit into one datagram.
    let file = folder.path().join("long.pcapng");
    let mut child = capture(&daemon, &["lan/vm2", "-w", file.to_str().unwrap()]);
    begun(&mut child, &file);
    let [a, b] = &mut nics;
    for (number, counted) in (0..20).zip(1..) {
        let long = frame::numbered(frame::mac(2), frame::mac(1), number, 60_000);
        a.wait_to_send(&long, Layout::One);
        assert_eq!(b.wait_to_receive().frame, long);
        until("the frame", || count(&file) == counted);
    }
    drop(ended(child, Some(Signal::INT)));
    let whole = frames(File::open(&file).unwrap());
    assert_eq!(whole.values().map(Vec::len).sum::<usize>(), 20);
    std::fs::remove_file(file).unwrap();
    // A capture to standard output of a limited number of frames.
    let mut child = capture(&daemon, &["vm1", "--count", "7", "--bytes", "60"]);
    let mut output = child.stdout.take().unwrap();
    let mut bytes = [0; 64];
    output.read_exact(&mut bytes).unwrap();
    exchange(&mut nics, number..number + 50);
    let mut rest = bytes.to_vec();
    output.read_to_end(&mut rest).unwrap();
    assert!(ended(child, None).status.success());
    let sent = &frames(rest.as_slice())[&("lan/vm1".to_owned(), 2)];
    assert_eq!(sent.len(), 7);
    assert_eq!(sent[6], numbered(number + 6)[..60]);
    held.assert_unchanged(&daemon, "lan", "after captures");
    assert_eq!(daemon.port("vm1")["counters"]["drops"]["receiver_stuck"], 0);
}

/// Gives the capture threads of the daemon a CPU that threads of a higher priority need all the time, until the value is
/// dropped.
struct WithoutCpu(Arc<AtomicBool>);

impl WithoutCpu {
    fn new(daemon: &Daemon) -> Self {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        let mut one = CpuSet::new();
        one.set(first.unwrap());
        let tasks = format!("/proc/{}/task", daemon.child.id());
        let mut moved = 0;
        for task in std::fs::read_dir(tasks).unwrap().map(Result::unwrap) {
            if std::fs::read_to_string(task.path().join("comm")).unwrap() == "capture\n" {
                let id = task.file_name().into_string().unwrap();
                moved += 1;
                sched_setaffinity(Pid::from_raw(id.parse().unwrap()), &one).unwrap();
            }
        }
        assert_eq!(moved, 4);
        let end = Arc::new(AtomicBool::new(false));
        for _ in 0..8 {
            let ended = Arc::clone(&end);
            std::thread::spawn(move || {
                sched_setaffinity(None, &one).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(end)
    }
}

impl Drop for WithoutCpu {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_capture_that_has_ended_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let files: Vec<_> = (0..4)
        .map(|n| folder.path().join(format!("{n}.pcapng")))
        .collect();
    let captures = |files: &[PathBuf]| -> Vec<Child> {
        let begin = |file: &PathBuf| {
            let mut child = capture(&daemon, &["vm1", "-w", file.to_str().unwrap()]);
            begun(&mut child, file);
            child
        };
        files.iter().map(begin).collect()
    };
    let end = |child| drop(ended(child, Some(Signal::KILL)));
    let first = captures(&files);
    let _without_cpu = WithoutCpu::new(&daemon);
    first.into_iter().for_each(end);
    for file in &files {
        std::fs::remove_file(file).unwrap();
    }
    captures(&files).into_iter().for_each(end);
}

#[test]
fn a_capture_that_cannot_be_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(CONFIG));
    let kept = folder.path().join("kept.pcapng");
    std::fs::write(&kept, "precious").unwrap();
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = ended(capture(&daemon, arguments), None);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words:?} not in {said}");
    };
    let file = kept.to_str().unwrap();
    refused(
        &["vm3", "-w", file],
        2,
        "no network has a port vm3; did you mean vm",
    );
    refused(&["lan/vm3", "-w", file], 2, "network lan has no port vm3");
    refused(
        &["la/vm1", "-w", file],
        2,
        "no network la; did you mean lan?",
    );
    refused(&["vm2", "-w", file], 2, "choose one of: lan/vm2, other/vm2");
    refused(&["lan/vm1", "-w", file, "--bytes", "3"], 2, "bytes");
    assert_eq!(std::fs::read(&kept).unwrap(), b"precious");
    refused(
        &["vm1", "-w", "/nowhere/file"],
        1,
        "cannot write /nowhere/file",
    );
    refused(
        &["vm1", "-w", "/dev/full"],
        1,
        "cannot write /dev/full: No space left",
    );
    // More captures of one port than the limit.
    let files: Vec<_> = (0..4)
        .map(|n| folder.path().join(format!("{n}.pcapng")))
        .collect();
    let mut children: Vec<Child> = files
        .iter()
        .map(|file| capture(&daemon, &["vm1", "-w", file.to_str().unwrap()]))
        .collect();
    for (child, file) in children.iter_mut().zip(&files) {
        begun(child, file);
    }
    refused(&["vm1", "-w", file], 2, "vm1 already has 4 captures");
    // The port is removed.
    let output = daemon.command(&["port", "remove", "lan", "vm1"]);
    assert!(output.status.success(), "{output:?}");
    for child in children {
        let output = ended(child, None);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("its ports were removed or the daemon ended"),
            "{said}"
        );
    }
}
