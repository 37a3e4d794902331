//! The processor time that uplinks use, and what they leave to other programs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use message::{Endpoint, Pattern, Peer};

use crate::common::HANG;
use crate::hosts::{Hosts, connect};

/// Programs that keep all processors busy.
const BUSY: usize = 14;

/// Round trips beside them, each of which waits for some time slices.
const ROUND_TRIPS: u64 = 5;

/// Two hosts with connected endpoints, and the process ids of the uplinks.
fn hosts_with_uplinks() -> (Hosts, [u32; 2], [Endpoint; 2], [Peer; 2]) {
    let mut hosts = Hosts::new(false);
    let daemons = [hosts.serve(0), hosts.serve(1)];
    let uplinks = daemons.map(|daemon| hosts.process(daemon, "message-uplink"));
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    let (to_b, to_a) = connect(&mut a, &mut b);
    (hosts, uplinks, [a, b], [to_b, to_a])
}

/// Returns the processor time of a thread or a process with one thread (Documentation/scheduler/sched-stats.rst).
pub(crate) fn processor_time(path: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{path}/schedstat")).unwrap();
    let time = text.split_whitespace().next().unwrap();
    Duration::from_nanos(time.parse().unwrap())
}

fn processor_times(uplinks: [u32; 2]) -> Duration {
    let times = uplinks.map(|uplink| processor_time(&uplink.to_string()));
    times.iter().sum()
}

/// Polls until a message arrives, as MPI libraries do.
fn receive(endpoint: &mut Endpoint) {
    let end = Instant::now() + HANG;
    let request = endpoint.irecv(Pattern::ANY, vec![0; 8]).unwrap();
    while endpoint.test(request).unwrap().is_none() {
        assert!(Instant::now() < end, "no message arrives");
    }
}

#[test]
fn an_uplink_without_traffic_uses_no_processor_time() {
    const TIME: Duration = Duration::from_secs(1);
    let (_hosts, uplinks, [mut a, mut b], [to_b, _]) = hosts_with_uplinks();
    a.isend(to_b, 1, vec![0; 8]).unwrap();
    receive(&mut b);
    // The acknowledgement of the message, and the end of the polling after it.
    std::thread::sleep(TIME / 10);
    let before = processor_times(uplinks);
    std::thread::sleep(TIME);
    let used = processor_times(uplinks) - before;
    println!("{used:?}");
    assert!(used < TIME / 50, "{used:?}");
}

#[test]
fn uplinks_beside_busy_programs_pass_messages_on_and_leave_them_the_processors() {
    let (_hosts, uplinks, [mut a, mut b], [to_b, to_a]) = hosts_with_uplinks();
    let done = AtomicBool::new(false);
    let before = processor_times(uplinks);
    let busy: Duration = std::thread::scope(|scope| {
        let spin = || {
            // If a message is lost, the test fails instead of running on.
            let end = Instant::now() + HANG;
            while !done.load(Relaxed) && Instant::now() < end {
                std::hint::spin_loop();
            }
            processor_time("thread-self")
        };
        let threads: Vec<_> = (0..BUSY).map(|_| scope.spawn(spin)).collect();
        let answerer = scope.spawn(move || {
            for value in 0..ROUND_TRIPS {
                receive(&mut b);
                b.isend(to_a, value, vec![0; 8]).unwrap();
            }
            b
        });
        for value in 0..ROUND_TRIPS {
            a.isend(to_b, value, vec![0; 8]).unwrap();
            receive(&mut a);
        }
        let answered = answerer.join();
        done.store(true, Relaxed);
        assert!(answered.is_ok());
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let used = processor_times(uplinks) - before;
    println!("the uplinks used {used:?}, the other programs {busy:?}");
    assert!(used < busy / 20, "{used:?} beside {busy:?}");
}
