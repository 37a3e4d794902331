//! A result for unit tests.

use vm_harness::accel::Accel;
use vm_harness::machine::Machine;
use vm_harness::workload::{RoundTrip, Tcp, Udp};

use super::options::Durations;
use super::result::{DemoResult, summarise};
use super::sample::{Cpu, Described, Sample};

/// Returns a result of two rounds in which all figures of the second channel are twice as good.
pub(super) fn example() -> DemoResult {
    let sample = |name: &str, round: u32, scale: f64| Sample {
        channel: name.to_owned(),
        round,
        first: (round % 2 == 1) == (name == "bridge"),
        tcp: Tcp {
            mbit_s: 1000.0 * scale,
            bytes: 1e9 * scale,
            retransmits: 0,
        },
        cpu: Cpu {
            qemu: 20.0,
            channel: 0.0,
            kernel: 0.0,
        },
        udp: Udp {
            mbit_s: 70.0 * scale,
            loss_percent: 10.0 / scale,
            sent: 1000,
        },
        round_trip: RoundTrip {
            p50_us: 800.0 / scale,
            p99_us: 1600.0 / scale,
            p999_us: 3200.0 / scale,
            exchanges: 99,
            mean_us: 0.0,
        },
    };
    let channels = ["bridge", "switch"].map(|name| Described {
        name: name.to_owned(),
        description: format!("what {name} <is>"),
    });
    let samples = vec![
        sample("bridge", 1, 1.0),
        sample("switch", 1, 2.0),
        sample("bridge", 2, 0.5),
        sample("switch", 2, 1.0),
    ];
    DemoResult {
        machine: Machine {
            processor: "x".into(),
            cpus: 2,
            memory_mib: 1024,
            kernel: "6".into(),
            system: "Debian".into(),
            qemu: "10".into(),
            revision: "abc".into(),
            date: "2026-01-01T00:00:00Z".into(),
        },
        accelerator: Accel::Tcg,
        guest_kernel: "6.1".into(),
        durations: Durations::default(),
        cpu_definition: "all of it".into(),
        summary: summarise(&channels, &samples),
        channels,
        samples,
        seconds: 1.0,
    }
}
