//! Where the CPU time goes: the scheduler's statistics of sets of threads.
//!
//! A VM's set is its virtual CPUs' threads; the backend is every other thread that works for
//! VMs: QEMU's own, Vicinity's, the kernel's vhost workers. The three figures of XenMon: on a
//! CPU, waiting for one, blocked.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::inference::variation;
use super::sample::Values;
use crate::error::{Error, Result};
use crate::interrupt;

/// What the scheduler knows about a thread, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Nanoseconds on a CPU.
    pub run: u64,
    /// Nanoseconds runnable, waiting for a CPU.
    pub wait: u64,
    /// Times it was put on a CPU.
    pub executions: u64,
    /// Context switches, voluntary and not.
    pub switches: u64,
}

/// Something that knows threads' times. A thread that is gone has none.
pub trait Scheduler: Sync {
    /// The times of a thread.
    fn times(&self, thread: i32) -> Option<Times>;
}

/// The kernel's own statistics: `/proc/TID/schedstat` and `status`.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

/// A set of threads.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// Name, the prefix of its metrics.
    pub name: &'static str,
    /// Thread ids.
    pub threads: Vec<i32>,
    /// VMs in it, over which its shares of time are averaged; one for `backend` and for
    /// `guests`, whose shares are sums and may pass 100 %.
    pub members: usize,
}

/// Time between two looks; the variation of a metric is that over these pieces.
const PIECE: Duration = Duration::from_millis(100);

impl Scheduler for Kernel {
    fn times(&self, thread: i32) -> Option<Times> {
        let stat = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        parse(&stat, &status)
    }
}

fn parse(schedstat: &str, status: &str) -> Option<Times> {
    let mut fields = schedstat.split_whitespace().map(str::parse);
    let mut next = || fields.next()?.ok();
    let (run, wait, executions) = (next()?, next()?, next()?);
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let counts = lines.filter(|(key, _)| key.ends_with("voluntary_ctxt_switches"));
    let switches = counts
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum();
    Some(Times {
        run,
        wait,
        executions,
        switches,
    })
}

/// Run `work`; meanwhile, after `warm_up`, watch the sets for `window`. Returns the work's answer
/// and the sets' metrics.
///
/// # Errors
/// Those of `work`, or an interruption.
pub fn watch<T>(
    scheduler: &dyn Scheduler,
    sets: &[Set],
    (warm_up, window): (Duration, Duration),
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Values)> {
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| look(scheduler, sets, warm_up, window));
        let answer = work();
        let metrics = watcher
            .join()
            .map_err(|_| Error::Host("the watcher of threads failed".to_owned()))?;
        Ok((answer?, metrics?))
    })
}

type Snapshot = (Instant, Vec<BTreeMap<i32, Times>>);

fn look(
    scheduler: &dyn Scheduler,
    sets: &[Set],
    warm_up: Duration,
    window: Duration,
) -> Result<Values> {
    let snapshot = || -> Snapshot {
        let of = |set: &Set| {
            set.threads
                .iter()
                .filter_map(|id| Some((*id, scheduler.times(*id)?)))
                .collect()
        };
        (Instant::now(), sets.iter().map(of).collect())
    };
    interrupt::sleep(warm_up)?;
    let mut seen = vec![snapshot()];
    let end = Instant::now() + window;
    while Instant::now() < end {
        interrupt::sleep(PIECE)?;
        seen.push(snapshot());
    }
    Ok(metrics(sets, &seen))
}

/// Metrics of the whole, and the variation of its pieces.
fn metrics(sets: &[Set], seen: &[Snapshot]) -> Values {
    let mut values = Values::new();
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else {
        return values;
    };
    let mut switches = 0.0;
    for (place, set) in sets
        .iter()
        .enumerate()
        .filter(|(_, set)| !set.threads.is_empty())
    {
        let whole = Share::between(first, last, place, set.members);
        switches += whole.switches_s;
        for (key, value) in [
            ("use_pct", whole.run),
            ("wait_pct", whole.wait),
            ("block_pct", whole.block()),
            ("exec_s", whole.exec_s),
            ("us_exec", whole.us_exec),
        ] {
            if value.is_finite() {
                values.insert(format!("{}_{key}", set.name), value);
            }
        }
        let pieces: Vec<Share> = seen
            .windows(2)
            .filter_map(|w| Some(Share::between(w.first()?, w.last()?, place, set.members)))
            .collect();
        let mut vary = |key: &str, of: &dyn Fn(&Share) -> f64| {
            let cov = variation(&pieces.iter().map(of).collect::<Vec<_>>());
            if cov.is_finite() {
                values.insert(format!("{}_{key}_cov", set.name), cov);
            }
        };
        vary("use", &|share| share.run);
        vary("wait", &|share| share.wait);
        vary("block", &|share| share.block());
    }
    values.insert("switches_s".to_owned(), switches);
    values
}

