//! Health checks of a network's data plane, and its restart after it ends.

use switch::control::Order;
use tokio::time::Instant;

use super::Network;
use super::fdb_list::FdbList;
use crate::serve::process::handle::Process;
use crate::serve::process::launch::ProcessKind;
use crate::serve::process::lifecycle::NextAction;

impl Network {
    /// Sends the data plane the settings of the network that do not depend on front-ends.
    pub(super) fn set_up(&mut self) {
        let on = self.config.snooping;
        let micros = self.config.moderation_us;
        let times = self.config.fdb_lookups.unwrap_or(0);
        for order in [
            Order::SetSnooping { on },
            Order::SetModerationDelay { micros },
            Order::SetLookUps { times },
        ] {
            self.plane.orders.push(order, None);
        }
    }

    /// Does what is due at `now`: a health check, a restart, or ending a data plane that does not answer.
    pub(super) fn supervise(&mut self, now: Instant) {
        if self.pending.is_late(now) {
            self.send_status();
        }
        if self.pending.is_overdue(now) {
            self.kill_unresponsive();
        }
        match self.lifecycle.due(now) {
            NextAction::Nothing => {}
            NextAction::HealthCheck => self.request_report(now),
            NextAction::Start => self.restart(now),
        }
    }

    /// Kills the data plane because it does not answer. Its end is then handled like any other end, also if the
    /// kernel does not end the process.
    fn kill_unresponsive(&mut self) {
        self.lifecycle.killed_as_unresponsive();
        self.plane.kill();
    }

    /// Handles the end of the data plane, or that the kernel does not end it and the supervisor abandons it.
    pub(super) fn data_plane_ended(&mut self, exit_reason: &str) {
        for port in self.ports.values_mut() {
            port.lost();
        }
        self.leaving.clear();
        self.fdb_list = FdbList::default();
        self.remote_peers.clear();
        self.arriving_remote_peers.clear();
        self.all_left();
        match std::mem::take(&mut self.lifecycle.restart_requested) {
            true => self.restart(Instant::now()),
            false => self.down(exit_reason, Instant::now()),
        }
        self.answer();
    }

    /// Makes the data plane end in order, and another one take over.
    pub(super) fn renew(&mut self) {
        if self.lifecycle.is_up() {
            self.lifecycle.restart_requested = true;
            // The report keeps its last counters in the totals.
            self.plane.orders.push(Order::Report, None);
            self.plane.orders.push(Order::Stop, None);
        }
    }

    fn down(&mut self, exit_reason: &str, now: Instant) {
        let failure_reason = self.lifecycle.ended(exit_reason, now);
        tracing::error!(network = %self.config.name, "{failure_reason}");
        self.failure_reason = Some(failure_reason);
    }

    fn restart(&mut self, now: Instant) {
        if let Err(error) = self.renew_uplink() {
            return self.down(
                &format!("the supervisor cannot open its uplink again: {error}"),
                now,
            );
        }
        match Process::start(ProcessKind::Network(&self.config), &self.launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => {
                return self.down(&format!("the supervisor cannot start it: {error}"), now);
            }
        }
        self.lifecycle.started(now);
        self.failure_reason = None;
        tracing::info!(network = %self.config.name, "restarted the data plane");
        self.set_up();
        // Before the first frame, so that captures and mirrors miss none.
        self.watch_again();
        self.mirror_again();
        for port in self.ports.values_mut() {
            port.reopen(&mut self.plane.orders);
        }
        self.attach_uplink();
    }
}
