//! Reports Ctrl-C and SIGTERM as an ordinary error.
//!
//! After [`install`] the two signals only set a flag. Every wait of the harness reads the flag and
//! returns [`Error::Interrupted`], so each caller returns, and each value that owns a process or a folder removes it
//! on drop.
//!
//! [`within`] ends the waits of one thread in the same way when a time limit passes.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Context, Error, Result};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A time limit of a thread.
#[derive(Clone, Debug)]
struct Deadline {
    end: Instant,
    what: String,
    limit: Duration,
}

thread_local! {
    static DEADLINE: RefCell<Option<Deadline>> = const { RefCell::new(None) };
}

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

/// Returns an error if a signal arrived, or if the time limit of [`within`] has passed.
///
/// # Errors
/// [`Error::Interrupted`], or [`Error::Timeout`] with the name of what [`within`] runs.
pub fn check() -> Result<()> {
    match FLAG.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => return Err(Error::Interrupted),
        _ => {}
    }
    DEADLINE.with_borrow(|deadline| match deadline {
        Some(deadline) if Instant::now() >= deadline.end => Err(Error::Timeout {
            what: deadline.what.clone(),
            limit: deadline.limit,
        }),
        _ => Ok(()),
    })
}

/// Runs `work`, whose waits in this thread fail once `limit` has passed. A limit inside another one does not extend
/// the outer limit.
///
/// # Errors
/// [`Error::Timeout`] with the name `what`, and the errors of the work.
pub fn within<T>(what: &str, limit: Duration, work: impl FnOnce() -> Result<T>) -> Result<T> {
    /// Restores the outer limit, also after a panic.
    struct Outer(Option<Deadline>);
    impl Drop for Outer {
        fn drop(&mut self) {
            DEADLINE.set(self.0.take());
        }
    }
    let outer = Outer(DEADLINE.take());
    let inner = Deadline {
        end: Instant::now() + limit,
        what: what.to_owned(),
        limit,
    };
    let first = match &outer.0 {
        Some(outer) if outer.end < inner.end => outer.clone(),
        _ => inner,
    };
    DEADLINE.set(Some(first));
    work()
}

/// Sleeps for `time`, or until a signal arrives.
///
/// # Errors
/// Those of [`check`].
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

    #[test]
    fn a_limit_ends_the_waits_of_the_work_and_no_others() {
        let long = Duration::from_secs(600);
        let ended = within("the work", Duration::from_millis(20), || {
            // The outer limit passes first.
            within("its part", long, || sleep(long))
        });
        let text = ended.unwrap_err().to_string();
        assert!(text.starts_with("the work did not finish"), "{text}");
        assert!(check().is_ok());
    }
}
