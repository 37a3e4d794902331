//! The observer finds and reads twenty fake VMs through the host's `/proc`.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use observe::energy::Meter;
use observe::rates;
use observe::reader::Reader;
use observe::role::Role;

const COUNT: usize = 20;

/// A fake VM, which ends at the end of its standard input.
struct Fake(Child);

impl Fake {
    fn start(name: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake-vm"));
        command
            .arg0("/usr/bin/qemu-system-x86_64")
            .args(["-accel", "kvm", "-name"])
            .arg(format!("guest={name},debug-threads=on"))
            .stdin(Stdio::piped());
        let fake = Self(command.spawn().unwrap());
        while fake.threads().len() < 6 {
            std::thread::yield_now();
        }
        fake
    }

    fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
        let names = names.map(|name| name.unwrap().trim().to_owned());
        // A thread has its parent's name until it sets its own.
        names
            .filter(|name| name != "fake-vm")
            .chain(["main".to_owned()])
            .collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

#[test]
fn every_vm_is_found_with_its_threads_and_vanishes_with_its_process() {
    let prefix = format!("fake{}-", std::process::id());
    let mut fakes: Vec<Fake> = (0..COUNT)
        .map(|n| Fake::start(&format!("{prefix}{n}")))
        .collect();
    let mut reader = Reader::default();
    let earlier = reader.read(None);
    // In 50 ms each thread wakes up at least once.
    while reader.read(None).at.duration_since(earlier.at).as_millis() < 50 {}
    let later = reader.read(None);
    let report = rates::report(&earlier, &later, &Meter::default(), 10.0);
    let ours: BTreeMap<u32, _> = report
        .vms
        .iter()
        .filter(|vm| vm.name.starts_with(&prefix))
        .map(|vm| (vm.pid, vm))
        .collect();
    assert_eq!(ours.len(), COUNT);
    for fake in &fakes {
        let vm = ours[&fake.0.id()];
        assert_eq!(vm.accelerator.as_deref(), Some("KVM"));
        assert_eq!((vm.guest.threads, vm.backend.threads), (2.0, 4.0), "{vm:?}");
        assert!(vm.notes.is_empty());
        assert!(vm.memory.unwrap().bytes > 0);
        for thread in &vm.threads {
            let activity = &thread.activity;
            let sum = activity.r#use + activity.wait + activity.block;
            assert!((sum - 1.0).abs() < 1e-9, "{thread:?}");
        }
        let count = |role| {
            vm.threads
                .iter()
                .filter(|thread| thread.role == role)
                .count()
        };
        assert_eq!([Role::Vcpu, Role::Main, Role::Io].map(count), [2, 1, 3]);
    }

    let gone = fakes.pop().map(|fake| fake.0.id()).unwrap();
    let last = reader.read(None);
    let report = rates::report(&later, &last, &Meter::default(), 10.0);
    let left: Vec<u32> = report.vms.iter().map(|vm| vm.pid).collect();
    assert!(!left.contains(&gone));
    assert!(fakes.iter().all(|fake| left.contains(&fake.0.id())));
}
