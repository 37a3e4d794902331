//! Before a worker sleeps: ask for kicks wherever work may come from.
//!
//! Where CPUs are short, a stream of frames is not worth a kick each: the worker takes the CPU
//! from a guest for a frame or two, and calls both guests for them. So while
//! [`Contention`](crate::contention::Contention) says so, the frames of a stream gather for
//! [`GATHER`] and no kick is asked for. A guest that sends now and then is not made to wait, nor
//! is any guest where there are CPUs enough.
//!
//! Nor is a kick asked for of a port that has sent what it may for now: the worker comes back by
//! itself when it may send again.

use std::time::Duration;

use vhost::backend::at;
use vhost::fault::Fault;
use vhost::vring::Vring;

use crate::limits::{GATHER, GATHER_SHARE, HOLD, POLL, STREAM};
use crate::port::{Guest, Kind, receive_ring, transmit_ring};
use crate::worker::Worker;

impl Worker {
    /// Ask all active rings for kicks and take those that have nothing off the list. False when
    /// there is work after all.
    pub(crate) fn may_sleep(&mut self) -> bool {
        let mut quiet = true;
        let mut kept = 0;
        for index in 0..self.active.len() {
            let Some(port) = self.active.get(index).copied() else {
                break;
            };
            let idle = self.ask_for_kicks(port);
            quiet &= idle;
            if !idle || self.patience(port).is_some() {
                if let Some(place) = self.active.get_mut(kept) {
                    *place = port;
                }
                kept += 1;
            }
        }
        self.active.truncate(kept);
        quiet
    }

    /// How long the worker may sleep for this port's sake if nobody kicks it.
    pub(crate) fn patience(&self, port: u16) -> Option<Duration> {
        let port = self.switch.port(port)?;
        let held_back = port.limits.held_back(self.switch.now);
        let other = match &port.kind {
            Kind::Guest(guest) if guest.gathers => Some(GATHER),
            Kind::Guest(guest) if guest.is_polled() => Some(POLL),
            Kind::Guest(guest) if guest.waited_for().next().is_some() => Some(HOLD),
            _ => None,
        };
        held_back.into_iter().chain(other).min()
    }

    /// Ask a port's transmit rings for a kick, and the receivers it waits for too. True when none
    /// of them has anything now. Ports at fault are left to [`Worker::drop_faulty`], so that the
    /// list of active ports does not change under our feet.
    fn ask_for_kicks(&mut self, number: u16) -> bool {
        let short = self.contention.is_short();
        let mut receivers = std::mem::take(&mut self.receivers);
        receivers.clear();
        let mut result = Ok(true);
        let now = self.switch.now;
        if let Some(port) = self.switch.port_mut(number) {
            let held_back = port.limits.held_back(now).is_some();
            if let Kind::Guest(guest) = &mut port.kind {
                guest.gathers = short && is_stream(guest);
                guest.sent = 0;
                if !guest.gathers && !held_back {
                    result = ask_transmit(guest);
                }
                receivers.extend(guest.waited_for());
            }
        }
        receivers.sort_unstable();
        receivers.dedup();
        let mut idle = self.or_fault(number, result);
        for (receiver, pair) in &receivers {
            let result = self.ask_receiver(*receiver, *pair);
            idle &= self.or_fault(*receiver, result);
        }
        self.receivers = receivers;
        idle
    }

    fn or_fault(&mut self, port: u16, result: Result<bool, Fault>) -> bool {
        result.unwrap_or_else(|fault| {
            self.switch.faults.push((port, fault));
            false
        })
    }

    /// Ask a receiver that had too few buffers for a sender's pair for a kick. False when it has
    /// other ones now, or is not there any more.
    fn ask_receiver(&mut self, number: u16, senders: usize) -> Result<bool, Fault> {
        let Some(Kind::Guest(guest)) = self.switch.port_mut(number).map(|port| &mut port.kind)
        else {
            return Ok(false);
        };
        let pair = guest.receiving_pair(senders);
        let Some(short) = guest.short(pair) else {
            return Ok(false);
        };
        let ring = receive_ring(pair);
        match guest.backend.vring_mut(ring).and_then(Vring::active_mut) {
            Some(active) => active
                .ask_for_kick(short.seen)
                .map(|more| !more)
                .map_err(at(ring)),
            None => Ok(false),
        }
    }
}

/// Ask a guest's transmit rings for kicks; true when they have nothing to send now but what waits
/// for a receiver.
fn ask_transmit(guest: &mut Guest) -> Result<bool, Fault> {
    let mut idle = true;
    let pairs = guest.backend.pairs();
    for (pair, held) in guest.held.iter().enumerate().take(pairs) {
        let number = transmit_ring(pair);
        let Some(ring) = guest.backend.vring_mut(number).and_then(Vring::active_mut) else {
            continue;
        };
        let seen = held
            .in_ring
            .as_ref()
            .map_or(Some(0), |in_ring| in_ring.seen);
        if let Some(seen) = seen {
            idle &= !ring.ask_for_kick(seen).map_err(at(number))?;
        }
    }
    Ok(idle)
}

