//! Ctrl-C and SIGTERM as an ordinary error.
//!
//! After [`install`] the two signals only raise a flag. Every wait of the lab looks at it and
//! returns [`Error::Interrupted`], so the stack unwinds and each owner removes what it made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Context, Error, Result};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Longest time a wait goes without looking at the flag.
const SLICE: Duration = Duration::from_millis(50);

/// Turn SIGINT and SIGTERM into [`Error::Interrupted`] for the rest of the process's life.
/// Calling it again does nothing.
///
/// # Errors
/// The system refuses the handlers.
pub fn install() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .context(|| format!("handle signal {signal}"))?;
    }
    Ok(())
}

/// [`Error::Interrupted`] when a signal arrived.
///
/// # Errors
/// Only that one.
pub fn check() -> Result<()> {
    match FLAG.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// Sleep, but wake up for a signal.
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

/// Ask `ready` again and again, at most `limit` long, until it gives a value.
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
