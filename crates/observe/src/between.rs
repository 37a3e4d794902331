//! Switches between VMs: how often a CPU switched directly from one set of threads to another.

use std::collections::{BTreeMap, HashMap};

use crate::reading::{Id, Plane, Reading, Switches, ThreadSet, Vm};
use crate::report::{self, SwitchPair, ThreadSetName, VmSwitches};
use crate::switches::SwitchRates;

/// Sums the switches between threads to switches between sets of threads. Omits threads that belong to
/// no set, and switches within a set.
pub(crate) fn sets(
    seen: &SwitchRates,
    vms: &BTreeMap<Id, Vm>,
    planes: &BTreeMap<Id, Plane>,
) -> Switches {
    let owners = owners(vms, planes);
    let mut rates = BTreeMap::new();
    for ((from, to), rate) in &seen.rates {
        if let (Some(from), Some(to)) = (owners.get(from), owners.get(to)) {
            if from != to {
                *rates.entry((from.clone(), to.clone())).or_default() += rate;
            }
        }
    }
    Switches {
        rates,
        watched: seen.watched,
    }
}

/// Returns the set of each thread that belongs to one.
fn owners(vms: &BTreeMap<Id, Vm>, planes: &BTreeMap<Id, Plane>) -> HashMap<u32, ThreadSet> {
    let of_vm = |(id, vm): (&Id, &Vm)| {
        let id = *id;
        let set = move |guest| match guest {
            true => ThreadSet::Guest(id),
            false => ThreadSet::Backend(id),
        };
        let threads = vm.threads.iter();
        let all = threads.map(move |(thread, known)| (*thread, set(known.role.is_guest())));
        all.collect::<Vec<_>>()
    };
    let of_plane = |plane: &Plane| {
        let network = plane.network.clone();
        let threads = plane.threads.keys().copied();
        let all = threads.filter_map(move |id| Some((id, ThreadSet::Network(network.clone()?))));
        all.collect::<Vec<_>>()
    };
    let vms = vms.iter().flat_map(of_vm);
    vms.chain(planes.values().flat_map(of_plane)).collect()
}

/// Returns the rates of switches to a VM's guest and to its backend.
pub(crate) fn of_vm(id: Id, reading: &Reading) -> Option<VmSwitches> {
    let switches = reading.switches.as_ref().ok()?;
    let to = |set: ThreadSet| {
        let rates = switches.rates.iter();
        rates
            .filter(|((_, to), _)| *to == set)
            .map(|(_, rate)| rate)
            .sum()
    };
    Some(VmSwitches {
        guest: to(ThreadSet::Guest(id)),
        backend: to(ThreadSet::Backend(id)),
    })
}

/// Returns the pairs of sets with their names, the most frequent first.
pub(crate) fn named(reading: &Reading) -> Option<report::Switches> {
    let switches = reading.switches.as_ref().ok()?;
    let vm = |id: &Id| reading.vms.get(id).map(|vm| vm.name.clone());
    let party = |set: &ThreadSet| {
        Some(match set {
            ThreadSet::Guest(id) => ThreadSetName::Guest(vm(id)?),
            ThreadSet::Backend(id) => ThreadSetName::Backend(vm(id)?),
            ThreadSet::Network(network) => ThreadSetName::Network(network.clone()),
        })
    };
    let rates = switches.rates.iter();
    let mut pairs: Vec<SwitchPair> = rates
        .filter_map(|((from, to), rate)| {
            Some(SwitchPair {
                from: party(from)?,
                to: party(to)?,
                per_second: *rate,
            })
        })
        .collect();
    pairs.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    Some(report::Switches {
        watched: switches.watched,
        pairs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::{plane, reading, vm};

    const VM: [(&str, u64, u64); 2] = [("main", 0, 0), ("CPU 0/KVM", 0, 0)];

    /// Two VMs with the threads 10 (backend) and 11 (guest), and 20 and 21, and a network with worker
    /// 30.
    fn host(rates: &[((u32, u32), f64)]) -> Reading {
        let mut reading = reading(1);
        vm(&mut reading, 10, "web", &VM);
        vm(&mut reading, 20, "db", &VM);
        plane(&mut reading, 30, Some("lan"), &[("net-lan", 0, 0)]);
        let seen = SwitchRates {
            rates: rates.iter().copied().collect(),
            watched: 0.5,
        };
        reading.switches = Ok(sets(&seen, &reading.vms, &reading.planes));
        reading
    }

    #[test]
    fn threads_are_classified_by_their_set() {
        let reading = host(&[
            ((11, 21), 5.0),
            ((21, 11), 4.0),
            ((11, 10), 3.0),
            ((10, 20), 2.0),
            ((30, 11), 8.0),
            ((11, 30), 1.0),
            ((99, 11), 77.0),
            ((11, 99), 77.0),
        ]);
        let web = Id { pid: 10, start: 7 };
        let of_web = of_vm(web, &reading).unwrap();
        assert_eq!((of_web.guest, of_web.backend), (12.0, 3.0));
        let named = named(&reading).unwrap();
        assert_eq!(named.watched, 0.5);
        let first = SwitchPair {
            from: ThreadSetName::Network("lan".into()),
            to: ThreadSetName::Guest("web".into()),
            per_second: 8.0,
        };
        assert_eq!(named.pairs.first(), Some(&first));
        assert_eq!(named.pairs.len(), 6, "strangers are in none: {named:?}");
    }

    #[test]
    fn switches_within_a_set_are_not_between_vms() {
        let mut reading = host(&[]);
        vm(&mut reading, 10, "web", &[("main", 0, 0), ("worker", 0, 0)]);
        let seen = SwitchRates {
            rates: [((10, 11), 9.0)].into(),
            watched: 1.0,
        };
        let switches = sets(&seen, &reading.vms, &reading.planes);
        assert_eq!(switches.rates.len(), 0);
    }

    #[test]
    fn what_is_not_recorded_is_not_none() {
        let mut reading = host(&[]);
        assert_eq!(named(&reading).unwrap().pairs, []);
        reading.switches = Err("for root only".to_owned());
        assert_eq!(named(&reading), None);
        assert_eq!(of_vm(Id { pid: 10, start: 7 }, &reading), None);
    }
}
