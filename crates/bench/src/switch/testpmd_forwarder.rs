//! Runs DPDK's `dpdk-testpmd` as a device under test, in the mode `io`, which forwards frames between the two vhost
//! ports of a pair. It is no switch; it shows the cost of DPDK's copies alone.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vm_harness::error::{Error, Result};

use super::device_under_test::{CycleCounters, Sockets, Switch};
use super::testpmd_generator::PROGRAM;
use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use crate::parse::number_after;
use crate::process::{Process, first, pause};

/// Hugepages for its packet buffers, in MB.
pub(super) const MEMORY: u64 = 256;

/// A running instance.
pub(super) struct TestpmdForwarder {
    /// Its prompt, which prints the counters.
    process: Mutex<Process>,
    id: u32,
    folder: PathBuf,
    ports: u16,
    started: Instant,
}

impl TestpmdForwarder {
    /// Starts testpmd and its forwarding.
    pub(super) fn start(folder: &Path, ports: u16) -> Result<Self> {
        let mut command = first(folder, "stdbuf");
        command.arg("-oL").arg(PROGRAM);
        // --no-pci: DPDK must not use the network cards of the machine.
        command.args(["--no-pci", "--in-memory", "-m"]);
        command.arg(MEMORY.to_string());
        command.arg("--file-prefix=vicinity-bench-patch");
        command.arg(format!("--lcores=0@{GENERATOR_CPU},1@{SWITCH_CPU}"));
        for number in 0..ports {
            let socket = socket(folder, number);
            let device = format!("--vdev=net_vhost{number},iface={}", socket.display());
            command.arg(device + ",queues=1");
        }
        command.args(["--", "-i", "--total-num-mbufs=32768"]);
        let mut process = Process::start("testpmd", folder, command)?;
        process.expect("testpmd> ")?;
        for line in ["set fwd io", "set record-core-cycles on", "start"] {
            process.write_line(line)?;
        }
        process.expect("forwarding packets/burst")?;
        Ok(Self {
            id: process.id(),
            process: Mutex::new(process),
            folder: folder.to_owned(),
            ports,
            started: Instant::now(),
        })
    }
}

fn socket(folder: &Path, number: u16) -> PathBuf {
    folder.join(format!("vhost{number}"))
}

impl Switch for TestpmdForwarder {
    fn sockets(&self) -> Sockets {
        let socket = |number| socket(&self.folder, number);
        Sockets::SwitchListens((0..self.ports).map(socket).collect())
    }

    fn id(&self) -> u32 {
        self.id
    }

    fn counters(&self) -> Result<CycleCounters> {
        let gone = |_| Error::Host("testpmd was asked twice at a time".to_owned());
        let mut process = self.process.lock().map_err(gone)?;
        process.write_line("show fwd stats all")?;
        process.expect("Accumulated forward statistics")?;
        let text = process.expect("MHz Clock")?;
        parse_counters(&text, self.started.elapsed())
    }

    fn pause(&self, resting: bool) -> Result<()> {
        pause(self.id, resting)
    }
}

/// Reads the last line of `show fwd stats all`. The cycles are those of busy rounds; testpmd has run for
/// `time` in total.
fn parse_counters(text: &str, time: Duration) -> Result<CycleCounters> {
    let field = |name| {
        number_after(text, name)
            .ok_or_else(|| Error::unreadable("the cycles of dpdk-testpmd", text))
    };
    let mega_hertz = u128::from(field(") at ")?);
    Ok(CycleCounters {
        busy: field("total cycles=")?,
        all: u64::try_from(time.as_micros() * mega_hertz).unwrap_or(u64::MAX),
        frames: field("total io packets=")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  CPU cycles/packet=371.52 (total cycles=743040 / total io packets=2000) \
                        at 2450 MHz Clock";

    #[test]
    fn cycles_of_busy_rounds_are_read() {
        let meter = parse_counters(LINE, Duration::from_millis(2)).unwrap();
        let expected = CycleCounters {
            busy: 743_040,
            all: 4_900_000,
            frames: 2000,
        };
        assert_eq!(meter, expected);
    }

    #[test]
    fn no_cycles_are_an_error_that_shows_what_was_said() {
        let error = parse_counters("+++ Accumulated", Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("Accumulated"), "{error}");
    }
}
