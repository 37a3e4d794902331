//! A network's data plane is looked after, and when it ends, started again.

use switch::control::Order;
use tokio::time::Instant;

use super::Network;
use crate::serve::process::launch::Duty;
use crate::serve::process::lifecycle::Due;
use crate::serve::process::plane::Plane;

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
            self.plane.orders.give(order, None);
        }
    }

    /// Time has passed.
    pub(super) fn live(&mut self, now: Instant) {
        if self.asked.is_late(now) {
            self.tell();
        }
        if self.asked.is_overdue(now) {
            self.silence();
        }
        match self.life.due(now) {
            Due::Nothing => {}
            Due::Look => self.ask(now),
            Due::Start => self.start_again(now),
        }
    }

    /// The data plane does not answer: end it, which will be noticed like any other end, also when the
    /// kernel does not let it go.
    fn silence(&mut self) {
        self.life.silenced();
        self.plane.kill();
    }

    /// The data plane ended, or cannot be ended and is left behind.
    pub(super) fn data_plane_ended(&mut self, verdict: &str) {
        for port in self.ports.values_mut() {
            port.lost();
        }
        self.leaving.clear();
        self.all_left();
        match std::mem::take(&mut self.life.asked) {
            true => self.start_again(Instant::now()),
            false => self.down(verdict, Instant::now()),
        }
        self.answer();
    }

    /// Have the data plane end in order, and another one take over.
    pub(super) fn renew(&mut self) {
        if self.life.is_up() {
            self.life.asked = true;
            // What it counted is to last.
            self.plane.orders.give(Order::Report, None);
            self.plane.orders.give(Order::Stop, None);
        }
    }

    fn down(&mut self, verdict: &str, now: Instant) {
        let trouble = self.life.ended(verdict, now);
        tracing::error!(network = %self.config.name, "{trouble}");
        self.trouble = Some(trouble);
    }

    fn start_again(&mut self, now: Instant) {
        if let Err(error) = self.renew_uplink() {
            return self.down(&format!("its uplink cannot be opened again: {error}"), now);
        }
        match Plane::start(Duty::Network(&self.config), &self.launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => return self.down(&format!("it cannot be started: {error}"), now),
        }
        self.life.started(now);
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
