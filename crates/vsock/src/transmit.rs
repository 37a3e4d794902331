//! Reads a guest's packets, decides about each, and delivers it.

use std::sync::Arc;

use vhost::backend::ring_fault;
use vhost::chain::{Batch, Chain};
use vhost::copy::Cursor;
use vhost::fault::Fault;

use crate::connection::{Ends, Refusal, Verdict};
use crate::figures::increment;
use crate::guest::{Device, Head};
use crate::header::{HOST_CID, Header, Operation};
use crate::limits::{BURST, MAX_REPLIES};
use crate::packet::{Invalid, Packet, reset_of_invalid};
use crate::plane::Plane;
use crate::receive::{Payload, RECEIVE, TRANSMIT, deliver, publish};
use crate::report::Report;

/// The result of an attempt to handle a packet.
enum Outcome {
    /// Nothing of it is left in the ring.
    Done,
    /// It waits for buffers of this receiver.
    Waits(Head),
}

impl Plane {
    /// Handles a burst of a guest's packets. The device is the guest's, which has none meanwhile.
    ///
    /// # Errors
    /// The guest broke a rule.
    pub(crate) fn transmit(&mut self, from: usize, device: &mut Device) -> Result<(), Fault> {
        device.may_transmit = false;
        let memory = Arc::clone(device.backend.memory());
        if memory.truncated() {
            return Err(Fault::Truncated);
        }
        let mut touched = Vec::new();
        let mut report = None;
        let result = self.burst(from, device, &memory, &mut touched, &mut report);
        device.report(report, self.now)?;
        for receiver in touched {
            self.publish_received(receiver);
        }
        result
    }

    fn burst(
        &mut self,
        from: usize,
        device: &mut Device,
        memory: &vhost::memory::GuestMemory,
        touched: &mut Vec<usize>,
        report: &mut Option<Report>,
    ) -> Result<(), Fault> {
        let seqpacket = device.has_seqpacket();
        let Device {
            backend,
            head,
            deferred,
            waits_for,
            full_since,
            may_transmit,
            ..
        } = device;
        let Some(mut vring) = backend.vring(TRANSMIT) else {
            return Ok(());
        };
        let Some(ring) = vring.active_mut() else {
            return Ok(());
        };
        ring.disable_kicks();
        let mut batch = Batch::new();
        let fault = ring_fault(TRANSMIT);
        ring.collect(memory, BURST, &mut batch).map_err(&fault)?;
        if batch.chains().is_empty() {
            *may_transmit = ring.enable_kicks(0).map_err(&fault)?;
            return Ok(());
        }
        for (place, chain) in batch.chains().iter().enumerate() {
            if self.has_too_many_replies(from) {
                // The guest reads its replies, or waits: `serve_receiver` continues.
                return Ok(());
            }
            let mut cursor = Cursor::new(batch.spans(chain));
            let mut when = Report::Now;
            let packet = match head.take() {
                Some(head) => {
                    let operation = Operation::from_number(head.header.op);
                    when = operation.map_or(Report::Now, Report::of);
                    continued(head, chain, &mut cursor)
                }
                None => self.next_packet(from, chain, &mut cursor, seqpacket, &mut when),
            };
            let outcome = match packet {
                None => Outcome::Done,
                Some(head) if deferred.waits_for(head.to) => Outcome::Waits(head),
                Some(head) => self.deliver_to(head, &mut cursor, touched),
            };
            if let Outcome::Waits(packet) = outcome {
                // A full batch may have packets for others behind it.
                let blocks = batch.is_full()
                    || self.is_waiting(packet.to)
                    || others_wait(&batch, place, &packet.header);
                if blocks && deferred.has_room(packet.header.len) {
                    deferred.push(packet.to, packet.header, packet.delivered, cursor);
                    self.count(from, |figures| increment(&mut figures.deferred));
                } else {
                    if blocks {
                        full_since.get_or_insert(self.now);
                    }
                    (*head, *waits_for) = (Some(packet), Some(packet.to));
                    // A packet for another receiver may come.
                    let seen = ring.seen();
                    if ring.enable_kicks(seen).map_err(&fault)? {
                        (*may_transmit, *waits_for) = (true, None);
                    }
                    return Ok(());
                }
            }
            ring.consume(1);
            ring.put_used(chain.head, 0);
            *report = (*report).max(Some(when));
            *full_since = None;
        }
        *may_transmit = true;
        Ok(())
    }

    fn has_too_many_replies(&self, guest: usize) -> bool {
        let replies = self.guests.get(guest).map(|guest| guest.replies.len());
        replies.is_some_and(|replies| replies >= MAX_REPLIES)
    }

    /// Returns whether a guest's own packets wait for a receiver.
    fn is_waiting(&self, guest: usize) -> bool {
        let device = self
            .guests
            .get(guest)
            .and_then(|guest| guest.device.as_ref());
        device.is_some_and(|device| device.waits_for.is_some())
    }

    fn count(&mut self, guest: usize, change: impl FnOnce(&mut crate::figures::Figures)) {
        if let Some(guest) = self.guests.get_mut(guest) {
            change(&mut guest.figures);
        }
    }

