//! Unmodified TCP programs by AF_VSOCK between two VMs, beside the same programs by TCP over switch and bridge.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::pair::{BOOT, VMS};
use report::stats::{median, paired_ratio};
use report::target::Target;
use vm_harness::accel::{self, Accel};
use vm_harness::bridge::Bridge;
use vm_harness::channel::{self, Channel};
use vm_harness::cpu;
use vm_harness::error::{Context, Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::image::Recipe;
use vm_harness::interrupt;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};
use vm_harness::vm::{Link, Nic, Spec, Vm};
use vm_harness::workload;

/// Length in bytes of a message there and back.
const SMALL: u32 = 64;

/// Longest time that a command in a guest may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Numbers of the networks: [`channel::address`].
const BRIDGE: u8 = 1;
const SWITCH: u8 = 2;

/// Paths of the package `vicinity-guest`.
const LIBRARY: &str = "usr/lib/x86_64-linux-gnu/vicinity/libvicinity-sockets.so";
const AGENT: &str = "usr/bin/vicinity-agent";

/// How a program's data goes: the name, the network of the server's address, and whether the client has the library.
const WAYS: [(&str, u8, bool); 3] = [
    ("sockets", SWITCH, true),
    ("switch", SWITCH, false),
    ("bridge", BRIDGE, false),
];

/// Returns the command that runs a program with the library, as `vicinity-run` does.
fn with_library() -> String {
    format!("env LD_PRELOAD=/{LIBRARY} ")
}

/// The files of this host that guests need.
#[derive(Clone, Debug)]
pub struct SocketFiles {
    /// `vicinity-agent`.
    pub agent: PathBuf,
    /// `libvicinity-sockets.so`.
    pub library: PathBuf,
}

/// One way in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketSample {
    /// The round, from 1.
    pub round: u32,
    /// `sockets`, `switch` or `bridge`.
    pub way: String,
    /// iperf3 in one direction, MB/s.
    pub mb_s: f64,
    /// CPU-seconds of both QEMUs, the daemon and the kernel's network threads for a GB of it.
    pub cpu_s_gb: f64,
    /// Bytes that went by AF_VSOCK meanwhile, as a part of those that arrived.
    pub by_vsock: f64,
    /// Median round trip of 64 B, microseconds.
    pub round_trip_us: f64,
}

/// Results of the demo of sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketResult {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// The accelerator of the guests.
    pub accelerator: Accel,
    /// Every round.
    pub samples: Vec<SocketSample>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

/// Two VMs with a bridge, a switch and socket devices. Fields are dropped in this order.
struct Hosts {
    vms: [Vm; 2],
    serve: ChildProcess,
    _bridge: Bridge,
    accel: Accel,
    vicinity: PathBuf,
    run: RunFolder,
}

/// Boots two VMs with these files, measures unmodified programs by AF_VSOCK and by TCP, writes `sockets.json` into the
/// output folder, and returns the result.
///
/// # Errors
/// As for [`run`](super::run).
pub fn sockets(
    options: &Options,
    files: &SocketFiles,
    progress: &Progress,
) -> Result<SocketResult> {
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    let machine = Machine::describe()?;
    let hosts = Hosts::start(options, files, progress)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        progress.step(&format!("round {round} of {}", options.rounds));
        let mut ways = WAYS;
        ways.rotate_left(usize::try_from(round).unwrap_or(0) % WAYS.len());
        for way in ways {
            samples.push(hosts.sample(round, way, options)?);
        }
    }
    let result = SocketResult {
        machine,
        accelerator: hosts.accel,
        targets: targets(&samples),
        samples,
    };
    progress.step("stopping the VMs");
    drop(hosts);
    options.write("sockets.json", &result)?;
    Ok(result)
}

/// Returns the daemon's configuration.
fn configuration() -> String {
    let mut text = "[[network]]\nname = \"lan\"\n".to_owned();
    for (number, vm) in (1..).zip(VMS) {
        let mac = channel::mac(SWITCH, number);
        let address = channel::address(SWITCH, number);
        text.push_str(&format!(
            "[[network.port]]\nvm = \"{vm}\"\nmac = \"{mac}\"\nallowed-ips = [\"{address}\"]\n"
        ));
    }
    for vm in VMS {
        text.push_str(&format!(
            "[[vsock]]\nvm = \"{vm}\"\ngroups = [\"demo\"]\nports = [5201, 11111]\n"
        ));
    }
    text
}

