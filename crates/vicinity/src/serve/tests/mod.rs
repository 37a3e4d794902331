//! The whole supervisor with a data plane that does what its front-ends say.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use switch::control::{
    ControlSocket, Counters, Event, FdbEntry, Order, PortId, PortReport, Reason, RemotePeer,
    WorkerReport,
};
use switch::mac::Mac;
use tokio::sync::oneshot;

use super::*;
use crate::client;
use crate::status::{NetworkStatus, PortStatus, State};

mod config_diff;
mod fdb;
mod openapi;
mod page;

/// A data plane that obeys its front-ends: `F` is a fault, `P` a panic, any other byte is a
/// frame of one byte. It starts late, so that orders pile up.
#[expect(
    clippy::needless_pass_by_value,
    reason = "that is what a data plane takes"
)]
fn answering_data_plane(control: ControlSocket) -> io::Result<()> {
    std::thread::sleep(Duration::from_millis(100));
    let mut ports: BTreeMap<u16, (UnixStream, Counters)> = BTreeMap::new();
    let mut fdb_entries = 0;
    loop {
        let mut fds = vec![PollFd::new(&control, PollFlags::IN)];
        fds.extend(
            ports
                .values()
                .map(|(stream, _)| PollFd::new(stream, PollFlags::IN)),
        );
        poll(&mut fds, None)?;
        drop(fds);
        serve_front_ends(&control, &mut ports)?;
        match control.receive::<Order>() {
            Ok(None | Some((Order::Stop, _))) => return Ok(()),
            Ok(Some((Order::Attach { port, .. }, fd))) => {
                let stream = UnixStream::from(fd.unwrap());
                stream.set_nonblocking(true)?;
                ports.insert(port.0, (stream, Counters::default()));
                control.send(&Event::Running { port }, None)?;
            }
            Ok(Some((Order::Detach { port }, _))) => {
                let (_, counters) = ports.remove(&port.0).unwrap();
                detached(&control, port, Reason::Ordered, counters)?;
            }
            Ok(Some((
                Order::SetRules { .. }
                | Order::SetSnooping { .. }
                | Order::SetModerationDelay { .. }
                | Order::SetLookUps { .. },
                _,
            ))) => {}
            Ok(Some((Order::SetFdbEntry { .. }, _))) => fdb_entries += 1,
            Ok(Some((Order::RemoveFdbEntry { .. }, _))) => fdb_entries -= 1,
            Ok(Some((Order::Report, _))) => report(&control, &ports, fdb_entries)?,
            Ok(Some((Order::ListFdb { from }, _))) => list_fdb(&control, from)?,
            Ok(Some((order, _))) => panic!("unexpected {order:?}"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

fn serve_front_ends(
    control: &ControlSocket,
    ports: &mut BTreeMap<u16, (UnixStream, Counters)>,
) -> io::Result<()> {
    let mut ended = Vec::new();
    for (id, (stream, counters)) in ports.iter_mut() {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => ended.push((*id, Reason::Disconnected)),
            Ok(_) if byte == *b"F" => ended.push((*id, Reason::Fault("bad ring".into()))),
            Ok(_) if byte == *b"P" => panic!("as told"),
            Ok(_) => counters.tx_frames += 1,
            Err(_) => {}
        }
    }
    for (id, reason) in ended {
        let (_, counters) = ports.remove(&id).unwrap();
        detached(control, PortId(id), reason, counters)?;
    }
    Ok(())
}

fn detached(
    control: &ControlSocket,
    port: PortId,
    reason: Reason,
    counters: Counters,
) -> io::Result<()> {
    let counters = Box::new(counters);
    let event = Event::Detached {
        port,
        reason,
        counters,
    };
    control.send(&event, None)
}

fn report(
    control: &ControlSocket,
    ports: &BTreeMap<u16, (UnixStream, Counters)>,
    fdb_entries: u32,
) -> io::Result<()> {
    let peer = RemotePeer {
        port: 0,
        mac: Mac::from_octets([0x52, 0x54, 0, 0, 0, 9]),
        vlan: 0,
        sent: [3, 300],
        received: [4, 400],
    };
    control.send(&Event::RemotePeers(vec![peer]), None)?;
    for (id, (_, counters)) in ports {
        let report = PortReport {
            port: *id,
            running: true,
            counters: *counters,
            ..PortReport::default()
        };
        control.send(&Event::Report(vec![report]), None)?;
    }
    let worker = WorkerReport {
        fdb_entries,
        ..WorkerReport::default()
    };
    control.send(&Event::ReportEnd(worker), None)
}

/// Sends an FDB of three pages, the second of which is empty.
fn list_fdb(control: &ControlSocket, from: u32) -> io::Result<()> {
    let entry = |last: u8, port, pinned| FdbEntry {
        mac: Mac::from_octets([0x52, 0x54, 0, 0, 0, last]),
        vlan: 0,
        port,
        pinned,
        age: 60,
        idle: 5,
    };
    let (entries, next) = match from {
        0 => (vec![entry(2, 1, false), entry(1, 0, true)], Some(9)),
        9 => (Vec::new(), Some(10)),
        // This one changed its slot meanwhile; port 7 is gone.
        _ => (vec![entry(2, 1, false), entry(3, 7, false)], None),
    };
    control.send(&Event::FdbEntries { entries, next }, None)
}

/// Data planes as threads.
fn threads() -> process::launch::Launch {
    process::launch::Launch::by(|_, control| {
        let (ended, end) = oneshot::channel();
        std::thread::spawn(move || drop(ended.send(answering_data_plane(control))));
        Ok(process::launch::Ending::Thread(end))
    })
}

/// A supervisor on a thread of its own.
struct Daemon {
    folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Daemon {
    fn start(networks: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("test.toml");
        std::fs::write(
            &file,
            networks.replace("DIR", folder.path().to_str().unwrap()),
        )
        .unwrap();
        let run = folder.path().join("run");
        let (source, config) = Source::load(Some(&file), Some(&run)).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(serve(
                    source,
                    config,
                    Default::default(),
                    threads(),
                    async {
                        stopped.await.unwrap();
                    },
                ))
        });
        let daemon = Self {
            folder,
            stop: Some(stop),
            thread: Some(thread),
        };
        until("the control socket", || {
            client::get::<Vec<PortStatus>>(&daemon.run(), "/v1/ports").is_ok()
        });
        daemon
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn ports(&self) -> Vec<PortStatus> {
        client::get(&self.run(), "/v1/ports").unwrap()
    }

    fn networks(&self) -> Vec<NetworkStatus> {
        client::get(&self.run(), "/v1/networks").unwrap()
    }

    fn port(&self, vm: &str) -> Option<PortStatus> {
        self.ports().into_iter().find(|port| port.vm == vm)
    }

    fn until_port(&self, vm: &str, good: impl Fn(&PortStatus) -> bool) {
        until(vm, || self.port(vm).is_some_and(|port| good(&port)));
    }

    fn connect(&self, socket: &str) -> UnixStream {
        let stream = UnixStream::connect(self.run().join(socket)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap().unwrap();
        assert!(!self.run().exists(), "everything is removed");
    }
}

fn until(what: &str, mut good: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if good() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come about");
}

fn running(port: &PortStatus) -> bool {
    port.state == State::Running
}

const TWO: &str = "
[[network]]
name = \"blue\"
[[network.port]]
vm = \"a\"
[[network.port]]
vm = \"b\"
socket = \"DIR/b.sock\"
mode = \"client\"
[[network]]
name = \"green\"
accept = true
";

#[test]
fn every_way_to_connect_ends_in_a_running_port() {
    let daemon = Daemon::start(TWO);
    let a = daemon.connect("blue/a.sock");
    let b = UnixListener::bind(daemon.folder.path().join("b.sock")).unwrap();
    let c = UnixListener::bind(daemon.run().join("green/c.sock")).unwrap();
    for vm in ["a", "b", "c"] {
        daemon.until_port(vm, running);
    }
    drop((a, b, c));
    std::fs::remove_file(daemon.run().join("green/c.sock")).unwrap();
    daemon.stop();
}

#[test]
fn a_socket_that_was_there_before_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("lan");
    std::fs::create_dir(&here).unwrap();
    let listener = UnixListener::bind(here.join("early.sock")).unwrap();
    // Ignored: no name, not a socket's name, not a VM's name.
    for other in [".sock", "readme.txt", "a b.sock"] {
        std::fs::write(here.join(other), "").unwrap();
    }
    let daemon = Daemon::start("[[network]]\nname = \"lan\"\naccept = true\n");
    std::fs::rename(here.join("early.sock"), daemon.run().join("lan/moved.sock")).unwrap();
    daemon.until_port("moved", running);
    drop(listener);
    daemon.until_port("moved", |port| {
        port.reason
            .as_deref()
            .is_some_and(|reason| reason.contains("no QEMU listens"))
    });
    // The stale socket is replaced by a new listener and served again.
    let path = daemon.run().join("lan/moved.sock");
    std::fs::remove_file(&path).unwrap();
    let _listener = UnixListener::bind(&path).unwrap();
    daemon.until_port("moved", running);
    assert_eq!(daemon.ports().len(), 1);
    std::fs::remove_file(path).unwrap();
    daemon.stop();
}

#[test]
fn a_faulty_front_end_is_quarantined_and_its_neighbour_is_not() {
    let daemon = Daemon::start(TWO);
    let mut a = daemon.connect("blue/a.sock");
    let b = UnixListener::bind(daemon.folder.path().join("b.sock")).unwrap();
    daemon.until_port("b", running);
    a.write_all(b"xxxF").unwrap();
    daemon.until_port("a", |port| port.quarantines == 1);
    let mut again = daemon.connect("blue/a.sock");
    let status = daemon.port("a").unwrap();
    assert_eq!(status.reason.as_deref(), Some("bad ring"));
    assert_eq!(status.counters.tx_frames, 3);
    if status.state == State::Quarantined {
        assert_eq!(again.read(&mut [0]).unwrap(), 0, "closed at once");
    }
    assert!(running(&daemon.port("b").unwrap()));
    drop(b);
    daemon.stop();
}

#[test]
fn a_data_plane_that_panics_is_started_again_and_other_networks_are_unaffected() {
    let daemon = Daemon::start(TWO);
    let b = UnixListener::bind(daemon.folder.path().join("b.sock")).unwrap();
    let c = UnixListener::bind(daemon.run().join("green/c.sock")).unwrap();
    let mut a = daemon.connect("blue/a.sock");
    for vm in ["a", "b", "c"] {
        daemon.until_port(vm, running);
    }
    a.write_all(b"xxx").unwrap();
    daemon.until_port("a", |port| port.counters.tx_frames == 3);
    a.write_all(b"P").unwrap();
    assert_eq!(a.read(&mut [0]).unwrap(), 0, "let go");
    until("the new one", || daemon.networks()[0].restarts == 1);
    daemon.until_port("b", |port| running(port) && port.connections == 2);
    let mut a = daemon.connect("blue/a.sock");
    a.write_all(b"xx").unwrap();
    daemon.until_port("a", |port| port.counters.tx_frames == 5);
    let networks = daemon.networks();
    assert!(networks[0].up && networks[0].reason.is_none());
    assert_eq!(networks[1].restarts, 0);
    let c_port = daemon.port("c").unwrap();
    assert!(running(&c_port) && c_port.connections == 1);
    drop((b, c));
    std::fs::remove_file(daemon.run().join("green/c.sock")).unwrap();
    daemon.stop();
}

#[test]
fn a_data_plane_that_ends_again_and_again_leaves_its_network_failed_with_the_reason() {
    let daemon = Daemon::start(TWO);
    let failed = || {
        let network = daemon.networks().swap_remove(0);
        let reason = network.reason.unwrap_or_default();
        !network.up && reason.contains("it ends repeatedly") && reason.contains("panicked")
    };
    until("the failure", || {
        // Refused or closed at once while the network is down.
        if let Ok(mut a) = UnixStream::connect(daemon.run().join("blue/a.sock")) {
            drop(a.write_all(b"P"));
        }
        failed()
    });
    assert!(daemon.networks()[1].up);
    daemon.until_port("a", |port| port.state == State::Down || running(port));
    daemon.stop();
}

#[test]
fn no_order_is_lost_when_the_data_plane_is_behind() {
    let mut text = "[[network]]\nname = \"lan\"\n".to_owned();
    for port in 0..1000 {
        let (a, b) = (port / 256, port % 256);
        text += &format!(
            "[[network.port]]\nvm = \"vm{port}\"\nmac = \"52:54:00:00:{a:02x}:{b:02x}\"\n\
             socket = \"DIR/{port}.sock\"\nmode = \"client\"\n"
        );
    }
    let daemon = Daemon::start(&text);
    assert_eq!(daemon.networks()[0].worker.fdb_entries, 1000);
    daemon.stop();
}

#[test]
fn a_full_network_forgets_a_vm_that_is_gone_to_make_room() {
    let daemon = Daemon::start("[[network]]\nname = \"lan\"\naccept = true\n");
    let folder = daemon.run().join("lan");
    let sockets = |range: std::ops::Range<usize>| {
        for vm in range {
            drop(UnixListener::bind(folder.join(format!("vm{vm}.sock"))).unwrap());
        }
    };
    sockets(0..1024);
    until("1,024 ports", || daemon.ports().len() == 1024);
    std::fs::remove_file(folder.join("vm7.sock")).unwrap();
    sockets(1024..1025);
    until("the new port", || daemon.port("vm1024").is_some());
    assert!(daemon.port("vm7").is_none());
    std::fs::remove_dir_all(&folder).unwrap();
    daemon.stop();
}

#[test]
fn two_daemons_do_not_share_a_folder() {
    let daemon = Daemon::start(TWO);
    let second = RuntimeDir::claim(&daemon.run()).unwrap_err().to_string();
    assert!(
        second.contains("another Vicinity daemon serves"),
        "{second}"
    );
    assert!(Path::new(&daemon.run()).exists());
    daemon.stop();
}
