//! A TCP connection that `iperf3` keeps busy while a test changes what carries its packets.

use vm_harness::vm::{Job, Vm};

use crate::guest::sh;

/// A client of `iperf3` that reports ten times a second, as text into a file.
///
/// The test reads the file instead of a report in JSON, which `iperf3` would write at its end: the client has to be
/// ended, and iperf 3.12 leaves its handler of signals by `longjmp`. Now and then it is in `malloc` at that time, and
/// the next `malloc` aborts the client before it writes.
pub(crate) struct Load<'vm> {
    vm: &'vm Vm,
    job: Job<'vm>,
    report: String,
}

impl<'vm> Load<'vm> {
    /// Starts to send from `vm` to the server at this address and port.
    pub(crate) fn start(vm: &'vm Vm, to: &str, port: u16) -> Self {
        let report = format!("/tmp/load-{port}");
        // The time is longer than any test takes.
        let client = format!("exec iperf3 --client {to} --port {port} --time 600");
        let client = format!("{client} --interval 0.1 --forceflush >{report} 2>&1");
        let job = vm.start(&client).unwrap();
        Self { vm, job, report }
    }

    /// Waits until the client reports more sent bytes than buffers can hold.
    pub(crate) fn goes_on(&self) {
        let lines = format!("grep -cE 'sec +[0-9.]+ [KMG]Bytes' {}", self.report);
        let wait =
            format!("n=$({lines}); until [ $({lines}) -gt $((n + 8)) ]; do sleep 0.05; done");
        sh(self.vm, &wait);
    }

    /// Ends the client. Returns the longest time, in seconds, in which its report shows no sent bytes.
    ///
    /// Panics if the client had ended before: its connection had an error.
    pub(crate) fn stop(self) -> f64 {
        let report = || sh(self.vm, &format!("cat {}", self.report));
        assert!(self.job.ended().unwrap().is_none(), "{}", report());
        self.job.kill().unwrap();
        longest_pause(&report())
    }
}

/// Returns the longest time in seconds that consecutive lines without sent bytes cover, such as
/// `[  5]   0.00-0.10   sec  0.00 Bytes  0.00 bits/sec    0   767 KBytes`.
fn longest_pause(report: &str) -> f64 {
    let (mut longest, mut pause): (f64, f64) = (0.0, 0.0);
    let mut intervals = 0;
    for line in report.lines().filter(|line| line.starts_with("[  5]")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, interval, "sec", count, unit, ..] = words[..] else {
            continue;
        };
        let (from, to) = interval.split_once('-').unwrap();
        let [from, to]: [f64; 2] = [from, to].map(|second| second.parse().unwrap());
        pause = match (count, unit) {
            ("0.00", "Bytes") => pause + to - from,
            _ => 0.0,
        };
        longest = longest.max(pause);
        intervals += 1;
    }
    assert!(intervals > 0, "iperf3 reports no interval: {report}");
    longest
}