impl Hosts {
    fn start(options: &Options, files: &SocketFiles, progress: &Progress) -> Result<Self> {
        scope::sweep_and_log(progress)?;
        progress.step("guest image (Debian packages, kept for the next time), agent and library");
        let recipe = Recipe::default().module("vmw_vsock_virtio_transport");
        let mut image = recipe.build(&options.cache)?;
        for (file, inside) in [(&files.agent, AGENT), (&files.library, LIBRARY)] {
            let name = Path::new(inside).file_name().unwrap_or_default();
            let folder = options.cache.join("with-sockets").join(name);
            image = image.with_file(file, Path::new(inside), &folder)?;
        }
        let accel = accel::detect(&image.kernel)?;
        let bridge = Bridge::new(accel)?;
        let run = RunFolder::new()?;
        let serve = serve(&options.vicinity, run.path(), options)?;
        progress.step(&format!("booting two VMs under {}", accel.title()));
        let boot = |number: u8, name: &str| {
            let mut spec = Spec::new(name, &options.output);
            spec.nics
                .extend(channel::nic(&bridge as &dyn Channel, BRIDGE, name, number)?);
            spec.nics.push(Nic {
                link: Link::VhostUser {
                    socket: run.path().join("lan").join(format!("{name}.sock")),
                    qemu_listens: false,
                },
                mac: channel::mac(SWITCH, number),
                address: Some(format!("{}/24", channel::address(SWITCH, number))),
                properties: Vec::new(),
            });
            let mut command = vicinity(&options.vicinity, run.path());
            command.args(["vsock", "qemu-args", name]);
            let text = host::run(command)?;
            spec.qemu_args = text.split_whitespace().map(str::to_owned).collect();
            Vm::boot(&image, spec)
        };
        let [first, second] = VMS;
        let vms = [boot(1, first)?, boot(2, second)?];
        for vm in &vms {
            vm.wait_ready(BOOT)?;
            vm.check(
                "setsid vicinity-agent sockets </dev/null >/tmp/agent 2>&1 &",
                LIMIT,
            )?;
        }
        let hosts = Self {
            vms,
            serve,
            _bridge: bridge,
            accel,
            vicinity: options.vicinity.clone(),
            run,
        };
        hosts.wait_for_agents()?;
        Ok(hosts)
    }

    /// Starts the servers, and waits until a client's data goes by AF_VSOCK.
    fn wait_for_agents(&self) -> Result<()> {
        let [client, server] = &self.vms;
        let by = with_library();
        workload::serve_by(server, &by)?;
        let target = channel::address(SWITCH, 2);
        interrupt::poll("connections by AF_VSOCK", BOOT, || {
            let before = self.sent()?;
            let command = format!("{by}iperf3 --client {target} --bytes 1M");
            // The server may still be busy with a client that gave up meanwhile.
            drop(client.run(&command, LIMIT)?);
            Ok((self.sent()? > before + (1 << 20)).then_some(()))
        })
    }

    /// Returns the bytes that the client's VM has sent by AF_VSOCK.
    fn sent(&self) -> Result<u64> {
        let mut command = vicinity(&self.vicinity, self.run.path());
        command.args(["vsock", "list", "--json"]);
        let text = host::run(command)?;
        let all: Vec<serde_json::Value> = serde_json::from_str(&text)
            .map_err(|_| Error::unreadable("the list of socket devices", &text))?;
        let one = all.iter().find(|one| one["vm"] == VMS[0]);
        Ok(one.and_then(|one| one["sent_bytes"].as_u64()).unwrap_or(0))
    }

    fn cpu(&self) -> Result<f64> {
        let [one, two] = &self.vms;
        let daemon = cpu::of_process(self.serve.id())?;
        let all = one.cpu_time()? + two.cpu_time()? + daemon + cpu::of_kernel_network();
        Ok(all.as_secs_f64())
    }

    fn sample(
        &self,
        round: u32,
        (way, network, has_library): (&str, u8, bool),
        options: &Options,
    ) -> Result<SocketSample> {
        let [client, _] = &self.vms;
        let target = channel::address(network, 2);
        let time = options.durations;
        let by = match has_library {
            true => with_library(),
            false => String::new(),
        };
        let (cpu, sent) = (self.cpu()?, self.sent()?);
        let tcp = workload::tcp_by(client, &by, &target, time.tcp)?;
        let (cpu, sent) = (self.cpu()? - cpu, self.sent()? - sent);
        let trips = workload::ping_pong_by(client, &by, &target, time.round_trip, SMALL)?;
        Ok(SocketSample {
            round,
            way: way.to_owned(),
            mb_s: tcp.mbit_s / 8.0,
            cpu_s_gb: cpu / (tcp.bytes / 1e9),
            by_vsock: sent as f64 / tcp.bytes,
            round_trip_us: trips.p50_us,
        })
    }
}

