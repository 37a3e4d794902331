//! What is held back: tried again, or given up.

use arrayvec::ArrayVec;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::RingFault;
use vhost::features::header_size;
use vhost::memory::GuestMemory;

use crate::frame::Head;
use crate::hold::Waiting;
use crate::limits::{BURST, MAX_PORTS};
use crate::port::{Kind, publish};
use crate::switch::Switch;
use crate::transmit::{Job, Sender, Target};

/// Ports that have no room in this round.
#[derive(Default)]
struct PortSet([u64; MAX_PORTS / 64]);

impl PortSet {
    fn insert(&mut self, port: u16) {
        if let Some(word) = self.0.get_mut(usize::from(port) / 64) {
            *word |= 1 << (port % 64);
        }
    }

    fn contains(&self, port: u16) -> bool {
        let word = self.0.get(usize::from(port) / 64);
        word.is_some_and(|word| word & 1 << (port % 64) != 0)
    }
}

impl Switch {
    /// Try again what is held, as far as its receivers may have room; returns how many frames
    /// are done with.
    ///
    /// Goes round the queue once. Order towards a receiver is kept: once one of its frames found
    /// no room, all later ones go back to the queue untried.
    pub(crate) fn retry_held(
        &mut self,
        sender: &mut Sender<'_>,
        memory: &GuestMemory,
        features: u64,
    ) -> Result<u32, RingFault> {
        let before = sender.held.len();
        let mut left = before;
        let mut full = PortSet::default();
        while left > 0 {
            let mut batch = Batch::new();
            let mut waiting: ArrayVec<Waiting, { BURST as usize }> = ArrayVec::new();
            while left > 0 && !waiting.is_full() {
                let Some(next) = sender.held.pop() else { break };
                if full.contains(next.to) || !self.worth_a_try(next.to) {
                    // Not later in this round either: its buffers may come in between.
                    full.insert(next.to);
                    sender.held.push(next);
                } else if sender.ring.look_at(memory, next.chain, &mut batch)? {
                    waiting.push(next);
                } else {
                    sender.held.unpop(next);
                    break;
                }
                left -= 1;
            }
            self.retry(sender, &batch, &waiting, features)?;
            for port in waiting.iter().map(|waiting| waiting.to) {
                if self.is_short(port) {
                    full.insert(port);
                }
            }
        }
        sender.held.settle(sender.ring.size());
        Ok(u32::try_from(before.saturating_sub(sender.held.len())).unwrap_or(u32::MAX))
    }

    fn is_short(&self, to: u16) -> bool {
        matches!(self.port(to).map(|port| &port.kind), Some(Kind::Guest(guest)) if guest.short.is_some())
    }

    fn worth_a_try(&self, to: u16) -> bool {
        match self.port(to).map(|port| &port.kind) {
            Some(Kind::Guest(guest)) => guest.worth_a_try(self.now),
            _ => true,
        }
    }

    fn retry(
        &mut self,
        sender: &mut Sender<'_>,
        batch: &Batch<'_>,
        waiting: &[Waiting],
        features: u64,
    ) -> Result<(), RingFault> {
        let mut jobs: ArrayVec<Job<'_, '_>, { BURST as usize }> = ArrayVec::new();
        for (chain, waiting) in batch.chains().iter().zip(waiting) {
            let mut rest = Cursor::new(batch.spans(chain));
            let head = Head::read(&mut rest, chain.bytes, header_size(features), features)?;
            let target = head
                .as_ref()
                .map_or(Target::Nowhere, |_| Target::Port(waiting.to));
            let head = head.unwrap_or_default();
            let segments = waiting.segments;
            jobs.push(Job {
                chain: chain.head,
                head,
                rest,
                target,
                segments,
            });
        }
        self.forward(sender, &mut jobs, true);
        Ok(())
    }

    /// Give up what a port's transmit ring holds, before the ring stops.
    pub fn release_held(&mut self, number: u16, ring: usize) {
        let Some(port) = self.port_mut(number) else {
            return;
        };
        let Kind::Guest(guest) = &mut port.kind else {
            return;
        };
        let Some(held) = guest.held.get_mut(ring / 2).filter(|_| ring % 2 == 1) else {
            return;
        };
        let Some(vring) = guest.backend.vring_mut(ring) else {
            return;
        };
        while let Some(waiting) = held.pop() {
            port.counters.tx_frames += 1;
            port.counters.drops.receiver_stuck += 1;
            if let Some(ring) = vring.running_mut() {
                ring.put_used(waiting.chain, 0);
            }
        }
        // The ring stops with the next message: whether the call got through matters to nobody.
        let _ = publish(vring, &mut port.counters);
    }
}
