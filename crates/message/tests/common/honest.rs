//! A host with honest members that exchange messages, whatever another member does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use message::remote::{Broker, Gateway, Member, Transport};
use message::{Board, Code, Endpoint, Options, Pattern, Peer};

use crate::attack::{Attack, ENDPOINT};
use crate::common::{both, pattern};

pub const HANG: Option<Duration> = Some(Duration::from_secs(10));

/// A host with two honest members of no group, their endpoints, and each one's peer.
pub struct Honest {
    pub b: Endpoint,
    pub c: Endpoint,
    to_b: Peer,
    to_c: Peer,
    pub stop: Arc<AtomicBool>,
    pub threads: Vec<JoinHandle<()>>,
    pub folder: tempfile::TempDir,
}

fn gateway(folder: &Path, name: &str, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let way = Transport::Socket(folder.join("host").join(format!("{name}.sock")));
    let mut gateway = Gateway::join(&folder.join(name), &way).unwrap();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || drop(gateway.run(|| !stop.load(Ordering::Relaxed))))
}

pub fn open(folder: &Path, name: &str) -> Endpoint {
    let board = Board::open(&folder.join(name)).unwrap();
    let options = Options {
        endpoint: Some(ENDPOINT),
        ..Options::default()
    };
    Endpoint::open(&board, &options).unwrap()
}

impl Honest {
    /// With a member `a` for the attacker, which may be the uplink.
    pub fn new(uplink: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let members = ["a", "b", "c"].map(|name| Member {
            name: name.to_owned(),
            uplink: uplink && name == "a",
            ..Member::default()
        });
        let mut broker = Broker::new(&folder.path().join("host"), &members).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let go_on = move || !seen.load(Ordering::Relaxed);
        let serve = move || drop(broker.serve(|_| go_on()));
        let mut threads = vec![std::thread::spawn(serve)];
        threads.extend(["b", "c"].map(|name| gateway(folder.path(), name, &stop)));
        let [mut b, mut c] = ["b", "c"].map(|name| open(folder.path(), name));
        let request = b.iconnect(c.address(), 0, 0).unwrap();
        let to_c = both(&mut b, &mut c, request).status.peer.unwrap();
        let to_b = c.connect(b.address(), 0, HANG).unwrap();
        Self {
            b,
            c,
            to_b,
            to_c,
            stop,
            threads,
            folder,
        }
    }

    /// Exchanges messages of every protocol, in both directions, through the host.
    pub fn talk(&mut self) {
        const VALUE: u64 = 0xfeed_0000_0000;
        for length in [8, 5000, 70_000] {
            let bytes = pattern(length, 1);
            let (b, c) = (&mut self.b, &mut self.c);
            exchange(b, c, self.to_c, VALUE, &bytes);
            exchange(c, b, self.to_b, VALUE, &bytes);
        }
    }
}

pub fn exchange(from: &mut Endpoint, to: &mut Endpoint, peer: Peer, value: u64, bytes: &[u8]) {
    let sent = from.isend(peer, value, bytes.to_vec()).unwrap();
    let request = to.irecv(Pattern::exactly(value), vec![0; bytes.len()]);
    let got = both(to, from, request.unwrap());
    assert_eq!(got.memory.bytes(), bytes);
    assert_eq!(both(from, to, sent).status.code, Code::Success);
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

/// Runs until the attacker has joined and has a link with B.
pub fn connect(attack: &mut Attack, honest: &mut Honest) {
    let end = Instant::now() + HANG.unwrap();
    while !attack.connect() {
        honest.b.progress();
        assert!(Instant::now() < end, "the host gave no link");
    }
}