fn vicinity(program: &Path, run: &Path) -> std::process::Command {
    let mut command = host::command(program);
    command.arg("--runtime-dir").arg(run);
    command
}

fn serve(program: &Path, run: &Path, options: &Options) -> Result<ChildProcess> {
    let config = run.join("sockets.toml");
    fs::write(&config, configuration()).context(|| format!("write {}", config.display()))?;
    let log = options.output.join("sockets.log");
    let file = fs::File::create(&log).context(|| format!("make {}", log.display()))?;
    let mut command = vicinity(program, run);
    command.arg("serve").arg("--config").arg(&config);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    let mut serve = ChildProcess::spawn(command)?;
    let sockets = VMS.map(|vm| run.join("vsock").join(format!("{vm}.sock")));
    interrupt::poll("the start of `vicinity serve`", BOOT, || {
        serve.must_run(&log)?;
        Ok(sockets.iter().all(|socket| socket.exists()).then_some(()))
    })?;
    Ok(serve)
}

/// Values of a way, in the order of the rounds.
fn values(samples: &[SocketSample], way: &str, value: fn(&SocketSample) -> f64) -> Vec<f64> {
    let mut mine: Vec<_> = samples.iter().filter(|sample| sample.way == way).collect();
    mine.sort_by_key(|sample| sample.round);
    mine.into_iter().map(value).collect()
}

fn targets(samples: &[SocketSample]) -> Vec<Target> {
    let ratio = |way, value: fn(&SocketSample) -> f64| {
        paired_ratio(
            &values(samples, way, value),
            &values(samples, "sockets", value),
        )
    };
    vec![
        Target::at_least(
            "iperf3 by AF_VSOCK against TCP over the switch",
            ratio("switch", |sample| sample.mb_s),
            1.5,
        ),
        Target::at_least(
            "iperf3 by AF_VSOCK against TCP over the bridge",
            ratio("bridge", |sample| sample.mb_s),
            2.0,
        ),
        Target::at_most(
            "64 B there and back against TCP over the bridge",
            ratio("bridge", |sample| sample.round_trip_us),
            0.6,
        ),
        Target::at_most(
            "CPU time of a GB against TCP over the bridge",
            ratio("bridge", |sample| sample.cpu_s_gb),
            0.5,
        ),
    ]
}

impl fmt::Display for SocketResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Two VMs under {}, {} rounds, medians\n\n{:22}  {:>12}  {:>10}  {:>19}  {:>11}",
            self.accelerator.title(),
            self.samples.len() / WAYS.len(),
            "",
            "iperf3",
            "CPU",
            "64 B there and back",
            "by AF_VSOCK"
        )?;
        for (way, title) in [
            ("sockets", "AF_VSOCK by the library"),
            ("switch", "TCP, switch"),
            ("bridge", "TCP, bridge"),
        ] {
            let of = |value| median(&values(&self.samples, way, value));
            writeln!(
                f,
                "{title:22}  {:>7.0} MB/s  {:>5.2} s/GB  {:>16.1} us  {:>9.0} %",
                of(|sample| sample.mb_s),
                of(|sample| sample.cpu_s_gb),
                of(|sample| sample.round_trip_us),
                of(|sample| sample.by_vsock * 100.0)
            )?;
        }
        writeln!(f)?;
        self.targets.iter().try_for_each(|target| target.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |round, way: &str, value: f64| SocketSample {
            round,
            way: way.to_owned(),
            mb_s: value,
            cpu_s_gb: value,
            by_vsock: 1.0,
            round_trip_us: value,
        };
        let samples = [
            sample(1, "sockets", 30.0),
            sample(1, "switch", 10.0),
            sample(1, "bridge", 5.0),
            sample(2, "bridge", 50.0),
            sample(2, "sockets", 300.0),
            sample(2, "switch", 100.0),
        ];
        let found: Vec<_> = targets(&samples).iter().map(|t| t.measured).collect();
        assert_eq!(found, [3.0, 6.0, 6.0, 6.0]);
    }
}
