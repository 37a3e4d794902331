//! Raises the priority of this session. The scheduler's autogroups share the CPUs between sessions, regardless of the
//! `nice` values of their programs. The generator and the switches run in this session, so the benchmark sets its
//! autogroup to nice -20.

use std::fs;

/// The file of this session's priority.
const OWN: &str = "/proc/self/autogroup";

const FIRST: i64 = -20;

/// Raises the priority of this session until the value is dropped.
pub(super) struct Priority {
    before: Option<i64>,
}

impl Priority {
    /// Raises the priority of this session, if the kernel has autogroups.
    pub(super) fn raise() -> Self {
        let before = fs::read_to_string(OWN).ok().and_then(|text| parse(&text));
        if before.is_some() {
            set(OWN, FIRST);
        }
        Self { before }
    }

    /// Gives the session of a program that this process has started the same priority. The session ends with its
    /// program.
    pub(super) fn extend(&self, process: u32) {
        if self.before.is_some() {
            set(&format!("/proc/{process}/autogroup"), FIRST);
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(nice) = self.before {
            set(OWN, nice);
        }
    }
}

fn set(file: &str, nice: i64) {
    if let Err(error) = fs::write(file, nice.to_string()) {
        tracing::warn!(file, nice, %error, "cannot change the priority of a session");
    }
}

/// Parses `/autogroup-17 nice 0`.
fn parse(text: &str) -> Option<i64> {
    let (_, nice) = text.split_once("nice ")?;
    nice.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_to_return_to_is_read() {
        assert_eq!(parse("/autogroup-17 nice -5\n"), Some(-5));
        assert_eq!(parse(""), None);
    }
}
