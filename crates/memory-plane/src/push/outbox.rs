//! The state of the push: the current file, failed files and their retry times, and counters.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use space::store::{MAX_NODES, PublishedFile, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::PushError;
use super::names::{is_temporary_name, url_path};

/// Delay after the first failure. It doubles with each further failure, up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(250);

/// Longest delay between two attempts.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Most files that the status file lists.
const LISTED_FILES: usize = 100;

/// The state of the push. It is disabled if the space has no store to push to.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Whether the space has a store to push to.
    pub(crate) enabled: AtomicBool,
    /// Notified when a file may have been published, renamed or removed.
    pub(crate) changed: Notify,
    /// Files that the store acknowledged.
    pub(crate) pushed: AtomicU64,
    /// Failed attempts.
    pub(crate) failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The file that is being sent: its inode number, and the bytes sent before it began.
    sending: Option<(u64, u64)>,
    failed_pushes: HashMap<u64, FailedPush>,
    /// Why the last attempt failed; cleared by a success.
    last_error: Option<String>,
}

/// A file version whose push failed.
#[derive(Debug)]
struct FailedPush {
    version: u64,
    attempts: u32,
    reason: String,
    retry_at: Instant,
}

/// Returns the delay after this many failures.
pub(super) fn retry_delay(attempts: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST_RETRY.saturating_mul(doubled).min(MAX_RETRY)
}

impl Outbox {
    /// Returns whether the space has a store to push to.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Returns why the last attempt failed, if none succeeded since.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.state().last_error.clone()
    }

    /// Returns the next file to send.
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

    /// Returns the earliest future retry time.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        let times = state.failed_pushes.values().map(|failed| failed.retry_at);
        times.filter(|next| *next > now).min()
    }

    /// Records that a file is being sent. `before` is the number of bytes sent before it.
    pub(super) fn started(&self, inode: u64, before: u64) {
        self.state().sending = Some((inode, before));
    }

    /// Records that the store acknowledged a file.
    pub(super) fn succeeded(&self, inode: u64) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.sending = None;
        state.last_error = None;
        state.failed_pushes.remove(&inode);
    }

    /// Records that a push failed, and schedules the retry.
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
        // Warn once per file version, or a guest could fill the host's log.
        match attempts {
            1 => tracing::warn!(path, "cannot push a file: {reason}"),
            _ => tracing::debug!(path, attempts, "cannot push a file: {reason}"),
        }
        let failed = FailedPush {
            version,
            attempts,
            reason: reason.to_string(),
            retry_at: now + retry_delay(attempts),
        };
        state.failed_pushes.insert(inode, failed);
        // Drop the entries of files that the guest has removed meanwhile.
        if state.failed_pushes.len() > MAX_NODES {
            state
                .failed_pushes
                .retain(|inode, _| store.node(*inode).is_ok());
        }
    }

    /// Returns the text of the status file that the guest reads.
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
        // No code panics between two consistent states.
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
