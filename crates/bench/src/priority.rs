//! Raises the priority of this session. The scheduler's autogroups share the CPUs between sessions, regardless of the
//! `nice` values of their programs. The generator and the switches run in this session, so the benchmark sets its
//! autogroup to nice -20.

use std::fs;

const FILE: &str = "/proc/self/autogroup";

/// Raises the priority of this session until the value is dropped.
pub(super) struct Priority {
    before: Option<i64>,
}

impl Priority {
    /// Raises the priority of this session, if the kernel has autogroups.
    pub(super) fn raise() -> Self {
        let before = fs::read_to_string(FILE).ok().and_then(|text| parse(&text));
        if before.is_some() {
            set(-20);
        }
        Self { before }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(nice) = self.before {
            set(nice);
        }
    }
}

fn set(nice: i64) {
    if let Err(error) = fs::write(FILE, nice.to_string()) {
        tracing::warn!(nice, %error, "cannot change the priority of this session");
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
