//! The cost of idle endpoints.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::Process;
use report::stats::median;
use report::target::Target;
use vm_harness::error::{Context, Error, Result};
use vm_harness::{cpu, host, interrupt};

/// Processes with one endpoint each.
const ENDPOINTS: u32 = 40;

/// Length of the measurement.
const TIME: Duration = Duration::from_secs(5);

/// What an idle endpoint costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// Number of endpoints.
    pub endpoints: u32,
    /// Memory of an endpoint's process in KiB: the proportional set size, median.
    pub kib: f64,
    /// CPU time of a waiting endpoint, in percent of a core: the mean.
    pub cpu_percent: f64,
}

impl Idle {
    /// Returns the targets for these figures.
    pub(super) fn targets(self) -> [Target; 2] {
        [
            Target::at_most(
                "idle endpoint: memory of its process, KiB",
                self.kib,
                1024.0,
            ),
            Target::at_most("idle endpoint: % of a core", self.cpu_percent, 1.0),
        ]
    }
}

/// Starts the endpoints on a board of their own, and measures their cost.
pub(super) fn measure(program: &Path, folder: &Path) -> Result<Idle> {
    let mut waiters = Vec::new();
    for number in 0..ENDPOINTS {
        let mut command = host::command(program);
        command.arg("--runtime-dir").arg(folder.join("idle"));
        command.args(["message", "answer", "--endpoint", &number.to_string()]);
        let mut waiter = Process::start(&format!("idle-{number}"), folder, command)?;
        waiter.expect("answering")?;
        waiters.push(waiter);
    }
    let before = spent(&waiters)?;
    interrupt::sleep(TIME)?;
    let spent = spent(&waiters)?.saturating_sub(before);
    let memory = waiters.iter().map(|waiter| kib(waiter.id()));
    Ok(Idle {
        endpoints: ENDPOINTS,
        kib: median(&memory.collect::<Result<Vec<_>>>()?),
        cpu_percent: spent.as_secs_f64() / TIME.as_secs_f64() / f64::from(ENDPOINTS) * 100.0,
    })
}

fn spent(waiters: &[Process]) -> Result<Duration> {
    waiters.iter().map(|one| cpu::of_process(one.id())).sum()
}

fn kib(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).context(|| format!("read {path}"))?;
    let pss = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = pss.and_then(|pss| pss.trim().trim_end_matches(" kB").parse().ok());
    number.ok_or_else(|| Error::unreadable("the kernel's sums", &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        assert!(kib(std::process::id()).unwrap() > 100.0);
    }

    #[test]
    fn a_target_is_met_or_missed() {
        let idle = |kib, cpu_percent| Idle {
            endpoints: 1,
            kib,
            cpu_percent,
        };
        let kept = |idle: Idle| idle.targets().map(|target| target.reached);
        assert_eq!(kept(idle(1000.0, 0.1)), [true, true]);
        assert_eq!(kept(idle(1100.0, 1.1)), [false, false]);
    }
}
