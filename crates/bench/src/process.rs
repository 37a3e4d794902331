//! Starts a program, sends input to it and stops it. The guard of the program sends SIGTERM, then SIGKILL, on every
//! exit path.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use vm_harness::error::{Context, Error, Result};
use vm_harness::host::{self, ChildProcess, tail};
use vm_harness::interrupt;

/// Interval at which output is read. It is long enough not to disturb the generator's CPU.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// Longest time until a program prints or does what the benchmark waits for.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A running program.
pub(super) struct Process {
    /// `Some` until the value is dropped.
    child: Option<ChildProcess>,
    name: String,
    stdin: File,
    log: File,
    output: String,
    seen: usize,
}

impl Process {
    /// Starts `command`, and writes its output to `folder/name.out`.
    ///
    /// The output goes to a file and not to a pipe, so that no program ever waits for the benchmark.
    pub(super) fn start(name: &str, folder: &Path, mut command: Command) -> Result<Self> {
        let path = folder.join(format!("{name}.out"));
        let creating = || format!("create {}", path.display());
        let write = OpenOptions::new().create(true).append(true).open(&path);
        let write = write.context(creating)?;
        let errors = write.try_clone().context(creating)?;
        let log = File::open(&path).context(creating)?;
        let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .context(|| format!("make a pipe to {name}"))?;
        command
            .stdin(Stdio::from(theirs))
            .stdout(write)
            .stderr(errors);
        Ok(Self {
            child: Some(ChildProcess::spawn(command)?),
            name: name.to_owned(),
            stdin: ours.into(),
            log,
            output: String::new(),
            seen: 0,
        })
    }

    /// Returns the process id. It is that of the program, because `taskset` and `nice` replace themselves by the
    /// program.
    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, ChildProcess::id)
    }

    /// Writes a line to the program's standard input.
    pub(super) fn write_line(&mut self, line: &str) -> Result<()> {
        let name = &self.name;
        writeln!(self.stdin, "{line}").context(|| format!("type `{line}` into {name}"))
    }

    /// Waits until the program has printed `marker` after the text that was read before; returns the
    /// text up to and including `marker`.
    pub(super) fn expect(&mut self, marker: &str) -> Result<String> {
        let mut text = None;
        self.until(&format!("`{marker}`"), |process| {
            text = process.take(marker)?;
            Ok(text.is_some())
        })?;
        Ok(text.unwrap_or_default())
    }

    /// Waits until `ready` returns true, at most [`LIMIT`]; `what` names it in the error.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while !ready(self)? {
            if let Some(status) = self
                .child
                .as_mut()
                .map(ChildProcess::ended)
                .transpose()?
                .flatten()
            {
                return Err(self.failed(status.to_string())?);
            }
            if Instant::now() >= end {
                return Err(self.failed(format!("no {what} within {} s", LIMIT.as_secs()))?);
            }
            interrupt::sleep(READ_INTERVAL)?;
        }
        Ok(())
    }

    /// Waits until the program ends by itself, at most [`LIMIT`].
    pub(super) fn end(mut self) -> Result<()> {
        let what = format!("the end of {}", self.name);
        let status = interrupt::poll(&what, LIMIT, || {
            self.child.as_mut().map_or(Ok(None), ChildProcess::ended)
        })?;
        match status.success() {
            true => Ok(()),
            false => Err(self.failed(status.to_string())?),
        }
    }

    fn failed(&mut self, status: String) -> Result<Error> {
        self.read()?;
        Ok(Error::Command {
            command: self
                .child
                .as_ref()
                .map_or("", ChildProcess::command)
                .to_owned(),
            status,
            stderr: tail(&self.output, 15),
        })
    }

    fn read(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        let got = self.log.read_to_end(&mut bytes);
        got.context(|| format!("read the output of {}", self.name))?;
        self.output.push_str(&String::from_utf8_lossy(&bytes));
        Ok(())
    }

    fn take(&mut self, marker: &str) -> Result<Option<String>> {
        self.read()?;
        let fresh = self.output.get(self.seen..).unwrap_or_default();
        let Some((before, _)) = fresh.split_once(marker) else {
            return Ok(None);
        };
        self.seen += before.len() + marker.len();
        Ok(Some(before.to_owned() + marker))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            child.stop();
        }
    }
}

/// Stops a program that busy-polls (SIGSTOP), so that other programs can use its CPU, or continues it (SIGCONT).
pub(super) fn pause(id: u32, resting: bool) -> Result<()> {
    let signal = if resting { Signal::STOP } else { Signal::CONT };
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::Host("a switch is gone".to_owned()))?;
    kill_process(pid, signal).context(|| format!("stop or continue process {id}"))
}

/// Returns a command with nice -20 that keeps the files of DPDK inside `folder`. Generators run with this priority,
/// and so do switches without a service unit that sets one. Other programs then take little of their CPU time.
pub(super) fn first(folder: &Path, program: impl AsRef<OsStr>) -> Command {
    nice(-20, folder, program)
}

/// Like [`first`], on one CPU only.
pub(super) fn first_on(cpu: u32, folder: &Path, program: impl AsRef<OsStr>) -> Command {
    on(cpu, -20, folder, program)
}

/// Returns a command that runs on one CPU only, with this priority (nice(2)).
pub(super) fn on(cpu: u32, priority: i32, folder: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = nice(priority, folder, "taskset");
    command.args(["-c", &cpu.to_string()]).arg(program);
    command
}

fn nice(priority: i32, folder: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = host::command("nice");
    command.args(["-n", &priority.to_string()]).arg(program);
    command.env("RUNTIME_DIRECTORY", folder);
    command
}
