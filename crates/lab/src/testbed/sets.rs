//! The sets of threads that work for each VM, and for the backend.

use observe::proc::Proc;

use super::Testbed;
use crate::settings::{self, Journal};
use crate::thread_times::Set;
use vm_harness::channel::Channel;
use vm_harness::error::{Error, Result};
use vm_harness::switch::Switch;
use vm_harness::vm::Vm;

impl Testbed {
    /// Returns the set `backend`: every thread of QEMU that is no virtual CPU, and the threads of Vicinity and of
    /// vhost.
    #[must_use]
    pub fn backend(&self) -> Vec<u32> {
        let proc = Proc::default();
        let (wide, cpus): (Vec<&Vm>, Vec<&Vec<u32>>) =
            self.two_cpu.iter().map(|(vm, cpus)| (vm, cpus)).unzip();
        let mut threads: Vec<u32> = Vec::new();
        for vm in self.vms.iter().chain(wide) {
            threads.extend(proc.threads(vm.id()));
            threads.extend(proc.vhost_workers(vm.id()));
        }
        let guests = || self.guests.iter().chain(cpus.iter().copied()).flatten();
        threads.retain(|id| guests().all(|cpu| cpu != id));
        let filled = self.filled.iter().map(|one| &one.switch);
        let moderated = self.moderated.iter().map(|one| &one.switch);
        let own = filled.chain(moderated).filter_map(Switch::id);
        let channels = self.channels.iter().filter_map(|channel| channel.process());
        let direct = self.direct.direct.process();
        let space = self.spaced.process();
        threads.extend(
            own.chain(channels)
                .chain(direct)
                .chain(space)
                .flat_map(|id| proc.threads_below(id)),
        );
        threads
    }

    /// Returns the sets to measure while the first `busy` of `running` VMs work.
    #[must_use]
    pub fn sets(&self, busy: usize, running: usize) -> Vec<Set> {
        let join = |from: usize, to: usize| {
            (from..=to)
                .flat_map(|n| self.guest(n).to_vec())
                .collect::<Vec<u32>>()
        };
        let mut sets = vec![Set {
            name: "vm1",
            threads: join(1, 1),
            members: 1,
        }];
        if busy > 1 {
            sets.push(Set {
                name: "vm2",
                threads: join(2, 2),
                members: 1,
            });
        }
        sets.push(Set {
            name: "guests",
            threads: join(1, busy),
            members: 1,
        });
        sets.push(Set {
            name: "idle",
            threads: join(busy + 1, running),
            members: u32::try_from(running.saturating_sub(busy)).unwrap_or(1),
        });
        sets.push(Set {
            name: "backend",
            threads: self.backend(),
            members: 1,
        });
        sets
    }

    /// Returns the sets to measure while the VM with two virtual CPUs sends to VM 2.
    ///
    /// # Errors
    /// There is no such VM.
    pub fn wide_sets(&self) -> Result<Vec<Set>> {
        let missing = || Error::Host("no VM has two virtual CPUs".to_owned());
        let (_, cpus) = self.two_cpu.as_ref().ok_or_else(missing)?;
        let set = |name, threads| Set {
            name,
            threads,
            members: 1,
        };
        Ok(vec![
            set("vm1", cpus.clone()),
            set("vm2", self.guest(2).to_vec()),
            set("backend", self.backend()),
        ])
    }

    /// Returns every thread of a VM's QEMU, including its virtual CPUs.
    ///
    /// # Errors
    /// There is no such VM.
    pub fn process(&self, number: usize) -> Result<Vec<u32>> {
        Ok(Proc::default().threads(self.vm(number)?.id()))
    }

    /// Pins the virtual CPUs of VM 1 and VM 2: either both to CPU 0, or one to CPU 0 and the other to CPU 1.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn pin(&self, placement: &str) -> Result<Journal> {
        let second = if placement == "shared" { 0 } else { 1 };
        let mut journal = Journal::begin()?;
        for (vm, cpu) in [(1, 0), (2, second)] {
            for thread in self.guest(vm) {
                settings::pin(&mut journal, *thread, &[cpu])?;
            }
        }
        Ok(journal)
    }
}
