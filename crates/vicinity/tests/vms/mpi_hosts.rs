//! MPI ranks in VMs of two hosts, which are network namespaces: the message plane's uplink joins the hosts, and so does a cable
//! between their bridges for TCP. The guests have the module that passes interrupts to programs. Prints the figures of
//! `docs/mpi.md`.

use std::path::PathBuf;
use std::process::Command;

use demo::{MpiFigure, mpi_figures};
use report::stats::{median, paired_ratio};
use vm_harness::mpi;
use vm_harness::vm::Vm;

use crate::common::mx::succeed;
use crate::common::open_mpi::{OpenMpi, missing};
use crate::common::root;
use crate::message::{Link, MODULE};
use crate::migration::Hosts;
use crate::mpi::{LIMIT, PARTS, join, spec};
use crate::rig::{Rig, step};

/// A host with a VM, on the network and on the message plane.
fn config(host: &str, vm: &str) -> String {
    format!(
        "
[[network]]
name = \"lan\"
uplink = {{ tap = \"vic0\" }}
[[network.port]]
vm = \"{vm}\"
[message]
uplink = {{ interface = \"mx\", host-name = \"{host}\" }}
[[message.member]]
name = \"{vm}\"
"
    )
}

/// The components by which ranks of two hosts exchange messages.
const WAYS: [&str; 3] = ["vicinity,tcp", "vicinity", "tcp"];

const ROUNDS: usize = 5;

/// Boots a VM on each host. They reach each other by ssh.
fn boot(hosts: &Hosts) -> [Vm; 2] {
    let specs = [spec(&hosts.one, "web"), spec(&hosts.two, "db")];
    let vms = hosts.one.boot(specs);
    for vm in &vms {
        vm.check(&format!("insmod {MODULE}"), LIMIT).unwrap();
    }
    join(&vms);
    mpi::write_hostfile(&vms[0], "web slots=1\\ndb slots=1\\n").unwrap();
    vms
}

#[test]
#[ignore = "long: make soak"]
fn ranks_in_vms_of_two_hosts() {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("figures");
    let mut compile = Command::new("mpicc");
    compile.args(["-std=gnu11", "-O2", "-o"]).arg(&program);
    succeed(compile.arg(root().join("mpi/openmpi/examples/figures.c")));
    let mut files = OpenMpi::new(folder.path()).files().in_guest();
    files.push((program, PathBuf::from("usr/local/bin/figures")));
    let link = Link::new("9000");
    let [alpha, beta] = &link.0;
    let one = Rig::within(alpha, &config("alpha", "web"));
    let module = crate::guest::module("wake", one.kernel());
    files.push((module, PathBuf::from(&MODULE[1..])));
    let packages = ["dropbear-bin", "openmpi-bin"];
    let one = one.with_packages_and_files(&packages, &files, "with-mpi-figures");
    let two = one.beside_within(beta, &config("beta", "db"));
    let hosts = Hosts::cabled(one, two);
    let [web, _db] = boot(&hosts);

    step("the ranks pass the conformance program");
    for way in &WAYS[..2] {
        let options = format!("--mca btl self,{way} --mca btl_base_verbose 10");
        let job = mpi::job(&format!("{options} -n 2 conformance {PARTS} 2>&1"));
        let said = web.check(&job, LIMIT).unwrap();
        let passed = said.matches(" passed in ").count();
        assert_eq!(passed, PARTS.split_whitespace().count(), "{said}");
        let reached = said.matches("is reached by the message plane").count();
        assert_eq!(reached, 2, "{said}");
    }

    step("figures");
    let mut found = WAYS.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let job = format!("--mca btl self,{} -n 2 figures 0.5 pair", WAYS[way]);
            let said = web.check(&mpi::job(&job), LIMIT).unwrap();
            let (figures, _ranks) = mpi_figures(&said).unwrap();
            found[way].push(figures);
        }
    }
    println!("figure: {}, and the ratios to the last", WAYS.join(" | "));
    for (number, MpiFigure { name, bytes, .. }) in found[0][0].iter().enumerate() {
        let [both, plane, tcp] = found.each_ref().map(|rounds| {
            let values = rounds.iter().map(|round| round[number].value);
            values.collect::<Vec<_>>()
        });
        let medians = [&both, &plane, &tcp].map(|values| median(values));
        let ratios = [&both, &plane].map(|values| paired_ratio(&tcp, values));
        println!("{name} {bytes}: {medians:.4?} {ratios:.2?}");
    }
}
