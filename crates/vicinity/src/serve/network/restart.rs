//! A network's data plane is looked after, and when it ends, started again.

use switch::control::Order;
use tokio::time::Instant;

use super::Network;
use crate::serve::process::handle::Process;
use crate::serve::process::launch::Duty;
use crate::serve::process::lifecycle::Due;

impl Network {
    /// Tell the data plane all that holds for the network whoever is connected.
    pub(super) fn set_up(&mut self) {
        let on = self.config.snooping;
        let micros = self.config.gather_us;
        let times = self.config.look_ups.unwrap_or(0);
        for order in [
            Order::SetSnooping { on },
            Order::SetGather { micros },
            Order::SetLookUps { times },
        ] {
            self.plane.orders.push(order, None);
        }
    }

    /// Time has passed.
    pub(super) fn live(&mut self, now: Instant) {
        if self.pending.is_late(now) {
            self.tell();
        }
        if self.pending.is_overdue(now) {
            self.kill_unresponsive();
        }
        match self.lifecycle.due(now) {
            Due::Nothing => {}
            Due::HealthCheck => self.ask(now),
            Due::Start => self.start_again(now),
        }
    }

    /// The data plane does not answer: end it, which will be noticed like any other end, also when the
    /// kernel does not let it go.
    fn kill_unresponsive(&mut self) {
        self.lifecycle.killed_as_unresponsive();
        self.plane.kill();
    }

    /// The data plane ended, or cannot be ended and is left behind.
    pub(super) fn data_plane_ended(&mut self, exit_reason: &str) {
        for port in self.ports.values_mut() {
            port.lost();
        }
        self.leaving.clear();
        self.all_left();
        match std::mem::take(&mut self.lifecycle.restart_requested) {
            true => self.start_again(Instant::now()),
            false => self.down(exit_reason, Instant::now()),
        }
        self.answer();
    }

    /// Have the data plane end in order, and another one take over.
    pub(super) fn renew(&mut self) {
        if self.lifecycle.is_up() {
            self.lifecycle.restart_requested = true;
            // What it counted is to last.
            self.plane.orders.push(Order::Report, None);
            self.plane.orders.push(Order::Stop, None);
        }
    }

    fn down(&mut self, exit_reason: &str, now: Instant) {
        let trouble = self.lifecycle.ended(exit_reason, now);
        tracing::error!(network = %self.config.name, "{trouble}");
        self.trouble = Some(trouble);
    }

    fn start_again(&mut self, now: Instant) {
        if let Err(error) = self.renew_uplink() {
            return self.down(&format!("its uplink cannot be opened again: {error}"), now);
        }
        match Process::start(Duty::Network(&self.config), &self.launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => return self.down(&format!("it cannot be started: {error}"), now),
        }
        self.lifecycle.started(now);
        self.trouble = None;
        tracing::info!(network = %self.config.name, "data plane started again");
        self.set_up();
        // Before the first frame.
        self.watch_again();
        self.mirror_again();
        for port in self.ports.values_mut() {
            port.reopen(&mut self.plane.orders);
        }
        self.attach_uplink();
    }
}
