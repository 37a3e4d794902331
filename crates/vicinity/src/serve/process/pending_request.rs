//! A question to a process: who waits for the answer, and until when it may take.
//!
//! Those who ask wait a short time only, and are then told what was known before. The process has more
//! time: one that does not answer by then has to be ended.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Longest wait of those who ask. All that the daemon is asked is answered within a second.
const WAIT: Duration = Duration::from_millis(600);

/// How a process is, asked by any number.
#[derive(Debug)]
pub(in crate::serve) struct PendingRequest<A> {
    waiters: Vec<oneshot::Sender<A>>,
    /// Until when the askers wait.
    wait: Option<Instant>,
    /// Until when the process may take, while it is asked.
    by: Option<Instant>,
    patience: Duration,
}

impl<A: Clone> PendingRequest<A> {
    /// To a process that answers within so long.
    pub(in crate::serve) fn new(patience: Duration) -> Self {
        Self {
            waiters: Vec::new(),
            wait: None,
            by: None,
            patience,
        }
    }

    /// Somebody waits for the next answer. A process that was asked before and has not answered has had a
    /// part of that time.
    pub(in crate::serve) fn add_waiter(&mut self, waiter: oneshot::Sender<A>, now: Instant) {
        self.waiters.push(waiter);
        let since = self.by.and_then(|by| by.checked_sub(self.patience));
        let until = (since.unwrap_or(now) + WAIT).max(now);
        self.wait.get_or_insert(until);
    }

    /// Whether the process is to be asked: it has not been already.
    pub(in crate::serve) fn begin(&mut self, now: Instant) -> bool {
        let new = self.by.is_none();
        self.by.get_or_insert(now + self.patience);
        new
    }

    /// When [`is_late`](Self::is_late) or [`is_overdue`](Self::is_overdue) is wanted.
    pub(in crate::serve) fn deadline(&self) -> Option<Instant> {
        self.wait.into_iter().chain(self.by).min()
    }

    /// Whether the askers have waited long enough, and are to be [told](Self::tell) what is known.
    pub(in crate::serve) fn is_late(&mut self, now: Instant) -> bool {
        self.wait.take_if(|wait| *wait <= now).is_some()
    }

    /// Whether the process does not answer. It is said once.
    pub(in crate::serve) fn is_overdue(&mut self, now: Instant) -> bool {
        self.by.take_if(|by| *by <= now).is_some()
    }

    /// Why what is told now may be old: the process has not answered.
    pub(in crate::serve) fn stale_reason(&self) -> Option<String> {
        self.by.is_some().then(|| {
            format!(
                "it has not answered yet, and is ended if it does not within {} s; these are the figures \
                 from before",
                self.patience.as_secs()
            )
        })
    }

    /// The process has answered, or never will.
    pub(in crate::serve) fn finish(&mut self) {
        self.by = None;
    }

    /// Tell those who ask.
    pub(in crate::serve) fn reply(&mut self, answer: A) {
        self.wait = None;
        let Some(last) = self.waiters.pop() else {
            return;
        };
        // An asker that is gone needs no answer.
        for waiter in self.waiters.drain(..) {
            drop(waiter.send(answer.clone()));
        }
        drop(last.send(answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn askers_are_told_soon_and_the_process_has_its_time() {
        let now = Instant::now();
        let mut question = PendingRequest::new(Duration::from_secs(5));
        let (waiter, mut answer) = oneshot::channel();
        question.add_waiter(waiter, now);
        assert!(question.begin(now) && !question.begin(now));
        assert_eq!(question.deadline(), Some(now + WAIT));
        assert!(!question.is_late(now) && question.is_late(now + WAIT));
        assert!(question.stale_reason().is_some());
        question.reply("old");
        assert_eq!(answer.try_recv(), Ok("old"));
        // It is still asked, and those who come later need not wait.
        let (waiter, _answer) = oneshot::channel();
        question.add_waiter(waiter, now + 2 * WAIT);
        assert!(question.is_late(now + 2 * WAIT));
        let by = now + Duration::from_secs(5);
        assert_eq!(question.deadline(), Some(by));
        assert!(question.is_overdue(by) && !question.is_overdue(by));
        assert_eq!(question.deadline(), None);
    }

    #[test]
    fn an_answer_in_time_ends_both_waits() {
        let now = Instant::now();
        let mut question = PendingRequest::new(Duration::from_secs(5));
        let (waiter, mut answer) = oneshot::channel();
        question.add_waiter(waiter, now);
        question.begin(now);
        question.finish();
        question.reply("new");
        assert_eq!(answer.try_recv(), Ok("new"));
        assert_eq!((question.deadline(), question.stale_reason()), (None, None));
    }
}
