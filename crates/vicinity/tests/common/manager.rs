//! The part of a service manager that stores descriptors. It handles `FDSTORE=1` and `FDSTOREREMOVE=1`, and
//! passes stored descriptors to the daemon, as systemd 252 to 257 do (`src/core/service.c`):
//!
//! - `service_process_fdset`, `service_notify_message`: the manager accepts only messages of the main process
//!   (`NotifyAccess=main`); a descriptor gets the name in its message, or `stored`.
//! - `service_add_fd_store`: the manager does not store a file twice, whatever its name; it closes descriptors
//!   beyond `FileDescriptorStoreMax=`; the latest descriptor comes first.
//! - `on_fd_store_io`: the manager closes a descriptor that hangs up or fails, unless the descriptor came with
//!   `FDPOLL=0`; it keeps descriptors that cannot be polled.
//! - `service_collect_fds`: sockets of socket units come first, then the stored descriptors.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

use super::Daemon;

/// `FileDescriptorStoreMax=`.
const MOST: usize = 64;

/// First temporary number of the descriptors that become 3 and following in the daemon.
const ASIDE: i32 = 300;

/// A stored descriptor.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) fd: OwnedFd,
    poll: bool,
}

#[derive(Debug, Default)]
struct State {
    main: Option<u32>,
    /// The stored descriptors, the latest first.
    store: Vec<Stored>,
}

/// A service manager with one service.
pub(crate) struct Manager {
    notify: PathBuf,
    control: UnixListener,
    folder: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Manager {
    /// Returns the manager of a daemon with `<folder>/run` as its runtime folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let notify = folder.join("notify");
        let socket = UnixDatagram::bind(&notify).unwrap();
        sockopt::set_socket_passcred(&socket, true).unwrap();
        let run = folder.join("run");
        std::fs::create_dir(&run).unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let hears = Arc::clone(&state);
        std::thread::spawn(move || {
            loop {
                hear(&socket, &hears);
            }
        });
        Self {
            notify,
            control: UnixListener::bind(run.join("control.sock")).unwrap(),
            folder: folder.to_owned(),
            state,
        }
    }

    /// Starts the daemon with all stored descriptors, and waits until it answers.
    pub(crate) fn start(&self, config: Option<&str>, log: &str) -> Daemon {
        let mut state = self.state.lock().unwrap();
        state.store.retain(lives);
        let socket = ("vicinity.socket".to_owned(), self.control.as_fd());
        let stored = state.store.iter();
        let stored = stored.map(|stored| (stored.name.clone(), stored.fd.as_fd()));
        let (mut names, mut aside) = (Vec::new(), Vec::new());
        for (name, fd) in [socket].into_iter().chain(stored) {
            let fd = rustix::io::fcntl_dupfd_cloexec(fd, ASIDE).unwrap();
            rustix::io::fcntl_setfd(&fd, FdFlags::empty()).unwrap();
            names.push(name);
            aside.push(fd);
        }
        let moved = aside.iter().zip(3..).map(|(fd, to)| {
            let from = fd.as_raw_fd();
            format!("exec {to}<&{from} {from}<&-; ")
        });
        let line = format!(
            "{}LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={} exec \"$0\" \"$@\"",
            moved.collect::<String>(),
            names.len(),
            names.join(":"),
        );
        let mut command = Command::new("bash");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_vicinity")]);
        command.env("NOTIFY_SOCKET", &self.notify);
        let log_file = std::fs::File::create(self.folder.join("log")).unwrap();
        command.stderr(log_file);
        // The manager must accept the daemon's messages from the first one on, so it receives none
        // until it knows the daemon's process id.
        let file = self.folder.join("vicinity.toml");
        if let Some(config) = config {
            std::fs::write(&file, config).unwrap();
        }
        let run = self.folder.join("run");
        command
            .args(["serve", "--log", log, "--runtime-dir"])
            .arg(run);
        command.arg("--config").arg(file);
        let child = command.spawn().unwrap();
        state.main = Some(child.id());
        drop(state);
        Daemon::of(child, &self.folder)
    }

    /// Returns what the daemon has logged since its last start.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Stores a descriptor, as another version of the daemon might have done.
    pub(crate) fn store(&self, name: &str, fd: OwnedFd) {
        let (name, poll) = (name.to_owned(), true);
        let mut state = self.state.lock().unwrap();
        state.store.insert(0, Stored { name, fd, poll });
    }

    /// Returns the names of the stored descriptors, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let mut names: Vec<_> = state.store.iter().map(|one| one.name.clone()).collect();
        names.sort();
        names
    }
}

/// Receives and handles one message.
fn hear(socket: &UnixDatagram, state: &Mutex<State>) {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut iov = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, &mut iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let (mut sender, mut fds) = (None, Vec::new());
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => fds.extend(rights),
            RecvAncillaryMessage::ScmCredentials(of) => sender = Some(of.pid),
            _ => {}
        }
    }
    let text = String::from_utf8(bytes[..got.bytes].to_vec()).unwrap();
    let mut state = state.lock().unwrap();
    let main = state.main.map(|id| i32::try_from(id).unwrap());
    if sender.map(|pid| pid.as_raw_nonzero().get()) != main {
        return;
    }
    let lines: Vec<&str> = text.lines().collect();
    let name = lines.iter().find_map(|line| line.strip_prefix("FDNAME="));
    if let Some(name) = name {
        let printable = |byte: u8| (b' '..127).contains(&byte) && byte != b':';
        assert!(name.len() <= 255 && name.bytes().all(printable), "{name}");
    }
    if lines.contains(&"FDSTOREREMOVE=1") {
        state.store.retain(|stored| Some(&*stored.name) != name);
    }
    if lines.contains(&"FDSTORE=1") {
        for fd in fds {
            let there = state.store.iter().any(|stored| is_same(&stored.fd, &fd));
            if !there && state.store.len() < MOST {
                let name = name.unwrap_or("stored").to_owned();
                let poll = !lines.contains(&"FDPOLL=0");
                state.store.insert(0, Stored { name, fd, poll });
            }
        }
    }
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let [one, other] = [one, other].map(|fd| rustix::fs::fstat(fd).unwrap());
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn lives(stored: &Stored) -> bool {
    let mut fds = [PollFd::new(&stored.fd, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).unwrap();
    let over = PollFlags::HUP | PollFlags::ERR;
    !stored.poll || !fds[0].revents().intersects(over)
}
