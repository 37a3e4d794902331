//! MPI ranks in VMs: `mpirun` in one VM starts them by ssh, with the hostfile of `vicinity mpi-hosts`.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use vm_harness::mpi;
use vm_harness::vm::{Job, SMP_MAXCPUS_2, Spec, Vm};

use crate::common::open_mpi::{DIRECT, OpenMpi, collective, missing};
use crate::common::until;
use crate::message::{member, open};
use crate::rig::{Rig, ip, step};

/// Time limit of a command on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) const CONFIG: &str = "
[[network]]
name = \"lan\"
[[network.port]]
vm = \"web\"
[[network.port]]
vm = \"db\"
[[message.member]]
name = \"web\"
group = \"hpc\"
[[message.member]]
name = \"db\"
group = \"hpc\"
";

/// The component, and no other one for ranks of other VMs.
const ONLY_PLANE: &str = "--mca btl self,vicinity";

/// One-sided operations by requests to the target's process, also on memory that heaps could have.
const BY_REQUESTS: &str = "--mca osc ^vicinity --mca mpool ^vicinity";

/// Parts of the conformance program that messages, RMA and several threads need.
pub(crate) const PARTS: &str =
    "order_and_wildcards large_collectives long_one_sided remote_atomics threads";

/// The component that matches messages itself.
const BY_PML: &str = "--mca pml vicinity";

/// Parts of the conformance program that its messages of each kind need.
const PML_PARTS: &str = "long_messages order_and_wildcards probes modes derived_types threads";

/// Returns a VM that may be a member.
pub(crate) fn spec(rig: &Rig, name: &str) -> Spec {
    let mut spec = rig.spec_with_memory(name, mpi::MEMORY_MIB);
    spec.qemu_args.extend(member(rig, name).qemu_args);
    // Emulated machines with one possible CPU use no heap for windows (`window::locks`).
    spec.qemu_args.extend(SMP_MAXCPUS_2.map(str::to_owned));
    spec
}

/// Makes VMs members that the first one reaches by ssh.
pub(crate) fn join(vms: &[Vm]) {
    for (number, vm) in (1..).zip(vms) {
        crate::guest::give_address(vm, number);
        let _goes_on = open(vm, mpi::JOIN, "gateway.sock", LIMIT);
    }
    let addresses: Vec<_> = (1..).map(ip).take(vms.len()).collect();
    mpi::admit(vms, &addresses).unwrap();
}

/// Boots VMs as such members.
pub(crate) fn boot<const N: usize>(rig: &Rig, names: [&str; N]) -> [Vm; N] {
    let vms = rig.boot(names.map(|name| spec(rig, name)));
    join(&vms);
    vms
}

pub(crate) fn hostfile(rig: &Rig) -> String {
    let output = rig.daemon().command(&["mpi-hosts"]);
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn until_joined(rig: &Rig) {
    until("both members", || {
        hostfile(rig) == "web slots=1\ndb slots=1\n"
    });
}

/// Writes the hostfile into a VM. Open MPI may start a rank on each CPU.
fn write_hostfile(rig: &Rig, vm: &Vm) {
    until_joined(rig);
    mpi::write_hostfile(vm, &hostfile(rig)).unwrap();
}

#[test]
fn ranks_of_two_vms_meet_on_the_plane_and_end_when_a_vm_is_killed() {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = OpenMpi::new(folder.path()).files();
    let rig = Rig::isolated(CONFIG).with_mpi(&files);
    let [web, db] = boot(&rig, ["web", "db"]);
    write_hostfile(&rig, &web);
    step("ranks of two VMs pass the conformance program");
    let options = format!("{ONLY_PLANE} {BY_REQUESTS}");
    assert_passes(&web, &format!("{options} -n 2"), PARTS);

    step("so do ranks whose component matches messages itself");
    assert_passes(&web, &format!("{BY_PML} -n 2"), PML_PARTS);
    // Open MPI connects the ranks of a window one by one, also two in one VM, which another component reaches, too.
    let two_in_each = format!("{BY_PML} --oversubscribe --map-by node -n 4");
    assert_passes(&web, &two_in_each, "one_sided");

    step(
        "short collective operations use the VMs' heaps, and so do accesses to a rank that makes no calls",
    );
    for (components, parts, accesses) in [
        (ONLY_PLANE, "short_collectives single_accumulates", 1),
        (ONLY_PLANE, "idle_target", 2),
        (ONLY_PLANE, "idle_counter", 2),
        (BY_PML, "short_collectives single_accumulates", 1),
    ] {
        let options = format!("{components} --mca btl_base_verbose 10 -n 2 conformance");
        let job = mpi::job(&format!("{options} {parts} 2>&1"));
        let said = web.check(&job, LIMIT).unwrap();
        for part in parts.split(' ') {
            let passed = |line: &str| line.starts_with(part) && line.contains(" passed in ");
            let passed = said.lines().any(passed);
            assert!(passed, "{said}");
        }
        assert!(said.contains(&collective(2)), "{said}");
        assert_eq!(said.matches(DIRECT).count(), accesses, "{said}");
    }

    step("a killed gateway ends the job");
    let job = endless(&web);
    let kill =
        "for it in /proc/[0-9]*; do ! grep -qx vicinity $it/comm || kill -9 ${it#/proc/}; done";
    db.check(kill, LIMIT).unwrap();
    assert_lost(&web, job);

    step("a killed VM ends the job");
    db.check("rm /run/vicinity/message/gateway.sock", LIMIT)
        .unwrap();
    let _goes_on = open(&db, mpi::JOIN, "gateway.sock", LIMIT);
    until_joined(&rig);
    // `mpirun` waits until the kernel gives up the connection to the killed VM, by default after 15 minutes.
    web.check("echo 3 >/proc/sys/net/ipv4/tcp_retries2", LIMIT)
        .unwrap();
    let job = endless(&web);
    let qemu = Pid::from_raw(i32::try_from(db.id()).unwrap()).unwrap();
    kill_process(qemu, Signal::KILL).unwrap();
    assert_lost(&web, job);
}

/// The ranks of a job pass these parts of the conformance program.
fn assert_passes(vm: &Vm, options: &str, parts: &str) {
    let job = mpi::job(&format!("{options} conformance {parts}"));
    let said = vm.check(&job, LIMIT).unwrap();
    let passed = said.matches(" passed in ").count();
    assert_eq!(passed, parts.split_whitespace().count(), "{said}");
}

/// Starts a job of two ranks that exchange messages, and returns when they do.
fn endless(vm: &Vm) -> Job<'_> {
    let job = mpi::job(&format!("{ONLY_PLANE} -n 2 conformance endless"));
    // Before the start, so that what an earlier job printed does not say that this one runs.
    vm.check("rm -f /tmp/job", LIMIT).unwrap();
    let job = vm.start(&format!("{job} >/tmp/job 2>&1")).unwrap();
    vm.check(
        "until grep -qs 'rank 1 is' /tmp/job; do sleep 0.1; done",
        LIMIT,
    )
    .unwrap();
    job
}

/// The job ends with the component's error.
fn assert_lost(vm: &Vm, job: Job) {
    let begin = Instant::now();
    let status = job.wait(LIMIT).unwrap().status;
    let took = begin.elapsed();
    let said = vm.check("cat /tmp/job", LIMIT).unwrap();
    assert!(
        status != 0 && said.contains("is lost: "),
        "status {status} after {took:?}: {said}"
    );
}