    /// Reads and checks a packet, and decides about it. Returns it if it goes to a guest.
    fn next_packet(
        &mut self,
        from: usize,
        chain: &Chain,
        cursor: &mut Cursor<'_, '_>,
        seqpacket: bool,
        when: &mut Report,
    ) -> Option<Head> {
        let own = self.guests.get(from)?.config.cid;
        let mut bytes = [0; Header::SIZE];
        let header = Header::from_bytes(&match cursor.read(&mut bytes) {
            Header::SIZE => bytes,
            _ => return self.refuse_invalid(from, &Header::default(), Invalid::Short),
        });
        let room = chain.bytes.saturating_sub(Header::BYTES);
        let packet = match Packet::check(&header, own, room, seqpacket) {
            Ok(packet) => packet,
            Err(invalid) => return self.refuse_invalid(from, &header, invalid),
        };
        self.count(from, |figures| {
            increment(&mut figures.sent_packets);
            figures.sent_bytes += u64::from(packet.length);
        });
        if packet.destination.cid == HOST_CID {
            self.packet_to_host(from, &packet, cursor);
            return None;
        }
        *when = Report::of(packet.operation);
        let to = match self.destination(&packet) {
            Some(to) => to,
            None => {
                self.refuse(from, &packet, Refusal::NoConnection);
                return None;
            }
        };
        match self.judge(&packet) {
            Verdict::Begin => {
                for guest in [from, to] {
                    self.count(guest, |figures| increment(&mut figures.begun));
                }
            }
            Verdict::Forward => {}
            Verdict::End => {
                let ends = Ends::of(packet.source, packet.destination);
                self.connections.remove(ends);
            }
            Verdict::Refuse(refusal) => {
                self.refuse(from, &packet, refusal);
                return None;
            }
            Verdict::Ignore => return None,
        }
        Some(Head {
            header: packet.header(),
            delivered: 0,
            to,
        })
    }

    /// Returns the guest that a packet is for, if it has a front-end.
    fn destination(&self, packet: &Packet) -> Option<usize> {
        let to = *self.by_cid.get(&packet.destination.cid)?;
        // Without a driver, nobody would answer the request.
        let answers = packet.operation != Operation::Request || self.is_receiving(to);
        (answers && self.is_attached(to)).then_some(to)
    }

    fn judge(&mut self, packet: &Packet) -> Verdict {
        let allowed = self.allows(packet.source, packet.destination);
        self.connections.judge(packet, self.now, |_, _| allowed)
    }

    fn refuse_invalid(&mut self, from: usize, header: &Header, invalid: Invalid) -> Option<Head> {
        let guest = self.guests.get_mut(from)?;
        increment(&mut guest.figures.invalid);
        tracing::debug!(vm = %guest.config.name, "refused a packet: {invalid}");
        if let Some(reset) = reset_of_invalid(header, guest.config.cid, invalid) {
            self.reply(from, reset);
        }
        None
    }

    pub(crate) fn refuse(&mut self, from: usize, packet: &Packet, refusal: Refusal) {
        self.count(from, |figures| {
            increment(match refusal {
                Refusal::NoConnection => &mut figures.no_connection,
                Refusal::NotAllowed => &mut figures.not_allowed,
                Refusal::TooMany => &mut figures.too_many,
            });
        });
        if packet.operation != Operation::Reset {
            self.reply(from, packet.reset().header());
        }
    }

    /// Delivers a packet, or the rest of it.
    fn deliver_to(
        &mut self,
        mut head: Head,
        cursor: &mut Cursor<'_, '_>,
        touched: &mut Vec<usize>,
    ) -> Outcome {
        let Some(guest) = self.guests.get_mut(head.to) else {
            return Outcome::Done;
        };
        let Some(device) = &guest.device else {
            return Outcome::Done;
        };
        // What this device sends the guest was first.
        if !guest.replies.is_empty() {
            guest.may_receive = true;
            return Outcome::Waits(head);
        }
        if !touched.contains(&head.to) {
            touched.push(head.to);
        }
        let before = head.delivered;
        let payload = Payload::Ring(cursor);
        let result = deliver(&device.backend, &head.header, &mut head.delivered, payload);
        guest.figures.received_bytes += u64::from(head.delivered - before);
        match result {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Waits(head),
            Err(fault) => {
                self.end(head.to, &fault);
                Outcome::Done
            }
        }
    }

    fn publish_received(&mut self, receiver: usize) {
        let device = self
            .guests
            .get(receiver)
            .and_then(|guest| guest.device.as_ref());
        if let Some(Err(fault)) = device.map(|device| publish(&device.backend, RECEIVE)) {
            self.end(receiver, &fault);
        }
    }
}

/// Returns a packet that stayed in the ring, with the cursor behind what is delivered of it. A guest that has
/// made the chain shorter meanwhile loses the rest of the packet, and with it the place in its own stream.
fn continued(head: Head, chain: &Chain, cursor: &mut Cursor<'_, '_>) -> Option<Head> {
    let room = chain.bytes.saturating_sub(Header::BYTES);
    cursor.skip(Header::BYTES + head.delivered);
    (head.header.len <= room).then_some(head)
}

/// Returns whether a packet for another receiver is behind this one.
fn others_wait(batch: &Batch<'_>, place: usize, header: &Header) -> bool {
    let behind = batch.chains().get(place + 1..).unwrap_or_default();
    behind.iter().any(|chain| {
        let mut bytes = [0; Header::SIZE];
        let read = Cursor::new(batch.spans(chain)).read(&mut bytes);
        read == Header::SIZE && Header::from_bytes(&bytes).dst_cid != header.dst_cid
    })
}
