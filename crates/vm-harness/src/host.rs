//! Runs programs of the host: either to their end, or as a child that cannot outlive this process.
//!
//! Every child leaves the terminal's process group, so that Ctrl-C reaches only this process, which
//! ends its children in order. Every child asks the kernel to kill it when its parent ends, so that not even
//! SIGKILL of this process leaves a child running. The kernel sends that signal when the parent *thread* ends.
//! Therefore one thread, which runs as long as the process, starts all children.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::error::{Context, Error, Result};
use crate::interrupt;

type Start = (Command, mpsc::Sender<io::Result<Child>>);

/// How long a child may take to end after SIGTERM before it is killed.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `setpriv` that make the kernel kill the program when its parent ends; this process's id and the
/// program follow. If this process ends before `setpriv` makes that setting, the kernel never kills the program;
/// therefore the shell compares the parent's id after the setting.
const PARENT_DEATH_ARGUMENTS: [&str; 6] = [
    "--pdeathsig",
    "KILL",
    "--",
    "sh",
    "-c",
    r#"[ "$PPID" = "$0" ] && exec "$@""#,
];

/// Number of arguments before the program: those of `setpriv`, and this process's id.
const BEFORE: usize = PARENT_DEATH_ARGUMENTS.len() + 1;

/// Returns a command for [`ChildProcess::spawn`] or [`run`]: `program`, which the kernel kills when this process ends.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = killed_with_this_process();
    command.arg(program).process_group(0);
    command
}

/// Returns a command as [`command`] does, whose program has a session of its own, as a service has. So the scheduler
/// gives it a share of the CPU of its own (`autogroup`, sched(7)).
#[must_use]
pub fn service(program: impl AsRef<OsStr>) -> Command {
    let mut command = killed_with_this_process();
    // Not the leader of a process group: setsid(1) would then start another process.
    command.arg("setsid").arg(program);
    command
}

fn killed_with_this_process() -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(PARENT_DEATH_ARGUMENTS)
        .arg(std::process::id().to_string());
    command
}

/// A child process that the kernel kills when this process ends. Dropping the value kills and reaps the child.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    command: String,
}

impl ChildProcess {
    /// Starts a command made by [`command`]. Its standard streams are as the caller set them.
    ///
    /// # Errors
    /// [`Error::MissingTool`] if the program is not installed.
    pub fn spawn(command: Command) -> Result<Self> {
        let program = command.get_args().nth(BEFORE).unwrap_or_default();
        if !exists(program) {
            return Err(Error::MissingTool(program.to_string_lossy().into_owned()));
        }
        let text = shell_line(&command);
        let child = start(command).context(|| format!("start `{text}`"))?;
        Ok(Self {
            child,
            command: text,
        })
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the command line as a user would type it in a shell.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Takes the pipe of the child's standard output, if its command has one.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns the exit status if the child has ended.
    ///
    /// # Errors
    /// The system cannot wait for the child.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let text = &self.command;
        self.child
            .try_wait()
            .context(|| format!("wait for `{text}`"))
    }

    /// Returns an error with the end of `log` if the child has ended.
    ///
    /// # Errors
    /// The child has ended.
    pub fn must_run(&mut self, log: &Path) -> Result<()> {
        let Some(status) = self.ended()? else {
            return Ok(());
        };
        let text = std::fs::read_to_string(log).unwrap_or_default();
        Err(Error::Command {
            command: self.command.clone(),
            status: status.to_string(),
            stderr: tail(&text, 12),
        })
    }

