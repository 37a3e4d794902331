//! QEMU's monitor (QMP): one command, one answer.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::jsonline::JsonLine;
use crate::error::{Context, Error, Result};

/// QEMU answers within this, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection to a VM's monitor.
#[derive(Debug)]
pub struct Qmp {
    line: JsonLine,
}

impl Qmp {
    /// Connect and leave the capabilities phase.
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let line = JsonLine::connect(path, "QEMU's monitor")
            .context(|| format!("connect to {}", path.display()))?;
        let mut qmp = Self { line };
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Run a monitor command, for instance `execute("device_add", &json!({"driver": …}))`, and
    /// return its answer. Events that arrive meanwhile are dropped.
    ///
    /// # Errors
    /// QEMU refuses (its words are in the error), is gone, or does not answer for 20 s.
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
