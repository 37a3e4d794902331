//! How pushing goes, for the guest and for the host.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use space::store::{MAX_NODES, Parcel, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::PushError;
use super::names::{is_set_aside, path};

/// After the first failure; twice as long after each further one, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(250);

/// Between two attempts.
const LONGEST: Duration = Duration::from_secs(30);

/// Files that the guest is shown.
const SHOWN: usize = 100;

/// How pushing goes. Without a store to push to, nothing does.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// There is a store.
    pub(crate) on: AtomicBool,
    /// A file was published, or may have been.
    pub(crate) changed: Notify,
    /// Files that the store has.
    pub(crate) pushed: AtomicU64,
    /// Attempts that failed.
    pub(crate) failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What is being sent: the file's number, and the bytes sent of all files before it.
    sending: Option<(u64, u64)>,
    troubles: HashMap<u64, Trouble>,
    /// Why the last attempt failed, until one does not.
    last: Option<String>,
}

/// A version of a file that could not be sent.
#[derive(Debug)]
struct Trouble {
    version: u64,
    times: u32,
    why: String,
    next: Instant,
}

/// How long to wait after so many failures.
pub(super) fn back_off(times: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(times.saturating_sub(1));
    FIRST.saturating_mul(doubled).min(LONGEST)
}

impl Outbox {
    /// Whether there is a store.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Why the last attempt failed, if none has gone well since.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state().last.clone()
    }

    /// The next file to send.
    pub(super) fn next(&self, store: &Store, now: Instant) -> Option<Parcel> {
        let state = self.state();
        let is_due = |number: u64, version: u64| match state.troubles.get(&number) {
            Some(trouble) => trouble.version != version || trouble.next <= now,
            None => true,
        };
        store
            .first_published(|number, version, name| !is_set_aside(name) && is_due(number, version))
    }

    /// When a file that could not be sent is next to be.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        let times = state.troubles.values().map(|trouble| trouble.next);
        times.filter(|next| *next > now).min()
    }

    /// A file is being sent, after so many bytes of others.
    pub(super) fn begin(&self, number: u64, before: u64) {
        self.state().sending = Some((number, before));
    }

    /// The store has it.
    pub(super) fn done(&self, number: u64) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.sending = None;
        state.last = None;
        state.troubles.remove(&number);
    }

    /// The store has not.
    pub(super) fn failed(&self, store: &Store, parcel: &Parcel, why: &PushError, now: Instant) {
        let path = path(&parcel.path);
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.sending = None;
        state.last = Some(why.to_string());
        let (number, version) = (parcel.number, parcel.object.version);
        let before = state.troubles.get(&number);
        let before = before.filter(|trouble| trouble.version == version);
        let times = before.map_or(0, |trouble| trouble.times).saturating_add(1);
        // Once for each, or a guest could fill the host's log.
        match times {
            1 => tracing::warn!(path, "not pushed: {why}"),
            _ => tracing::debug!(path, times, "not pushed: {why}"),
        }
        let trouble = Trouble {
            version,
            times,
            why: why.to_string(),
            next: now + back_off(times),
        };
        state.troubles.insert(number, trouble);
        // Of files that the guest has removed meanwhile.
        if state.troubles.len() > MAX_NODES {
            state
                .troubles
                .retain(|number, _| store.node(*number).is_ok());
        }
    }

    /// All of it, for the guest to read.
    pub(crate) fn text(&self, store: &Store, sent: u64) -> String {
        let (state, now) = (self.state(), Instant::now());
        let files = store.published_files();
        let (aside, waiting): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(_, names)| names.last().is_none_or(|name| is_set_aside(name)));
        let pushed = self.pushed.load(Ordering::Relaxed);
        let mut text = format!(
            "{pushed} sent, {} to send, {} set aside\n",
            waiting.len(),
            aside.len()
        );
        for (number, names) in waiting.iter().take(SHOWN) {
            let _always = write!(text, "{} ", path(names));
            let _always = match (state.sending, state.troubles.get(number)) {
                (Some((sending, before)), _) if sending == *number => {
                    writeln!(
                        text,
                        "sending, {} bytes so far",
                        sent.saturating_sub(before)
                    )
                }
                (_, Some(trouble)) => {
                    let seconds = trouble.next.saturating_duration_since(now).as_secs();
                    let (times, why) = (trouble.times, &trouble.why);
                    writeln!(text, "failed {times} times, again in {seconds} s: {why}")
                }
                _ => writeln!(text, "waiting"),
            };
        }
        text
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing between two states of it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_and_again_waits_longer_but_not_for_ever() {
        let waits = [1, 2, 3, 8, 9, u32::MAX].map(|times| back_off(times).as_millis());
        assert_eq!(waits, [250, 500, 1000, 30_000, 30_000, 30_000]);
    }
}
