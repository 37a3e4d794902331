//! Runs the generator: DPDK's `dpdk-testpmd` with pairs of virtio-user ports, which act as the guests. Frames
//! circulate: they leave one port of a pair, pass the switch, enter the other port, and return.

use std::path::{Path, PathBuf};
use std::time::Duration;

use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

use super::device_under_test::Sockets;
use crate::cpus::GENERATOR_CPU;
use crate::parse::number_after;
use crate::process::{Process, first_on};

/// Path of the program in Debian's `dpdk-dev`.
pub(super) const PROGRAM: &str = "/usr/bin/dpdk-testpmd";

/// Hugepages for its packet buffers, in MB. The switch maps this memory.
pub(super) const MEMORY: u64 = 256;

/// A generator whose ports are connected to a switch.
pub(super) struct TestpmdGenerator {
    process: Process,
    ports: u16,
}

/// What the generator received within a window of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Received {
    /// Frames per second, both ports together.
    pub(super) frames_per_s: f64,
    /// Mean length of a frame, in bytes.
    pub(super) mean_bytes: f64,
}

/// One port's entry in `show port stats all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PortStats {
    frames: u64,
    bytes: u64,
    /// Since the previous command, by the generator's own clock.
    frames_per_s: u64,
}

impl TestpmdGenerator {
    /// Connects a generator to the sockets. No frame is sent yet.
    pub(super) fn start(folder: &Path, sockets: &Sockets) -> Result<Self> {
        // Without stdbuf, testpmd's output would wait in a buffer.
        let mut command = first_on(GENERATOR_CPU, folder, "stdbuf");
        command.arg("-oL").args(words(sockets));
        let mut process = Process::start("dpdk-testpmd", folder, command)?;
        let text = process.expect("testpmd> ")?;
        // testpmd continues without a port that it could not connect.
        let failed = text
            .lines()
            .find(|line| line.contains("virtio_user_pmd_probe"));
        if let Some(line) = failed {
            return Err(Error::Host(format!(
                "dpdk-testpmd could not connect: {line}"
            )));
        }
        let ports = u16::try_from(sockets.paths().len()).unwrap_or(u16::MAX);
        Ok(Self { process, ports })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends 448 frames of `size` bytes (Ethernet header included, check sequence not) from
    /// each port, and from then on sends back what it receives. Frames that are still under way from
    /// an earlier measurement are dropped.
    ///
    /// The generator uses 512 descriptors of a ring and reclaims them when 32 are left, so testpmd can send all 448
    /// frames even to a switch that sleeps. Therefore every switch gets the same load.
    pub(super) fn send(&mut self, size: u16) -> Result<()> {
        self.process.write_line("set fwd mac")?;
        self.process.write_line(&format!("set txpkts {size}"))?;
        self.process.write_line("start tx_first 14")?;
        self.process.expect("forwarding packets/burst")?;
        Ok(())
    }

    /// Counts received frames for `window`.
    pub(super) fn receive(&mut self, window: Duration) -> Result<Received> {
        let before = self.stats()?;
        interrupt::sleep(window)?;
        let after = self.stats()?;
        Ok(received(&before, &after))
    }

    /// Stops the traffic. Returns the number of frames that testpmd could not send because a ring was full.
    pub(super) fn stop(&mut self) -> Result<u64> {
        self.process.write_line("stop")?;
        self.process.expect("Accumulated forward statistics")?;
        let text = self.process.expect("TX-total:")?;
        number_after(&text, "TX-dropped:").ok_or_else(|| missing(&text))
    }

    fn stats(&mut self) -> Result<Vec<PortStats>> {
        self.process.write_line("show port stats all")?;
        let last = format!("statistics for port {} ", self.ports - 1);
        let mut text = String::new();
        for marker in [&last, "Tx-pps:", "\n"] {
            text += &self.process.expect(marker)?;
        }
        parse_stats(&text, self.ports)
    }
}

/// Returns the command line. It is the same for every switch, except for the side that listens.
fn words(sockets: &Sockets) -> Vec<String> {
    let listen = match sockets {
        Sockets::SwitchListens(_) => "",
        Sockets::GeneratorListens(_) => ",server=1",
    };
    let port = |number: u16, socket: &PathBuf| {
        format!(
            "--vdev=net_virtio_user{number},path={},queues=1,queue_size=1024,\
             mac={},mrg_rxbuf=1{listen}",
            socket.display(),
            mac(number)
        )
    };
    let numbered = || (0..).zip(sockets.paths());
    let ports: Vec<_> = numbered()
        .map(|(number, socket)| port(number, socket))
        .collect();
    // The peer is the other port of the pair.
    let peers: Vec<_> = numbered()
        .map(|(number, _)| format!("--eth-peer={number},{}", mac(number ^ 1)))
        .collect();
    // --no-pci: DPDK must not use the network cards of the machine.
    // --single-file-segments: a memory table of vhost-user has room for eight regions.
    [
        &format!("{PROGRAM} --no-pci --in-memory --single-file-segments"),
        &format!("-m {MEMORY} --file-prefix=vicinity-bench-generator"),
        &format!("--lcores 0@{GENERATOR_CPU},1@{GENERATOR_CPU}"),
        &ports.join(" "),
        "-- -i --total-num-mbufs=32768",
        &peers.join(" "),
    ]
    .iter()
    .flat_map(|part| part.split_whitespace().map(str::to_owned))
    .collect()
}

fn mac(port: u16) -> String {
    format!("52:54:00:00:00:{:02x}", port + 1)
}

fn parse_stats(text: &str, ports: u16) -> Result<Vec<PortStats>> {
    let blocks = text.split("NIC statistics for port ").skip(1);
    let port = |block| {
        let field = |name| number_after(block, name).ok_or_else(|| missing(block));
        Ok(PortStats {
            frames: field("RX-packets:")?,
            bytes: field("RX-bytes:")?,
            frames_per_s: field("Rx-pps:")?,
        })
    };
    let found: Vec<_> = blocks.map(port).collect::<Result<_>>()?;
    if found.len() == usize::from(ports) {
        Ok(found)
    } else {
        Err(missing(text))
    }
}

fn received(before: &[PortStats], after: &[PortStats]) -> Received {
    let sum = |ports: &[PortStats], value: fn(&PortStats) -> u64| -> u64 {
        ports.iter().map(value).sum()
    };
    let gained = |value| sum(after, value).saturating_sub(sum(before, value)) as f64;
    Received {
        frames_per_s: sum(after, |port| port.frames_per_s) as f64,
        mean_bytes: gained(|port| port.bytes) / gained(|port| port.frames).max(1.0),
    }
}

fn missing(text: &str) -> Error {
    Error::unreadable("the counters of dpdk-testpmd", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "
  ######################## NIC statistics for port 0  ########################
  RX-packets: 10030912   RX-missed: 0          RX-bytes:  641978368
  RX-errors: 0
  RX-nombuf:  0         
  TX-packets: 10031872   TX-errors: 0          TX-bytes:  642039808

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ############################################################################

  ######################## NIC statistics for port 1  ########################
  RX-packets: 10030848   RX-missed: 0          RX-bytes:  641974272
  RX-errors: 0
  RX-nombuf:  0         
  TX-packets: 10031936   TX-errors: 0          TX-bytes:  642043904

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
";
    const SECOND: &str = "
  ######################## NIC statistics for port 0  ########################
  RX-packets: 21164512   RX-missed: 0          RX-bytes:  1354528768
  Rx-pps:      5552734          Rx-bps:   2843000152
  ######################## NIC statistics for port 1  ########################
  RX-packets: 21164448   RX-missed: 0          RX-bytes:  1354524672
  Rx-pps:      5552733          Rx-bps:   2842999856
";

    #[test]
    fn two_readings_give_a_rate_and_a_frame_length() {
        let before = parse_stats(FIRST, 2).unwrap();
        let after = parse_stats(SECOND, 2).unwrap();
        assert_eq!(before[1].frames, 10_030_848);
        let received = received(&before, &after);
        assert!((received.frames_per_s - 11_105_467.0).abs() < 0.5);
        assert!((received.mean_bytes - 64.0).abs() < 1e-9);
    }

    #[test]
    fn a_reading_with_one_port_is_an_error() {
        let (one, _) = FIRST.split_once("statistics for port 1").unwrap();
        let error = parse_stats(one, 2).unwrap_err();
        assert!(error.to_string().contains("counters of dpdk-testpmd"));
    }

    #[test]
    fn no_frame_at_all_is_a_rate_of_zero() {
        let quiet = parse_stats(FIRST, 2).unwrap();
        let received = received(&quiet, &quiet);
        assert!(received.frames_per_s.abs() < f64::EPSILON);
        assert!(received.mean_bytes.abs() < f64::EPSILON);
    }

    #[test]
    fn the_machines_own_cards_are_never_probed() {
        let words = words(&Sockets::SwitchListens(vec!["/a".into(), "/b".into()]));
        assert!(words.iter().any(|word| word == "--no-pci"));
    }
}
