//! Debian's unmodified MPI programs in four VMs, as `docs/tutorial-mpi.md` runs them: NetPIPE and HPC Challenge, on the
//! message plane and by TCP, in turn. Prints the tutorial's tables.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use vm_harness::mpi;
use vm_harness::vm::Vm;

use crate::common::open_mpi::{OpenMpi, missing};
use crate::common::{root, until};
use crate::mpi::{LIMIT, boot, hostfile};
use crate::rig::{Rig, step};

const VMS: [&str; 4] = ["vm1", "vm2", "vm3", "vm4"];

/// Longest time of a job. HPC Challenge by TCP takes minutes on a busy machine: each of its thousands of messages waits
/// until a VM that polls loses its processor, and its rings exchange 3 GB.
const JOB: Duration = Duration::from_secs(1800);

/// What the tutorial prints of HPC Challenge's summary.
const FIGURES: &str = "HPL_time PTRANS_time MPIRandomAccess_LCG_time MPIRandomAccess_time AvgPingPongLatency_usec \
                       AvgPingPongBandwidth_GBytes RandomlyOrderedRingLatency_usec";

/// A network and a trust group with every VM.
fn config() -> String {
    let ports = VMS.map(|vm| format!("[[network.port]]\nvm = \"{vm}\"\n"));
    let members = VMS.map(|vm| format!("[[message.member]]\nname = \"{vm}\"\ngroup = \"hpc\"\n"));
    format!(
        "[[network]]\nname = \"lan\"\n{}{}",
        ports.concat(),
        members.concat()
    )
}

/// Runs a job in the first VM with these components for ranks of other VMs, and returns what it says.
fn run(vm: &Vm, btl: &str, job: &str) -> String {
    let options = format!("--mca mtl ^psm,ofi --mca btl self,vader,{btl} {job}");
    vm.check(&mpi::job(&options), JOB).unwrap()
}

/// Returns a figure of HPC Challenge's summary.
fn figure<'a>(summary: &'a str, name: &str) -> &'a str {
    let mut lines = summary.lines().filter_map(|line| line.split_once('='));
    let found = lines.find(|(key, _)| *key == name);
    found.unwrap_or_else(|| panic!("no {name}: {summary}")).1
}

#[test]
#[ignore = "long: make soak"]
fn netpipe_and_hpc_challenge_run_in_four_vms() {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = OpenMpi::new(folder.path()).files();
    let input = root().join("mpi/openmpi/examples/hpccinf.txt");
    let mut all = files.in_guest();
    all.push((input, PathBuf::from("home/mpi/hpccinf.txt")));
    let packages = ["dropbear-bin", "openmpi-bin", "hpcc", "netpipe-openmpi"];
    let rig = Rig::isolated(&config()).with_packages_and_files(&packages, &all, "with-hpcc");
    let vms = boot(&rig, VMS);
    let first = &vms[0];
    until("all members", || {
        hostfile(&rig).matches("slots=1").count() == 4
    });
    // dpkg has not configured the image's packages, so no alternative is chosen.
    let blas = "ln -s blas/libblas.so.3 /usr/lib/x86_64-linux-gnu/";
    for vm in &vms {
        vm.check(blas, LIMIT).unwrap();
    }
    mpi::write_hostfile(first, &hostfile(&rig)).unwrap();

    step("where the ranks run");
    let map = run(first, "vicinity", "-n 4 --display-map hostname");
    for vm in VMS {
        assert!(map.contains(&format!("Data for node: {vm}\t")), "{map}");
    }
    println!("{map}");
    for btl in ["vicinity", "tcp"] {
        step(&format!("NetPIPE by {btl}"));
        let said = run(first, btl, "-n 2 NPopenmpi -u 1048576 2>&1");
        let last = said.lines().last().unwrap();
        assert!(last.contains("1048579 bytes"), "{said}");
        println!("{said}");
    }
    for btl in ["vicinity", "tcp"] {
        step(&format!("HPC Challenge by {btl}"));
        let start = Instant::now();
        run(first, btl, "--wdir /home/mpi -n 4 hpcc");
        println!("{btl} took {:?}", start.elapsed());
        let read = "cat /home/mpi/hpccoutf.txt; rm /home/mpi/hpccoutf.txt";
        let summary = first.check(read, LIMIT).unwrap();
        assert_eq!(figure(&summary, "Success"), "1", "{summary}");
        for name in FIGURES.split_whitespace() {
            println!("{btl} {name} {}", figure(&summary, name));
        }
    }
}
