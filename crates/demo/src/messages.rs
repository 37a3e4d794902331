//! Measures the message plane between two VMs, beside TCP between the same VMs over bridge and switch.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::members;
use super::options::Options;
use super::pair::{BOOT, VMS};
use report::message_perf::Row;
use report::stats::{median, paired_ratio};
use report::target::Target;
use vm_harness::accel::{self, Accel};
use vm_harness::channel::{self, Channel, Setting};
use vm_harness::channels;
use vm_harness::error::{Context, Error, Result};
use vm_harness::host::ChildProcess;
use vm_harness::image::Recipe;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};
use vm_harness::vm::{Spec, Vm};
use vm_harness::workload;

/// Lengths in bytes of the messages of a ping-pong, and of those of a stream.
const SMALL: u32 = 64;
const LARGE: u32 = 1 << 20;

/// Longest time that a command in a guest may take.
const LIMIT: Duration = Duration::from_secs(120);

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageSample {
    /// The round, from 1.
    pub round: u32,
    /// Median round trip of a message of 64 B, microseconds.
    pub message_us: f64,
    /// Messages of 1 MiB in one direction, MB/s.
    pub message_mb_s: f64,
    /// Like `message_mb_s`, from and into memory of the VMs' heaps.
    pub heap_mb_s: f64,
    /// TCP over each channel.
    pub tcp: Vec<TcpSample>,
}

/// TCP in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpSample {
    /// The channel's name.
    pub channel: String,
    /// Median round trip of 64 B, microseconds.
    pub round_trip_us: f64,
    /// Stream in one direction, MB/s.
    pub mb_s: f64,
}

/// Results of the demo of messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageResult {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// The accelerator of the guests.
    pub accelerator: Accel,
    /// Every round.
    pub samples: Vec<MessageSample>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

/// Two members of a trust group. Fields are dropped in this order.
struct Members {
    vms: [Vm; 2],
    _serve: ChildProcess,
    channels: Vec<Box<dyn Channel>>,
    accel: Accel,
    _run: RunFolder,
}

/// Boots two VMs, measures messages and TCP between them, writes `message.json` into the output
/// folder, and returns the result.
///
/// # Errors
/// As for [`run`](super::run).
pub fn messages(options: &Options, progress: &Progress) -> Result<MessageResult> {
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    let machine = Machine::describe()?;
    let members = Members::start(options, progress)?;
    let [one, two] = &members.vms;
    let _jobs = [one.start("exec vicinity message join")?, {
        let job = two.start("exec vicinity message join")?;
        members::until(two, "gateway.sock")?;
        let _answers = two.start("exec vicinity message answer --endpoint 7")?;
        members::until(two, "endpoints/7.sock")?;
        job
    }];
    members::until(one, "gateway.sock")?;
    workload::serve(two)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        progress.step(&format!("round {round} of {}", options.rounds));
        samples.push(members.round(round, options)?);
    }
    let result = MessageResult {
        machine,
        accelerator: members.accel,
        targets: targets(&samples),
        samples,
    };
    drop(members);
    options.write("message.json", &result)?;
    Ok(result)
}

impl Members {
    fn start(options: &Options, progress: &Progress) -> Result<Self> {
        scope::sweep_and_log(progress)?;
        progress.step("guest image (Debian packages, kept for the next time), and this program");
        let image = Recipe::default().build(&options.cache)?;
        let image = image.with_program(&options.vicinity, &options.cache.join("with-program"))?;
        let accel = accel::detect(&image.kernel)?;
        let setting = Setting {
            vms: &VMS,
            accel,
            vicinity: &options.vicinity,
            cache: &options.cache,
            logs: &options.output,
        };
        let channels = options.channels.iter();
        let channels = channels.map(|name| channels::open(name, &setting));
        let channels: Vec<_> = channels.collect::<Result<_>>()?;
        let run = RunFolder::new()?;
        let serve = members::serve(&options.vicinity, run.path(), &VMS)?;
        progress.step(&format!("booting two VMs under {}", accel.title()));
        let boot = |number: u8, name: &str| {
            let mut spec = Spec::new(name, &options.output);
            for (channel, network) in channels.iter().zip(1..) {
                let nic = channel::nic(channel.as_ref(), network, name, number)?;
                spec.nics.extend(nic);
            }
            spec.qemu_args = members::qemu_args(&options.vicinity, run.path(), name)?;
            Vm::boot(&image, spec)
        };
        let [first, second] = VMS;
        let vms = [boot(1, first)?, boot(2, second)?];
        for vm in &vms {
            vm.wait_ready(BOOT)?;
        }
        Ok(Self {
            vms,
            _serve: serve,
            channels,
            accel,
            _run: run,
        })
    }

