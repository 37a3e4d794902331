//! Computes rates from two readings.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::counters::Totals;
use crate::energy::{Meter, Provenance};
use crate::reading::{self, Id, Port, Reading};
use crate::report::{Group, Host, Network, Report, Thread, Traffic, Vicinity, Vm};
use crate::role::{Role, is_worker_of, vcpu_accelerator};
use crate::traffic;
use crate::work::Work;
use crate::{between, limits, pairs, share};

/// The size in bytes of a page. XenMon counted exchanged pages.
const PAGE: f64 = 4096.0;

/// The default power in watts of one busy CPU on a host without energy counters.
pub const WATTS_PER_CPU: f64 = 10.0;

/// Returns a report of the time between two readings. The report omits VMs that are in only one of the
/// readings. The work of a thread that started in between counts in full. The work that a thread did
/// after the earlier reading does not count if the thread ended before the later one.
#[must_use]
pub fn report(earlier: &Reading, later: &Reading, meter: &Meter, watts_per_cpu: f64) -> Report {
    let interval = later.at.saturating_duration_since(earlier.at);
    let host = host(earlier, later, meter, interval, watts_per_cpu);
    let (networks, mut charged) = charge(earlier, later, interval);
    let watts_per_cpu = match (host.energy, host.watts) {
        (Provenance::Measured, Some(watts)) => watts / host.cpus as f64,
        _ => watts_per_cpu,
    };
    let mut vms: Vec<Vm> = later
        .vms
        .iter()
        .filter_map(|(id, now)| {
            let charge = charged.remove(id).unwrap_or_default();
            let mut vm = vm(id.pid, earlier.vms.get(id)?, now, &charge, watts_per_cpu)?;
            vm.switches_between = between::of_vm(*id, later);
            Some(vm)
        })
        .collect();
    vms.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    Report {
        seconds: interval.as_secs_f64(),
        cannot_read: limits::of_host(later, meter, &vms),
        host,
        vicinity: vicinity(earlier, later, networks),
        pairs: pairs::rates(earlier, later, interval),
        switches: between::named(later),
        vms,
    }
}

/// The traffic of a VM's ports, and the VM's share of the workers' time.
#[derive(Debug, Default)]
struct Charge {
    moved: Option<traffic::Traffic>,
    work: Work,
    interval: Duration,
}

/// Returns the work of each thread of a set since the earlier reading.
fn work(
    earlier: &BTreeMap<u32, reading::Thread>,
    later: &BTreeMap<u32, reading::Thread>,
    interval: Duration,
) -> Vec<(u32, Work)> {
    let one = |(id, now): (&u32, &reading::Thread)| {
        let before = earlier
            .get(id)
            .map_or_else(Totals::default, |then| then.totals);
        (*id, Work::of(&now.totals.since(&before), interval))
    };
    later.iter().map(one).collect()
}

/// Returns the work of each network's workers, and each VM's charge for it.
fn charge(
    earlier: &Reading,
    later: &Reading,
    interval: Duration,
) -> (Vec<Network>, BTreeMap<Id, Charge>) {
    let mut networks = Vec::new();
    let mut charged: BTreeMap<Id, Charge> = BTreeMap::new();
    let mut names: Vec<&str> = later
        .ports
        .iter()
        .map(|port| port.network.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let workers = workers(earlier, later, name);
        let ports: Vec<&Port> = later
            .ports
            .iter()
            .filter(|port| port.network == name)
            .collect();
        let moved: Vec<_> = ports
            .iter()
            .map(|port| since(port, &earlier.ports))
            .collect();
        let mut uncharged = workers.run;
        for ((port, moved), part) in ports.iter().zip(&moved).zip(share::parts(&moved)) {
            let Some(id) = owner(port, later) else {
                continue;
            };
            let charge = charged.entry(id).or_default();
            charge.moved = Some(charge.moved.unwrap_or_default().plus(moved));
            charge.work += workers.part(part);
            charge.interval = interval;
            uncharged -= workers.run * part;
        }
        let seconds = interval.as_secs_f64();
        networks.push(Network {
            name: name.to_owned(),
            workers: workers.activity(interval),
            uncharged: if seconds > 0.0 {
                uncharged.max(0.0) / seconds
            } else {
                0.0
            },
        });
    }
    (networks, charged)
}

