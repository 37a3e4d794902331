//! The cost of a capture of one port for the other ports.
//!
//! The distance of the CPUs and the load by other programs change, so that the rates of two successive seconds differ
//! by far more than a capture costs. Therefore the benchmark compares slices of a load that does not stop: without a
//! capture, with, with, without, and then four slices of the opposite kinds. A round sums up its slices of each kind,
//! so that a cost which appears in few slices counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::process::LIMIT;
use crate::switch::device_under_test::CycleCounters;
use crate::switch::load_setup::LoadSetup;
use crate::switch::vicinity::parse_counters;
use vm_harness::error::{Context, Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::interrupt;

use super::client::request;
use super::load::{RAMP_UP, flows};
use super::report::Kind;

/// Slices of a round, half of them with a capture.
const SLICES: u32 = 16;

/// The part of a slice in which frames are counted.
const COUNTED: Duration = Duration::from_millis(100);

/// Pause after the beginning or the end of a capture, until its transient is over and the worker has spent its saved
/// time budget for captures.
const SETTLING_TIME: Duration = Duration::from_millis(50);

/// Number of ports whose frames are not counted: the first port, which is captured, and its partner.
const CAPTURED: usize = 2;

/// The frames that the switch forwarded in slices of one kind, and the cycles of its worker.
#[derive(Clone, Copy, Debug, Default)]
struct ForwardedFrames {
    /// Frames of all ports but [`CAPTURED`].
    frames: u64,
    seconds: f64,
    /// Time-stamp counter ticks of the worker's busy rounds.
    busy_ticks: u64,
    busy_frames: u64,
}

impl ForwardedFrames {
    fn and(self, more: Self) -> Self {
        Self {
            frames: self.frames + more.frames,
            seconds: self.seconds + more.seconds,
            busy_ticks: self.busy_ticks + more.busy_ticks,
            busy_frames: self.busy_frames + more.busy_frames,
        }
    }

    fn frames_per_s(self) -> f64 {
        self.frames as f64 / self.seconds
    }

    fn cycles_per_frame(self) -> f64 {
        self.busy_ticks as f64 / self.busy_frames as f64
    }
}

/// Measures the load with a capture of the first port and without. Returns the ratios of the frames a second of all
/// other pairs, and of the cycles a frame. `folder` is the daemon's runtime folder, `program` the program that
/// captures.
pub(super) fn captures(
    busy: &mut LoadSetup,
    folder: &Path,
    program: &Path,
) -> Result<[(Kind, f64); 2]> {
    let socket = folder.join("control.sock");
    let received = Arc::clone(&busy.received);
    let compare = || {
        interrupt::sleep(RAMP_UP)?;
        let (mut without, mut with) = (ForwardedFrames::default(), ForwardedFrames::default());
        let mut captured = 0;
        for number in 0..SLICES {
            if is_captured(number) {
                let capture = Capture::start(folder, program)?;
                with = with.and(slice(&socket, &received)?);
                captured += capture.end()?;
            } else {
                without = without.and(slice(&socket, &received)?);
            }
        }
        match captured {
            0 => Err(Error::Host("the captures saw nothing".to_owned())),
            _ => Ok((without, with)),
        }
    };
    let (without, with) = busy.load_during(&flows(), compare)?;
    Ok([
        (
            Kind::CaptureFrames,
            with.frames_per_s() / without.frames_per_s(),
        ),
        (
            Kind::CaptureCycles,
            with.cycles_per_frame() / without.cycles_per_frame(),
        ),
    ])
}

/// Whether the slice with this number has a capture. Two successive slices are a pair, with one slice of each kind. In
/// each group of four and of eight slices, each kind comes first in half of the pairs.
fn is_captured(number: u32) -> bool {
    number.count_ones() % 2 == 1
}

fn slice(socket: &Path, received: &[AtomicU64]) -> Result<ForwardedFrames> {
    interrupt::sleep(SETTLING_TIME)?;
    let meter = || parse_counters(&request(socket, "GET", "/v1/networks", "")?);
    let count = || -> u64 {
        let others = received.iter().skip(CAPTURED);
        others.map(|nic| nic.load(Ordering::Relaxed)).sum()
    };
    let before: CycleCounters = meter()?;
    let (begin, frames) = (Instant::now(), count());
    interrupt::sleep(COUNTED)?;
    let (seconds, frames) = (begin.elapsed().as_secs_f64(), count() - frames);
    let after = meter()?;
    Ok(ForwardedFrames {
        frames,
        seconds,
        busy_ticks: after.busy.saturating_sub(before.busy),
        busy_frames: after.frames.saturating_sub(before.frames),
    })
}

/// A running `vicinity capture`.
struct Capture {
    /// Dropping the value ends the program.
    _program: ChildProcess,
    file: PathBuf,
    /// Bytes of the file's header.
    head: u64,
}

impl Capture {
    fn start(folder: &Path, program: &Path) -> Result<Self> {
        let file = folder.join("captured.pcapng");
        let mut command = host::command(program);
        command.args(["capture", "vm0"]);
        command.arg("--runtime-dir").arg(folder);
        command.arg("--write").arg(&file);
        command.stdin(Stdio::null());
        let program = ChildProcess::spawn(command)?;
        // The program writes the header once the data plane copies frames to it.
        let head = interrupt::poll("beginning of a capture", LIMIT, || {
            let length = fs::metadata(&file).map_or(0, |file| file.len());
            Ok((length > 0).then_some(length))
        })?;
        Ok(Self {
            _program: program,
            file,
            head,
        })
    }

    /// Ends the capture, and returns the bytes of frames that it has written.
    fn end(self) -> Result<u64> {
        let ending = || format!("end the capture in {}", self.file.display());
        let length = fs::metadata(&self.file).context(ending)?.len();
        fs::remove_file(&self.file).context(ending)?;
        Ok(length - self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_kind_of_slice_is_favoured_by_a_machine_that_grows_slower() {
        let places = |captured: bool| -> u32 {
            let of_kind = (0..SLICES).filter(|number| is_captured(*number) == captured);
            of_kind.sum()
        };
        assert_eq!(places(true), places(false));
        let order: Vec<bool> = (0..4).map(is_captured).collect();
        assert_eq!(order, [false, true, true, false]);
    }

    #[test]
    fn slices_of_unequal_length_are_summed_before_they_are_compared() {
        let passed = |frames, seconds| ForwardedFrames {
            frames,
            seconds,
            ..ForwardedFrames::default()
        };
        let sum = passed(10, 1.0).and(passed(50, 2.0));
        assert!((sum.frames_per_s() - 20.0).abs() < 1e-9);
    }
}