/// Percent of the time, and rates.
struct Share {
    run: f64,
    wait: f64,
    exec_s: f64,
    us_exec: f64,
    switches_s: f64,
}

impl Share {
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds")]
    fn between(from: &Snapshot, to: &Snapshot, place: usize, members: usize) -> Self {
        let seconds = (to.0 - from.0).as_secs_f64();
        let empty = BTreeMap::new();
        let (before, after) = (
            from.1.get(place).unwrap_or(&empty),
            to.1.get(place).unwrap_or(&empty),
        );
        // A thread that came or went in between is left out.
        let both = || {
            after
                .iter()
                .filter_map(|(id, now)| Some((before.get(id)?, now)))
        };
        let grown = |of: &dyn Fn(&Times) -> u64| -> f64 {
            both()
                .map(|(a, b)| of(b).saturating_sub(of(a)) as f64)
                .sum()
        };
        let (run, wait, executions) = (
            grown(&|t| t.run),
            grown(&|t| t.wait),
            grown(&|t| t.executions),
        );
        let share = 100.0 / (seconds * 1e9 * members.max(1) as f64);
        Self {
            run: run * share,
            wait: wait * share,
            exec_s: executions / seconds,
            us_exec: run / executions / 1e3,
            switches_s: grown(&|t| t.switches) / seconds,
        }
    }

    /// What is neither; none where several threads of the set overlap.
    fn block(&self) -> f64 {
        (100.0 - self.run - self.wait).max(0.0)
    }
}

/// Every thread of a process and of its descendants.
#[must_use]
pub fn of_process(id: u32) -> Vec<i32> {
    let mut threads = Vec::new();
    let mut processes = vec![id];
    while let Some(process) = processes.pop() {
        let entries = fs::read_dir(format!("/proc/{process}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            threads.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<i32>().ok()),
            );
            let children = fs::read_to_string(entry.path().join("children")).unwrap_or_default();
            processes.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
        }
    }
    threads
}

/// The kernel's vhost workers of a QEMU process: kernel threads of that name before Linux 6.4;
/// later they are threads of QEMU, which [`of_process`] has.
#[must_use]
pub fn vhost_workers(qemu: u32) -> Vec<i32> {
    let name = format!("vhost-{qemu}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    named
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_and_status_are_read() {
        let times = parse(
            "30 20 7\n",
            "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n",
        );
        assert_eq!(
            times.unwrap(),
            Times {
                run: 30,
                wait: 20,
                executions: 7,
                switches: 7
            }
        );
        assert_eq!(parse("0 0\n", ""), None);
    }

    #[test]
    fn use_wait_and_block_are_the_whole_time() {
        let start = Instant::now();
        let at = |ms: u64, run: u64, wait: u64, executions: u64| -> Snapshot {
            let times = Times {
                run: run * 1_000_000,
                wait: wait * 1_000_000,
                executions,
                switches: executions,
            };
            (start + Duration::from_millis(ms), vec![[(1, times)].into()])
        };
        let sets = [Set {
            name: "vm1",
            threads: vec![1],
            members: 1,
        }];
        let values = metrics(
            &sets,
            &[at(0, 0, 0, 0), at(500, 200, 50, 10), at(1000, 500, 100, 50)],
        );
        for (key, want) in [
            ("use_pct", 50.0),
            ("wait_pct", 10.0),
            ("block_pct", 40.0),
            ("exec_s", 50.0),
            ("us_exec", 10_000.0),
        ] {
            assert!(
                (values[&format!("vm1_{key}")] - want).abs() < 1e-6,
                "{key}: {values:?}"
            );
        }
        assert!(values["vm1_use_cov"] > 0.0 && values["switches_s"] > 49.0);
    }

    #[test]
    fn our_own_threads_are_known_to_the_kernel() {
        let threads = of_process(std::process::id());
        assert!(!threads.is_empty());
        assert!(
            threads
                .iter()
                .any(|id| Kernel.times(*id).is_some_and(|times| times.run > 0))
        );
    }
}
