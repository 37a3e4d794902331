//! Reports Ctrl-C and SIGTERM as an ordinary error.
//!
//! After [`install`] the two signals only set a flag. Every wait of the harness reads the flag and
//! returns [`Error::Interrupted`], so each caller returns, and each value that owns a process or a folder removes it
//! on drop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Context, Error, Result};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Longest time between two reads of the flag.
const SLICE: Duration = Duration::from_millis(50);

/// Turns SIGINT and SIGTERM into [`Error::Interrupted`] until the process ends. A second call does nothing.
///
/// # Errors
/// The system refuses the signal handlers.
pub fn install() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .context(|| format!("handle signal {signal}"))?;
    }
    Ok(())
}

/// Returns an error if a signal arrived.
///
/// # Errors
/// [`Error::Interrupted`] only.
pub fn check() -> Result<()> {
    match FLAG.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// Sleeps for `time`, or until a signal arrives.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLICE));
    }
}

/// Calls `ready` again and again, for at most `limit`, until it returns a value.
///
/// # Errors
/// [`Error::Timeout`] naming `what`, [`Error::Interrupted`], or the error of `ready`.
pub fn poll<T>(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() >= end {
            return Err(Error::Timeout {
                what: what.to_owned(),
                limit,
            });
        }
        sleep(pause)?;
        pause = (pause * 2).min(SLICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_returns_the_first_value() {
        let mut asked = 0;
        let got = poll("a number", Duration::from_secs(5), || {
            asked += 1;
            Ok((asked == 3).then_some(asked))
        });
        assert_eq!(got.unwrap(), 3);
    }

    #[test]
    fn poll_names_what_it_waited_for() {
        let end = poll("the moon", Duration::ZERO, || Ok(None::<()>)).unwrap_err();
        assert!(end.to_string().starts_with("the moon"), "{end}");
    }
}