    /// Sends SIGTERM to the child, kills it if it does not end within 5 s, and reaps it.
    pub fn stop(mut self) {
        if let Some(pid) = pid(&self.child) {
            let _gone = kill_process(pid, Signal::TERM);
        }
        // A pending Ctrl-C must not shorten the wait, so this does not use `interrupt`.
        let step = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while waited < TERMINATION_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(step);
            waited += step;
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// [`Error::MissingTool`], [`Error::Command`] if the program fails, [`Error::Interrupted`] (the
/// program and its children then receive SIGTERM).
pub fn run(command: Command) -> Result<String> {
    finish(command, Stdio::null(), end_of)
}

/// Runs `work` while a program runs that ends when its standard input is closed, and closes that input after the work.
/// Returns the program's standard output and the result of the work.
///
/// # Errors
/// Those of the work (the program is then killed), and those of [`run`].
pub fn run_beside<T>(command: Command, work: impl FnOnce() -> Result<T>) -> Result<(String, T)> {
    let mut done = None;
    let printed = finish(command, Stdio::piped(), |child| {
        let input = child.child.stdin.take();
        done = Some(work()?);
        drop(input);
        end_of(child)
    })?;
    let done = done.ok_or_else(|| Error::Host("a program ended before it began".to_owned()))?;
    Ok((printed, done))
}

fn end_of(child: &mut ChildProcess) -> Result<ExitStatus> {
    let forever = Duration::from_secs(3600);
    let text = child.command.clone();
    let ended = interrupt::poll(&text, forever, || child.ended());
    if let (Err(_), Some(group)) = (&ended, pid(&child.child)) {
        let _gone = kill_process_group(group, Signal::TERM);
        let _status = child.child.wait();
    }
    ended
}

/// Like [`run`], for cleaning up: a pending Ctrl-C does not interrupt it.
pub fn run_to_end(command: Command) -> Result<String> {
    finish(command, Stdio::null(), |child| {
        let text = child.command.clone();
        child.child.wait().context(|| format!("wait for `{text}`"))
    })
}

fn finish(
    mut command: Command,
    input: Stdio,
    wait: impl FnOnce(&mut ChildProcess) -> Result<ExitStatus>,
) -> Result<String> {
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = ChildProcess::spawn(command)?;
    let out = collect(child.child.stdout.take());
    let err = collect(child.child.stderr.take());
    let status = wait(&mut child)?;
    let (out, err) = (text(out), text(err));
    if status.success() {
        return Ok(out);
    }
    Err(Error::Command {
        command: child.command.clone(),
        status: status.to_string(),
        stderr: tail(err.trim(), 12),
    })
}

/// Returns the last `lines` lines of a text.
#[must_use]
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().join("\n")
}

/// Returns the start time of a process, in clock ticks since boot; `None` if no process has this id.
pub fn start_time(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // proc_pid_stat(5): field 22, counted from 3 behind the name in parentheses.
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

/// Returns the ids of a process and of its descendants that still run.
pub fn family(id: u32) -> Vec<u32> {
    let mut all = vec![id];
    let mut next = 0;
    while let Some(id) = all.get(next) {
        next += 1;
        let threads = std::fs::read_dir(format!("/proc/{id}/task"));
        let threads = threads.into_iter().flatten().flatten();
        let lists = threads.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
        for list in lists {
            all.extend(
                list.split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    all
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _partial = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn text(reader: thread::JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn exists(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns a command line as a user would type it in a shell.
fn shell_line(command: &Command) -> String {
    let quote = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words = command.get_args().skip(BEFORE);
    words.map(quote).collect::<Vec<_>>().join(" ")
}

/// Passes a command to the thread that starts all children.
fn start(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Start>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Start>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _asker_gone = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, child) = mpsc::channel();
    let gone = || io::Error::other("the starter thread is gone");
    let orders = starter.lock().map_err(|_| gone())?;
    orders.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_back() {
        let mut echo = command("echo");
        echo.args(["a b", "c"]);
        assert_eq!(run(echo).unwrap(), "a b c\n");
    }

    #[test]
    fn a_program_beside_work_lasts_as_long_as_that() {
        let here = crate::scope::RunFolder::new().unwrap();
        let gone = here.path().join("gone");
        let until_input_ends = || {
            let mut shell = command("sh");
            shell.args(["-c", "cat; touch $0; echo more"]).arg(&gone);
            shell
        };
        let still_runs = || Ok(!gone.exists());
        let (printed, during) = run_beside(until_input_ends(), still_runs).unwrap();
        assert_eq!((printed.as_str(), during), ("more\n", true));
        assert!(gone.exists());
        let failed = || Err::<(), _>(Error::Interrupted);
        assert!(run_beside(until_input_ends(), failed).is_err());
    }

    #[test]
    fn a_failure_shows_the_command_and_its_words() {
        let mut ls = command("ls");
        ls.arg("/no such folder");
        let text = run(ls).unwrap_err().to_string();
        assert!(text.contains("ls '/no such folder'"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[test]
    fn a_missing_tool_is_named_with_its_remedy() {
        let text = run(command("no-such-tool")).unwrap_err().to_string();
        assert!(
            text.contains("no-such-tool") && text.contains("scripts/setup"),
            "{text}"
        );
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let mut sleep = command("sleep");
        sleep.arg("600");
        let child = ChildProcess::spawn(sleep).unwrap();
        let id = child.id();
        assert!(start_time(id).is_some());
        drop(child);
        assert!(start_time(id).is_none());
    }

    // getsid(2) of rustix asserts that the answer is a process. The kernel answers 0 for a session whose leader is
    // outside the PID namespace, as that of a test in a container may be.
    fn session(pid: Pid) -> i32 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero().get())).unwrap();
        // The name ends at the last parenthesis. The state, the parent, the process group and the session follow.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(3).unwrap().parse().unwrap()
    }

    #[test]
    fn a_service_leads_a_session_of_its_own() {
        let mut sleep = service("sleep");
        sleep.arg("600");
        let child = ChildProcess::spawn(sleep).unwrap();
        let pid = pid(&child.child).unwrap();
        let start = std::time::Instant::now();
        while session(pid) != pid.as_raw_nonzero().get() {
            assert!(start.elapsed() < TERMINATION_TIMEOUT, "no session");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn descendants_are_children_and_their_children() {
        let mut shell = command("sh");
        shell.args(["-c", "sh -c 'sleep 600; :'; :"]);
        shell.stdout(Stdio::null());
        let child = ChildProcess::spawn(shell).unwrap();
        let enough = || family(child.id()).len() == 3;
        while !enough() {
            thread::sleep(Duration::from_millis(5));
        }
        for id in family(child.id()).into_iter().skip(1) {
            let _gone = kill_process(
                Pid::from_raw(i32::try_from(id).unwrap()).unwrap(),
                Signal::KILL,
            );
        }
    }

    #[test]
    fn a_child_outlives_the_thread_that_started_it() {
        let mut sleep = command("sleep");
        sleep.arg("600");
        let mut child = thread::spawn(|| ChildProcess::spawn(sleep).unwrap())
            .join()
            .unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(child.ended().unwrap().is_none());
    }
}
