//! A question to a process: who waits for the answer, and until when it may take.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// How a process is, asked by any number.
#[derive(Debug)]
pub(super) struct Question<A> {
    askers: Vec<oneshot::Sender<A>>,
    /// Until when the process may take, while it is asked.
    by: Option<Instant>,
    patience: Duration,
}

impl<A: Clone> Question<A> {
    /// To a process that answers within so long.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            askers: Vec::new(),
            by: None,
            patience,
        }
    }

    /// Somebody waits for the next answer.
    pub(super) fn wait(&mut self, asker: oneshot::Sender<A>) {
        self.askers.push(asker);
    }

    /// Whether the process is to be asked: it has not been already.
    pub(super) fn put(&mut self, now: Instant) -> bool {
        let new = self.by.is_none();
        self.by.get_or_insert(now + self.patience);
        new
    }

    /// When [`is_overdue`](Self::is_overdue) is wanted.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.by
    }

    /// Whether the process does not answer. It is said once.
    pub(super) fn is_overdue(&mut self, now: Instant) -> bool {
        self.by.take_if(|by| *by <= now).is_some()
    }

    /// The process has answered, or never will.
    pub(super) fn answer(&mut self, answer: A) {
        self.by = None;
        let Some(last) = self.askers.pop() else {
            return;
        };
        // An asker that is gone needs no answer.
        for asker in self.askers.drain(..) {
            drop(asker.send(answer.clone()));
        }
        drop(last.send(answer));
    }
}
