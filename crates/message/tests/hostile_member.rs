//! A hostile member, or a hostile uplink, that writes anything anywhere into the memory that it
//! shares with the host, and sends any control message and any record: the other members are
//! unaffected.
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
#[path = "common/honest.rs"]
mod honest;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use attack::{Attack, ENDPOINT, STEP};
use common::{both, pattern};
use honest::{HANG, Honest, connect, exchange, open};
use message::remote::{Gateway, Transport};
use message::{Address, Board};
use proptest::prelude::*;

fn steps() -> impl Strategy<Value = Vec<[u8; STEP]>> {
    // Small numbers are valid most often.
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

    /// One host for all cases: what one case leaves behind must not affect the next.
    #[test]
    fn a_member_that_writes_anything_affects_no_other(steps in steps()) {
        thread_local!(static HONEST: RefCell<Option<Honest>> = const { RefCell::new(None) });
        HONEST.with_borrow_mut(|honest| {
            run_beside_others(honest.get_or_insert_with(|| Honest::new(false)), &steps);
        });
    }

    #[test]
    fn an_uplink_that_writes_anything_affects_no_other(steps in steps()) {
        thread_local!(static HONEST: RefCell<Option<Honest>> = const { RefCell::new(None) });
        HONEST.with_borrow_mut(|honest| {
            run_beside_others(honest.get_or_insert_with(|| Honest::new(true)), &steps);
        });
    }
}

fn run_beside_others(honest: &mut Honest, steps: &[[u8; STEP]]) {
    let socket = honest.folder.path().join("host/a.sock");
    let mut attack = Attack::new(&socket, "b");
    connect(&mut attack, honest);
    for step in steps {
        attack.step(step);
        // The endpoint takes its connects.
        honest.b.progress();
    }
    attack.ring();
    honest.talk();
    attack.leave();
    honest.talk();
}

#[test]
fn an_uplink_cannot_send_for_a_local_member() {
    let mut honest = Honest::new(true);
    let mut attack = Attack::new(&honest.folder.path().join("host/a.sock"), "b");
    attack.from = Board::nic_of("c");
    let end = Instant::now() + HANG.unwrap();
    while attack.refused == 0 {
        assert!(!attack.connect(), "it has a link as `c`");
        honest.b.progress();
        assert!(Instant::now() < end, "the host does not answer");
    }
    // It can connect with the NIC id of another host.
    attack.from = Board::nic_of("d");
    connect(&mut attack, &mut honest);
}

#[test]
fn a_member_that_was_disconnected_can_join_again_and_be_honest() {
    let mut honest = Honest::new(false);
    let folder = honest.folder.path().to_owned();
    let mut attack = Attack::new(&folder.join("host/a.sock"), "b");
    // More rounds than there are windows, each with links begun and malformed messages.
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
        attack.leave();
    }
    let joined = loop {
        // The host may not have noticed yet that the last one has ended.
        let way = Transport::Socket(folder.join("host/a.sock"));
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

/// A program can outlive the gateway of its VM; its endpoint keeps its session.
#[test]
fn a_killed_member_joins_again_in_the_same_session() {
    let mut honest = Honest::new(false);
    let mut attack = Attack::new(&honest.folder.path().join("host/a.sock"), "b");
    attack.same_session = true;
    for _ in 0..4 {
        connect(&mut attack, &mut honest);
        // More control records than there is room for at an end that waits for no reply, and so
        // takes none.
        for _ in 0..200 {
            let done = [5, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            attack.step(&done);
            attack.ring();
            honest.b.progress();
        }
        honest.talk();
        attack.leave();
    }
}

/// Returns the resident bytes of this process (proc_pid_statm(5)).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// A hostile member or uplink for a long time: its answers fill the queue that the host keeps for
/// it, then it writes anything anywhere, then it joins again. The other members exchange messages
/// meanwhile, and memory does not grow.
fn for_long(uplink: bool) {
    /// Bytes by which the resident set may grow after a quarter of the time.
    const GROWTH: u64 = 64 << 20;
    let seconds = std::env::var("VICINITY_SOAK_SECONDS");
    let seconds = seconds.map_or(2, |seconds| seconds.parse().unwrap());
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let mut honest = Honest::new(uplink);
    let socket = honest.folder.path().join("host/a.sock");
    let (mut dice, mut early) = (fastrand::Rng::with_seed(21), None);
    let (mut rounds, mut asked, mut slowest) = (0_u32, 0_u64, Duration::ZERO);
    let mut full = 0_u32;
    while begin.elapsed() < time || rounds < 4 {
        if begin.elapsed() >= time / 4 {
            early.get_or_insert_with(resident);
        }
        let mut attack = Attack::new(&socket, "b");
        connect(&mut attack, &mut honest);
        let talk = |honest: &mut Honest| {
            let began = Instant::now();
            honest.talk();
            began.elapsed()
        };
        for _ in 0..20 {
            let count = attack.flood(10_000);
            asked += u64::from(count);
            // The host takes no message from it while its answers are queued.
            full += u32::from(count == 0);
            attack.ring();
            slowest = slowest.max(talk(&mut honest));
        }
        for _ in 0..dice.u32(0..2000) {
            let mut step = [0; STEP];
            dice.fill(&mut step);
            if dice.bool() {
                step[1..4].iter_mut().for_each(|byte| *byte %= 8);
            }
            attack.step(&step);
            honest.b.progress();
        }
        attack.ring();
        slowest = slowest.max(talk(&mut honest));
        attack.leave();
        rounds += 1;
    }
    let grown = resident().saturating_sub(early.unwrap());
    println!(
        "{rounds} rounds, {asked} links asked for, full {full} times, {grown} bytes more, slowest {slowest:?}"
    );
    assert!(
        full > 0 && asked > 100,
        "{asked} links asked for, full {full} times"
    );
    assert!(grown < GROWTH, "{grown} bytes more");
}

#[test]
fn a_member_that_reads_no_answer_affects_no_other_for_long() {
    for_long(false);
}

#[test]
fn an_uplink_that_reads_no_answer_affects_no_other_for_long() {
    for_long(true);
}
