//! What one VM alone could do: figures of AF_VSOCK between a VM and a peer that computes next to nothing, beside TCP
//! between two VMs. A device cannot make two VMs faster than the slower one of them is with this peer. Nothing here is
//! asserted about the figures.
//!
//! `cargo test --release --package vicinity --test vms figures_of_af_vsock_with_one_vm -- --ignored --nocapture`

use std::time::{Duration, Instant};

use report::stats::{median, paired_ratio};
use vm_harness::cpu;
use vm_harness::vm::Vm;

use crate::guest::{GUARD, sh};
use crate::rig::{Rig, ip, step};
use crate::sockets::{CONFIG, boot, make, serve, with_sockets};
use crate::sockets_figures::{MEMORY_MIB, PROGRAM, ROUNDS};
use crate::sockets_peer::{self, Peer};

const SECONDS: u32 = 3;

/// The port of the server of the figures, and of the same one that the guest's kernel runs as a batch program
/// (`SCHED_BATCH`): it does not preempt the kernel's thread that receives the packets.
const SERVER: u16 = 7000;
const BATCH: u16 = 7002;

/// The figures of all rounds.
#[derive(Default)]
struct Figures(Vec<(String, Vec<f64>)>);

impl Figures {
    fn add(&mut self, title: &str, value: f64) {
        match self.0.iter_mut().find(|(other, _)| other == title) {
            Some((_, values)) => values.push(value),
            None => self.0.push((title.to_owned(), vec![value])),
        }
    }

    /// Adds what a VM did alone: MB/s, CPU seconds of a GB of its QEMU, and the shares of a CPU that its QEMU, the daemon
    /// with its device and the peer used.
    fn add_alone(&mut self, who: &str, [rate, cpu, vm, device, peer]: [f64; 5]) {
        self.add(&format!("{who} alone, MB/s"), rate);
        self.add(&format!("{who} alone, CPU s/GB of its QEMU"), cpu);
        for (what, share) in [("its QEMU", vm), ("the device", device), ("the peer", peer)] {
            self.add(&format!("{who} alone, CPUs of {what}"), share);
        }
    }

    /// Prints the medians, and the ratios within the rounds to TCP's figure of the same unit.
    fn print(&self) {
        for (title, values) in &self.0 {
            let unit = ["MB/s", "s/GB", "us"]
                .into_iter()
                .find(|unit| title.contains(unit));
            let tcp = self
                .0
                .iter()
                .find(|(tcp, _)| unit.is_some_and(|unit| tcp.contains(unit)));
            let ratio = tcp.map(|(_, tcp)| format!("{:.2} of TCP's", paired_ratio(tcp, values)));
            println!(
                "{title:47} {:8.2} {}",
                median(values),
                ratio.unwrap_or_default()
            );
        }
    }
}

/// The host's process with the daemon, and the VMs.
struct Host<'vms> {
    web: &'vms Vm,
    db: &'vms Vm,
    daemon: u32,
}

impl Host<'_> {
    fn figures(&self, what: &str, address: &str) -> f64 {
        let command = format!("{PROGRAM} {what} {SECONDS} {address}");
        sh(self.web, &command).parse().unwrap()
    }

    /// Returns what a stream between the VMs took: MB/s, and CPU seconds of a GB in all processes.
    fn between_vms(&self, address: &str) -> [f64; 2] {
        let cpu = || self.cpu(&[self.web, self.db]) + self.device() + cpu::of_kernel_network();
        let before = cpu();
        let rate = self.figures("stream", address);
        [rate, per_gb(cpu() - before, rate, SECONDS.into())]
    }

    /// Measures the VM `db` as receiver, for [`Figures::add_alone`].
    fn receiver(&self, port: u16, peer: &mut Peer) -> [f64; 5] {
        let (vm, device) = (self.cpu(&[self.db]), self.device());
        let sent = peer.stream_to((4, port.into()), SECONDS.into());
        let (vm, device) = (self.cpu(&[self.db]) - vm, self.device() - device);
        let seconds = sent.took.as_secs_f64();
        let rate = sent.bytes as f64 / seconds / 1e6;
        let [share, device, peer] =
            [vm, device, sent.busy].map(|time| time.as_secs_f64() / seconds);
        [rate, per_gb(vm, rate, seconds), share, device, peer]
    }

    /// Measures the VM `web` as sender, likewise.
    fn sender(&self, peer: &mut Peer) -> [f64; 5] {
        let (vm, device) = (self.cpu(&[self.web]), self.device());
        let began = Instant::now();
        let (rate, busy) = self.served("stream", peer);
        let seconds = began.elapsed().as_secs_f64();
        let (vm, device) = (self.cpu(&[self.web]) - vm, self.device() - device);
        let [share, device, peer] = [vm, device, busy].map(|time| time.as_secs_f64() / seconds);
        [rate, per_gb(vm, rate, SECONDS.into()), share, device, peer]
    }

    /// Returns a figure of the VM `web` with the peer as its server, and how long the peer computed.
    fn served(&self, what: &str, peer: &mut Peer) -> (f64, Duration) {
        let command = format!("{PROGRAM} {what} {SECONDS} 5 7000");
        let job = self.web.start(&command).unwrap();
        let busy = peer.serve();
        let output = job.wait(GUARD).unwrap();
        (output.stdout.trim().parse().unwrap(), busy)
    }

    fn cpu(&self, vms: &[&Vm]) -> Duration {
        vms.iter().map(|vm| vm.cpu_time().unwrap()).sum()
    }

    fn device(&self) -> Duration {
        cpu::of_process(self.daemon).unwrap()
    }
}

fn per_gb(cpu: Duration, rate: f64, seconds: f64) -> f64 {
    cpu.as_secs_f64() / (rate * seconds / 1000.0)
}

#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_af_vsock_with_one_vm() {
    let config = format!("{CONFIG}{}", sockets_peer::CONFIG);
    let program = PROGRAM.trim_start_matches('/');
    let rig = with_sockets(Rig::new(Some(&config)));
    let rig = rig.with_file(&make("figures"), program, "with-figures");
    let [web, db] = boot(&rig, MEMORY_MIB);
    serve(&db, &format!("{PROGRAM} server {SERVER}"), SERVER);
    serve(
        &db,
        &format!("chrt --batch 0 {PROGRAM} server {BATCH}"),
        BATCH,
    );
    let mut peer = Peer::start(&rig);
    let host = Host {
        web: &web,
        db: &db,
        daemon: rig.pid(),
    };
    let tcp = format!("{} {SERVER}", ip(2));
    let (vsock, batch) = (format!("4 {SERVER}"), format!("4 {BATCH}"));
    let mut figures = Figures::default();
    for round in 0..ROUNDS {
        step(&format!("round {}", round + 1));
        for (title, address) in [
            ("TCP", &tcp),
            ("AF_VSOCK", &vsock),
            ("AF_VSOCK, batch", &batch),
        ] {
            let [rate, cpu] = host.between_vms(address);
            figures.add(&format!("{title}, MB/s"), rate);
            figures.add(&format!("{title}, CPU s/GB"), cpu);
            figures.add(&format!("{title}, trip us"), host.figures("trips", address));
        }
        figures.add_alone("receiver", host.receiver(SERVER, &mut peer));
        figures.add_alone("batch receiver", host.receiver(BATCH, &mut peer));
        figures.add_alone("sender", host.sender(&mut peer));
        figures.add("one VM, trip us", host.served("trips", &mut peer).0);
    }
    figures.print();
}
