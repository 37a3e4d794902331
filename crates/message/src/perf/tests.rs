//! Tests of the measurements' two ends.

use super::*;
use crate::{Board, Options};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const TEN: Load = Load {
    memory: Kind::Program,
    length: 8,
    count: 10,
    window: 1,
};

#[test]
fn round_trips_and_streams_end_and_so_does_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = || Endpoint::open(&board, &Options::default()).unwrap();
    let (mut here, mut there) = (open(), open());
    let address = there.address();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            answer(&mut there, WaitMode::Block, &|| true).unwrap();
            answer(&mut there, WaitMode::Poll, &|| true).unwrap();
        });
        let peer = here.connect(address, 0, None).unwrap();
        for length in [8, 5000, 100_000] {
            for memory in Kind::ALL {
                let load = |count| Load {
                    memory,
                    length,
                    count,
                    window: window(length),
                };
                let times =
                    round_trips(&mut here, peer, load(10), WaitMode::Block, &|| true).unwrap();
                assert_eq!(times.len(), 10);
                stream(&mut here, peer, load(100), &|| true).unwrap();
            }
        }
        drop(here);
        // The server serves the first client until a second after its end, and then the next
        // client.
        std::thread::sleep(Duration::from_millis(1500));
        let mut here = open();
        let peer = here.connect(address, 0, None).unwrap();
        let times = round_trips(&mut here, peer, TEN, WaitMode::Poll, &|| true).unwrap();
        assert_eq!(times.len(), 10);
        drop(here);
        server.join().unwrap();
    });
}

/// The server may learn of a client's end only while it serves the next client.
#[test]
fn the_end_of_one_client_does_not_end_the_service_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = || Endpoint::open(&board, &Options::default()).unwrap();
    let (first, mut here, mut there) = (open(), open(), open());
    let address = there.address();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || answer(&mut there, WaitMode::Block, &|| true));
        let mut first = first;
        first.connect(address, 0, None).unwrap();
        let peer = here.connect(address, 0, None).unwrap();
        let order = Order {
            stream: false,
            load: TEN,
        };
        begin(&mut here, peer, order, BEGIN_TIMEOUT, &|| true).unwrap();
        drop(first);
        // Longer than the server waits before it checks whether the client has ended.
        std::thread::sleep(Duration::from_millis(1500));
        for _ in 0..TEN.count {
            here.isend(peer, DATA, vec![0; 8]).unwrap();
            let back = here.irecv(Pattern::exactly(DATA), vec![0; 8]).unwrap();
            let back = here.wait(back, Some(BEGIN_TIMEOUT)).unwrap().unwrap();
            assert_eq!(back.status.code, Code::Success);
        }
        drop(here);
        server.join().unwrap().unwrap();
    });
}

#[test]
fn a_client_that_ends_early_leaves_no_receive_that_takes_a_message_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = || Endpoint::open(&board, &Options::default()).unwrap();
    let (mut early, mut here, mut there) = (open(), open(), open());
    let address = there.address();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let go_on = || !done.load(Relaxed);
            while go_on() {
                answer(&mut there, WaitMode::Block, &go_on).unwrap();
            }
        });
        for stream in [false, true] {
            let peer = early.connect(address, 0, None).unwrap();
            let order = Order { stream, load: TEN };
            begin(&mut early, peer, order, BEGIN_TIMEOUT, &|| true).unwrap();
            early = open();
            // The server serves a client until a second after its end.
            std::thread::sleep(Duration::from_millis(2500));
        }
        let peer = here.connect(address, 0, None).unwrap();
        let end = Instant::now() + BEGIN_TIMEOUT;
        let go_on = || Instant::now() < end;
        let times = round_trips(&mut here, peer, TEN, WaitMode::Block, &go_on);
        done.store(true, Relaxed);
        assert_eq!(times.unwrap().len(), 10);
    });
}

#[test]
fn a_peer_that_serves_no_order_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::open(folder.path()).unwrap();
    let open = || Endpoint::open(&board, &Options::default()).unwrap();
    let (mut here, mut there) = (open(), open());
    let address = there.address();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                there.progress();
            }
        });
        let peer = here.connect(address, 0, None).unwrap();
        let order = Order {
            stream: false,
            load: TEN,
        };
        let late = begin(&mut here, peer, order, Duration::ZERO, &|| true);
        let hour = Duration::from_secs(3600);
        let stopped = begin(&mut here, peer, order, hour, &|| false);
        done.store(true, Relaxed);
        assert!(matches!(late, Err(Error::Timeout)), "{late:?}");
        let cancelled = matches!(stopped, Err(Error::Connection(Code::Cancelled)));
        assert!(cancelled, "{stopped:?}");
    });
}
