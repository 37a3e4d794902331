//! Commands inside a guest, through QEMU's guest agent.
//!
//! The agent uses a virtio-serial port and not the networks under test, so running a command neither needs nor
//! disturbs them.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::jsonline::JsonLine;
use crate::error::{Context, Error, Result};
use crate::interrupt;

/// First interval at which the host asks whether a command has ended: most commands are short.
const FIRST: Duration = Duration::from_millis(10);

/// Longest interval. Each request costs the guest some CPU time, which would disturb a measurement.
const LONGEST: Duration = Duration::from_millis(100);

/// Longest time until the agent answers, also in an emulated guest under load.
const LIMIT: Duration = Duration::from_secs(30);

/// Exit status and output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 + N if signal N ended the command, as in a shell.
    pub status: i32,
    /// Standard output (at most 16 MB are kept).
    pub stdout: String,
    /// Standard error (at most 16 MB are kept).
    pub stderr: String,
}

#[derive(Debug)]
pub(super) struct Agent {
    line: JsonLine,
}

impl Agent {
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let line = JsonLine::connect(path, "the guest agent")
            .context(|| format!("connect to {}", path.display()))?;
        Ok(Self { line })
    }

    /// Whether the agent answers within `limit`. Until the guest has started the agent, QEMU buffers the request.
    pub(super) fn sync(&mut self, id: u32, limit: Duration) -> Result<bool> {
        self.line
            .send(&json!({"execute": "guest-sync", "arguments": {"id": id}}))?;
        let end = Instant::now() + limit;
        while let Some(answer) = self
            .line
            .receive(end.saturating_duration_since(Instant::now()))?
        {
            if answer.get("return").and_then(Value::as_u64) == Some(id.into()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Starts a shell command and returns its process id in the guest.
    pub(super) fn start(&mut self, command: &str) -> Result<i64> {
        let arguments = json!({
            // The command has a session of its own, so that killing its process group ends all processes that it started.
            "path": "/usr/bin/setsid",
            "arg": ["bash", "-c", command],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"],
            "capture-output": true,
        });
        let answer = self.call("guest-exec", &arguments)?;
        let pid = answer.get("pid").and_then(Value::as_i64);
        pid.ok_or_else(|| Error::unreadable("the guest agent", &answer.to_string()))
    }

    /// Returns the output of a command, once the command has ended.
    pub(super) fn ended(&mut self, pid: i64) -> Result<Option<Output>> {
        let answer = self.call("guest-exec-status", &json!({"pid": pid}))?;
        if answer.get("exited").and_then(Value::as_bool) != Some(true) {
            return Ok(None);
        }
        let number = |key: &str| answer.get(key).and_then(Value::as_i64);
        let status = number("exitcode").or_else(|| number("signal").map(|s| 128 + s));
        Ok(Some(Output {
            status: status.and_then(|s| i32::try_from(s).ok()).unwrap_or(-1),
            stdout: decoded(&answer, "out-data")?,
            stderr: decoded(&answer, "err-data")?,
        }))
    }

    fn call(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.line
            .send(&json!({"execute": command, "arguments": arguments}))?;
        let Some(mut answer) = self.line.receive(LIMIT)? else {
            let what = format!("the guest agent's {command}");
            return Err(Error::Timeout { what, limit: LIMIT });
        };
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => Err(Error::unreadable("the guest agent", &answer.to_string())),
        }
    }
}

/// The pauses between requests whether a command has ended.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) const fn new() -> Self {
        Self(FIRST)
    }

    /// Waits until the next request is due, each time twice as long as before, up to the longest interval.
    pub(super) fn wait(&mut self) -> Result<()> {
        interrupt::sleep(self.0)?;
        self.0 = (self.0 * 2).min(LONGEST);
        Ok(())
    }
}

fn decoded(answer: &Value, key: &str) -> Result<String> {
    let coded = answer.get(key).and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(coded);
    let bytes = bytes.map_err(|_| Error::unreadable("a command's output", coded))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
