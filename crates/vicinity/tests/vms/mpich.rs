//! Ranks of MPICH in VMs, on libfabric's provider. MPICH is its Python wheel, with the libfabric that it brings, because
//! Debian's has UCX instead. `mpiexec` in one VM starts the ranks by ssh, with the hostfile of `vicinity mpi-hosts`.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use vm_harness::mpi;
use vm_harness::vm::{Job, Vm};

use crate::common::libfabric::{Libfabric, missing, wheel};
use crate::common::open_mpi;
use crate::mpi::{CONFIG, LIMIT, PARTS, boot, until_joined};
use crate::rig::{Rig, step};

/// What `mpiexec` calls instead of ssh.
const REMOTE: &str = "/usr/local/bin/remote";

/// Files of the wheel that its programs use.
fn mpich_files(wheel: &Path) -> Vec<(PathBuf, PathBuf)> {
    let file = |folder: &str, name: &str| {
        let place = Path::new(folder).join(name);
        (wheel.join(&place), Path::new("usr/local").join(place))
    };
    let mut files = vec![
        file("bin", "mpiexec.hydra"),
        file("bin", "hydra_pmi_proxy"),
        file("lib", "libmpi.so.12"),
    ];
    for entry in std::fs::read_dir(wheel.join("lib/mpich")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            files.push(file("lib/mpich", entry.file_name().to_str().unwrap()));
        }
    }
    files
}

/// Puts MPICH, the provider, its library and the conformance program into the guests, at the paths of the packages.
fn with_mpich(rig: Rig, folder: &Path) -> Rig {
    let provider = Libfabric::new(folder);
    let mpich = wheel(folder, "mpich");
    let program = folder.join("conformance");
    open_mpi::compile(&mpich.join("bin/mpicc"), &program);
    let libraries = Path::new("usr/lib/x86_64-linux-gnu");
    let mut files = mpich_files(&mpich);
    files.extend([
        (program, PathBuf::from("usr/local/bin/conformance")),
        (
            folder.join("libvicinity-fi.so"),
            libraries.join("libfabric/libvicinity-fi.so"),
        ),
        (
            provider.libraries().join("libmyriexpress.so"),
            libraries.join("libmyriexpress.so"),
        ),
    ]);
    rig.with_packages_and_files(&["dropbear-bin"], &files, "with-mpich")
}

/// Returns the command of a job with one rank in each VM.
fn job(arguments: &str) -> String {
    mpi::as_user(&format!(
        "MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=vicinity FI_PROVIDER_PATH=/usr/lib/x86_64-linux-gnu/libfabric \
         LD_LIBRARY_PATH=/usr/local/lib mpiexec.hydra -launcher rsh -launcher-exec {REMOTE} \
         -f {} -n 2 {arguments}",
        mpi::HOSTFILE
    ))
}

#[test]
#[ignore = "downloads 20 MB; run by make soak"]
fn ranks_of_mpich_meet_by_the_provider_and_end_when_a_vm_is_killed() {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rig = with_mpich(Rig::isolated(CONFIG), folder.path());
    let [web, db] = boot(&rig, ["web", "db"]);
    until_joined(&rig);
    let hosts = rig.daemon().command(&["mpi-hosts", "--launcher", "hydra"]);
    let hosts = String::from_utf8(hosts.stdout).unwrap();
    mpi::write_hostfile(&web, &hosts).unwrap();
    let remote = format!("exec dbclient -y -y -i {} \"$@\"", mpi::KEY);
    let write = format!(
        "printf '#!/bin/bash\\n{remote}' >{REMOTE}; chmod 755 {REMOTE}; echo 3 >/proc/sys/net/ipv4/tcp_retries2"
    );
    web.check(&write, LIMIT).unwrap();

    step("ranks of two VMs pass the conformance program");
    let said = web
        .check(
            &job(&format!(
                "-env MPIR_CVAR_CH4_OFI_CAPABILITY_SETS_DEBUG 1 conformance {PARTS}"
            )),
            LIMIT,
        )
        .unwrap();
    assert!(said.contains("libfabric provider: vicinity"), "{said}");
    let parts = PARTS.split_whitespace().count();
    assert_eq!(said.matches(" passed in ").count(), parts, "{said}");

    step("a killed VM ends the job");
    let job = endless(&web);
    let qemu = Pid::from_raw(i32::try_from(db.id()).unwrap()).unwrap();
    kill_process(qemu, Signal::KILL).unwrap();
    let ended = job.wait(LIMIT).unwrap();
    let said = web.check("cat /tmp/job", LIMIT).unwrap();
    let is_lost = said.contains("nic=vicinity: Connection reset by peer");
    assert!(ended.status != 0 && is_lost, "{said}");
}

/// Starts a job of two ranks that exchange messages, and returns when they do.
fn endless(vm: &Vm) -> Job<'_> {
    let job = vm.start(&format!("{} >/tmp/job 2>&1", job("conformance endless")));
    let running = "until grep -qs 'rank 1 is' /tmp/job; do sleep 0.1; done";
    vm.check(running, LIMIT).unwrap();
    job.unwrap()
}
