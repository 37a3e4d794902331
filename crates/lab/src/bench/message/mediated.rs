//! Ours between two members that share no memory: the host's relay is between them.
//!
//! The members are processes of this host, each with a gateway and a board of its own, as two VMs
//! have them. The sides have a CPU each, as in all measurements; the relay has a third one if there
//! is one. Otherwise it shares those two: whoever finds nothing to do lets the others run. It is
//! served as early as the sides are: a `sched_yield` gives way for longer to programs that have
//! less right to the processor, and a relay with none would wait for dozens of them.

use std::path::{Path, PathBuf};

use crate::error::Result;

use super::ours::{Row, perf};
use crate::bench::peer::{GENERATOR_CPU, SWITCH_CPU};
use crate::bench::process::{Process, first, first_on};

/// A CPU for the relay, where there are three.
const RELAY_CPU: u32 = 2;

/// The member that asks, and the one that answers.
const ASKER: &str = "asker";
const ANSWERER: &str = "answerer";

/// The relay, the members' gateways, and the endpoint that answers. They end in this order.
pub(super) struct Mediated {
    _answerer: Process,
    _gateways: [Process; 2],
    _relay: Process,
    program: PathBuf,
    folder: PathBuf,
}

impl Mediated {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let plane = folder.join("plane");
        let start = |name: &str, runtime_dir: &Path, cpu, words: &[&str], marker| {
            let mut command = match cpu {
                Some(cpu) => first_on(cpu, folder, program),
                None => first(folder, program),
            };
            command.arg("--runtime-dir").arg(runtime_dir);
            command.arg("message").args(words);
            let mut process = Process::start(name, folder, command)?;
            process.expect(marker)?;
            Ok(process)
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = (cpus > RELAY_CPU as usize).then_some(RELAY_CPU);
        let relay = start("relay", &plane, cpu, &["serve", ASKER, ANSWERER], "serving")?;
        let join = |member: &str| {
            let socket = plane.join(format!("message-plane/{member}.sock"));
            let socket = socket.to_string_lossy();
            let words = ["join", "--socket", &socket];
            start(
                &format!("gateway-{member}"),
                &folder.join(member),
                None,
                &words,
                "joined",
            )
        };
        let gateways = [join(ASKER)?, join(ANSWERER)?];
        let words = ["answer", "--endpoint", "0"];
        let board = folder.join(ANSWERER);
        let answerer = start("mediated", &board, Some(SWITCH_CPU), &words, "answers")?;
        Ok(Self {
            _answerer: answerer,
            _gateways: gateways,
            _relay: relay,
            program: program.to_owned(),
            folder: folder.to_owned(),
        })
    }

    pub(super) fn measure(&self, length: u32) -> Result<Row> {
        let command = first_on(GENERATOR_CPU, &self.folder, &self.program);
        let peer = format!("{ANSWERER}:0");
        perf(command, &self.folder.join(ASKER), &peer, length)
    }
}
