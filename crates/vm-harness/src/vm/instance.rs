//! Boots a virtual machine, runs commands in it and stops it.
//!
//! A [`Vm`] owns its QEMU process: dropping it kills and reaps QEMU and removes its sockets.
//! Guest RAM is a shared memory file, so that a vhost-user back-end can map it.

use std::fs::{self, File};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::accel::{self, Accel};
use crate::error::{Context, Error, Result};
use crate::host::{self, ChildProcess};
use crate::image::Image;
use crate::scope::RunFolder;
use crate::{cpu, interrupt};

use super::agent::{Agent, Output, Pauses};
use super::qmp::Qmp;
use super::spec::Spec;

/// A running VM.
#[derive(Debug)]
pub struct Vm {
    spec: Spec,
    accel: Accel,
    // Fields are dropped in this order: QEMU first, then the folder of its sockets.
    qemu: Mutex<ChildProcess>,
    agent: Mutex<Option<Agent>>,
    pub(super) run: RunFolder,
}

/// A command that runs in a guest. Dropping the value does not end the command;
/// [`Job::kill`] does.
#[derive(Debug)]
pub struct Job<'vm> {
    vm: &'vm Vm,
    pid: i64,
    command: String,
}

impl Vm {
    /// Starts a VM and returns at once, while the guest boots. Call [`Vm::wait_ready`] next.
    ///
    /// # Errors
    /// QEMU is missing or a log cannot be written.
    pub fn boot(image: &Image, spec: Spec) -> Result<Self> {
        let accel = accel::detect(&image.kernel)?;
        let run = RunFolder::new()?;
        fs::create_dir_all(&spec.logs).context(|| format!("make {}", spec.logs.display()))?;
        let log = spec.qemu_log();
        let log = File::create(&log).context(|| format!("make {}", log.display()))?;
        let mut command = spec.command(image, accel, run.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let qemu = Mutex::new(ChildProcess::spawn(command)?);
        tracing::debug!("VM {}: {}", spec.name, lock(&qemu).command());
        Ok(Self {
            spec,
            accel,
            qemu,
            agent: Mutex::new(None),
            run,
        })
    }

    /// Waits until commands can be run in the guest, also after the guest has rebooted.
    ///
    /// # Errors
    /// [`Error::Vm`] with the console's last lines if QEMU ends or `limit` passes.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        // QEMU serves one connection at a time.
        *lock(&self.agent) = None;
        let end = Instant::now() + limit;
        let path = self.run.path().join("agent");
        let mut connected = None;
        let mut asked = 0;
        loop {
            // This call is not inside an `if let`, which would keep the lock locked while `failure` locks it again.
            let ended = lock(&self.qemu).ended()?;
            if let Some(status) = ended {
                return Err(self.failure(&format!("QEMU ended ({status})")));
            }
            if Instant::now() >= end {
                let seconds = limit.as_secs();
                return Err(self.failure(&format!("the guest was not up after {seconds} s")));
            }
            match &mut connected {
                None => {
                    connected = Agent::connect(&path).ok();
                    interrupt::sleep(Duration::from_millis(20))?;
                }
                Some(agent) => {
                    asked += 1;
                    // An error here means that QEMU ended; the next iteration reads its exit status.
                    match agent.sync(asked, Duration::from_secs(1)) {
                        Ok(true) => break,
                        Err(Error::Interrupted) => return Err(Error::Interrupted),
                        Ok(false) | Err(_) => interrupt::sleep(Duration::from_millis(20))?,
                    }
                }
            }
        }
        *lock(&self.agent) = connected;
        Ok(())
    }

