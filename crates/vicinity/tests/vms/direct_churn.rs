//! Members of trust groups join and leave in every way, under load, and many at once.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use vm_harness::vm::{Job, Spec, Vm};

use crate::common::until;
use crate::direct::{
    address, assert_cached, config, counter, devices, insert, ip, is_well, load, member,
    member_on_q35, received, restartable, signal, standing, start_again, tell, until_device,
    until_devices, until_peers, until_reached, with_module,
};
use crate::guest::{self, GUARD, sh};
use crate::migration::Stream;
use crate::rig::{Rig, step};

/// The member that leaves and joins repeatedly.
const NAME: &str = "c";
const NUMBER: u8 = 3;

/// Returns the VM `c`, in the group of `a` and `b`, with another machine type each time.
pub(crate) fn leaving_vm(rig: &Rig, time: usize) -> Spec {
    restartable(match time % 2 {
        0 => member_on_q35(rig, NAME),
        _ => member(rig, NAME),
    })
}

/// How the member leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Leaves,
    UnloadsModule,
    StartsAgain,
    IsKilled,
}

impl Way {
    const ALL: [Self; 4] = [
        Self::Leaves,
        Self::UnloadsModule,
        Self::StartsAgain,
        Self::IsKilled,
    ];
}

/// The test of a member that leaves and joins repeatedly, while two others keep a connection. At
/// the end, the others hold no more resources than before.
pub(crate) struct Churn<'vm> {
    rig: &'vm Rig,
    stay: [&'vm Vm; 2],
    /// The member; `None` while it is not running.
    goes: Option<Vm>,
    kept: Stream<'vm>,
    host: Vec<usize>,
    guests: [[u64; 2]; 2],
    random: fastrand::Rng,
    rounds: usize,
    boots: usize,
}

impl<'vm> Churn<'vm> {
    /// Starts the test. The VMs' numbers are 1, 2 and 3; each exchanges packets with the others.
    pub(crate) fn begin(rig: &'vm Rig, stay: [&'vm Vm; 2], goes: Vm) -> Self {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let [a, b] = stay;
        guest::serve_iperf(&goes);
        Self {
            rig,
            stay,
            goes: Some(goes),
            host: held_by_the_host(rig, a),
            guests: stay.map(held_by_the_guest),
            kept: Stream::start(a, b, &ip(2)),
            random: fastrand::Rng::with_seed(seed),
            rounds: 0,
            boots: 1,
        }
    }

    /// Makes the member leave under load, and join again.
    pub(crate) fn go_on(&mut self, way: Way) {
        let vm = self.goes.take().unwrap();
        let stream = self.random.bool();
        println!("round {}: {way:?}, stream: {stream}", self.rounds);
        let loads = self.load(&vm, stream);
        let vm = self.come_and_go(vm, way);
        for load in loads {
            load.kill().unwrap();
        }
        let [a, b] = self.stay;
        for vm in [a, b, &vm] {
            until_peers(vm, 2);
            is_well(vm);
        }
        until_reached(&vm, &ip(1));
        self.rounds += 1;
        self.goes = Some(vm);
    }

    /// Makes the others send to the member, by TCP streams or by echo requests, while the jobs run.
    fn load(&self, to: &Vm, stream: bool) -> [Job<'vm>; 2] {
        let ip = ip(NUMBER);
        let command = match stream {
            true => format!("while :; do iperf3 --client {ip} --time 600; sleep 0.1; done"),
            false => format!("while :; do ping -f -s 9000 {ip}; sleep 0.1; done"),
        };
        let before = received(to, "packets");
        let loads = self.stay.map(|vm| vm.start(&command).unwrap());
        until("load", || received(to, "packets") > before + 100);
        loads
    }

    fn come_and_go(&mut self, vm: Vm, way: Way) -> Vm {
        match way {
            Way::Leaves => self.leave_and_join(&vm),
            Way::UnloadsModule => {
                sh(&vm, "rmmod vicinity_direct");
                is_well(&vm);
                load(&vm, NUMBER);
            }
            Way::StartsAgain => self.start_again(&vm),
            Way::IsKilled => {
                signal(&vm, Signal::KILL);
                drop(vm);
                let [vm] = self.rig.boot([leaving_vm(self.rig, self.boots)]);
                self.boots += 1;
                Self::settle(&vm);
                return vm;
            }
        }
        vm
    }

    fn leave_and_join(&self, vm: &Vm) {
        tell(self.rig, "leave", NAME);
        assert_eq!(devices(vm), "0");
        assert_eq!(standing(self.rig, NAME), "out");
        tell(self.rig, "join", NAME);
        until_devices(vm, 3);
        until_device(vm);
        address(vm, NUMBER);
    }

    /// Reboots the guest. The others do not send packets for the old guest to the new one: they learn of the
    /// reboot at once, and do not wait for the time limit after which a member counts as not receiving.
    fn start_again(&self, vm: &Vm) {
        let resent = || self.stay.map(|vm| counter(vm, "tx_resent"));
        let before = resent();
        start_again(vm);
        // Not `settle`: SeaBIOS places a device that is there when an i440FX machine starts where Linux maps it uncached.
        set_up(vm);
        for vm in self.stay {
            until_peers(vm, 2);
        }
        assert_eq!(resent(), before);
    }

    /// Sets up a guest into which the devices were plugged.
    fn settle(vm: &Vm) {
        set_up(vm);
        assert_cached(vm);
    }

    /// Asserts that the connection was kept and no resources are left over. Returns the member that
    /// left and joined.
    pub(crate) fn end(self) -> Vm {
        let [a, b] = self.stay;
        self.kept.stop(b);
        println!("{} rounds", self.rounds);
        until("the host to hold what it held", || {
            held_by_the_host(self.rig, a) == self.host
        });
        for (vm, before) in self.stay.into_iter().zip(self.guests) {
            let [packets, free] = held_by_the_guest(vm);
            println!("{}: {before:?} before, {packets} {free} after", vm.name());
            assert!(packets < before[0] + 2000, "{packets} packets are held");
            assert!(free + (24 << 10) > before[1], "{free} KB are free");
        }
        self.goes.unwrap()
    }
}

