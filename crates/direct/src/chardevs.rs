//! QEMU's character devices, as its monitor lists them.

use serde_json::{Value, json};

use crate::DirectError;
use crate::qmp::Qmp;

/// A character device.
#[derive(Debug)]
pub(crate) struct Chardev {
    /// QEMU's id.
    pub(crate) label: String,
    /// What it is connected to, in QEMU's words.
    filename: String,
}

impl Chardev {
    /// Whether this is a socket that QEMU connects, and that is not connected now. A socket on which QEMU listens is
    /// `disconnected`, too, while it has no client (`qemu_chr_socket_address` in QEMU's `chardev/char-socket.c`).
    pub(crate) fn is_reconnecting(&self) -> bool {
        self.filename.starts_with("disconnected:") && !self.filename.contains(",server")
    }
}

impl Qmp {
    /// Returns all character devices.
    pub(crate) fn chardevs(&mut self) -> Result<Vec<Chardev>, DirectError> {
        let answer = self.execute("query-chardev", &json!({}))?;
        let all = answer.as_array().into_iter().flatten();
        let text = |one: &Value, key| Some(one.get(key)?.as_str()?.to_owned());
        let chardevs = all.filter_map(|one| {
            let (label, filename) = (text(one, "label")?, text(one, "filename")?);
            Some(Chardev { label, filename })
        });
        Ok(chardevs.collect())
    }
}
