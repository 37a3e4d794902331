//! Prepares a worker to sleep: enables kicks on every ring that may bring work.
//!
//! While CPUs are contended, a kick for each frame of a stream is too expensive: the worker takes the CPU
//! from a guest to forward one or two frames, and then calls both guests. So while
//! [`Contention`](crate::contention::Contention) reports contention, the worker leaves kicks of streams
//! disabled and sleeps for [`MODERATION_DELAY`](crate::limits::MODERATION_DELAY), or the time that the supervisor configured
//! ([`Order::SetModerationDelay`](crate::control::Order::SetModerationDelay)), so that frames gather. A guest that sends a
//! few frames is not delayed, and no guest is delayed without contention.
//!
//! The worker also leaves kicks of a port disabled that has reached its send rate: the worker wakes by
//! itself when the port may send again.

use std::time::Duration;

use vhost::backend::ring_fault;
use vhost::fault::Fault;
use vhost::ring::Ring;

use crate::backpressure::Backlog;
use crate::context::WorkerContext;
use crate::limits::{MODERATION_MAX_SHARE, POLL, STREAM, STUCK_TIMEOUT};
use crate::port::{Guest, Kind, receive_ring, transmit_ring};
use crate::ring_state::RingState;
use crate::shared::FIRST;
use crate::switch::Switch;
use crate::worker::Worker;

/// Whether the worker may sleep, as far as one port is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SleepState {
    /// The port has no work now.
    idle: bool,
    /// How long the worker may sleep without a kick; `None` is without a limit.
    timeout: Option<Duration>,
}

impl SleepState {
    /// No work until a kick.
    const IDLE: Self = Self {
        idle: true,
        timeout: None,
    };

    fn limit_timeout(&mut self, time: Duration) {
        self.timeout = shorter(self.timeout, Some(time));
    }
}

/// Returns the shorter of two timeouts; `None` is without a limit.
fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

impl Worker {
    /// Enables kicks on all active rings, and removes idle ports from the list of active ports. Returns
    /// false when there is work, so that the worker must not sleep.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        let switch = self.shared.read();
        let (context, contended) = (&mut self.context, self.contention.is_contended());
        let mut all = SleepState::IDLE;
        self.active.retain(|port| {
            let state = switch.prepare_port(context, *port, contended);
            all.idle &= state.idle;
            all.timeout = shorter(all.timeout, state.timeout);
            !state.idle || state.timeout.is_some()
        });
        if !context.faults.is_empty() {
            switch.report_faults(&mut context.faults);
            self.shared.wake(FIRST);
        }
        self.timeout = all.timeout;
        all.idle
    }
}

impl Switch {
    /// Enables kicks on those transmit rings of a port that this worker reads, and on the receive rings
    /// that they wait for.
    fn prepare_port(
        &self,
        context: &mut WorkerContext,
        number: u16,
        contended: bool,
    ) -> SleepState {
        let mut state = SleepState::IDLE;
        let Some(port) = self.port(number) else {
            return state;
        };
        let Kind::Guest(guest) = &port.kind else {
            return state;
        };
        let held_back = port.limits.held_back(context.now);
        if let Some(wait) = held_back {
            state.limit_timeout(wait);
        }
        if guest.is_polled() {
            state.limit_timeout(POLL);
        }
        let mut receivers = std::mem::take(&mut context.receivers);
        receivers.clear();
        for pair in self
            .steering
            .pairs(number, context.worker, guest.backend.pairs())
        {
            let recheck = match held_back {
                Some(_) => Recheck::Always,
                None if contended && !self.moderation_delay.is_zero() => {
                    Recheck::Streams(self.moderation_delay)
                }
                None => Recheck::Never,
            };
            let result = prepare_ring(guest, pair, recheck, &mut state, &mut receivers);
            state.idle &= or_fault(context, number, result);
        }
        receivers.sort_unstable();
        receivers.dedup();
        for (receiver, pair) in &receivers {
            state.limit_timeout(STUCK_TIMEOUT);
            let result = self.ask_receiver(context.worker, *receiver, *pair);
            state.idle &= or_fault(context, *receiver, result);
        }
        context.receivers = receivers;
        state
    }

    /// Enables kicks on a receive ring that had too few buffers for a sender's pair. Returns false when
    /// it has more buffers now, or is gone.
    fn ask_receiver(&self, worker: usize, number: u16, sender_pair: usize) -> Result<bool, Fault> {
        let Some(Kind::Guest(guest)) = self.port(number).map(|port| &port.kind) else {
            return Ok(false);
        };
        let number = receive_ring(guest.receiving_pair(sender_pair));
        let Some(mut vring) = guest.backend.vring(number) else {
            return Ok(false);
        };
        let (Some(ring), ring_state) = vring.parts_mut() else {
            return Ok(false);
        };
        let Some(shortage) = ring_state.shortage else {
            return Ok(false);
        };
        let more = ring
            .enable_kicks(shortage.seen)
            .map_err(ring_fault(number))?;
        if !more {
            ring_state.wake_set.add(worker);
        }
        Ok(!more)
    }
}

