//! Measurements of the maximum rate of one switch.

use serde::{Deserialize, Serialize};

use super::device_under_test::SwitchKind;

/// One measurement of one switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1. Samples of one round, size and number of pairs were taken next
    /// to each other.
    pub round: u32,
    /// Pairs of ports.
    pub pairs: u16,
    /// Length of the frames in bytes, Ethernet header included, check sequence not.
    pub size: u16,
    /// The switch.
    pub switch: SwitchKind,
    /// Its figures.
    pub figures: Figures,
    /// Frames that the generator could not send because a ring was full.
    pub unsent: u64,
    /// Nanoseconds that a cache line took from the generator's CPU to the switch's and back, measured just before this
    /// sample and its partner.
    pub line_ns: f64,
    /// Time that threads of switch and generator waited for a CPU, as a share of the window.
    /// Near 0 on an idle machine.
    pub disturbed: f64,
}

/// Figures of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Frames per second that arrived at both ports together.
    pub frames_per_s: f64,
    /// Time-stamp counter ticks of busy rounds, divided by the frames taken in them.
    pub cycles_per_frame: f64,
    /// Share of time spent in busy rounds; 1.0 if the switch was the limit.
    pub busy_share: f64,
}
