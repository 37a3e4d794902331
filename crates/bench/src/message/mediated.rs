//! Measures messages of Vicinity between two members that share no memory, through the host's relay.
//!
//! The members are processes of this host, each with a gateway and a board of its own, as in two VMs. Each member has
//! a CPU, as in all measurements; the relay has a third CPU if the machine has three. Otherwise the relay shares the
//! CPUs of the members, and each process that finds no work yields its CPU. The relay has the same priority as the
//! members: a relay with the default priority would run only after dozens of their `sched_yield` calls.

use std::path::{Path, PathBuf};

use vm_harness::error::Result;

use report::message_perf::Row;

use super::vicinity::perf;
use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use crate::process::{Process, first, first_on};

/// The relay's CPU, if the machine has at least three CPUs.
const RELAY_CPU: u32 = 2;

/// Names of the member that sends requests and of the member that answers them.
pub(super) const ASKER: &str = "asker";
pub(super) const ANSWERER: &str = "answerer";

/// The relay and the members' gateways. Dropping the value ends them in the order of the fields.
pub(super) struct Plane {
    _gateways: [Process; 2],
    _relay: Process,
}

/// A message plane, and the endpoint that answers.
pub(super) struct Mediated {
    _answerer: Process,
    _plane: Plane,
    program: PathBuf,
    folder: PathBuf,
}

impl Plane {
    /// Starts a message plane in `folder`, in which each member has a board. The relay runs on `cpu`, or on any CPU.
    pub(super) fn start(program: &Path, folder: &Path, cpu: Option<u32>) -> Result<Self> {
        let plane = folder.join("plane");
        let words = ["serve", ASKER, ANSWERER];
        let relay = start("relay", program, (folder, &plane), cpu, &words, "serving")?;
        let join = |member: &str| {
            let socket = plane.join(format!("message-plane/{member}.sock"));
            let socket = socket.to_string_lossy();
            let words = ["join", "--socket", &socket];
            let (name, board) = (format!("gateway-{member}"), folder.join(member));
            start(&name, program, (folder, &board), None, &words, "joined")
        };
        Ok(Self {
            _gateways: [join(ASKER)?, join(ANSWERER)?],
            _relay: relay,
        })
    }
}

/// Starts `vicinity message` with these arguments and a board's folder, and waits until it prints `marker`.
fn start(
    name: &str,
    program: &Path,
    (folder, board): (&Path, &Path),
    cpu: Option<u32>,
    words: &[&str],
    marker: &str,
) -> Result<Process> {
    let mut command = match cpu {
        Some(cpu) => first_on(cpu, folder, program),
        None => first(folder, program),
    };
    command.arg("--runtime-dir").arg(board);
    command.arg("message").args(words);
    let mut process = Process::start(name, folder, command)?;
    process.expect(marker)?;
    Ok(process)
}

impl Mediated {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = (cpus > RELAY_CPU as usize).then_some(RELAY_CPU);
        let plane = Plane::start(program, folder, cpu)?;
        let words = ["answer", "--endpoint", "0"];
        let board = folder.join(ANSWERER);
        let cpu = Some(SWITCH_CPU);
        let answerer = start(
            "mediated",
            program,
            (folder, &board),
            cpu,
            &words,
            "answering",
        )?;
        Ok(Self {
            _answerer: answerer,
            _plane: plane,
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
