//! How often a switch looks each frame's destination up.

use std::path::{Path, PathBuf};

use serde_json::Value;

use vm_harness::error::{Error, Result};
use vm_harness::host;

/// A switch that looks up so often, until this is dropped. A daemon that outlives nobody needs no
/// journal: after a crash it is gone.
#[derive(Debug)]
pub struct Lookups {
    vicinity: PathBuf,
    folder: PathBuf,
}

impl Lookups {
    /// Have the daemon with its control socket in `folder` look each frame of its one network up so
    /// many times, and read that back.
    ///
    /// # Errors
    /// It refuses, or says that it does something else.
    pub fn set(vicinity: &Path, folder: &Path, times: u32) -> Result<Self> {
        let knob = Self {
            vicinity: vicinity.to_owned(),
            folder: folder.to_owned(),
        };
        knob.tell(Some(times))?;
        Ok(knob)
    }

    fn tell(&self, times: Option<u32>) -> Result<()> {
        let value = times.map(|times| times.to_string()).unwrap_or_default();
        let pair = format!("look-ups={value}");
        self.ask(&["network", "set", "lab", &pair])?;
        let text = self.ask(&["network", "list", "--json"])?;
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let kept = list.pointer("/0/lookups").map(Value::as_u64);
        if kept == Some(times.map(u64::from)) {
            return Ok(());
        }
        let kept = kept.map(|kept| format!("{kept:?}")).unwrap_or_default();
        Err(Error::Host(format!(
            "the switch was told {pair} and says that it keeps {kept}"
        )))
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = host::command(&self.vicinity);
        command.arg("--runtime-dir").arg(&self.folder).args(words);
        host::run(command)
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        if let Err(error) = self.tell(None) {
            tracing::warn!(%error, "the switch goes on looking frames up more often than it must");
        }
    }
}
