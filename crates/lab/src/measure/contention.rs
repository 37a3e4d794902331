//! Measures streams between VMs of one host that have less CPU time than they need (because of a CPU-bound job or a
//! cap), or more (a sender with two virtual CPUs).

use std::time::Duration;

use observe::cgroup::Mounts;

use super::flow::Flow;
use super::pace::Pace;
use super::streams::watched;
use crate::sample::{Cell, Values, size, values};
use crate::settings::{Group, Groups, Hierarchy, Journal, pin};
use crate::testbed::Testbed;
use crate::thread_times::watch;
use report::inference::variation;
use vm_harness::channel;
use vm_harness::error::{Error, Result};
use vm_harness::vm::{Job, Vm};

/// A CPU-bound job, which runs until the value is dropped.
struct BusyJob<'vm>(Option<Job<'vm>>);

impl<'vm> BusyJob<'vm> {
    fn start(vm: &'vm Vm) -> Result<Self> {
        Ok(Self(Some(vm.start("while :; do :; done")?)))
    }
}

impl Drop for BusyJob<'_> {
    fn drop(&mut self) {
        // An error means that the VM has ended, and the job with it.
        let _gone = self.0.take().map(Job::kill);
    }
}

/// Measures a stream with a CPU-bound job in the sender, in the receiver, or without one.
pub(super) fn burner(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let _pinned = testbed.pin("separate")?;
    let target = channel::address(testbed.network(cell.level("channel"))?, 2);
    let (protocol, bytes) = cell.level("traffic").split_once(' ').unwrap_or(("udp", ""));
    let flow = Flow {
        target: &target,
        udp: protocol == "udp",
        size: size(bytes).unwrap_or(1024),
        parallel: 1,
        seconds: pace.seconds,
    };
    let busy = match cell.level("job") {
        "sender" => Some(1),
        "receiver" => Some(2),
        _ => None,
    };
    let _job = busy
        .map(|number| BusyJob::start(testbed.vm(number)?))
        .transpose()?;
    watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)
}

/// Measures a UDP stream from a VM with one or both of its virtual CPUs online.
pub(super) fn two_cpus(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.boot_two_cpu_vm()?;
    let wide = testbed.two_cpu_vm()?;
    let on = u8::from(cell.level("cpus") == "2");
    let switch = format!("echo {on} > /sys/devices/system/cpu/cpu1/online && nproc");
    let counted = wide.check(&switch, Duration::from_secs(30))?;
    if counted.trim() != cell.level("cpus") {
        let counted = counted.trim();
        return Err(Error::Host(format!("the guest has {counted} CPUs on")));
    }
    let target = channel::address(testbed.network("switch")?, 2);
    let flow = Flow {
        target: &target,
        udp: true,
        size: cell.size("size"),
        parallel: 1,
        seconds: pace.seconds,
    };
    watched(&testbed.wide_sets()?, wide, &flow, pace)
}

/// Measures a TCP stream whose sender has a CPU cap: either on the threads of its virtual CPUs alone, or on all
/// threads of its QEMU, which also carries the bridge's frames.
pub(super) fn caps(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let percent: f64 = cell.level("cap").parse().unwrap_or(100.0);
    let threads = match cell.level("scope") {
        "whole" => testbed.process(1)?,
        _ => testbed.guest(1).to_vec(),
    };
    let mut journal = Journal::begin()?;
    for thread in &threads {
        pin(&mut journal, *thread, &[0])?;
    }
    for thread in testbed.guest(2) {
        pin(&mut journal, *thread, &[1])?;
    }
    let group = Group {
        name: "capped",
        share: 1.0,
        cap: Some(percent / 100.0),
        threads: &threads,
    };
    Groups::create(&mut journal, &Hierarchy::find()?, &[group])?;
    let target = channel::address(testbed.network("bridge")?, 2);
    let flow = Flow {
        target: &target,
        udp: false,
        size: 32768,
        parallel: 1,
        seconds: pace.seconds,
    };
    let throttled = || throttled_s(threads.first().copied());
    let before = throttled();
    let sets = testbed.sets(2, 2);
    let (flown, mut metrics) = watch(&sets, pace.watched(), || flow.run(testbed.vm(1)?))?;
    let seconds = f64::from(pace.seconds + super::pace::WARM_UP);
    let held = throttled()
        .zip(before)
        .map(|(after, before)| after - before);
    drop(journal);
    metrics.extend(values(&[
        ("mbit_s", flown.mbit_s),
        ("cov", variation(&flown.pieces)),
        ("throttled_pct", held.unwrap_or(f64::NAN) / seconds * 100.0),
    ]));
    metrics.retain(|_, value| value.is_finite());
    Ok(metrics)
}

/// Returns the seconds for which the cap throttled a thread's group.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
fn throttled_s(thread: Option<u32>) -> Option<f64> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", thread?)).ok()?;
    let state = Mounts::parse(&mounts).group(&groups)?.read();
    Some(state.throttled_ns? as f64 / 1e9)
}
