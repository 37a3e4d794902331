//! A VM of the sockets plane, as the supervisor keeps it.

use std::time::Duration;

use tokio::time::Instant;
use vsock::figures::Figures;

use super::stored_front_end::StoredFrontEnd;
use crate::config::Vsock;

/// An agent asks every five seconds; the VM may be slow.
const AGENT_SILENCE: Duration = Duration::from_secs(20);

/// A VM of the set.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) config: Vsock,
    pub(super) front_end: Option<StoredFrontEnd>,
    /// Why its last front-end ended.
    pub(super) reason: Option<String>,
    /// The figures of the last complete report, and of processes before the present one.
    pub(super) figures: Figures,
    pub(super) before: Figures,
    /// When its agent last read the directory.
    pub(super) agent_asked: Option<Instant>,
}

impl Guest {
    /// Notes that the figures begin again, with another process.
    pub(super) fn process_ended(&mut self) {
        self.before = self.figures.and_before(&self.before);
        self.figures = Figures::default();
    }

    pub(super) fn has_agent(&self) -> bool {
        self.agent_asked
            .is_some_and(|asked| asked.elapsed() < AGENT_SILENCE)
    }

    pub(super) fn has_lost_front_end(&self) -> bool {
        self.front_end
            .as_ref()
            .is_some_and(StoredFrontEnd::has_hung_up)
    }

    /// Drops the front-end, which no process can continue with.
    pub(super) fn lose(&mut self, why: &str) {
        tracing::error!(vm = %self.config.vm, "lost the socket device: {why}");
        self.front_end = None;
        self.reason = Some(why.to_owned());
    }
}
