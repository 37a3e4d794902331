//! Checks that only KVM makes possible: its statistics, and passed-through devices.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use vm_harness::error::{Error, Result};
use vm_harness::interrupt;
use vm_harness::vm::{Spec, Vm};

use crate::daemon::text;
use crate::guest::Guest;
use crate::host::{self, KVM_STATISTICS};
use crate::outcome::Outcome;
use crate::testbed::Testbed;

/// The files with the time for which KVM polled.
const POLLED: [&str; 2] = ["halt_poll_success_ns", "halt_poll_fail_ns"];

/// Seconds of an interval of `vicinity top`, and of the count of exits.
const SECONDS: u64 = 3;

/// The VM with the passed-through NIC, and the memory it needs.
const VFIO: &str = "vfio";
const VFIO_MIB: u32 = 512;

/// Compares the time of halt polling that `vicinity top` shows with the kernel's.
pub(super) fn halt_polling(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One])?;
    let (one, daemon) = (bed.vm(Guest::One)?, bed.daemon()?);
    // Short sleeps make KVM poll.
    let work = one.start("for i in $(seq 100000); do sleep 0.0005; done")?;
    let before = statistics(one.id(), &POLLED)?;
    let begin = Instant::now();
    let report = daemon.json(&[
        "top",
        "--once",
        "--json",
        "--interval",
        &SECONDS.to_string(),
    ])?;
    let took = begin.elapsed().as_secs_f64();
    let polled = seconds(statistics(one.id(), &POLLED)?.saturating_sub(before));
    work.kill()?;
    let vms = report.pointer("/vms").and_then(Value::as_array);
    let vm = vms
        .into_iter()
        .flatten()
        .find(|vm| text(vm, "/name") == one.name());
    let shown = vm.and_then(|vm| vm.pointer("/halt_poll")?.as_f64());
    let Some(shown) = shown else {
        return Ok(Outcome::fail(
            "`vicinity top` shows no halt polling for VM one",
        ));
    };
    let outcome = Outcome::pass()
        .figure("halt polling, top", shown, "CPUs")
        .figure("halt polling, kernel", polled / took, "CPUs");
    // The command also starts and ends, and the VM polls meanwhile: it cannot show more than the kernel has.
    let most = polled / f64::from(u32::try_from(SECONDS).unwrap_or(u32::MAX));
    Ok(outcome.require(shown <= most * 1.05 + 0.001, || {
        format!("`vicinity top` shows {shown:.4} CPUs, the kernel at most {most:.4}")
    }))
}

/// Counts the exits of a VM whose gateway has nothing to do.
pub(super) fn exits(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One])?;
    let one = bed.vm(Guest::One)?;
    crate::region::ensure_joined(one, bed.has_modules())?;
    interrupt::sleep(Duration::from_secs(2))?;
    let before = statistics(one.id(), &["exits"])?;
    let cpu = one.cpu_time()?;
    interrupt::sleep(Duration::from_secs(SECONDS))?;
    let exits = statistics(one.id(), &["exits"])?.saturating_sub(before);
    let cpu = one.cpu_time()?.saturating_sub(cpu);
    let length = f64::from(u32::try_from(SECONDS).unwrap_or(u32::MAX));
    Ok(Outcome::measured()
        .figure(
            "exits a second",
            f64::from(u32::try_from(exits).unwrap_or(u32::MAX)) / length,
            "",
        )
        .figure("CPU of QEMU", cpu.as_secs_f64() / length * 100.0, "%"))
}

/// Boots a VM with a passed-through NIC, which the trust group must refuse.
pub(super) fn vfio(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One])?;
    let nics = host::vfio_nics();
    let Some(nic) = nics.first() else {
        return Ok(Outcome::not_run("no NIC is bound to `vfio-pci`"));
    };
    let mut spec = Spec::new(VFIO, &bed.logs());
    spec.memory_mib = VFIO_MIB;
    spec.qemu_args = bed.daemon()?.options(&["direct", "qemu-args", VFIO])?;
    let device = format!("vfio-pci,host={nic}");
    spec.qemu_args.extend(["-device".to_owned(), device]);
    let vm = Vm::boot(bed.image()?, spec)?;
    let limit = Duration::from_secs(30);
    let mut last = String::new();
    let refused = interrupt::poll("the refusal of VM vfio", limit, || {
        if !vm.is_running()? {
            return Err(Error::Host("QEMU ended".to_owned()));
        }
        let (state, reason) = bed.daemon()?.direct_state(VFIO)?;
        last = format!("{state}: {reason}");
        Ok(reason.contains("(VFIO").then_some(state))
    });
    match refused {
        Ok(state) => Ok(Outcome::pass()
            .require(state != "joined", || {
                "the VM joined the trust group".to_owned()
            })
            .note(last)),
        Err(_) if !vm.is_running()? => Ok(Outcome::not_run(
            "QEMU could not use the NIC that is bound to `vfio-pci`: another VM may have it",
        )),
        Err(Error::Timeout { .. }) => Ok(Outcome::fail(format!("the trust group says {last}"))),
        Err(other) => Err(other),
    }
}

/// Returns the sum of these statistics of the VM of a process.
fn statistics(process: u32, names: &[&str]) -> Result<u64> {
    let owner = format!("{process}-");
    let folders = fs::read_dir(Path::new(KVM_STATISTICS))
        .into_iter()
        .flatten()
        .flatten();
    let folders = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(&owner));
    let files = folders.flat_map(|folder| names.iter().map(move |name| folder.path().join(name)));
    let values = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    let sum = values.reduce(u64::saturating_add);
    sum.ok_or_else(|| Error::Host("KVM's statistics have no entry for VM one".to_owned()))
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
