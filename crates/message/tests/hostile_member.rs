//! A member that writes anything anywhere into what it shares with the host, says any note and
//! sends any record: the other members do not notice.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "common/attack.rs"]
mod attack;
mod common;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attack::{Attack, ENDPOINT, STEP};
use common::{both, pattern};
use message::far::{Gateway, Member, Switchboard, Way};
use message::{Address, Board, Code, Endpoint, Options, Pattern, Peer};
use proptest::prelude::*;

const HANG: Option<Duration> = Some(Duration::from_secs(10));

/// A host with two honest members, of one group and of none, and what these have for each other.
struct Honest {
    b: Endpoint,
    c: Endpoint,
    to_b: Peer,
    to_c: Peer,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

fn gateway(folder: &Path, name: &str, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let way = Way::Socket(folder.join("host").join(format!("{name}.sock")));
    let mut gateway = Gateway::join(&folder.join(name), &way).unwrap();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || drop(gateway.run(|| !stop.load(Ordering::Relaxed))))
}

fn open(folder: &Path, name: &str) -> Endpoint {
    let board = Board::open(&folder.join(name)).unwrap();
    let options = Options {
        endpoint: Some(ENDPOINT),
        ..Options::default()
    };
    Endpoint::open(&board, &options).unwrap()
}

impl Honest {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let members = ["a", "b", "c"].map(|name| Member {
            name: name.to_owned(),
            ..Member::default()
        });
        let mut switchboard = Switchboard::new(&folder.path().join("host"), &members).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let go_on = move || !seen.load(Ordering::Relaxed);
        let serve = move || drop(switchboard.serve(|_| go_on()));
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

    /// Messages of every protocol, both ways, through the host.
    fn talk(&mut self) {
        const VALUE: u64 = 0xfeed_0000_0000;
        for length in [8, 5000, 70_000] {
            let bytes = pattern(length, 1);
            let (b, c) = (&mut self.b, &mut self.c);
            exchange(b, c, self.to_c, VALUE, &bytes);
            exchange(c, b, self.to_b, VALUE, &bytes);
        }
    }
}

fn exchange(from: &mut Endpoint, to: &mut Endpoint, peer: Peer, value: u64, bytes: &[u8]) {
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

/// Let the attacker come, and have a link with B.
fn connect(attack: &mut Attack, honest: &mut Honest) {
    let end = Instant::now() + HANG.unwrap();
    while !attack.connect() {
        honest.b.progress();
        assert!(Instant::now() < end, "the host gave no link");
    }
}

fn steps() -> impl Strategy<Value = Vec<[u8; STEP]>> {
    // Small numbers make sense most often.
    let byte = || prop_oneof![3 => 0u8..8, 1 => any::<u8>()];
    let words = prop_oneof![prop::array::uniform8(0u8..4), any::<[u8; 8]>()];
    let step = (any::<u8>(), byte(), any::<u8>(), byte(), words);
    let step = step.prop_map(|(what, a, b, c, words)| {
        let mut step = [0; STEP];
        step[..4].copy_from_slice(&[what, a, b, c]);
        step[4..].copy_from_slice(&words);
        step
    });
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// One host for all cases: what one leaves behind must not matter to the next.
    #[test]
    fn a_member_that_writes_anything_disturbs_nobody(steps in steps()) {
        thread_local!(static HONEST: RefCell<Option<Honest>> = const { RefCell::new(None) });
        HONEST.with_borrow_mut(|honest| {
            let honest = honest.get_or_insert_with(Honest::new);
            let socket = honest.folder.path().join("host/a.sock");
            let mut attack = Attack::new(&socket, "b");
            connect(&mut attack, honest);
            for step in &steps {
                attack.step(step);
                // Its connects reach somebody.
                honest.b.progress();
            }
            attack.ring();
            honest.talk();
            attack.go();
            honest.talk();
        });
    }
}

#[test]
fn whoever_was_cut_off_may_come_again_as_a_member_that_means_well() {
    let mut honest = Honest::new();
    let folder = honest.folder.path().to_owned();
    let mut attack = Attack::new(&folder.join("host/a.sock"), "b");
    // More often than there are windows, each time with links begun and notes of no sense.
    for round in 0..60u8 {
        connect(&mut attack, &mut honest);
        for link in 0..8u8 {
            let mut step = [0; STEP];
            step[..3].copy_from_slice(&[2, 0, link]);
            attack.step(&step);
        }
        attack.ring();
        honest.b.progress();
        attack.step(&[4, 5, 0, 0, round, 0, 0, 0, 0, 0, 0, 0]);
        attack.ring();
        honest.talk();
        attack.go();
    }
    let joined = loop {
        // The host may not have noticed yet that the last one is gone.
        let way = Way::Socket(folder.join("host/a.sock"));
        if let Ok(gateway) = Gateway::join(&folder.join("a"), &way) {
            break gateway;
        }
        honest.talk();
    };
    let stop = Arc::clone(&honest.stop);
    let mut joined = joined;
    let run = move || drop(joined.run(|| !stop.load(Ordering::Relaxed)));
    honest.threads.push(std::thread::spawn(run));
    let mut a = open(&folder, "a");
    let address = Address {
        nic: Board::nic_of("b"),
        endpoint: ENDPOINT,
    };
    let request = a.iconnect(address, 0, 0).unwrap();
    let to_b = both(&mut a, &mut honest.b, request).status.peer.unwrap();
    exchange(&mut a, &mut honest.b, to_b, 3, &pattern(70_000, 2));
}
