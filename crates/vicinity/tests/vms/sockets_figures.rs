//! Figures of AF_VSOCK between VMs: plain, by the library, beside TCP, and beside `vhost-device-vsock`. Nothing here
//! is asserted about them.
//!
//! `cargo test --release --package vicinity --test vms figures_of_af_vsock -- --ignored --nocapture`. With
//! `VHOST_DEVICE_VSOCK=PROGRAM` the run has two more VMs, with that program's devices.

use std::process::Stdio;
use std::time::{Duration, Instant};

use report::stats::{median, paired_ratio};
use vm_harness::cpu;
use vm_harness::host::{ChildProcess, command};
use vm_harness::vm::Vm;

use crate::guest::sh;
use crate::rig::{Rig, ip, step};
use crate::sockets::{CONFIG, boot, make, run, serve, until_family, with_sockets};

/// Memory of a guest.
pub(crate) const MEMORY_MIB: u32 = 512;

/// Memory of a guest with the packages of [`PACKAGES`].
const MEMORY_WITH_PACKAGES_MIB: u32 = 1024;

const PACKAGES: [&str; 2] = ["redis-server", "redis-tools"];

pub(crate) const ROUNDS: usize = 5;

pub(crate) const PROGRAM: &str = "/usr/local/bin/figures";

/// The program's environment for Linux's own receive space.
const LINUX: &str = "FIGURES_BUFFER=262144";

/// A way of the data, and what was measured on it in each round.
struct Way<'vms> {
    title: &'static str,
    client: &'vms Vm,
    server: &'vms Vm,
    /// The process of the devices on the host.
    host: u32,
    /// The program's environment, and the server's address and port.
    environment: String,
    address: String,
    stream: Vec<f64>,
    cpu: Vec<f64>,
    trip: Vec<f64>,
    connects: Vec<f64>,
}

impl<'vms> Way<'vms> {
    fn new(
        title: &'static str,
        [client, server]: [&'vms Vm; 2],
        host: u32,
        environment: &str,
        address: &str,
    ) -> Self {
        Self {
            title,
            client,
            server,
            host,
            environment: environment.to_owned(),
            address: address.to_owned(),
            stream: Vec::new(),
            cpu: Vec::new(),
            trip: Vec::new(),
            connects: Vec::new(),
        }
    }

    /// Returns a figure, or NaN if the program does not end: `vhost-device-vsock` stops at times.
    fn figure(&self, what: &str, seconds: u32) -> f64 {
        let (by, limit) = (&self.environment, 4 * seconds);
        let command = format!("{PROGRAM} {what} {seconds} {}", self.address);
        let said = sh(
            self.client,
            &format!("{by} timeout {limit} {command} || echo NaN"),
        );
        let figure = said.parse().unwrap();
        if f64::is_nan(figure) {
            println!("{}: {what} did not end", self.title);
        }
        figure
    }

    fn cpu_seconds(&self) -> f64 {
        let vms = [self.client, self.server].map(|vm| vm.cpu_time().unwrap());
        let host = cpu::of_process(self.host).unwrap();
        (vms.iter().sum::<Duration>() + host + cpu::of_kernel_network()).as_secs_f64()
    }

    fn measure(&mut self) {
        let (before, seconds) = (self.cpu_seconds(), 3);
        let rate = self.figure("stream", seconds);
        let cpu = self.cpu_seconds() - before;
        self.stream.push(rate);
        self.cpu.push(cpu / (rate * f64::from(seconds) / 1000.0));
        self.trip.push(self.figure("trips", 2));
        self.connects.push(self.figure("connects", 2));
    }
}

/// Runs all ways in turn, and prints the medians, and the ratios within the rounds to the first way.
fn measure(mut ways: Vec<Way<'_>>) {
    for round in 0..ROUNDS {
        step(&format!("round {}", round + 1));
        let first = round % ways.len();
        ways.rotate_left(first);
        ways.iter_mut().for_each(Way::measure);
        ways.rotate_right(first);
    }
    let base = &ways[0];
    for way in &ways {
        println!(
            "{:27} {}  {}  64 B {}  {}",
            way.title,
            text(&base.stream, &way.stream, "MB/s"),
            text(&base.cpu, &way.cpu, "s/GB"),
            text(&base.trip, &way.trip, "us"),
            text(&base.connects, &way.connects, "connects/s"),
        );
    }
}

/// Returns the median, and the ratio to `base` within the rounds, of those rounds that ended.
fn text(base: &[f64], values: &[f64], unit: &str) -> String {
    let pairs = base
        .iter()
        .zip(values)
        .filter(|(_, value)| value.is_finite());
    let (base, values): (Vec<f64>, Vec<f64>) = pairs.unzip();
    match values.len() {
        0 => format!("no {unit}"),
        count => format!(
            "{:8.2} {unit} ({:.2}, {count} rounds)",
            median(&values),
            paired_ratio(&base, &values)
        ),
    }
}

/// `vhost-device-vsock` with two VMs that may connect to each other.
struct Peer {
    vms: [Vm; 2],
    device: ChildProcess,
}

impl Peer {
    fn start(rig: &Rig, program: &str) -> Self {
        let path = |name: String| rig.folder().join(name);
        let mut device = command(program);
        for cid in [3, 4] {
            let (socket, uds) = (path(format!("peer{cid}")), path(format!("uds{cid}")));
            device.arg("--vm").arg(format!(
                "guest-cid={cid},socket={},uds-path={},groups=shop",
                socket.display(),
                uds.display()
            ));
        }
        device.stdin(Stdio::null()).stdout(Stdio::null());
        let device = ChildProcess::spawn(device).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while ![3, 4].iter().all(|cid| path(format!("peer{cid}")).exists()) {
            assert!(Instant::now() < end, "{program} makes no socket");
            std::thread::sleep(Duration::from_millis(50));
        }
        let vms = rig.boot([("peer-web", 3), ("peer-db", 4)].map(|(name, cid)| {
            let mut spec = rig.bare(name);
            spec.memory_mib = MEMORY_MIB;
            let socket = path(format!("peer{cid}"));
            spec.qemu_args = vec![
                "-chardev".to_owned(),
                format!("socket,id=vsock,path={}", socket.display()),
                "-device".to_owned(),
                "vhost-user-vsock-pci,chardev=vsock".to_owned(),
            ];
            spec
        }));
        // The receive space is the server's.
        serve(&vms[1], &format!("{LINUX} {PROGRAM} server 7000"), 7000);
        Self { vms, device }
    }
}

/// Boots two VMs whose servers are those of the figures, with 2 MiB of receive space at port 7000 and Linux's 256 KiB
/// at port 7002.
fn boot_servers(rig: Rig) -> (Rig, [Vm; 2]) {
    let inside = PROGRAM.trim_start_matches('/');
    let rig = with_sockets(rig).with_file(&make("figures"), inside, "with-figures");
    let [web, db] = boot(&rig, MEMORY_MIB);
    serve(&db, &run(&format!("{PROGRAM} server 7000")), 7000);
    serve(&db, &format!("{LINUX} {PROGRAM} server 7002"), 7002);
    serve(&db, &run("/usr/local/bin/conformance server 7001"), 7001);
    until_family(&web, "vsock", 7001);
    (rig, [web, db])
}

#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_af_vsock_beside_tcp() {
    let (rig, [web, db]) = boot_servers(Rig::new(Some(CONFIG)));
    let (vms, host) = ([&web, &db], rig.pid());
    let tcp = format!("{} 7000", ip(2));
    measure(vec![
        Way::new("TCP, switch", vms, host, "", &tcp),
        Way::new("AF_VSOCK, 2 MiB", vms, host, "", "4 7000"),
        Way::new("AF_VSOCK, 256 KiB", vms, host, LINUX, "4 7002"),
        Way::new("AF_VSOCK by the library", vms, host, &run(""), &tcp),
    ]);
}