/// Whether what a guest has sent since the worker last slept is a stream whose frames may gather.
fn is_stream(guest: &Guest) -> bool {
    let most = guest
        .backend
        .vrings()
        .get(transmit_ring(0))
        .and_then(Vring::active)
        .map_or(0, |ring| ring.size() / GATHER_SHARE);
    (STREAM..=most).contains(&guest.sent)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use front_end::{Layout, Nic, Options, frame};

    use super::*;
    use crate::contention::Contention;
    use crate::control::{ControlSocket, Order, PortId};
    use crate::guard::Rules;

    /// A worker with one running guest at port 1, and the supervisor's end of its control socket.
    fn worker(contention: Contention) -> (Worker, Nic, ControlSocket) {
        let (supervisor, control) = ControlSocket::pair().unwrap();
        let mut worker = Worker::new(control).unwrap();
        worker.contention = contention;
        let (wire, theirs) = front_end::Wire::pair();
        let order = Order::Attach {
            port: PortId(1),
            name: "vm1".to_owned(),
        };
        worker.carry_out(order, Some(theirs.as_fd().try_clone_to_owned().unwrap()));
        let options = Options {
            size: 128,
            ..Options::default()
        };
        let mut nic = Nic::new(wire, options);
        nic.start(|| worker.take_messages(1));
        worker.take_messages(1);
        (worker, nic, supervisor)
    }

    /// Send so many frames, serve them, and prepare to sleep; the longest sleep that follows.
    fn after(worker: &mut Worker, nic: &mut Nic, frames: u32) -> Option<Duration> {
        let frame = frame::numbered(frame::mac(2), frame::mac(1), 0, 64);
        for _ in 0..frames {
            assert!(nic.queue_up(&[0; 12], &frame, Layout::One));
        }
        if nic.tx.publish() {
            worker.activate(1);
        }
        while worker.switch.serve(1).moved > 0 {}
        nic.reclaim();
        assert!(worker.may_sleep());
        worker.patience(1)
    }

    #[test]
    fn a_stream_gathers_while_cpus_are_short() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::always());
        assert_eq!(after(&mut worker, &mut nic, STREAM - 1), None);
        assert_eq!(after(&mut worker, &mut nic, STREAM), Some(GATHER));
        // Nobody kicks for what comes now, so the port must stay on the list.
        assert_eq!(worker.active, [1]);
        assert!(!nic.tx.publish());
        // A sleep that brought nothing is the last one.
        assert_eq!(after(&mut worker, &mut nic, 0), None);
        assert!(worker.active.is_empty());
    }

    #[test]
    fn frames_that_come_fast_gather_by_themselves() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::always());
        let most = u32::from(nic.options.size) / GATHER_SHARE;
        assert_eq!(after(&mut worker, &mut nic, most), Some(GATHER));
        assert_eq!(after(&mut worker, &mut nic, most + 1), None);
    }

    #[test]
    fn a_port_that_may_not_send_now_is_left_alone_for_the_time() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::of_this_thread());
        let mut rules = Rules::default();
        rules.limits.send.frames = Some(100);
        rules.limits.send.burst_ms = 10;
        worker.switch.set_rules(1, rules);
        worker.switch.now = std::time::Instant::now();
        // The burst, and the frame that ends it.
        let wait = after(&mut worker, &mut nic, 5).unwrap();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        assert_eq!((worker.active.as_slice(), nic.in_flight()), (&[1][..], 3));
        // Nobody kicks for what comes now.
        assert!(!nic.tx.publish());
        worker.switch.now += wait;
        assert_eq!(
            after(&mut worker, &mut nic, 0),
            Some(Duration::from_millis(10))
        );
        assert_eq!(nic.in_flight(), 2);
        // Once it may send again and has nothing to send, it is kicked for.
        worker.switch.now += Duration::from_millis(20);
        assert_eq!(
            after(&mut worker, &mut nic, 0),
            Some(Duration::from_millis(10))
        );
        worker.switch.now += Duration::from_millis(10);
        assert_eq!(after(&mut worker, &mut nic, 0), None);
        assert!(worker.active.is_empty() && nic.in_flight() == 0);
    }

    #[test]
    fn a_stream_is_kicked_for_where_cpus_are_enough() {
        let (mut worker, mut nic, _supervisor) = worker(Contention::of_this_thread());
        assert_eq!(after(&mut worker, &mut nic, STREAM), None);
        assert!(worker.active.is_empty());
    }
}