/// Records a fault, which the first worker handles; until then the port counts as having work.
fn or_fault(context: &mut WorkerContext, port: u16, result: Result<bool, Fault>) -> bool {
    result.unwrap_or_else(|fault| {
        context.faults.push((port, fault));
        false
    })
}

/// Whether the worker returns to a ring after a timeout, so that it needs no kick.
#[derive(Clone, Copy)]
enum Recheck {
    Never,
    /// If the ring carries a stream.
    Streams(Duration),
    Always,
}

/// Enables kicks on a guest's transmit ring, unless the worker returns to it after a timeout. Returns true
/// when the ring has no frames except those that wait for receivers, which are added to `receivers`.
fn prepare_ring(
    guest: &Guest,
    pair: usize,
    recheck: Recheck,
    state: &mut SleepState,
    receivers: &mut Vec<(u16, usize)>,
) -> Result<bool, Fault> {
    let number = transmit_ring(pair);
    let Some(mut vring) = guest.backend.vring(number) else {
        return Ok(true);
    };
    let (ring, ring_state) = vring.parts_mut();
    let RingState { backlog, sent, .. } = ring_state;
    receivers.extend(backlog.receivers(ring.is_some()).map(|to| (to, pair)));
    let sent = std::mem::take(sent);
    match (ring, recheck) {
        (Some(ring), Recheck::Streams(time)) if is_stream(sent, ring) => {
            state.limit_timeout(time);
            Ok(true)
        }
        (None, _) | (_, Recheck::Always) => Ok(true),
        (Some(ring), _) => enable_kicks(ring, backlog).map_err(ring_fault(number)),
    }
}

fn enable_kicks(ring: &mut Ring, backlog: &Backlog) -> Result<bool, vhost::fault::RingFault> {
    let in_ring = backlog.in_ring.as_ref();
    match in_ring.map_or(Some(0), |in_ring| in_ring.seen) {
        Some(seen) => ring.enable_kicks(seen).map(|more| !more),
        None => Ok(true),
    }
}

