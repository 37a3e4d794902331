//! Before a worker sleeps: ask for kicks wherever work may come from.

use std::time::{Duration, Instant};

use vhost::backend::at;
use vhost::fault::Fault;
use vhost::vring::Vring;

use crate::limits::{HOLD, POLL};
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
        match self.switch.port(port).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) if guest.is_polled() => Some(POLL),
            Some(Kind::Guest(guest)) if guest.waited_for().next().is_some() => Some(HOLD),
            _ => None,
        }
    }

    /// Ask a port's transmit rings for a kick, and the receivers it waits for too. True when none
    /// of them has anything now. Ports at fault are left to [`Worker::drop_faulty`], so that the
    /// list of active ports does not change under our feet.
    fn ask_for_kicks(&mut self, number: u16) -> bool {
        let now = self.switch.now;
        let mut receivers = std::mem::take(&mut self.receivers);
        receivers.clear();
        let mut result = Ok(true);
        if let Some(Kind::Guest(guest)) = self.switch.port_mut(number).map(|port| &mut port.kind) {
            result = ask_transmit(guest, now);
            receivers.extend(guest.waited_for());
        }
        receivers.sort_unstable();
        receivers.dedup();
        let mut idle = self.or_fault(number, result);
        for receiver in &receivers {
            let result = self.ask_receiver(*receiver);
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

    /// Ask a receiver that had too few buffers for a kick. False when it has other ones now, or
    /// is not there any more.
    fn ask_receiver(&mut self, number: u16) -> Result<bool, Fault> {
        let Some(Kind::Guest(guest)) = self.switch.port_mut(number).map(|port| &mut port.kind)
        else {
            return Ok(false);
        };
        let Some(short) = guest.short else {
            return Ok(false);
        };
        let ring = receive_ring(0);
        match guest.backend.vring_mut(ring).and_then(Vring::active_mut) {
            Some(active) => active
                .ask_for_kick(short.seen)
                .map(|more| !more)
                .map_err(at(ring)),
            None => Ok(false),
        }
    }
}

/// Ask a guest's transmit rings for kicks; true when they have nothing to send now.
fn ask_transmit(guest: &mut Guest, now: Instant) -> Result<bool, Fault> {
    let mut idle = true;
    for (pair, held) in guest.held.iter().enumerate() {
        let number = transmit_ring(pair);
        let Some(ring) = guest.backend.vring_mut(number).and_then(Vring::active_mut) else {
            continue;
        };
        if held.is_stalled(now) {
            continue;
        }
        idle &= !ring.ask_for_kick(0).map_err(at(number))?;
    }
    Ok(idle)
}
