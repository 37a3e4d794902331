//! Lists the figures that the demo compares, with an explanation of each.

use super::sample::Sample;

/// A figure of a sample, with its explanation.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Key in `result.json`.
    pub key: &'static str,
    /// Title in the report.
    pub title: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Digits after the decimal point.
    pub digits: usize,
    /// Whether a higher value is better.
    pub higher_is_better: bool,
    /// Whether a ratio of two values is meaningful. A ratio of losses near zero is not.
    pub has_ratio: bool,
    /// Explanation for the report.
    pub meaning: &'static str,
    /// Returns the figure of a sample.
    pub of: fn(&Sample) -> f64,
}

impl Metric {
    /// Returns which value is better: `higher` or `lower`.
    #[must_use]
    pub const fn better(&self) -> &'static str {
        if self.higher_is_better {
            "higher"
        } else {
            "lower"
        }
    }
}

/// The metrics that the demo compares.
pub const METRICS: [Metric; 6] = [
    Metric {
        key: "tcp_mbit_s",
        title: "TCP throughput",
        unit: "Mbit/s",
        digits: 0,
        higher_is_better: true,
        has_ratio: true,
        meaning: "One TCP stream as fast as it goes (iperf3).",
        of: |s| s.tcp.mbit_s,
    },
    Metric {
        key: "cpu_s_per_gb",
        title: "Host CPU for TCP",
        unit: "CPU-s/GB",
        digits: 1,
        higher_is_better: false,
        has_ratio: true,
        meaning: "What the host spent to move a gigabyte of that stream, guests included.",
        of: |s| s.cpu.total() / (s.tcp.bytes / 1e9),
    },
    Metric {
        key: "round_trip_p50_us",
        title: "Round trip, median",
        unit: "µs",
        digits: 0,
        higher_is_better: false,
        has_ratio: true,
        meaning: "A 64-byte TCP request and its answer, one at a time (sockperf): half of them were faster.",
        of: |s| s.round_trip.p50_us,
    },
    Metric {
        key: "round_trip_p99_us",
        title: "Round trip, p99",
        unit: "µs",
        digits: 0,
        higher_is_better: false,
        has_ratio: true,
        meaning: "The same exchanges: 99 of 100 were faster.",
        of: |s| s.round_trip.p99_us,
    },
    Metric {
        key: "udp_mbit_s",
        title: "UDP received, 1 KB",
        unit: "Mbit/s",
        digits: 1,
        higher_is_better: true,
        has_ratio: true,
        meaning: "UDP messages of 1024 bytes, sent as fast as the sender can: what arrived (iperf3).",
        of: |s| s.udp.mbit_s,
    },
    Metric {
        key: "udp_loss_percent",
        title: "UDP lost",
        unit: "%",
        digits: 1,
        higher_is_better: false,
        has_ratio: false,
        meaning: "The part of those messages that did not reach the program in the other VM, wherever it was lost.",
        of: |s| s.udp.loss_percent,
    },
];
