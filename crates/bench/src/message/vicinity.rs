//! Measures Vicinity with `vicinity message`: one process sends requests and one answers them.

use std::path::{Path, PathBuf};
use std::process::Command;

use report::message_perf::Row;
use vm_harness::error::{Error, Result};
use vm_harness::host;

use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use crate::process::{Process, first_on};

/// The endpoint that answers.
pub(super) struct Vicinity {
    _answerer: Process,
    program: PathBuf,
    folder: PathBuf,
}

/// The number of the answering endpoint.
const ENDPOINT: &str = "0";

impl Vicinity {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let mut command = first_on(SWITCH_CPU, folder, program);
        command.arg("--runtime-dir").arg(folder);
        command.args(["message", "answer", "--endpoint", ENDPOINT]);
        let mut answerer = Process::start("answerer", folder, command)?;
        answerer.expect("answering")?;
        Ok(Self {
            _answerer: answerer,
            program: program.to_owned(),
            folder: folder.to_owned(),
        })
    }

    pub(super) fn measure(&self, length: u32) -> Result<Row> {
        let command = first_on(GENERATOR_CPU, &self.folder, &self.program);
        perf(command, &self.folder, ENDPOINT, length)
    }
}

/// Runs `vicinity message perf` by `program` for messages of a length to `peer`, from the board in `folder`.
pub(super) fn perf(mut program: Command, folder: &Path, peer: &str, length: u32) -> Result<Row> {
    program.arg("--runtime-dir").arg(folder);
    program.args(["message", "perf", peer, "--json", "--lengths"]);
    program.arg(length.to_string());
    read(&host::run(program)?)
}

fn read(text: &str) -> Result<Row> {
    match serde_json::from_str::<Vec<Row>>(text).as_deref() {
        Ok([row]) => Ok(*row),
        _ => Err(Error::unreadable("the figures of `vicinity message`", text)),
    }
}