    fn round(&self, round: u32, options: &Options) -> Result<MessageSample> {
        let [one, two] = &self.vms;
        let mut figures = Vec::new();
        let mut tcp = Vec::new();
        // Messages are measured before TCP in every other round, and after it in the others.
        for messages in [round % 2 == 1, round % 2 == 0] {
            if messages {
                let command = format!(
                    "vicinity message perf {}:7 --json --lengths {SMALL},{LARGE}",
                    two.name()
                );
                figures = read(&one.check(&command, LIMIT)?)?;
                continue;
            }
            for (channel, network) in self.channels.iter().zip(1..) {
                let target = channel::address(network, 2);
                let time = options.durations;
                let trips = workload::ping_pong(one, &target, time.round_trip, SMALL)?;
                let stream = workload::tcp(one, &target, time.tcp)?;
                tcp.push(TcpSample {
                    channel: channel.name().to_owned(),
                    round_trip_us: trips.p50_us,
                    mb_s: stream.mbit_s / 8.0,
                });
            }
        }
        let of = |length, value: fn(&Row) -> f64| {
            let row = figures.iter().find(|row: &&Row| row.length == length);
            row.map_or(f64::NAN, value)
        };
        let megabytes = f64::from(LARGE) / 1e6;
        Ok(MessageSample {
            round,
            message_us: 2.0 * of(SMALL, |row| row.plain.p50_us),
            message_mb_s: of(LARGE, |row| row.plain.messages_per_s) * megabytes,
            heap_mb_s: of(LARGE, |row| row.shared.messages_per_s) * megabytes,
            tcp,
        })
    }
}

fn read(text: &str) -> Result<Vec<Row>> {
    serde_json::from_str(text)
        .map_err(|_| Error::unreadable("the figures of `vicinity message`", text))
}

/// Values of a channel, in the order of the rounds.
fn tcp(samples: &[MessageSample], channel: &str, value: fn(&TcpSample) -> f64) -> Vec<f64> {
    let all = samples.iter().flat_map(|sample| &sample.tcp);
    let mine = all.filter(|tcp| tcp.channel == channel);
    mine.map(value).collect()
}

fn targets(samples: &[MessageSample]) -> Vec<Target> {
    let trips: Vec<f64> = samples.iter().map(|sample| sample.message_us).collect();
    let streams: Vec<f64> = samples.iter().map(|sample| sample.message_mb_s).collect();
    let bridge = |value| tcp(samples, "bridge", value);
    let shorter = paired_ratio(&trips, &bridge(|tcp| tcp.round_trip_us));
    let faster = paired_ratio(&bridge(|tcp| tcp.mb_s), &streams);
    vec![
        Target::at_least(
            "64 B: round trip of TCP over the bridge, in those of messages",
            shorter,
            20.0,
        ),
        Target::at_least("1 MiB: bandwidth against TCP over the bridge", faster, 3.0),
    ]
}

impl fmt::Display for MessageResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let middle = |values: &[f64]| median(values);
        let of = |value: fn(&MessageSample) -> f64| {
            middle(&self.samples.iter().map(value).collect::<Vec<_>>())
        };
        writeln!(
            f,
            "Two VMs under {}, {} rounds, medians\n\n{:16}  {:>18}  {:>16}",
            self.accelerator.title(),
            self.samples.len(),
            "",
            "64 B there and back",
            "stream"
        )?;
        writeln!(
            f,
            "{:16}  {:>16.1} us  {:>11.0} MB/s",
            "messages, 1 MiB",
            of(|sample| sample.message_us),
            of(|sample| sample.message_mb_s)
        )?;
        writeln!(
            f,
            "{:16}  {:>19}  {:>11.0} MB/s",
            "on VMs' heaps",
            "",
            of(|sample| sample.heap_mb_s)
        )?;
        let channels = self
            .samples
            .first()
            .into_iter()
            .flat_map(|first| &first.tcp);
        for channel in channels.map(|tcp| tcp.channel.as_str()) {
            let trips = middle(&tcp(&self.samples, channel, |tcp| tcp.round_trip_us));
            let streams = middle(&tcp(&self.samples, channel, |tcp| tcp.mb_s));
            let name = format!("TCP, {channel}");
            writeln!(f, "{name:16}  {trips:>16.1} us  {streams:>11.0} MB/s")?;
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
        let sample = |round, message_us, message_mb_s, round_trip_us, mb_s| MessageSample {
            round,
            message_us,
            message_mb_s,
            heap_mb_s: message_mb_s,
            tcp: vec![TcpSample {
                channel: "bridge".to_owned(),
                round_trip_us,
                mb_s,
            }],
        };
        let samples = [
            sample(1, 10.0, 600.0, 300.0, 150.0),
            sample(2, 100.0, 60.0, 3000.0, 15.0),
            sample(3, 1.0, 6.0, 1.0, 6.0),
        ];
        let found: Vec<_> = targets(&samples).iter().map(|t| t.measured).collect();
        assert_eq!(found, [30.0, 4.0]);
        assert!(targets(&samples).iter().all(|target| target.reached));
    }
}
