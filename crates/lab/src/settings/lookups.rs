//! Sets the number of FDB look-ups for each frame in a switch.

use std::path::{Path, PathBuf};

use serde_json::Value;

use vm_harness::error::{Error, Result};
use vm_harness::host;

/// The setting of a switch; dropping the value resets it. This setting needs no journal, because the daemon ends with
/// the run, also after a crash.
#[derive(Debug)]
pub struct Lookups {
    vicinity: PathBuf,
    folder: PathBuf,
}

impl Lookups {
    /// Sets the number of look-ups for each frame of the only network of the daemon whose control socket is in `folder`,
    /// and reads it back.
    ///
    /// # Errors
    /// The daemon refuses, or reports another number.
    pub fn set(vicinity: &Path, folder: &Path, times: u32) -> Result<Self> {
        let knob = Self {
            vicinity: vicinity.to_owned(),
            folder: folder.to_owned(),
        };
        knob.set_and_verify(Some(times))?;
        Ok(knob)
    }

    fn set_and_verify(&self, times: Option<u32>) -> Result<()> {
        let value = times.map(|times| times.to_string()).unwrap_or_default();
        let pair = format!("fdb-lookups={value}");
        self.run_command(&["network", "set", "lab", &pair])?;
        let text = self.run_command(&["network", "list", "--json"])?;
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let kept = list.pointer("/0/fdb_lookups").map(Value::as_u64);
        if kept == Some(times.map(u64::from)) {
            return Ok(());
        }
        let kept = kept.map(|kept| format!("{kept:?}")).unwrap_or_default();
        Err(Error::Host(format!(
            "the lab set {pair}, but the switch reports {kept}"
        )))
    }

    fn run_command(&self, words: &[&str]) -> Result<String> {
        let mut command = host::command(&self.vicinity);
        command.arg("--runtime-dir").arg(&self.folder).args(words);
        host::run(command)
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        if let Err(error) = self.set_and_verify(None) {
            tracing::warn!(%error, "cannot restore the number of FDB look-ups of the switch");
        }
    }
}
