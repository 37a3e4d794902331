//! One channel's figures of one round.

use serde::{Deserialize, Serialize};

use vm_harness::workload::{RoundTrip, Tcp, Udp};

/// A channel's name and description.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Described {
    /// Short name.
    pub name: String,
    /// What carries the frames.
    pub description: String,
}

/// CPU-seconds of the processes that took part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cpu {
    /// Both QEMU processes.
    pub qemu: f64,
    /// The channel's own process.
    pub channel: f64,
    /// The kernel's network threads.
    pub kernel: f64,
}

impl Cpu {
    /// Returns the difference to `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            qemu: self.qemu - before.qemu,
            channel: self.channel - before.channel,
            kernel: self.kernel - before.kernel,
        }
    }

    /// Returns the sum.
    #[must_use]
    pub fn total(self) -> f64 {
        self.qemu + self.channel + self.kernel
    }
}

/// One channel's figures of one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The channel's name.
    pub channel: String,
    /// Round, from 1.
    pub round: u32,
    /// Whether this channel was measured before the other one in this round.
    pub first: bool,
    /// TCP stream.
    pub tcp: Tcp,
    /// CPU time of the processes that took part in the TCP stream.
    pub cpu: Cpu,
    /// UDP stream.
    pub udp: Udp,
    /// Request and response.
    pub round_trip: RoundTrip,
}
