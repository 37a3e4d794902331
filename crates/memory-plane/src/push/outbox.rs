//! How pushing goes, for the guest and for the host.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use space::store::{MAX_NODES, PublishedFile, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{PushError, is_temporary_name, url_path};

/// After the first failure; twice as long after each further one, up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(250);

/// Between two attempts.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Files that the guest is shown.
const LISTED_FILES: usize = 100;

/// How pushing goes. Without a store to push to, nothing does.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// There is a store.
    pub(crate) enabled: AtomicBool,
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
    failed_pushes: HashMap<u64, FailedPush>,
    /// Why the last attempt failed, until one does not.
    last_error: Option<String>,
}

/// A version of a file that could not be sent.
#[derive(Debug)]
struct FailedPush {
    version: u64,
    attempts: u32,
    reason: String,
    retry_at: Instant,
}

/// How long to wait after so many failures.
pub(super) fn retry_delay(attempts: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST_RETRY.saturating_mul(doubled).min(MAX_RETRY)
}

impl Outbox {
    /// Whether there is a store.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Why the last attempt failed, if none has gone well since.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.state().last_error.clone()
    }

    /// The next file to send.
    pub(super) fn next(&self, store: &Store, now: Instant) -> Option<PublishedFile> {
        let state = self.state();
        let may_send = |inode: u64, version: u64| match state.failed_pushes.get(&inode) {
            Some(failed) => failed.version != version || failed.retry_at <= now,
            None => true,
        };
        store.first_published(|inode, version, name| {
            !is_temporary_name(name) && may_send(inode, version)
        })
    }

    /// When a file that could not be sent is next to be.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        let attempts = state.failed_pushes.values().map(|failed| failed.retry_at);
        attempts.filter(|next| *next > now).min()
    }

    /// A file is being sent, after so many bytes of others.
    pub(super) fn started(&self, inode: u64, before: u64) {
        self.state().sending = Some((inode, before));
    }

    /// The store has it.
    pub(super) fn succeeded(&self, inode: u64) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.sending = None;
        state.last_error = None;
        state.failed_pushes.remove(&inode);
    }

    /// The store has not.
    pub(super) fn failed(
        &self,
        store: &Store,
        file: &PublishedFile,
        reason: &PushError,
        now: Instant,
    ) {
        let path = url_path(&file.path);
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.sending = None;
        state.last_error = Some(reason.to_string());
        let (inode, version) = (file.inode, file.object.version);
        let before = state.failed_pushes.get(&inode);
        let before = before.filter(|failed| failed.version == version);
        let attempts = before.map_or(0, |failed| failed.attempts).saturating_add(1);
        // Once for each, or a guest could fill the host's log.
        match attempts {
            1 => tracing::warn!(path, "not pushed: {reason}"),
            _ => tracing::debug!(path, attempts, "not pushed: {reason}"),
        }
        let failed = FailedPush {
            version,
            attempts,
            reason: reason.to_string(),
            retry_at: now + retry_delay(attempts),
        };
        state.failed_pushes.insert(inode, failed);
        // Of files that the guest has removed meanwhile.
        if state.failed_pushes.len() > MAX_NODES {
            state
                .failed_pushes
                .retain(|inode, _| store.node(*inode).is_ok());
        }
    }

    /// All of it, for the guest to read.
    pub(crate) fn status_text(&self, store: &Store, sent: u64) -> String {
        let (state, now) = (self.state(), Instant::now());
        let files = store.published_files();
        let (temporary, waiting): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(_, names)| names.last().is_none_or(|name| is_temporary_name(name)));
        let pushed = self.pushed.load(Ordering::Relaxed);
        let mut text = format!(
            "{pushed} sent, {} to send, {} set aside\n",
            waiting.len(),
            temporary.len()
        );
        for (inode, names) in waiting.iter().take(LISTED_FILES) {
            let _always = write!(text, "{} ", url_path(names));
            let _always = match (state.sending, state.failed_pushes.get(inode)) {
                (Some((sending, before)), _) if sending == *inode => {
                    writeln!(
                        text,
                        "sending, {} bytes so far",
                        sent.saturating_sub(before)
                    )
                }
                (_, Some(failed)) => {
                    let seconds = failed.retry_at.saturating_duration_since(now).as_secs();
                    let (attempts, reason) = (failed.attempts, &failed.reason);
                    writeln!(
                        text,
                        "failed {attempts} times, again in {seconds} s: {reason}"
                    )
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
    fn the_retry_delay_doubles_up_to_the_maximum() {
        let waits = [1, 2, 3, 8, 9, u32::MAX].map(|attempts| retry_delay(attempts).as_millis());
        assert_eq!(waits, [250, 500, 1000, 30_000, 30_000, 30_000]);
    }
}
