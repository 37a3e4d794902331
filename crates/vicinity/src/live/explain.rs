//! Explains in one sentence why a VM waits.

use observe::report::{Report, Vm};

use super::names::printable;

/// A wait below this part of a CPU needs no explanation.
const LITTLE: f64 = 0.05;
/// A part of the time in which a cap holds a control group back, from which it is the explanation.
const HELD_BACK: f64 = 0.05;
/// The part of the host's CPUs from which the host is busy.
const BUSY: f64 = 0.9;
/// The part of a CPU from which a hypervisor below this host matters.
const STOLEN: f64 = 0.1;

/// Returns the sentence for a VM of the report.
#[allow(clippy::cast_precision_loss, reason = "a number of CPUs")]
pub(crate) fn explain(vm: &Vm, report: &Report) -> String {
    let name = printable(&vm.name);
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let held_back = vm.cgroup.as_ref().and_then(|group| group.throttled);
    if let Some(part) = held_back.filter(|part| *part >= HELD_BACK) {
        return format!(
            "{name} is held back {} of the time by a cap on its control group: raise the cap.",
            percent(part)
        );
    }
    let (wait, set) = match (vm.guest.wait, vm.backend.wait) {
        (guest, backend) if guest >= backend => (guest, "vCPUs"),
        (_, backend) => (backend, "back-end"),
    };
    if wait < LITTLE {
        return format!("{name} hardly waits: its threads get a CPU when they want one.");
    }
    let host = &report.host;
    let cpus = host.cpus as f64;
    let others = report.vms.iter().filter(|other| other.pid != vm.pid);
    let demand = |vm: &Vm| vm.guest.r#use + vm.backend.r#use;
    let busiest = others.max_by(|a, b| demand(a).total_cmp(&demand(b)));
    let because = match (host.stolen, host.busy) {
        (Some(stolen), _) if stolen >= STOLEN => format!(
            "a hypervisor below this host takes {} of a CPU",
            percent(stolen)
        ),
        (_, Some(busy)) if busy >= BUSY * cpus => {
            let most = busiest.map_or_else(String::new, |other| {
                format!(
                    "; {} uses the most, {} of a CPU",
                    printable(&other.name),
                    percent(demand(other))
                )
            });
            format!(
                "{} of the host's {} CPUs are busy{most}",
                percent(busy / cpus),
                host.cpus
            )
        }
        _ => "its threads share CPUs with others although the host has free ones, as after a restriction to few CPUs"
            .to_owned(),
    };
    format!(
        "The {set} of {name} wait{} for a CPU {} of the time, because {because}.",
        if set == "vCPUs" { "" } else { "s" },
        percent(wait)
    )
}
