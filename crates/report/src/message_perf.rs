//! The output of `vicinity message perf --json`, for the program that prints it and the programs that read it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::stats::quantile;

/// The figures of one length in the output of `vicinity message perf --json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of a message.
    pub length: u32,
    /// With memory of the program.
    pub plain: Figures,
    /// With memory of the endpoint's heap.
    pub heap: Figures,
    /// With memory for the peer.
    pub shared: Figures,
}

/// Latency and rate of messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Median of half a round trip, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of half a round trip, in microseconds.
    pub p99_us: f64,
    /// Messages a second in one direction.
    pub messages_per_s: f64,
}

impl Figures {
    /// Computes the figures from the one-way time of each message in microseconds, and from the number of messages and
    /// the time they took.
    #[must_use]
    pub fn new(micros: &[f64], messages: u64, took: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let messages_per_s = messages as f64 / took.as_secs_f64();
        Self {
            p50_us: quantile(micros, 0.5),
            p99_us: quantile(micros, 0.99),
            messages_per_s,
        }
    }
}