/// Returns whether the frames that a ring has sent since the worker last slept are a stream that may
/// gather.
fn is_stream(sent: u32, ring: &Ring) -> bool {
    (STREAM..=ring.size() / MODERATION_MAX_SHARE).contains(&sent)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use front_end::{Layout, Nic, Options, features, frame};

    use super::*;
    use crate::contention::Contention;
    use crate::control::{ControlSocket, Order, PortId};
    use crate::guard::Rules;
    use crate::limits::MODERATION_DELAY;
    use crate::port::Port;
    use crate::steering::{Steering, WakeSet};
    use crate::workers::Workers;

    /// Creates a worker with one running guest at port 1, and the supervisor's control socket.
    fn worker(contention: Contention) -> (Worker, Nic, ControlSocket) {
        let (supervisor, control) = ControlSocket::pair().unwrap();
        let mut worker = Workers::new(control, 1).unwrap().first;
        worker.contention = contention;
        let (wire, theirs) = front_end::Wire::pair();
        let order = Order::Attach {
            port: PortId(1),
            name: "vm1".to_owned(),
        };
        supervisor.send(&order, Some(theirs.as_fd())).unwrap();
        worker.wait(Some(Duration::ZERO)).unwrap();
        let options = Options {
            size: 128,
            ..Options::default()
        };
        let mut nic = Nic::new(wire, options);
        nic.start(|| worker.wait(Some(Duration::ZERO)).unwrap());
        (worker, nic, supervisor)
    }

    /// Sends `frames` frames, serves them, and prepares to sleep; returns the timeout of the sleep.
    fn after(worker: &mut Worker, nic: &mut Nic, frames: u32) -> Option<Duration> {
        let frame = frame::numbered(frame::mac(2), frame::mac(1), 0, 64);
        for _ in 0..frames {
            assert!(nic.enqueue(&[0; 12], &frame, Layout::One));
        }
        if nic.tx.publish() {
            worker.activate(1);
        }
        while worker.round() {}
        nic.reclaim();
        assert!(worker.prepare_to_sleep());
        worker.timeout
    }

    #[test]
    fn a_stream_gathers_while_cpus_are_short() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::always());
        assert_eq!(after(&mut worker, &mut nic, STREAM - 1), None);
        assert_eq!(after(&mut worker, &mut nic, STREAM), Some(MODERATION_DELAY));
        // Kicks are disabled, so the port must stay on the list.
        assert_eq!(worker.active, [1]);
        assert!(!nic.tx.publish());
        // After a sleep without frames, kicks are enabled.
        assert_eq!(after(&mut worker, &mut nic, 0), None);
        assert!(worker.active.is_empty());
    }

    #[test]
    fn frames_gather_for_the_configured_time() {
        let (mut worker, mut nic, supervisor) = worker(Contention::always());
        let tell = |worker: &mut Worker, micros| {
            supervisor
                .send(&Order::SetModerationDelay { micros }, None)
                .unwrap();
            worker.wait(Some(Duration::ZERO)).unwrap();
        };
        tell(&mut worker, 1000);
        let long = Some(Duration::from_millis(1));
        assert_eq!(after(&mut worker, &mut nic, STREAM), long);
        tell(&mut worker, 0);
        assert_eq!(after(&mut worker, &mut nic, STREAM), None);
        assert!(worker.active.is_empty());
    }

    #[test]
    fn a_fast_stream_needs_no_delay() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::always());
        let most = u32::from(nic.options.size) / MODERATION_MAX_SHARE;
        assert_eq!(after(&mut worker, &mut nic, most), Some(MODERATION_DELAY));
        assert_eq!(after(&mut worker, &mut nic, most + 1), None);
    }

    #[test]
    fn kicks_of_a_port_at_its_send_rate_stay_disabled() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::of_this_thread(None));
        let mut rules = Rules::default();
        rules.limits.send.frames = Some(100);
        rules.limits.send.burst_ms = 10;
        worker.shared.write().set_rules(1, rules);
        worker.context.now = std::time::Instant::now();
        // The burst, and the frame that ends it.
        let wait = after(&mut worker, &mut nic, 5).unwrap();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        assert_eq!((worker.active.as_slice(), nic.in_flight()), (&[1][..], 3));
        // Kicks are disabled.
        assert!(!nic.tx.publish());
        worker.context.now += wait;
        assert_eq!(
            after(&mut worker, &mut nic, 0),
            Some(Duration::from_millis(10))
        );
        assert_eq!(nic.in_flight(), 2);
        // Once the port may send again and has nothing to send, kicks are enabled.
        worker.context.now += Duration::from_millis(20);
        assert_eq!(
            after(&mut worker, &mut nic, 0),
            Some(Duration::from_millis(10))
        );
        worker.context.now += Duration::from_millis(10);
        assert_eq!(after(&mut worker, &mut nic, 0), None);
        assert!(worker.active.is_empty() && nic.in_flight() == 0);
    }

    #[test]
    fn a_stream_kicks_while_cpus_are_not_contended() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::of_this_thread(None));
        assert_eq!(after(&mut worker, &mut nic, STREAM), None);
        assert!(worker.active.is_empty());
    }

    /// Adds a NIC at a port of a switch without workers.
    fn join(switch: &mut Switch, number: u16, options: Options) -> Nic {
        let (wire, theirs) = front_end::Wire::pair();
        let kind = crate::attach::guest(theirs).unwrap();
        assert!(switch.add(number, Port::new(String::new(), kind)));
        let mac = crate::mac::Mac::from_octets(frame::mac(number));
        assert!(switch.table.pin(mac, number, 0));
        let mut nic = Nic::new(wire, options);
        nic.start(|| {
            let guest = crate::front_end::guest(switch, number).unwrap();
            while let Some(message) = guest.backend.receive().unwrap() {
                guest.backend.apply(message).unwrap();
            }
            guest.rings_changed();
        });
        nic
    }

    /// Two workers use one receive ring. The worker that fills it disables the kick, and wakes the one
    /// that waits for it.
    #[test]
    fn a_worker_that_fills_a_receive_ring_wakes_those_that_wait_for_it() {
        for features in [features::PLAIN, features::PLAIN & !features::EVENT_IDX] {
            let mut switch = Switch::new(Steering::new(2));
            let mut contexts = [0, 1].map(WorkerContext::new);
            let options = Options {
                features,
                ..Options::default()
            };
            let unready = Options {
                post: false,
                ..options
            };
            let mut senders = [0, 1].map(|number| join(&mut switch, number, options));
            let mut receiver = join(&mut switch, 2, unready);
            let mut send = |from: u16, number| {
                let bytes = frame::numbered(frame::mac(2), frame::mac(from), number, 64);
                assert!(senders[usize::from(from)].send(&bytes, Layout::One));
            };
            send(0, 0);
            for number in 0..2 {
                assert_eq!(switch.serve(&mut contexts[0], 0).moved, 0);
                assert!(switch.prepare_port(&mut contexts[0], 0, false).idle);
                receiver.post(1);
                assert!(receiver.rx.publish(), "kicks are enabled");
                contexts[1].wakes = WakeSet::NONE;
                send(1, number);
                assert_eq!(switch.serve(&mut contexts[1], 1).moved, 1);
                assert!(contexts[1].wakes.contains(0));
            }
            receiver.post(2);
            assert_eq!(
                switch.serve(&mut contexts[0], 0).moved,
                0,
                "nothing is published"
            );
            let _ = receiver.rx.publish();
            assert_eq!(switch.serve(&mut contexts[0], 0).moved, 1);
            contexts[1].wakes = WakeSet::NONE;
            send(1, 2);
            assert_eq!(switch.serve(&mut contexts[1], 1).moved, 1);
            assert_eq!(contexts[1].wakes, WakeSet::NONE, "no worker waits");
        }
    }
}
