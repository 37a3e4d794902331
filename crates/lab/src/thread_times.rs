//! Measures the scheduler's statistics of sets of threads, while a cell is measured.
//!
//! A VM's set has the threads of its virtual CPUs; the set `backend` has every other thread that works for
//! VMs: QEMU's own, Vicinity's, the kernel's vhost workers. The three figures are those of XenMon: the time on a CPU,
//! the time waiting for a CPU, and the blocked time. The crate `observe` reads them and computes rates.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use observe::counters::Totals;
use observe::proc::Proc;
use observe::report::Activity;
use observe::switches::{Recorder, SwitchRates};
use observe::work::Work;

use super::sample::Values;
use report::inference::{mean, variation};
use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

/// A set of threads.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// Name of the set: the prefix of its metrics.
    pub name: &'static str,
    /// Thread ids.
    pub threads: Vec<u32>,
    /// Number of VMs in the set, over which its shares of time are averaged; 1 for `backend` and for
    /// `guests`, whose shares are sums and may exceed 100 %.
    pub members: u32,
}

/// Time between two snapshots. The variation of a metric is computed over these intervals.
const PIECE: Duration = Duration::from_millis(100);

/// Runs `work`, and after `warm_up` measures the sets for `window`. Returns the result of the work
/// and the metrics of the sets.
///
/// # Errors
/// Those of `work`, or an interruption.
pub fn watch<T>(
    sets: &[Set],
    (warm_up, window): (Duration, Duration),
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Values)> {
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| measure(sets, warm_up, window));
        let answer = work();
        let metrics = watcher
            .join()
            .map_err(|_| Error::Host("the watcher of threads failed".to_owned()))?;
        Ok((answer?, metrics?))
    })
}

/// A time, and the totals of each set's threads.
type Snapshot = (Instant, Vec<BTreeMap<u32, Totals>>);

fn measure(sets: &[Set], warm_up: Duration, window: Duration) -> Result<Values> {
    let proc = Proc::default();
    let snapshot = || -> Snapshot {
        let of = |set: &Set| {
            let threads = set.threads.iter();
            threads
                .filter_map(|id| Some((*id, proc.totals(*id, *id)?)))
                .collect()
        };
        (Instant::now(), sets.iter().map(of).collect())
    };
    interrupt::sleep(warm_up)?;
    let mut recorder = Recorder::start().ok();
    let vm_of_thread = vm_of_thread(sets);
    let mut switches = Vec::new();
    let mut seen = vec![snapshot()];
    let end = Instant::now() + window;
    while Instant::now() < end {
        interrupt::sleep(PIECE)?;
        seen.push(snapshot());
        let looked = recorder.as_mut().map(Recorder::read);
        switches.extend(looked.map(|seen| between(&vm_of_thread, &seen)));
    }
    let mut values = metrics(sets, &seen);
    if !switches.is_empty() {
        values.insert("vm_switches_s".to_owned(), mean(&switches));
    }
    Ok(values)
}

/// Describes how switches between VMs are counted on this host, or why they are not.
#[must_use]
pub fn records_switches() -> String {
    match Recorder::start() {
        Ok(_) => "recorded by the kernel (perf events)".to_owned(),
        Err(why) => format!("UNAVAILABLE: {why}; all switches are counted instead"),
    }
}

/// Maps threads to VMs, as numbers. The backend counts as another VM, like the papers' Dom0. In a set of
/// several VMs each thread is a VM, because each VM has one virtual CPU.
fn vm_of_thread(sets: &[Set]) -> HashMap<u32, u32> {
    let mut vm_of_thread = HashMap::new();
    for set in sets {
        let one = set.members == 1 && set.name != "guests";
        for thread in &set.threads {
            let vm = set.threads.first().filter(|_| one).unwrap_or(thread);
            vm_of_thread.entry(*thread).or_insert(*vm);
        }
    }
    vm_of_thread
}

/// Returns how many times a second a CPU switches directly from one VM, or the backend, to another.
fn between(vm_of_thread: &HashMap<u32, u32>, seen: &SwitchRates) -> f64 {
    let those = seen.rates.iter().filter(|((from, to), _)| {
        let both = vm_of_thread.get(from).zip(vm_of_thread.get(to));
        both.is_some_and(|(from, to)| from != to)
    });
    those.map(|(_, rate)| rate).sum()
}

