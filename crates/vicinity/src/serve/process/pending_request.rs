//! A request to a process for its state: the clients that wait for the answer, and two deadlines.
//!
//! Clients wait a short time only, and then get the last known state. The process has more time: if it does not
//! answer by the second deadline, its owner ends it.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Longest wait of a client. The daemon answers all requests within a second.
const MAX_CLIENT_WAIT: Duration = Duration::from_millis(600);

/// A request for the state `A` of a process, on behalf of any number of clients.
#[derive(Debug)]
pub(in crate::serve) struct PendingRequest<A> {
    waiters: Vec<oneshot::Sender<A>>,
    /// Until when the clients wait.
    wait: Option<Instant>,
    /// Until when the process may answer, while a request is outstanding.
    by: Option<Instant>,
    timeout: Duration,
}

impl<A: Clone> PendingRequest<A> {
    /// Returns the state without a request; the process has `timeout` to answer one.
    pub(in crate::serve) fn new(timeout: Duration) -> Self {
        Self {
            waiters: Vec::new(),
            wait: None,
            by: None,
            timeout,
        }
    }

    /// Adds a client that waits for the next answer. If a request is outstanding already, the client waits for the
    /// rest of the time only.
    pub(in crate::serve) fn add_waiter(&mut self, waiter: oneshot::Sender<A>, now: Instant) {
        self.waiters.push(waiter);
        let since = self.by.and_then(|by| by.checked_sub(self.timeout));
        let until = (since.unwrap_or(now) + MAX_CLIENT_WAIT).max(now);
        self.wait.get_or_insert(until);
    }

    /// Begins a request; returns whether the caller has to send it, because none was outstanding.
    pub(in crate::serve) fn begin(&mut self, now: Instant) -> bool {
        let new = self.by.is_none();
        self.by.get_or_insert(now + self.timeout);
        new
    }

    /// Returns when the owner has to call [`is_late`](Self::is_late) and [`is_overdue`](Self::is_overdue).
    pub(in crate::serve) fn deadline(&self) -> Option<Instant> {
        self.wait.into_iter().chain(self.by).min()
    }

    /// Returns whether the clients have waited long enough, and must [get](Self::reply) what is known.
    pub(in crate::serve) fn is_late(&mut self, now: Instant) -> bool {
        self.wait.take_if(|wait| *wait <= now).is_some()
    }

    /// Returns whether the process missed its deadline. Returns `true` once for each request.
    pub(in crate::serve) fn is_overdue(&mut self, now: Instant) -> bool {
        self.by.take_if(|by| *by <= now).is_some()
    }

    /// Returns why the state may be old: the process has not answered yet.
    pub(in crate::serve) fn stale_reason(&self) -> Option<String> {
        self.by.is_some().then(|| {
            format!(
                "the process has not answered yet, so this state may be old; the supervisor kills the process if \
                    it does not answer within {} s",
                self.timeout.as_secs()
            )
        })
    }

    /// Ends the request: the process has answered, or is gone.
    pub(in crate::serve) fn finish(&mut self) {
        self.by = None;
    }

    /// Sends the answer to all clients that wait.
    pub(in crate::serve) fn reply(&mut self, answer: A) {
        self.wait = None;
        let Some(last) = self.waiters.pop() else {
            return;
        };
        // A client that closed its connection needs no answer.
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
    fn clients_get_an_early_answer_and_the_process_has_its_whole_timeout() {
        let now = Instant::now();
        let mut question = PendingRequest::new(Duration::from_secs(5));
        let (waiter, mut answer) = oneshot::channel();
        question.add_waiter(waiter, now);
        assert!(question.begin(now) && !question.begin(now));
        assert_eq!(question.deadline(), Some(now + MAX_CLIENT_WAIT));
        assert!(!question.is_late(now) && question.is_late(now + MAX_CLIENT_WAIT));
        assert!(question.stale_reason().is_some());
        question.reply("old");
        assert_eq!(answer.try_recv(), Ok("old"));
        // The request is still outstanding, and clients that come later need not wait.
        let (waiter, _answer) = oneshot::channel();
        question.add_waiter(waiter, now + 2 * MAX_CLIENT_WAIT);
        assert!(question.is_late(now + 2 * MAX_CLIENT_WAIT));
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
