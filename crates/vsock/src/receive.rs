//! Delivers packets into a guest's receive buffers.

use vhost::backend::{Backend, ring_fault};
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::{Fault, RingFault};

use crate::deferred::Copied;
use crate::header::Header;
use crate::limits::BURST;

/// The vhost-user number of the receive ring (virtio 1.3, 5.10.2).
pub(crate) const RECEIVE: usize = 0;

/// The vhost-user number of the transmit ring.
pub(crate) const TRANSMIT: usize = 1;

/// Payload bytes of Linux's receive buffers, less than they are: how many buffers a packet may need.
const LEAST_BUFFER: u32 = 3072;

/// Where the rest of a payload is.
pub(crate) enum Payload<'p, 'a, 'm> {
    /// In the sender's memory.
    Ring(&'p mut Cursor<'a, 'm>),
    /// In private memory.
    Private(&'p [u8]),
}

impl Payload<'_, '_, '_> {
    /// Copies the next bytes.
    fn copy_to(&mut self, to: &mut Cursor<'_, '_>, count: u32) {
        match self {
            Self::Ring(from) => {
                from.copy_to(to, count);
            }
            Self::Private(from) => {
                let (now, later) = from.split_at_checked(count as usize).unwrap_or((from, &[]));
                to.write(now);
                *from = later;
            }
        }
    }
}

/// Delivers the rest of a packet, of which the receiver has `delivered` bytes of payload already, in as many
/// receive buffers as it takes. Returns whether all of it is delivered. [`publish`] makes it visible.
///
/// # Errors
/// The receiver broke a rule.
pub(crate) fn deliver(
    receiver: &Backend,
    header: &Header,
    delivered: &mut u32,
    mut payload: Payload<'_, '_, '_>,
) -> Result<bool, Fault> {
    let Some(mut vring) = receiver.vring(RECEIVE) else {
        return Ok(false);
    };
    let Some(ring) = vring.active_mut() else {
        return Ok(false);
    };
    let mut batch = Batch::new();
    loop {
        let left = header.len.saturating_sub(*delivered);
        let wanted = u16::try_from(1 + left / LEAST_BUFFER).unwrap_or(u16::MAX);
        batch.clear();
        ring.collect(receiver.memory(), wanted.min(BURST), &mut batch)
            .map_err(ring_fault(RECEIVE))?;
        if batch.chains().is_empty() {
            return Ok(false);
        }
        for chain in batch.chains() {
            let left = header.len.saturating_sub(*delivered);
            let room = chain.bytes.saturating_sub(Header::BYTES);
            // 5.10.6.4.2: a receive buffer has room for the header and for some payload.
            if room == 0 {
                return Err(ring_fault(RECEIVE)(RingFault::NoHeader(chain.bytes)));
            }
            let count = left.min(room);
            let is_last = count == left;
            let mut to = Cursor::new(batch.spans(chain));
            to.write(&header.piece(count, is_last).to_bytes());
            payload.copy_to(&mut to, count);
            ring.consume(1);
            ring.put_used(chain.head, Header::BYTES + count);
            *delivered += count;
            if is_last {
                return Ok(true);
            }
        }
    }
}

/// Delivers the rest of a copied packet, likewise.
pub(crate) fn deliver_copied(receiver: &Backend, packet: &mut Copied) -> Result<bool, Fault> {
    let rest = packet.payload.get(packet.delivered as usize..);
    let payload = Payload::Private(rest.unwrap_or_default());
    deliver(receiver, &packet.header, &mut packet.delivered, payload)
}

/// Makes what was put into a used ring visible, and calls the driver if it wants that.
pub(crate) fn publish(backend: &Backend, ring: usize) -> Result<(), Fault> {
    let Some(mut vring) = backend.vring(ring) else {
        return Ok(());
    };
    let call = vring.running_mut().is_some_and(|running| running.publish());
    match call {
        true => vring.call().map_err(ring_fault(ring)),
        false => Ok(()),
    }
}

/// Requests a kick for when the ring has an available chain. Returns whether it has one already, so that no
/// kick may come.
pub(crate) fn request_kick(backend: &Backend, ring: usize) -> Result<bool, Fault> {
    let Some(mut vring) = backend.vring(ring) else {
        return Ok(false);
    };
    match vring.active_mut() {
        Some(active) => active.enable_kicks(0).map_err(ring_fault(ring)),
        None => Ok(false),
    }
}

/// Suppresses kicks while the ring is served.
pub(crate) fn suppress_kicks(backend: &Backend, ring: usize) {
    if let Some(mut vring) = backend.vring(ring) {
        if let Some(active) = vring.active_mut() {
            active.disable_kicks();
        }
    }
}
