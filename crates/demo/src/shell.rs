//! Keeps the demo's VMs running, with a root shell in each.

use std::io::IsTerminal;
use std::process::Command;
use std::time::Duration;

use super::options::Options;
use super::pair::Pair;
use vm_harness::error::{Context, Error, Result};
use vm_harness::progress::Progress;
use vm_harness::{channel, host, interrupt, workload};

/// Boots the demo's two VMs and opens `tmux` with their serial consoles side by side. Returns
/// after the session has ended and the VMs are stopped. Without a terminal, prints the commands that attach to
/// the consoles instead, and the VMs run until Ctrl-C or SIGTERM.
///
/// # Errors
/// As for [`super::run`].
pub fn shell(options: &Options, progress: &Progress) -> Result<()> {
    let pair = Pair::start(options, progress)?;
    let [_, server] = &pair.vms;
    workload::serve(server)?;
    let [one, two] = pair.vms.each_ref().map(|vm| {
        format!(
            "socat -,raw,echo=0,escape=0x1d UNIX-CONNECT:{}",
            vm.console().display()
        )
    });
    if !std::io::stdin().is_terminal() {
        print_line(&format!(
            "There is no terminal here. Attach from others (leave with Ctrl-]):\n  {one}\n  {two}\n\
             {}\nThe VMs stop when this command is interrupted.",
            hints(options)
        ));
        return wait(&pair);
    }
    let session = Session(format!("vicinity-{}", std::process::id()));
    let hello = hints(options).replace('\'', "");
    session.run(&[
        "new-session",
        "-d",
        "-s",
        "demo",
        &format!("printf '%s\\n' '{hello}'; exec {one}"),
    ])?;
    session.run(&["set-option", "-g", "status-right", " leave: Ctrl-b d "])?;
    session.run(&["set-option", "-g", "mouse", "on"])?;
    session.run(&["split-window", "-h", "-t", "demo", &format!("exec {two}")])?;
    for pane in ["demo.0", "demo.1"] {
        // The guest printed its prompt before tmux connected; an empty line makes it print another one.
        session.run(&["send-keys", "-t", pane, "Enter"])?;
    }
    session.run(&["select-pane", "-t", "demo.0"])?;
    session.attach()
}

/// Commands to try, for the user of the consoles.
fn hints(options: &Options) -> String {
    let lines = options.channels.iter().zip(1..).map(|(name, network)| {
        let target = channel::address(network, 2);
        format!("From vm1 over {name}: ping {target}; iperf3 -c {target}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until both VMs are switched off, or for a signal.
fn wait(pair: &Pair) -> Result<()> {
    let [one, two] = &pair.vms;
    while one.is_running()? || two.is_running()? {
        interrupt::sleep(Duration::from_millis(200))?;
    }
    Ok(())
}

/// A tmux server that is separate from the user's. Dropping the value ends it.
struct Session(String);

impl Session {
    fn run(&self, words: &[&str]) -> Result<()> {
        let mut tmux = host::command("tmux");
        tmux.args(["-L", &self.0, "-f", "/dev/null"]).args(words);
        host::run(tmux).map(drop)
    }

    /// Shows the session on this terminal until it ends or is detached. tmux must stay in the
    /// terminal's foreground process group, so it is not started as a child child.
    fn attach(&self) -> Result<()> {
        let mut tmux = Command::new("tmux");
        tmux.env_remove("TMUX")
            .args(["-L", &self.0, "attach-session", "-t", "demo"]);
        let mut tmux = tmux.spawn().context(|| "start tmux".to_owned())?;
        loop {
            if let Some(status) = tmux.try_wait().context(|| "wait for tmux".to_owned())? {
                let failed = || Error::Host(format!("tmux ended with {status}"));
                return status.success().then_some(()).ok_or_else(failed);
            }
            if let Err(interrupted) = interrupt::sleep(Duration::from_millis(100)) {
                let _ended = self.run_to_end();
                let _status = tmux.wait();
                return Err(interrupted);
            }
        }
    }

    fn run_to_end(&self) -> Result<()> {
        let mut tmux = host::command("tmux");
        tmux.args(["-L", &self.0, "kill-server"]);
        host::run_to_end(tmux).map(drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The server has already ended if the user left both consoles; that is no error.
        let _ended = self.run_to_end();
    }
}

#[expect(clippy::print_stdout, reason = "this is what the user asked to see")]
fn print_line(text: &str) {
    println!("{text}");
}