/// The other device loses packets that are longer than a receive buffer, so the program sends 2 KiB at a time.
#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_af_vsock_beside_vhost_device_vsock() {
    let (rig, [web, db]) = boot_servers(Rig::new(Some(CONFIG)));
    let program = std::env::var("VHOST_DEVICE_VSOCK").ok();
    let peer = program.map(|program| Peer::start(&rig, &program));
    let (vms, host) = ([&web, &db], rig.pid());
    let (small, tcp) = (
        format!("{LINUX} FIGURES_BLOCK=2048"),
        format!("{} 7002", ip(2)),
    );
    let mut ways = vec![
        Way::new("AF_VSOCK", vms, host, &small, "4 7002"),
        Way::new("TCP, switch", vms, host, &small, &tcp),
    ];
    if let Some(Peer { vms, device }) = &peer {
        let vms = [&vms[0], &vms[1]];
        ways.push(Way::new(
            "vhost-device-vsock",
            vms,
            device.id(),
            &small,
            "4 7000",
        ));
    }
    measure(ways);
}

/// Runs a command without the library and one with it in turn, and prints the medians of what `figure` finds in their
/// outputs.
pub(crate) fn compare(
    web: &Vm,
    title: &str,
    [without, with]: [&str; 2],
    figure: impl Fn(&str) -> f64,
) {
    step(title);
    let (mut tcp, mut library) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut ways = [(without, &mut tcp), (with, &mut library)];
        ways.rotate_left(round % 2);
        for (command, into) in ways {
            into.push(figure(&sh(web, command)));
        }
    }
    println!(
        "{title:24} without {:.0}, with the library {:.0} ({:.2}): {tcp:.1?}, {library:.1?}",
        median(&tcp),
        median(&library),
        paired_ratio(&tcp, &library)
    );
}

/// Returns the number before a text.
pub(crate) fn before(said: &str, text: &str) -> f64 {
    let (head, _) = said.split_once(text).unwrap_or_else(|| panic!("{said}"));
    let word = head.split([' ', '\r', '\n']).rfind(|word| !word.is_empty());
    word.unwrap().parse().unwrap()
}

#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_af_vsock_with_redis() {
    let rig = with_sockets(Rig::new(Some(CONFIG)).with_packages(&PACKAGES));
    let [web, db] = boot(&rig, MEMORY_WITH_PACKAGES_MIB);
    serve(&db, &run("/usr/local/bin/conformance server 7000"), 7000);
    until_family(&web, "vsock", 7000);
    let redis = "redis-server --save '' --bind 0.0.0.0 --protected-mode no --port 7005";
    serve(&db, &run(redis), 7005);
    for (title, options) in [
        ("redis GET, 1 client", "-c 1 -n 2000 -t get"),
        ("redis GET, 50 clients", "-c 50 -n 20000 -t get"),
        ("redis SET of 16 KiB", "-c 10 -n 5000 -d 16384 -t set"),
    ] {
        let command = format!("redis-benchmark -h {} -p 7005 -q {options}", ip(2));
        compare(&web, title, [&command, &run(&command)], |said| {
            before(said, " requests per second")
        });
    }
}
