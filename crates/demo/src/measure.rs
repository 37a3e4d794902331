//! Runs the rounds of the demo: every workload over both channels, in turn.

use super::options::Options;
use super::pair::Pair;
use super::sample::{Cpu, Sample};
use vm_harness::channel::{self, Channel};
use vm_harness::error::Result;
use vm_harness::progress::Progress;
use vm_harness::{cpu, workload};

/// What the CPU figure means, for the report.
pub(super) const CPU_DEFINITION: &str = "CPU-seconds (user and system, all threads) of both QEMU \
    processes and of the channel's own process, from just before the TCP client is started until \
    it has ended, plus those of the kernel's network threads (ksoftirqd, vhost), divided by the \
    gigabytes (10^9 bytes) of payload received. What the Linux bridge does inside QEMU's system \
    calls is in QEMU's system time.";

/// Bytes of payload in a UDP message.
const UDP_SIZE: u32 = 1024;

/// Bytes in a request and in its response.
const MESSAGE_SIZE: u32 = 64;

/// A channel of the pair and the address that the serving VM has on it.
struct Path<'a> {
    channel: &'a dyn Channel,
    target: String,
}

/// Measures all rounds. For each workload of a round, the two channels are measured right after each other;
/// the order changes from round to round.
pub(super) fn rounds(pair: &Pair, options: &Options, progress: &Progress) -> Result<Vec<Sample>> {
    let [client, _] = &pair.vms;
    let [base, other] = &pair.channels;
    let paths = [(base, 1), (other, 2)].map(|(channel, network)| Path {
        channel: channel.as_ref(),
        target: channel::address(network, 2),
    });
    let time = options.durations;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        let reversed = round % 2 == 0;
        let say =
            |what: &str| progress.step(&format!("round {round} of {}: {what}", options.rounds));
        say("TCP");
        let tcp = each(&paths, reversed, |path| {
            let before = cpu_now(pair, path)?;
            let tcp = workload::tcp(client, &path.target, time.tcp)?;
            Ok((tcp, cpu_now(pair, path)?.since(before)))
        })?;
        say("UDP, 1 KB messages");
        let udp = each(&paths, reversed, |path| {
            workload::udp(client, &path.target, time.udp, UDP_SIZE)
        })?;
        say("64 B round trips");
        let trips = each(&paths, reversed, |path| {
            workload::ping_pong(client, &path.target, time.round_trip, MESSAGE_SIZE)
        })?;
        let figures = tcp.into_iter().zip(udp).zip(trips).zip(&paths);
        samples.extend(figures.zip([!reversed, reversed]).map(
            |(((((tcp, cpu), udp), round_trip), path), first)| Sample {
                channel: path.channel.name().to_owned(),
                round,
                first,
                tcp,
                cpu,
                udp,
                round_trip,
            },
        ));
    }
    Ok(samples)
}

/// Measures over both channels. The results are in the order of the channels, not of the
/// measurements.
fn each<T>(
    paths: &[Path<'_>; 2],
    reversed: bool,
    measure: impl Fn(&Path<'_>) -> Result<T>,
) -> Result<[T; 2]> {
    let [base, other] = paths;
    if reversed {
        let last = measure(other)?;
        return Ok([measure(base)?, last]);
    }
    Ok([measure(base)?, measure(other)?])
}

fn cpu_now(pair: &Pair, path: &Path<'_>) -> Result<Cpu> {
    let [one, two] = &pair.vms;
    Ok(Cpu {
        qemu: (one.cpu_time()? + two.cpu_time()?).as_secs_f64(),
        channel: path.channel.cpu_time()?.as_secs_f64(),
        kernel: cpu::of_kernel_network().as_secs_f64(),
    })
}