/// Sets up a guest with all devices.
fn set_up(vm: &Vm) {
    until_devices(vm, 3);
    insert(vm);
    address(vm, NUMBER);
    guest::serve_iperf(vm);
}

/// Returns the numbers of descriptors and mappings of the daemon, of the group's process and of a
/// member's QEMU.
fn held_by_the_host(rig: &Rig, qemu: &Vm) -> Vec<usize> {
    let group = rig.daemon().process("direct-g").unwrap();
    [rig.pid(), group, qemu.id()]
        .into_iter()
        .flat_map(|process| {
            let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
            let mappings = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
            let views = mappings.lines().filter(|line| line.contains("/memfd:"));
            [descriptors.count(), views.count()]
        })
        .collect()
}

/// Returns the packets that a guest's kernel holds, and its free memory in KB.
fn held_by_the_guest(vm: &Vm) -> [u64; 2] {
    sh(
        vm,
        "echo 1 >/sys/kernel/slab/skbuff_head_cache/shrink; echo 3 >/proc/sys/vm/drop_caches",
    );
    [
        "^skbuff_head_cache /proc/slabinfo",
        "^MemAvailable: /proc/meminfo",
    ]
    .map(|line| {
        let field = format!("grep {line} | tr -s ' ' | cut -d ' ' -f 2");
        sh(vm, &field).parse().unwrap()
    })
}

/// Returns how long members leave and join: ten minutes, or `VICINITY_CHURN_SECONDS`.
fn how_long() -> Duration {
    let asked = std::env::var("VICINITY_CHURN_SECONDS").ok();
    let seconds = asked.map_or(600, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
#[ignore = "takes ten minutes: make soak"]
fn members_that_come_and_go_cost_the_others_nothing() {
    let rig = with_module(Rig::new(Some(&config(&["a", "b", NAME]))));
    let [a, b, c] = rig.boot([member(&rig, "a"), member(&rig, "b"), leaving_vm(&rig, 0)]);
    for (number, vm) in (1..).zip([&a, &b, &c]) {
        until_devices(vm, 3);
        load(vm, number);
    }
    for vm in [&a, &b, &c] {
        until_peers(vm, 2);
    }
    let end = Instant::now() + how_long();
    let mut churn = Churn::begin(&rig, [&a, &b], c);
    while churn.rounds < Way::ALL.len() || Instant::now() < end {
        churn.go_on(Way::ALL[churn.rounds % Way::ALL.len()]);
    }
    churn.end();
}

/// Some members, with their numbers.
type Members<'vm> = Vec<(u8, &'vm Vm)>;

/// Asserts that each of these members reaches each other member, and sees its memory.
fn all_reach_each_other(vms: &[(u8, &Vm)]) {
    let others = vms.len() - 1;
    for (_, vm) in vms {
        until_devices(vm, others + 1);
        until_peers(vm, others.try_into().unwrap());
    }
    let ips = vms.iter().map(|(number, _)| ip(*number));
    let ips: Vec<String> = ips.collect();
    let command = format!(
        "for ip in {}; do ping -c 2 -i 0.02 -W 30 $ip || exit 1; done",
        ips.join(" ")
    );
    let jobs: Vec<_> = vms.iter().map(|(_, vm)| vm.start(&command)).collect();
    for (job, (_, vm)) in jobs.into_iter().zip(vms) {
        let output = job.unwrap().wait(GUARD).unwrap();
        assert_eq!(output.status, 0, "{}: {}", vm.name(), output.stdout);
        is_well(vm);
    }
}

#[test]
#[ignore = "boots eight VMs: make soak"]
fn a_group_of_eight() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let rig = with_module(Rig::new(Some(&config(&names))));
    // Half of the VMs run on each machine type.
    let vms = rig.boot(names.map(|name| {
        let mut spec = match name < "e" {
            true => member(&rig, name),
            false => member_on_q35(&rig, name),
        };
        // Address space for the memory of seven other members.
        let room = ["-global", "i440FX-pcihost.pci-hole64-size=64G"];
        spec.qemu_args.extend(room.map(str::to_owned));
        spec
    }));
    let all: Members<'_> = (1..).zip(&vms).collect();
    step("all VMs join at once");
    for (number, vm) in &all {
        until_devices(vm, 8);
        load(vm, *number);
    }
    all_reach_each_other(&all);

    step("one VM of each kind leaves");
    let leaves = |(number, _): &(u8, &Vm)| number % 4 == 0;
    let (out, stay): (Members<'_>, Members<'_>) = all.iter().copied().partition(leaves);
    for (_, vm) in &out {
        tell(&rig, "leave", vm.name());
        assert_eq!(devices(vm), "0");
    }
    all_reach_each_other(&stay);

    step("both VMs join at once");
    std::thread::scope(|scope| {
        for (_, vm) in &out {
            let rig = &rig;
            scope.spawn(move || tell(rig, "join", vm.name()));
        }
    });
    for (number, vm) in &out {
        until_device(vm);
        address(vm, *number);
    }
    all_reach_each_other(&all);
}