    /// Runs a shell command in the guest and waits for its end.
    ///
    /// # Errors
    /// [`Error::Timeout`] (the command is killed), or the VM ended. A command that fails is not
    /// an error here: see [`Output::status`] and [`Vm::check`].
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        self.start(command)?.wait(limit)
    }

    /// Like [`Vm::run`], but a command that fails is an error; returns its standard output.
    ///
    /// # Errors
    /// [`Error::Guest`] with what the command printed, and those of [`Vm::run`].
    pub fn check(&self, command: &str, limit: Duration) -> Result<String> {
        let output = self.run(command, limit)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        let printed = format!("{}\n{}", output.stdout.trim(), output.stderr.trim());
        Err(Error::Guest {
            vm: self.spec.name.clone(),
            command: command.to_owned(),
            status: output.status,
            output: host::tail(printed.trim(), 12),
        })
    }

    /// Starts a shell command in the guest; the caller waits for it or kills it later.
    ///
    /// # Errors
    /// The VM is not ready, or ended.
    pub fn start(&self, command: &str) -> Result<Job<'_>> {
        let pid = self.with_agent(|agent| agent.start(command))?;
        let command = command.to_owned();
        Ok(Job {
            vm: self,
            pid,
            command,
        })
    }

    /// Connects to QEMU's monitor. QEMU serves one connection at a time.
    ///
    /// # Errors
    /// QEMU has ended, or is busy with another connection.
    pub fn qmp(&self) -> Result<Qmp> {
        Qmp::connect(&self.run.path().join("qmp"))
    }

    /// Returns the CPU time of all threads of QEMU, user and system.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu::of_process(self.id())
    }

    /// Whether QEMU still runs: the guest was not switched off and did not crash.
    ///
    /// # Errors
    /// The system cannot wait for QEMU.
    pub fn is_running(&self) -> Result<bool> {
        Ok(lock(&self.qemu).ended()?.is_none())
    }

    /// Returns QEMU's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        lock(&self.qemu).id()
    }

    /// Returns the VM's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the specification that the VM was booted with.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the accelerator that runs the guest's instructions.
    #[must_use]
    pub const fn accel(&self) -> Accel {
        self.accel
    }

    /// Returns the UNIX socket of the serial console, where a root shell waits.
    #[must_use]
    pub fn console(&self) -> std::path::PathBuf {
        self.run.path().join("console")
    }

    /// Kills QEMU, like a power cut, and reaps it. Guests have no persistent storage, so no data is
    /// lost. Dropping the VM does the same.
    pub fn stop(self) {}

    fn with_agent<T>(&self, call: impl FnOnce(&mut Agent) -> Result<T>) -> Result<T> {
        let mut agent = lock(&self.agent);
        let Some(agent) = agent.as_mut() else {
            return Err(Error::Host(format!("VM {} is not ready", self.spec.name)));
        };
        match call(agent) {
            Err(Error::Io { what, source }) => {
                Err(self.failure(&format!("lost the guest ({what}: {source})")))
            }
            other => other,
        }
    }

    pub(super) fn failure(&self, why: &str) -> Error {
        let read = |path| fs::read(path).unwrap_or_default();
        let console = read(self.spec.console_log());
        let mut text = host::tail(&String::from_utf8_lossy(&console), 15);
        text.push('\n');
        let qemu = read(self.spec.qemu_log());
        text.push_str(&host::tail(&String::from_utf8_lossy(&qemu), 10));
        Error::Vm {
            vm: self.spec.name.clone(),
            why: why.to_owned(),
            console: text.trim().to_owned(),
            command: lock(&self.qemu).command().to_owned(),
        }
    }
}

impl Job<'_> {
    /// Returns the output if the command has ended. Only one call returns it, because the agent then discards the
    /// command's record.
    ///
    /// # Errors
    /// The VM ended.
    pub fn ended(&self) -> Result<Option<Output>> {
        self.vm.with_agent(|agent| agent.ended(self.pid))
    }

    /// Waits for the end of the command.
    ///
    /// # Errors
    /// [`Error::Timeout`] (the command is killed), or the VM ended.
    pub fn wait(self, limit: Duration) -> Result<Output> {
        let end = Instant::now() + limit;
        let mut pauses = Pauses::new();
        loop {
            if let Some(output) = self.ended()? {
                return Ok(output);
            }
            if Instant::now() >= end {
                let what = format!("in VM {}, `{}`", self.vm.name(), self.command);
                self.kill()?;
                return Err(Error::Timeout { what, limit });
            }
            pauses.wait()?;
        }
    }

    /// Kills the command and the processes that it started.
    ///
    /// # Errors
    /// The VM ended.
    pub fn kill(self) -> Result<()> {
        let kill = self.vm.start(&format!("kill -KILL -- -{}", self.pid))?;
        let mut pauses = Pauses::new();
        while kill.ended()?.is_none() {
            pauses.wait()?;
        }
        Ok(())
    }
}

/// Locks a mutex, also after a thread that held it panicked: the data behind these locks stays valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
