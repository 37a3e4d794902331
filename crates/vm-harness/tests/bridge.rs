//! Two VMs on the baseline network reach each other, and nothing is left afterwards.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use vm_harness::accel;
use vm_harness::bridge::Bridge;
use vm_harness::channel;
use vm_harness::image::{Image, Recipe};
use vm_harness::vm::{Spec, Vm};

/// Longest boot of an emulated guest on a busy machine.
const BOOT: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_secs(30);

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab")
}

fn image() -> Image {
    Recipe::default().build(&target()).unwrap()
}

fn ours() -> Vec<String> {
    let mark = format!("vicinity-lab-{}-", std::process::id());
    let names = ["/run", "/run/netns"].map(|folder| std::fs::read_dir(folder).unwrap());
    let names = names.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&mark)).collect()
}

#[test]
fn two_vms_reach_each_other_and_leave_nothing_behind() {
    vm_harness::interrupt::install().unwrap();
    let image = image();
    let bridge = Bridge::new(accel::detect(&image.kernel).unwrap()).unwrap();
    let boot = |name: &str, number: u8| {
        let spec = Spec::new(name, &target().join("bridge"));
        let nic = channel::nic(&bridge, 1, name, number).unwrap().unwrap();
        Vm::boot(&image, spec.nic(nic)).unwrap()
    };
    let (one, two) = (boot("one", 1), boot("two", 2));
    for vm in [&one, &two] {
        vm.wait_ready(BOOT).unwrap();
    }

    let ping = format!("ping -c 3 -i 0.2 -W 5 {}", channel::address(1, 2));
    let answer = one.check(&ping, SHORT).unwrap();
    assert!(answer.contains("3 received"), "{answer}");
    let names = two.check("hostname; uname -r", SHORT).unwrap();
    assert_eq!(names, format!("two\n{}\n", image.manifest.kernel_release));

    let failed = one.run("echo out; echo err >&2; exit 3", SHORT).unwrap();
    assert_eq!(
        (
            failed.status,
            failed.stdout.as_str(),
            failed.stderr.as_str()
        ),
        (3, "out\n", "err\n")
    );
    let limit = Duration::from_secs(1);
    let slow = one.run("sleep 3456", limit).unwrap_err().to_string();
    assert!(
        slow.contains("sleep 3456") && slow.contains("1 s"),
        "{slow}"
    );
    let left = one.run("pgrep -f 'sleep 345[6]'", SHORT).unwrap();
    assert_eq!(left.status, 1, "still there: {}", left.stdout);

    assert!(one.cpu_time().unwrap() > Duration::ZERO);
    let status = two
        .qmp()
        .unwrap()
        .execute("query-status", &serde_json::json!({}))
        .unwrap();
    assert_eq!(status["status"], "running");

    assert!(ours().len() >= 3, "{:?}", ours());
    let ids = [one.id(), two.id()];
    drop((one, two, bridge));
    assert_eq!(ours(), Vec::<String>::new());
    for id in ids {
        assert!(
            !Path::new(&format!("/proc/{id}")).exists(),
            "QEMU {id} still runs"
        );
    }
}

#[test]
fn a_guest_that_cannot_boot_shows_its_console_and_command() {
    let image = image();
    let mut spec = Spec::new("broken", &target().join("broken"));
    // The memory is too small for the initramfs, so the kernel panics and the machine resets.
    spec.memory_mib = 64;
    let vm = Vm::boot(&image, spec).unwrap();
    let error = vm.wait_ready(BOOT).unwrap_err().to_string();
    assert!(error.contains("VM broken: QEMU ended"), "{error}");
    assert!(
        error.contains("qemu-system-x86_64") && error.contains("-m 64M"),
        "{error}"
    );
}
