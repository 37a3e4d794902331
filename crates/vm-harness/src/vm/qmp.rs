//! Sends commands to QEMU's monitor (QMP) and receives their responses.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::jsonline::JsonLine;
use crate::error::{Context, Error, Result};

/// Longest time until QEMU answers, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection to a VM's monitor.
#[derive(Debug)]
pub struct Qmp {
    line: JsonLine,
}

impl Qmp {
    /// Connects and negotiates capabilities.
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let line = JsonLine::connect(path, "QEMU's monitor")
            .context(|| format!("connect to {}", path.display()))?;
        let mut qmp = Self { line };
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Runs a monitor command, for instance `execute("device_add", &json!({"driver": …}))`, and returns its response.
    /// Events that arrive before the response are discarded.
    ///
    /// # Errors
    /// QEMU refuses (its message is in the error), has ended, or does not answer for 20 s.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.line
            .send(&json!({"execute": command, "arguments": arguments}))?;
        loop {
            let Some(mut message) = self.line.receive(LIMIT)? else {
                let what = format!("QEMU's command {command}");
                return Err(Error::Timeout { what, limit: LIMIT });
            };
            if let Some(error) = message.get("error") {
                let text = format!("{command}: {error}");
                return Err(Error::Host(format!("QEMU refused {text}")));
            }
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }
}
