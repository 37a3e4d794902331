//! Messages between two VMs, with a CPU for each vCPU and with one for two, and the cost of an idle member.

use std::fs;

use report::message_perf::Row;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use vm_harness::error::{Context, Result};
use vm_harness::message_region::gateway_wakeups;
use vm_harness::vm::Vm;

use crate::guest::{Guest, require_clean_kernel, sh, until};
use crate::outcome::Outcome;
use crate::region;
use crate::testbed::Testbed;

/// Lengths of the messages of a ping-pong, from one that fits into a record to one that is fetched.
const LENGTHS: [u32; 3] = [8, 32_768, 4 << 20];

/// Lengths of the messages that are measured.
const SMALL: u32 = 64;
const LARGE: u32 = 1 << 20;

/// Wake-ups in a second that an idle member may have with the module: a heartbeat, and others' rare work.
const MAX_WAKEUPS: f64 = 5.0;

/// Wake-ups in a second that an idle member may have without the module.
const MAX_WAKEUPS_WITHOUT_MODULE: f64 = 200.0;

/// Seconds for which wake-ups are counted.
const SECONDS: f64 = 5.0;

/// Exchanges messages of different lengths, and measures short and long ones.
pub(super) fn exchange(bed: &mut Testbed) -> Result<Outcome> {
    let (one, two) = members(bed)?;
    for length in LENGTHS {
        let peer = peer(two);
        sh(
            one,
            &format!("vicinity message ping {peer} --length {length} --count 20"),
        )?;
    }
    let rows = perf(one, two)?;
    let outcome = require_clean_kernel(figures(Outcome::pass(), &rows, ""), one)?;
    require_clean_kernel(outcome, two)
}

/// Measures messages while both VMs run on one CPU.
pub(super) fn overcommit(bed: &mut Testbed) -> Result<Outcome> {
    let (one, two) = members(bed)?;
    let apart = perf(one, two)?;
    let pinned = [Pinned::new(one)?, Pinned::new(two)?];
    let together = perf(one, two);
    drop(pinned);
    let together = together?;
    let ratio = value(&together, SMALL, |row| row.plain.p50_us)
        / value(&apart, SMALL, |row| row.plain.p50_us);
    let outcome = figures(Outcome::measured(), &together, ", one CPU");
    Ok(outcome.figure("64 B, one CPU / own CPUs", ratio, ""))
}

/// Counts the wake-ups of an idle member.
pub(super) fn idle(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One])?;
    let (one, has_modules) = (bed.vm(Guest::One)?, bed.has_modules());
    region::leave(one)?;
    if has_modules {
        region::unload_module(one)?;
    }
    region::join(one)?;
    let blind = per_second(gateway_wakeups(one)?);
    let outcome = Outcome::pass()
        .figure("wake-ups a second, without interrupts", blind, "")
        .require(blind <= MAX_WAKEUPS_WITHOUT_MODULE, || {
            format!("an idle VM without interrupts wakes up {blind:.0} times a second")
        });
    region::leave(one)?;
    if !has_modules {
        return Ok(outcome.note("with interrupts: not measured, the module could not be built"));
    }
    region::load_module(one)?;
    region::join(one)?;
    let woken = per_second(gateway_wakeups(one)?);
    Ok(outcome
        .figure("wake-ups a second, with interrupts", woken, "")
        .require(woken <= MAX_WAKEUPS, || {
            format!("an idle VM with interrupts wakes up {woken:.1} times a second")
        }))
}

fn per_second(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / SECONDS
}

/// Returns two members, of which the second answers.
fn members(bed: &mut Testbed) -> Result<(&Vm, &Vm)> {
    bed.ensure(&[Guest::One, Guest::Two])?;
    let (one, two) = (bed.vm(Guest::One)?, bed.vm(Guest::Two)?);
    for vm in [one, two] {
        region::ensure_joined(vm, bed.has_modules())?;
    }
    region::ensure_answers(two)?;
    // The host announces each member to the others when it has joined.
    let peer = peer(two);
    until(
        one,
        &format!("vicinity message ping {peer} --count 5 2>/tmp/ping.log"),
    )?;
    Ok((one, two))
}

/// Returns the endpoint that answers in a VM.
fn peer(vm: &Vm) -> String {
    format!("{}:{}", vm.name(), region::ENDPOINT)
}

fn perf(one: &Vm, two: &Vm) -> Result<Vec<Row>> {
    region::perf(one, two.name(), &[SMALL, LARGE])
}

fn figures(outcome: Outcome, rows: &[Row], how: &str) -> Outcome {
    let megabytes = f64::from(LARGE) / 1e6;
    let stream = |of: fn(&Row) -> f64| value(rows, LARGE, of) * megabytes;
    outcome
        .figure(
            format!("64 B, one way{how}"),
            value(rows, SMALL, |row| row.plain.p50_us),
            "µs",
        )
        .figure(
            format!("64 B, one way, 99th percentile{how}"),
            value(rows, SMALL, |row| row.plain.p99_us),
            "µs",
        )
        .figure(
            format!("1 MiB stream{how}"),
            stream(|row| row.plain.messages_per_s),
            "MB/s",
        )
        .figure(
            format!("1 MiB stream, heap{how}"),
            stream(|row| row.shared.messages_per_s),
            "MB/s",
        )
}

fn value(rows: &[Row], length: u32, of: fn(&Row) -> f64) -> f64 {
    rows.iter()
        .find(|row| row.length == length)
        .map_or(f64::NAN, of)
}

/// All threads of a VM's QEMU on the first CPU that they may use. Dropping the value restores their CPUs.
struct Pinned(Vec<(Pid, CpuSet)>);

impl Pinned {
    fn new(vm: &Vm) -> Result<Self> {
        let folder = format!("/proc/{}/task", vm.id());
        let threads = fs::read_dir(&folder).context(|| format!("read {folder}"))?;
        let names = threads
            .flatten()
            .filter_map(|thread| thread.file_name().into_string().ok());
        let ids = names.filter_map(|name| Pid::from_raw(name.parse().ok()?));
        let mut pinned = Self(Vec::new());
        for id in ids {
            // A thread may end meanwhile.
            let Ok(before) = sched_getaffinity(Some(id)) else {
                continue;
            };
            let mut set = CpuSet::new();
            let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu));
            set.set(first.unwrap_or(0));
            if sched_setaffinity(Some(id), &set).is_ok() {
                pinned.0.push((id, before));
            }
        }
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for (id, before) in &self.0 {
            // A thread that has ended has no CPUs to restore.
            let _ended = sched_setaffinity(Some(*id), before);
        }
    }
}
