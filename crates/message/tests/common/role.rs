//! A process that a test starts: this test program in a role, which is set in the environment.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "tests; every binary uses its own part of this"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use message::{Address, Board, Code, Endpoint, MessageError, Options, Peer};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// No operation takes this long; a longer wait is a hang.
pub const HANG: Option<Duration> = Some(Duration::from_secs(120));

const ROLE: &str = "VICINITY_TEST_ROLE";
const FOLDER: &str = "VICINITY_TEST_FOLDER";
const RANK: &str = "VICINITY_TEST_RANK";

/// A process that is killed when the test ends, however it ends.
pub struct Role(pub Child);

impl Role {
    /// Starts the test `child` of this program in a role, with a rank.
    pub fn start(role: &str, folder: &Path, rank: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--ignored", "--nocapture"]);
        command.env(ROLE, role).env(FOLDER, folder);
        command.env(RANK, rank.to_string());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32).unwrap()
    }

    /// Makes progress until a signal has stopped the process.
    pub fn await_stop(&self, endpoint: &mut Endpoint) {
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        while !matches!(waitpid(Some(self.pid()), options), Ok(Some((_, status))) if status.stopped())
        {
            endpoint.progress();
        }
    }

    /// Kills the process after this time.
    pub fn kill_after(&self, time: Duration) -> Killer {
        let pid = self.pid();
        Killer(Some(std::thread::spawn(move || {
            std::thread::sleep(time);
            kill_process(pid, Signal::KILL).unwrap();
        })))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A thread that kills a process; dropping it waits for that.
pub struct Killer(Option<std::thread::JoinHandle<()>>);

impl Drop for Killer {
    fn drop(&mut self) {
        self.0.take().unwrap().join().unwrap();
    }
}

/// What a test started this process for.
pub struct Own {
    pub role: String,
    pub folder: PathBuf,
    pub rank: u32,
}

/// Returns it, if a test started this process.
pub fn own() -> Option<Own> {
    let role = std::env::var(ROLE).ok()?;
    Some(Own {
        role,
        folder: std::env::var(FOLDER).unwrap().into(),
        rank: std::env::var(RANK).unwrap().parse().unwrap(),
    })
}

/// Opens the endpoint of a rank.
pub fn open(folder: &Path, rank: u32) -> Endpoint {
    let board = Board::open(folder).unwrap();
    let options = Options {
        endpoint: Some(rank),
        ..Options::default()
    };
    Endpoint::open(&board, &options).unwrap()
}

/// Connects to a process that may not have started yet.
pub fn connect(endpoint: &mut Endpoint, rank: u32) -> Peer {
    let address = Address {
        endpoint: rank,
        ..endpoint.address()
    };
    loop {
        match endpoint.connect(address, 0, HANG) {
            Ok(peer) => return peer,
            Err(MessageError::Connection(Code::Closed | Code::NoResources)) => {
                endpoint.progress();
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("rank {rank}: {error}"),
        }
    }
}