/// Returns the work of a network's workers, which are threads of its own process or of the supervisor.
fn workers(earlier: &Reading, later: &Reading, network: &str) -> Work {
    let mut sum = Work::default();
    for (id, now) in &later.planes {
        let Some(then) = earlier.planes.get(id) else {
            continue;
        };
        let interval = now.at.saturating_duration_since(then.at);
        for (thread, work) in work(&then.threads, &now.threads, interval) {
            let name = now.threads.get(&thread).map(|thread| thread.name.as_str());
            let ours = match &now.network {
                Some(name) => name == network,
                None => name.is_some_and(|name| is_worker_of(name, network)),
            };
            if ours {
                sum += work;
            }
        }
    }
    sum
}

/// Returns the VM of a port: the VM whose command line contains the port's socket, or else the VM with
/// the name that the port has.
fn owner(port: &Port, reading: &Reading) -> Option<Id> {
    let names_socket = |vm: &reading::Vm| {
        let socket = port.socket.as_ref();
        socket.is_some_and(|socket| vm.sockets.contains(socket))
    };
    let find = |good: &dyn Fn(&reading::Vm) -> bool| {
        let mut vms = reading.vms.iter();
        vms.find(|(_, vm)| good(vm)).map(|(id, _)| *id)
    };
    find(&names_socket).or_else(|| find(&|vm| vm.name == port.vm))
}

fn since(port: &Port, earlier: &[Port]) -> traffic::Traffic {
    let same = |other: &&Port| other.network == port.network && other.vm == port.vm;
    match earlier.iter().find(same) {
        Some(before) => port.traffic.since(&before.traffic),
        None => traffic::Traffic::default(),
    }
}

