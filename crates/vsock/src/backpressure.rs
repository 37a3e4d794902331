//! Packets that wait for a guest's receive buffers: when they are delivered, and when they are given up.

use std::time::Instant;

use vhost::fault::Fault;

use crate::connection::Ends;
use crate::figures::increment;
use crate::guest::Device;
use crate::limits::STUCK_TIMEOUT;
use crate::plane::Plane;
use crate::receive::{RECEIVE, deliver_copied, publish, request_kick, suppress_kicks};

impl Plane {
    /// Delivers what waits for a guest's receive buffers.
    pub(crate) fn serve_receiver(&mut self, number: usize) {
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        if !std::mem::take(&mut guest.may_receive) {
            return;
        }
        if let Err(fault) = self.deliver_waiting(number) {
            return self.end(number, &fault);
        }
        for guest in &mut self.guests {
            if let Some(device) = &mut guest.device {
                device.may_transmit |= device.waits_for.take_if(|to| *to == number).is_some();
            }
        }
    }

    fn deliver_waiting(&mut self, number: usize) -> Result<(), Fault> {
        let Some(guest) = self.guests.get_mut(number) else {
            return Ok(());
        };
        let Some(device) = guest.device.take() else {
            return Ok(());
        };
        suppress_kicks(&device.backend, RECEIVE);
        let delivered = self.deliver_all(number, &device);
        let result = delivered.and_then(|all| {
            publish(&device.backend, RECEIVE)?;
            match all {
                true => Ok(false),
                false => request_kick(&device.backend, RECEIVE),
            }
        });
        if let Some(guest) = self.guests.get_mut(number) {
            guest.device = Some(device);
            // The guest's transmit ring waits while too many replies do.
            if let Some(device) = &mut guest.device {
                device.may_transmit = true;
            }
            guest.may_receive |= *result.as_ref().unwrap_or(&false);
        }
        result.map(drop)
    }

    /// Delivers replies and deferred packets; returns whether none is left.
    fn deliver_all(&mut self, number: usize, receiver: &Device) -> Result<bool, Fault> {
        if let Some(guest) = self.guests.get_mut(number) {
            while let Some(first) = guest.replies.front_mut() {
                if !deliver_copied(&receiver.backend, first)? {
                    return Ok(false);
                }
                guest.replies.pop_front();
            }
            for stream in std::mem::take(&mut guest.streams_wait) {
                self.streams.make_ready(stream);
            }
        }
        let mut bytes = 0;
        let result = self.deliver_deferred(number, receiver, &mut bytes);
        if let Some(guest) = self.guests.get_mut(number) {
            guest.figures.received_bytes += bytes;
        }
        result
    }

    /// Delivers deferred packets, and counts their bytes; returns whether none is left.
    fn deliver_deferred(
        &mut self,
        number: usize,
        receiver: &Device,
        bytes: &mut u64,
    ) -> Result<bool, Fault> {
        for guest in &mut self.guests {
            let Some(sender) = &mut guest.device else {
                continue;
            };
            while let Some(first) = sender.deferred.first_for(number) {
                let before = first.delivered;
                let is_whole = deliver_copied(&receiver.backend, first)?;
                *bytes += u64::from(first.delivered - before);
                if !is_whole {
                    return Ok(false);
                }
                sender.deferred.remove_first_for(number);
                sender.full_since = None;
            }
        }
        Ok(true)
    }

    /// Requests a kick of a receiver for which packets wait; makes it ready if it has buffers.
    pub(crate) fn request_buffers(&mut self, number: usize) {
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        let Some(device) = &guest.device else {
            return;
        };
        match request_kick(&device.backend, RECEIVE) {
            Ok(true) => guest.may_receive = true,
            Ok(false) => {}
            Err(fault) => self.end(number, &fault),
        }
    }

    /// Resets the connections to receivers without buffers for which packets of a sender have waited too
    /// long without room for more.
    pub(crate) fn reset_stuck(&mut self) {
        for number in 0..self.guests.len() {
            let now = self.now;
            let Some(guest) = self.guests.get_mut(number) else {
                continue;
            };
            let own = guest.config.cid;
            let Some(device) = &mut guest.device else {
                continue;
            };
            let is_late =
                |since: &mut Instant| now.saturating_duration_since(*since) >= STUCK_TIMEOUT;
            if device.full_since.take_if(is_late).is_none() {
                continue;
            }
            let stuck: Vec<usize> = device
                .deferred
                .receivers()
                .chain(device.waits_for)
                .collect();
            device.head = None;
            device.waits_for = None;
            device.may_transmit = true;
            for receiver in &stuck {
                device.deferred.remove_for(*receiver);
            }
            let cids: Vec<u32> = stuck
                .iter()
                .filter_map(|receiver| Some(self.guests.get(*receiver)?.config.cid))
                .collect();
            let with_stuck = |ends: &Ends| cids.contains(&ends.other_than(own).cid);
            let reset: Vec<Ends> = self.connections.of_cid(own).filter(with_stuck).collect();
            for ends in reset {
                for end in ends.both() {
                    self.reset_at(ends, end.cid);
                }
                self.connections.remove(ends);
                if let Some(guest) = self.guests.get_mut(number) {
                    increment(&mut guest.figures.stuck);
                }
            }
        }
    }

    /// Lets senders continue that waited for a receiver which is gone.
    pub(crate) fn release_senders(&mut self, receiver: usize) {
        for guest in &mut self.guests {
            if let Some(device) = &mut guest.device {
                device.deferred.remove_for(receiver);
                if device.head.is_some_and(|head| head.to == receiver) {
                    // The packet is read again, and is one without a connection now.
                    device.head = None;
                }
                device.may_transmit |= device.waits_for.take_if(|to| *to == receiver).is_some();
            }
        }
    }
}
