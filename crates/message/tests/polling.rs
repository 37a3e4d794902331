//! Programs that poll, as MPI libraries do, on as many processors as there are programs or fewer.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/plane.rs"]
mod plane;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use message::{Board, Completion, Endpoint, Options, Pattern, Peer, Request};
use plane::{DIRECT, MEDIATED, Plane, connect};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Messages in each direction.
const MESSAGES: u32 = 200;

/// The processor time that a message may cost on one processor, in all threads. An idle processor takes some
/// microseconds for a message through the relay. A thread that does not yield polls until its time slice ends,
/// which is three milliseconds or more (`sysctl_sched_base_slice`, kernel/sched/fair.c).
const LIMIT: Duration = Duration::from_micros(500);

/// Held by each test: the tests measure processor time, and one keeps a processor busy.
static ALONE: Mutex<()> = Mutex::new(());

/// Polls until the request has ended, as MPI's progress engine does: it never waits in a call.
fn poll(endpoint: &mut Endpoint, request: Request) -> Completion {
    loop {
        if let Some(completion) = endpoint.test(request).unwrap() {
            return completion;
        }
    }
}

/// Sends and receives 8 bytes in turn.
fn exchange(endpoint: &mut Endpoint, peer: Peer, first: bool) {
    let pattern = Pattern::exactly(1);
    for _ in 0..MESSAGES {
        if first {
            let sent = endpoint.isend(peer, 1, vec![1; 8]).unwrap();
            poll(endpoint, sent);
        }
        let received = endpoint.irecv(pattern, vec![0; 8]).unwrap();
        poll(endpoint, received);
        if !first {
            let sent = endpoint.isend(peer, 1, vec![1; 8]).unwrap();
            poll(endpoint, sent);
        }
    }
}

/// Keeps this thread, and those that it creates, on one of the processors that it may use.
fn use_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU)
        .find(|cpu| allowed.is_set(*cpu))
        .unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

/// Returns the processor time of all threads of this process. Other processes do not change it.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}

#[test]
fn programs_that_poll_on_one_processor_let_each_other_and_the_relay_run() {
    let _alone = ALONE.lock();
    use_one_processor();
    for members in [DIRECT, MEDIATED] {
        let plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let (to_b, to_a) = connect(&mut a, &mut b);
        let started = processor_time();
        std::thread::scope(|scope| {
            scope.spawn(|| exchange(&mut a, to_b, true));
            scope.spawn(|| exchange(&mut b, to_a, false));
        });
        let each = (processor_time() - started) / (2 * MESSAGES);
        println!("{members:?}: {each:?} a message");
        assert!(each < LIMIT, "{members:?}: {each:?} a message");
    }
}

/// Returns how many time slices this thread has had (Documentation/scheduler/sched-stats.rst).
fn time_slices() -> u32 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// Where other programs want the processor too, a poll that yields can take milliseconds. A connect
/// that waited for a number of polls alone took seconds.
#[test]
fn a_program_that_polls_on_a_busy_processor_accepts_connects_after_a_yield() {
    const CONNECTS: u32 = 40;
    // Two checks of the sockets, for the connection and for its offer, and what the connecting program
    // needs in between. Without a check after a yield, it took 6 to 11.
    const SLICES: u32 = 5;
    let _alone = ALONE.lock();
    use_one_processor();
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = || Endpoint::open(&board, &Options::default()).unwrap();
    let mut polling = open();
    let address = polling.address();
    let done = AtomicBool::new(false);
    let slices = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let poller = scope.spawn(|| {
            let request = polling.irecv(Pattern::ANY, Vec::new()).unwrap();
            while !done.load(Relaxed) {
                assert!(polling.test(request).unwrap().is_none());
            }
            time_slices()
        });
        for _ in 0..CONNECTS {
            let connected = open().connect(address, 0, Some(Duration::from_secs(60)));
            connected.unwrap();
        }
        done.store(true, Relaxed);
        poller.join().unwrap()
    });
    println!("{slices} time slices for {CONNECTS} connects");
    assert!(slices < CONNECTS * SLICES, "{slices}");
}

/// A program that yields or sleeps between its polls, as MPI libraries do on busy machines, polls so rarely that
/// a connect cannot wait for a number of polls.
#[test]
fn a_program_that_polls_rarely_accepts_connects_within_some_polls() {
    const CONNECTS: u32 = 10;
    // The limit of a slow machine, see `Thresholds::lost_cpu`.
    const BETWEEN_POLLS: Duration = Duration::from_millis(5);
    // Two checks of the sockets, for the connection and for its offer, and what the connecting program needs in
    // between. A connect that waits for polls alone takes more than a thousand.
    const POLLS: u32 = 20;
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = || Endpoint::open(&board, &Options::default()).unwrap();
    let mut polling = open();
    let address = polling.address();
    let done = AtomicBool::new(false);
    let polls = std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            let request = polling.irecv(Pattern::ANY, Vec::new()).unwrap();
            let mut polls = 0;
            while !done.load(Relaxed) {
                assert!(polling.test(request).unwrap().is_none());
                std::thread::sleep(BETWEEN_POLLS);
                polls += 1;
            }
            polls
        });
        for _ in 0..CONNECTS {
            let connected = open().connect(address, 0, Some(Duration::from_secs(60)));
            connected.unwrap();
        }
        done.store(true, Relaxed);
        poller.join().unwrap()
    });
    println!("{polls} polls for {CONNECTS} connects");
    assert!(polls < CONNECTS * POLLS, "{polls}");
}