fn vm(
    pid: u32,
    then: &reading::Vm,
    now: &reading::Vm,
    charge: &Charge,
    watts_per_cpu: f64,
) -> Option<Vm> {
    let interval = now.at.checked_duration_since(then.at)?;
    let mut guest = Work::default();
    let mut backend = Work::default();
    let mut threads = Vec::new();
    for (id, work) in work(&then.threads, &now.threads, interval) {
        let thread = now.threads.get(&id)?;
        match thread.role.is_guest() {
            true => guest += work,
            false => backend += work,
        }
        threads.push(Thread {
            id,
            name: thread.name.clone(),
            role: thread.role,
            activity: work.activity(interval),
        });
    }
    let in_vicinity = charge.work.activity(charge.interval).r#use;
    backend += charge.work;
    let polled = now.polled_ns.zip(then.polled_ns);
    let polled = polled.map(|(now, then)| now.saturating_sub(then) as f64 / 1e9);
    guest.run -= polled.unwrap_or(0.0).min(guest.run);
    let seconds = interval.as_secs_f64();
    let guest = guest.activity(interval);
    let backend = backend.activity(interval);
    Some(Vm {
        name: now.name.clone(),
        pid,
        accelerator: accelerator(now),
        halt_poll: polled
            .filter(|_| seconds > 0.0)
            .map(|polled| polled / seconds),
        traffic: moved(then, now, charge).map(|moved| {
            // The observer reads Vicinity's counters and the threads' counters at different times.
            traffic_rates(&moved, interval, backend.executions_per_second)
        }),
        memory: now.memory,
        watts: Some(watts_per_cpu * (guest.r#use + backend.r#use)),
        cgroup: group(then, now, seconds),
        guest,
        backend,
        backend_in_vicinity: in_vicinity,
        switches_between: None,
        notes: limits::of_vm(now),
        threads,
    })
}

fn accelerator(vm: &reading::Vm) -> Option<String> {
    let mut vcpus = vm
        .threads
        .values()
        .filter(|thread| thread.role == Role::Vcpu);
    vcpu_accelerator(&vcpus.next()?.name).map(str::to_owned)
}

/// Returns the traffic of all NICs of a VM: its ports on Vicinity's networks, and its taps.
fn moved(then: &reading::Vm, now: &reading::Vm, charge: &Charge) -> Option<traffic::Traffic> {
    let mut sum = charge.moved;
    for (name, after) in &now.taps {
        if let Some(before) = then.taps.get(name) {
            sum = Some(sum.unwrap_or_default().plus(&after.since(before)));
        }
    }
    sum
}

fn traffic_rates(moved: &traffic::Traffic, interval: Duration, executions: f64) -> Traffic {
    let seconds = interval.as_secs_f64();
    let rate = |count: u64| {
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    };
    let descriptors = rate(moved.frames());
    Traffic {
        tx_frames: rate(moved.tx_frames),
        tx_bytes: rate(moved.tx_bytes),
        rx_frames: rate(moved.rx_frames),
        rx_bytes: rate(moved.rx_bytes),
        descriptors,
        pages: rate(moved.bytes()) / PAGE,
        descriptors_per_execution: (executions > 0.0).then(|| descriptors / executions),
    }
}

fn group(then: &reading::Vm, now: &reading::Vm, seconds: f64) -> Option<Group> {
    let (path, version, state) = now.group.as_ref()?;
    let before = then
        .group
        .as_ref()
        .and_then(|(_, _, state)| state.throttled_ns);
    let throttled = state
        .throttled_ns
        .zip(before)
        .map(|(now, then)| now.saturating_sub(then));
    Some(Group {
        path: path.clone(),
        version: *version,
        weight: state.weight,
        throttled: throttled
            .filter(|_| seconds > 0.0)
            .map(|ns| ns as f64 / 1e9 / seconds),
    })
}

fn vicinity(earlier: &Reading, later: &Reading, networks: Vec<Network>) -> Option<Vicinity> {
    let pid = later.daemon?;
    let mut supervisor = Work::default();
    let mut interval = Duration::ZERO;
    for (id, now) in later.planes.iter().filter(|(id, _)| id.pid == pid) {
        let then = earlier.planes.get(id)?;
        interval = now.at.saturating_duration_since(then.at);
        for (thread, work) in work(&then.threads, &now.threads, interval) {
            let name = now.threads.get(&thread).map(|thread| thread.name.as_str());
            if !name.is_some_and(|name| name.starts_with("net-")) {
                supervisor += work;
            }
        }
    }
    Some(Vicinity {
        pid,
        supervisor: supervisor.activity(interval),
        networks,
    })
}

fn host(
    earlier: &Reading,
    later: &Reading,
    meter: &Meter,
    interval: Duration,
    watts_per_cpu: f64,
) -> Host {
    let (then, now) = (&earlier.host, &later.host);
    let time = now.time.zip(then.time).map(|(now, then)| now.since(&then));
    let cpus = |ticks: u64| {
        let all = time.map(|time| time.all).filter(|all| *all > 0)?;
        Some(now.cpus as f64 * ticks as f64 / all as f64)
    };
    let busy = time.and_then(|time| cpus(time.busy));
    let readings = then.energy.as_ref().zip(now.energy.as_ref());
    let measured = readings.and_then(|(then, now)| meter.watts(then, now, interval));
    let own = now.own.saturating_sub(then.own).as_secs_f64();
    Host {
        cpus: now.cpus,
        busy,
        interrupts: time.and_then(|time| cpus(time.interrupts)),
        stolen: time.and_then(|time| cpus(time.stolen)),
        pressure: now.pressure,
        memory: now.memory.map(|(all, _)| all),
        memory_available: now.memory.map(|(_, available)| available),
        watts: measured.or_else(|| Some(busy? * watts_per_cpu)),
        energy: match measured {
            Some(_) => Provenance::Measured,
            None => Provenance::Modelled,
        },
        own: if interval.is_zero() {
            0.0
        } else {
            own / interval.as_secs_f64()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;
