//! How a process is started, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGKILL, SIGSYS};
use switch::control::ControlSocket;
use tokio::process::{Child, Command};

use crate::config::Network;
use crate::processes::start::command;
use crate::processes::start::{
    DATA_PLANE, DIRECT_GROUP, MESSAGE_GATEWAY, MESSAGE_PLANE, MESSAGE_UPLINK, SPACE, VSOCK,
};

/// What a process serves.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) enum ProcessKind<'a> {
    /// A network.
    Network(&'a Network),
    /// The message plane.
    Messages,
    /// The message plane's gateway for this host's programs; with the runtime folder.
    Gateway(&'a Path),
    /// The message plane's uplink to other hosts; with the runtime folder.
    Uplink(&'a Path),
    /// A trust group of the direct channel: the runtime folder, and its name.
    Group(&'a Path, &'a str),
    /// The space of the VM of this name.
    Space(&'a str),
    /// The sockets plane of some VMs, of which the first has this name.
    Vsock(&'a str),
}

/// Starts a process for a kind at the other end of a control socket.
#[derive(Clone)]
pub(in crate::serve) struct Launch(Arc<Start>);

type Start = dyn Fn(ProcessKind<'_>, ControlSocket) -> io::Result<Ending> + Send + Sync;

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Launch")
    }
}

/// Time in which a process ends after it closed its control socket, and after it was killed.
const TERMINATION_TIMEOUT: Duration = Duration::from_millis(250);

/// A running process or thread, which reports how it ended. Dropping it ends the process.
#[derive(Debug)]
pub(in crate::serve) enum Ending {
    /// A process.
    Process(Child),
    /// A thread of a test, with what the data plane's function returns.
    #[cfg(test)]
    Thread(tokio::sync::oneshot::Receiver<io::Result<()>>),
}

/// Returns a launcher that starts this program once more, with the control socket as standard input. The process
/// logs on the supervisor's standard error, as `log` (options of the command line) says.
pub(in crate::serve) fn processes(log: Vec<String>) -> Launch {
    Launch::by(move |kind, control| {
        let mut command = Command::from(command(control));
        command
            .args(&log)
            .args(kind.arguments())
            // The terminal's signals go to the supervisor only, which ends its processes in order.
            .process_group(0)
            .kill_on_drop(true);
        Ok(Ending::Process(command.spawn()?))
    })
}

impl Launch {
    /// Returns a launcher that calls `start`.
    pub(in crate::serve) fn by(
        start: impl Fn(ProcessKind<'_>, ControlSocket) -> io::Result<Ending> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(start))
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The kernel refuses to start it.
    pub(in crate::serve) fn start(
        &self,
        kind: ProcessKind<'_>,
        control: ControlSocket,
    ) -> io::Result<Ending> {
        (self.0)(kind, control)
    }
}

impl ProcessKind<'_> {
    fn arguments(self) -> Vec<OsString> {
        match self {
            Self::Network(network) => {
                let workers = network.workers.to_string();
                let words = [DATA_PLANE, &network.name, "--workers", &workers];
                words.map(OsString::from).into()
            }
            Self::Messages => vec![MESSAGE_PLANE.into()],
            Self::Gateway(runtime_dir) => below(runtime_dir, MESSAGE_GATEWAY),
            Self::Uplink(runtime_dir) => below(runtime_dir, MESSAGE_UPLINK),
            Self::Space(vm) => [SPACE, vm].map(OsString::from).into(),
            Self::Vsock(vm) => [VSOCK, vm].map(OsString::from).into(),
            Self::Group(runtime_dir, name) => {
                let mut words = below(runtime_dir, DIRECT_GROUP);
                words.push(name.into());
                words
            }
        }
    }
}

fn below(runtime_dir: &Path, command: &str) -> Vec<OsString> {
    let folder = runtime_dir.as_os_str().to_owned();
    vec!["--runtime-dir".into(), folder, command.into()]
}

impl Ending {
    /// Waits for the end of the process and returns its reason. Abandons a process that the kernel does not end: it
    /// keeps its descriptors, and the next process gets duplicates of its own.
    pub(in crate::serve) async fn exit_reason(self) -> String {
        match self {
            Self::Process(mut child) => {
                if let Ok(status) = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await {
                    return status.map_or_else(|error| error.to_string(), describe);
                }
                let id = child.id().unwrap_or_default();
                if let Err(error) = child.start_kill() {
                    return error.to_string();
                }
                // When the process ends later, the runtime reaps it.
                match tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await {
                    Ok(_) => {
                        "it closed its control socket but did not end, so the supervisor killed \
                    it"
                        .to_owned()
                    }
                    Err(_) => left_behind(id),
                }
            }
            #[cfg(test)]
            Self::Thread(end) => match end.await {
                Ok(Ok(())) => "it exited without an error".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => {
                    "it panicked, which is a bug in Vicinity; report it with the log".to_owned()
                }
            },
        }
    }

    /// Returns the process id while the process runs.
    pub(in crate::serve) fn id(&self) -> Option<u32> {
        match self {
            Self::Process(child) => child.id(),
            #[cfg(test)]
            Self::Thread(_) => None,
        }
    }

    pub(in crate::serve) fn kill(&mut self) {
        match self {
            // Fails if the process has ended already.
            Self::Process(child) => drop(child.start_kill()),
            #[cfg(test)]
            Self::Thread(_) => {}
        }
    }
}

/// Describes a process in uninterruptible sleep.
fn left_behind(id: u32) -> String {
    format!(
        "SIGKILL does not end process {id}, because one of its threads waits in the kernel (state D) for a page, \
            a device or a file system that does not answer; the supervisor abandons the process, which ends when \
            the kernel wakes that thread"
    )
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => "it exited without an error".to_owned(),
        (Some(101), _) => "it panicked, which is a bug in Vicinity; report it with the log".to_owned(),
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(SIGSYS)) => {
            "the kernel killed it for a system call that its seccomp profile does not allow; the kernel's log \
                names the call"
                .to_owned()
        }
        (None, Some(SIGKILL)) => {
            "SIGKILL ended it: an administrator killed it, or the host ran out of memory (see the kernel's \
                log)".to_owned()
        }
        (None, signal) => {
            let number = signal.unwrap_or_default();
            let name = signal_hook::low_level::signal_name(number).unwrap_or("unknown");
            format!("signal {number} ({name}) ended it")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_description_of_an_end_has_its_cause() {
        let told = |raw| describe(ExitStatus::from_raw(raw));
        assert_eq!(
            told(101 << 8),
            "it panicked, which is a bug in Vicinity; report it with the log"
        );
        assert_eq!(told(1 << 8), "it ended with exit code 1");
        assert_eq!(told(11), "signal 11 (SIGSEGV) ended it");
        assert!(told(9).contains("SIGKILL"));
        assert!(told(31).contains("seccomp"));
    }
}
