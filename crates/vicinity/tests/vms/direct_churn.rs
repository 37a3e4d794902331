//! Members of trust groups that come and go in every way, under load.

use std::fs;
use std::time::{Duration, Instant};

use lab::vm::{Job, Spec, Vm};
use rustix::process::Signal;

use crate::common::until;
use crate::direct::{
    address, config, devices, ip, is_well, load, member, member_on_q35, received, restartable,
    signal, standing, start_again, tell, until_device, until_devices, until_peers, until_reached,
    with_module,
};
use crate::guest::{self, sh};
use crate::migration::Stream;
use crate::rig::Rig;

/// The member that comes and goes.
const NAME: &str = "c";
const NUMBER: u8 = 3;

/// It, `c`, in the group of `a` and `b`, with a machine of another kind each time.
pub(crate) fn guest_who_goes(rig: &Rig, time: usize) -> Spec {
    restartable(match time % 2 {
        0 => member_on_q35(rig, NAME),
        _ => member(rig, NAME),
    })
}

/// It comes and goes, while two others keep a connection, and hold no more at the end than before.
pub(crate) struct Churn<'vm> {
    rig: &'vm Rig,
    stay: [&'vm Vm; 2],
    /// None while it is gone.
    goes: Option<Vm>,
    kept: Stream<'vm>,
    host: Vec<usize>,
    guests: [[u64; 2]; 2],
    random: fastrand::Rng,
    rounds: usize,
    boots: usize,
}

impl<'vm> Churn<'vm> {
    /// The VMs' numbers are 1, 2 and 3; each exchanges packets with the others.
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

    /// Have it go in one of four ways, each once in four times, under load, and come again.
    pub(crate) fn go_on(&mut self) {
        let vm = self.goes.take().unwrap();
        let (way, stream) = (self.rounds % 4, self.random.bool());
        println!("round {}: way {way}, stream: {stream}", self.rounds);
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

    /// The others send to it, by streams or by echoes, for as long as the jobs run.
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

    fn come_and_go(&mut self, vm: Vm, way: usize) -> Vm {
        match way {
            0 => self.leave_and_join(&vm),
            1 => {
                sh(&vm, "rmmod vicinity_direct");
                is_well(&vm);
                load(&vm, NUMBER);
            }
            2 => {
                start_again(&vm);
                self.settle(&vm);
            }
            _ => {
                signal(&vm, Signal::KILL);
                drop(vm);
                let [vm] = self.rig.boot([guest_who_goes(self.rig, self.boots)]);
                self.boots += 1;
                self.settle(&vm);
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

    /// What a guest needs that has just started.
    fn settle(&self, vm: &Vm) {
        until_devices(vm, 3);
        load(vm, NUMBER);
        guest::serve_iperf(vm);
    }

    /// The connection was kept, and nothing is left over; the one that came and went.
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

/// Descriptors and mappings of the daemon, of the group's process and of a member's QEMU.
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

/// Packets that a guest's kernel has, and its free memory in KB.
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

/// How long members come and go: ten minutes, or `VICINITY_CHURN_SECONDS`.
fn how_long() -> Duration {
    let asked = std::env::var("VICINITY_CHURN_SECONDS").ok();
    let seconds = asked.map_or(600, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
#[ignore = "takes ten minutes: make soak"]
fn members_that_come_and_go_cost_the_others_nothing() {
    let rig = with_module(Rig::new(Some(&config(&["a", "b", NAME]))));
    let [a, b, c] = rig.boot([
        member(&rig, "a"),
        member(&rig, "b"),
        guest_who_goes(&rig, 0),
    ]);
    for (number, vm) in (1..).zip([&a, &b, &c]) {
        until_devices(vm, 3);
        load(vm, number);
    }
    for vm in [&a, &b, &c] {
        until_peers(vm, 2);
    }
    let end = Instant::now() + how_long();
    let mut churn = Churn::begin(&rig, [&a, &b], c);
    while churn.rounds < 4 || Instant::now() < end {
        churn.go_on();
    }
    churn.end();
}
