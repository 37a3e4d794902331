//! A host with members that are processes of it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "tests; every binary uses its own part of this"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use message::remote::{Broker, Gateway, Member, Transport};
use message::{Board, Endpoint, Options, Peer};

use crate::common::both;

/// No operation takes this long; a longer wait is a hang.
pub const HANG: Option<Duration> = Some(Duration::from_secs(60));

/// Work that runs in a thread until this is dropped.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(work: impl FnOnce(&dyn Fn() -> bool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let go_on = move || !seen.load(Ordering::Relaxed);
        Self {
            stop,
            thread: Some(std::thread::spawn(move || work(&go_on))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// A host with members. The fields are dropped in this order.
pub struct Plane {
    pub gateways: Vec<Running>,
    pub broker: Option<Running>,
    folder: tempfile::TempDir,
}

impl Plane {
    /// With a gateway for each member, on the board of its name.
    pub fn new(members: &[(&str, Option<&str>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let list: Vec<_> = members
            .iter()
            .map(|(name, group)| Member {
                name: (*name).to_owned(),
                group: group.map(str::to_owned),
                ..Member::default()
            })
            .collect();
        let mut broker = Broker::new(&folder.path().join("host"), &list).unwrap();
        let serve = Running::start(move |go_on| broker.serve(|_| go_on()).unwrap());
        let mut plane = Self {
            gateways: Vec::new(),
            broker: Some(serve),
            folder,
        };
        for (name, _) in members {
            let gateway = plane.gateway(name);
            plane.gateways.push(gateway);
        }
        plane
    }

    pub fn stop(&self) {
        let all = self.gateways.iter().chain(&self.broker);
        all.for_each(|one| one.stop.store(true, Ordering::Relaxed));
    }

    pub fn gateway(&self, name: &str) -> Running {
        let socket = self.folder.path().join("host").join(format!("{name}.sock"));
        let mut gateway = Gateway::join(&self.board(name), &Transport::Socket(socket)).unwrap();
        assert_eq!(gateway.nic(), Board::nic_of(name));
        Running::start(move |go_on| {
            // The host may end before the gateway.
            drop(gateway.run(go_on));
        })
    }

    pub fn board(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn open(&self, name: &str) -> Endpoint {
        open(&self.board(name))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn open(board: &Path) -> Endpoint {
    let board = Board::open(board).unwrap();
    Endpoint::open(&board, &Options::default()).unwrap()
}

/// Connects two endpoints, and returns each one's peer.
pub fn connect(a: &mut Endpoint, b: &mut Endpoint) -> (Peer, Peer) {
    let request = a.iconnect(b.address(), 0, 0).unwrap();
    let to_b = both(a, b, request).status.peer.unwrap();
    let to_a = b.connect(a.address(), 0, HANG).unwrap();
    assert_eq!(a.address_of(to_b), Some(b.address()));
    assert_eq!(b.address_of(to_a), Some(a.address()));
    (to_b, to_a)
}

pub const DIRECT: [(&str, Option<&str>); 2] = [("a", Some("group")), ("b", Some("group"))];
pub const MEDIATED: [(&str, Option<&str>); 2] = [("a", None), ("b", None)];