/// Metrics over the whole window, and their variation over its intervals.
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
        let whole = activity(first, last, place);
        let time = percent(&whole, set.members);
        switches += whole.switches_per_second;
        for (key, value) in [
            ("use_pct", time.on),
            ("wait_pct", time.waiting),
            ("block_pct", time.blocked),
            ("exec_s", whole.executions_per_second),
            ("us_exec", whole.cpu_per_execution_us.unwrap_or(f64::NAN)),
        ] {
            if value.is_finite() {
                values.insert(format!("{}_{key}", set.name), value);
            }
        }
        let pieces: Vec<Time> = seen
            .windows(2)
            .filter_map(|w| {
                Some(percent(
                    &activity(w.first()?, w.last()?, place),
                    set.members,
                ))
            })
            .collect();
        let mut vary = |key: &str, of: &dyn Fn(&Time) -> f64| {
            let cov = variation(&pieces.iter().map(of).collect::<Vec<_>>());
            if cov.is_finite() {
                values.insert(format!("{}_{key}_cov", set.name), cov);
            }
        };
        vary("use", &|time| time.on);
        vary("wait", &|time| time.waiting);
        vary("block", &|time| time.blocked);
    }
    values.insert("switches_s".to_owned(), switches);
    values
}

/// Returns the activity of the threads of the set at `place` between two snapshots. A thread that is only in one of
/// the snapshots is left out.
fn activity(from: &Snapshot, to: &Snapshot, place: usize) -> Activity {
    let interval = to.0 - from.0;
    let empty = BTreeMap::new();
    let of = |snapshot: &Snapshot| snapshot.1.get(place).unwrap_or(&empty).clone();
    let before = of(from);
    let mut work = Work::default();
    for (id, now) in of(to) {
        if let Some(earlier) = before.get(&id) {
            work += Work::of(&now.since(earlier), interval);
        }
    }
    work.activity(interval)
}

/// Percent of the time.
struct Time {
    on: f64,
    waiting: f64,
    blocked: f64,
}

/// Percentages of a set. A set is blocked while none of its threads runs or waits, like a domain in the papers; with
/// several threads that overlap, this time is zero.
fn percent(activity: &Activity, members: u32) -> Time {
    let share = 100.0 / f64::from(members.max(1));
    let (on, waiting) = (activity.r#use * share, activity.wait * share);
    Time {
        on,
        waiting,
        blocked: (100.0 - on - waiting).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_wait_and_block_are_the_whole_time() {
        let start = Instant::now();
        let at = |ms: u64, run: u64, wait: u64, executions: u64| -> Snapshot {
            let totals = Totals {
                run_ns: run * 1_000_000,
                wait_ns: wait * 1_000_000,
                executions,
                switches: executions,
            };
            (
                start + Duration::from_millis(ms),
                vec![[(1, totals)].into()],
            )
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
    fn switches_between_vms_are_those_to_another_vm_or_the_backend() {
        let set = |name, threads: &[u32], members| Set {
            name,
            threads: threads.to_vec(),
            members,
        };
        let sets = [
            set("vm1", &[1, 2], 1),
            set("guests", &[1, 2, 3], 1),
            set("idle", &[4, 5], 2),
            set("backend", &[8, 9], 1),
        ];
        let vm_of_thread = vm_of_thread(&sets);
        let rate = |pairs: &[((u32, u32), f64)]| {
            let seen = SwitchRates {
                rates: pairs.iter().copied().collect(),
                watched: 1.0,
            };
            between(&vm_of_thread, &seen)
        };
        assert_eq!(rate(&[((1, 2), 5.0), ((8, 9), 5.0), ((1, 77), 5.0)]), 0.0);
        assert_eq!(rate(&[((2, 3), 1.0), ((4, 5), 2.0), ((5, 9), 4.0)]), 7.0);
    }

    #[test]
    fn a_set_of_our_own_threads_is_watched() {
        let threads = Proc::default().threads_below(std::process::id());
        let set = Set {
            name: "vm1",
            threads,
            members: 1,
        };
        let window = (Duration::ZERO, PIECE);
        let (answer, values) = watch(&[set], window, || Ok(7)).unwrap();
        assert_eq!(answer, 7);
        assert!(values["vm1_use_pct"] >= 0.0 && values.contains_key("switches_s"));
    }
}
