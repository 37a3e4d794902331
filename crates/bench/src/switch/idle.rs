//! The cost of an idle switch: wake-ups and CPU time of all its threads while two idle VMs are
//! connected, and the same figures and the switch's memory with 64 ports whose drivers sleep.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use vm_harness::channel::{address, mac};
use vm_harness::error::{Context, Result};
use vm_harness::host::family;
use vm_harness::image::Recipe;
use vm_harness::interrupt;
use vm_harness::progress::Progress;
use vm_harness::vm::{Link, Nic, Spec, Vm};

use super::device_under_test::Switch;
use super::driver::Driver;
use super::frames::{HEADERS, SHORT};
use super::vicinity::Vicinity;
use crate::memory;
use crate::threads::Totals;

/// Longest time that a boot may take: that of an emulated guest on a busy machine.
const BOOT: Duration = Duration::from_secs(120);

/// Pause after the boot, because a guest's kernel sends frames to find IPv6 routers and neighbours for some seconds.
const SETTLING_TIME: Duration = Duration::from_secs(15);

const WINDOW: Duration = Duration::from_secs(10);

/// Ports of the second measurement.
const PORTS: u16 = 64;

/// Pause in which the switch completes its start.
const PORTS_SETTLING_TIME: Duration = Duration::from_secs(5);

/// The cost of an idle `vicinity`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// Length of the measurement, in seconds.
    pub seconds: f64,
    /// Wake-ups of its threads per second.
    pub wakeups_per_s: f64,
    /// Share of one core used, 1.0 for a whole core.
    pub core_share: f64,
}

/// The cost of an idle `vicinity` with many ports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdlePorts {
    /// Ports with running rings.
    pub ports: u16,
    /// Wake-ups and CPU time of all its processes.
    pub cost: Idle,
    /// Memory of all its processes in MiB, without that of the guests: proportional set size.
    pub resident_mib: f64,
}

/// Connects many drivers that never send to Vicinity's switch, and measures the cost of the switch.
pub(super) fn ports(vicinity: &Path, run: &Path, progress: &Progress) -> Result<IdlePorts> {
    progress.step(&format!("idle: watching {PORTS} ports"));
    let folder = run.join("idle-ports");
    fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
    let switch = Vicinity::start(&folder, vicinity, PORTS)?;
    let sockets = switch.sockets().connect()?;
    let frame = [0; HEADERS];
    let start = |socket| Driver::start(socket, SHORT.kind(), [0; 12], &frame);
    let drivers: Vec<_> = sockets.into_iter().map(start).collect::<Result<_>>()?;
    interrupt::sleep(PORTS_SETTLING_TIME)?;
    let cost = watch(switch.id(), WINDOW)?;
    let processes = family(switch.id());
    let resident_kib: u64 = processes
        .into_iter()
        .map(memory::own_kib)
        .sum::<Result<_>>()?;
    drop(drivers);
    Ok(IdlePorts {
        ports: PORTS,
        cost,
        resident_mib: resident_kib as f64 / 1024.0,
    })
}

/// Boots two VMs on Vicinity's switch and measures the cost of the switch while they do nothing. `cache` keeps the guest
/// image, `run` is the folder of the whole run.
pub(super) fn measure(
    vicinity: &Path,
    cache: &Path,
    run: &Path,
    progress: &Progress,
) -> Result<Idle> {
    progress.step("idle: guest image (Debian packages, kept for the next time)");
    let image = Recipe::default().build(cache)?;
    progress.step("idle: booting two VMs");
    let folder = run.join("idle");
    fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
    // The VMs are dropped before the switch.
    let switch = Vicinity::start(&folder, vicinity, 2)?;
    let sockets = switch.sockets();
    let specs = (1..).zip(sockets.paths()).map(|(number, socket)| {
        let nic = Nic {
            link: Link::VhostUser {
                socket: socket.clone(),
                qemu_listens: false,
            },
            mac: mac(1, number),
            address: Some(format!("{}/24", address(1, number))),
            properties: Vec::new(),
        };
        Spec::new(&format!("vm{number}"), &folder).nic(nic)
    });
    let vms: Vec<Vm> = specs
        .map(|spec| Vm::boot(&image, spec))
        .collect::<Result<_>>()?;
    for vm in &vms {
        vm.wait_ready(BOOT)?;
    }
    progress.step("idle: watching");
    interrupt::sleep(SETTLING_TIME)?;
    watch(switch.id(), WINDOW)
}

/// Measures a process and its children for `time`.
fn watch(process: u32, time: Duration) -> Result<Idle> {
    let (start, before) = (Instant::now(), Totals::of(process)?);
    interrupt::sleep(time)?;
    let seconds = start.elapsed().as_secs_f64();
    let spent = Totals::of(process)?.since(&before);
    Ok(Idle {
        seconds,
        wakeups_per_s: spent.sleeps as f64 / seconds,
        core_share: spent.ran.as_secs_f64() / seconds,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_works_and_sleeps_is_seen() {
        // The test watches one process without children, because the totals of children are lost when they end.
        let mut command = Command::new("cat");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let idle = std::thread::scope(|scope| {
            scope.spawn(move || {
                // The child sleeps before each byte, until it is killed.
                while to.write_all(&[0]).is_ok() && from.read_exact(&mut [0]).is_ok() {}
            });
            let idle = watch(child.id(), Duration::from_millis(300));
            child.kill().unwrap();
            child.wait().unwrap();
            idle.unwrap()
        });
        assert!(idle.core_share > 0.0);
        assert!(idle.wakeups_per_s > 0.0, "it waits for bytes");
    }
}
