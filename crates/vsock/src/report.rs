//! When a sender learns that its packets were handled.
//!
//! Linux's driver asks for a call for each packet that was handled (`virtio_transport_tx_work` in
//! `net/vmw_vsock/virtio_transport.c`), where its network driver frees packets when it sends the next ones. The call
//! frees memory, and makes room in the ring; no data and no credit waits for it. So the device reports data
//! and credit once a quarter of the ring was handled, or when the sender has paused for [`REPORT_DELAY`].
//!
//! The next process reads packets again that were not reported. Their connections are reset then, so it
//! refuses them. Packets that begin or end a connection are reported at once: none begins twice.

use std::time::Instant;

use vhost::fault::Fault;

use crate::guest::Device;
use crate::header::Operation;
use crate::limits::REPORT_DELAY;
use crate::plane::Plane;
use crate::receive::{TRANSMIT, publish};

/// When handled packets are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Report {
    /// With the packets that follow, if any follow soon.
    Later,
    /// At once.
    Now,
}

impl Report {
    /// Returns when a packet to another guest is reported.
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::ReadWrite | Operation::CreditUpdate => Self::Later,
            _ => Self::Now,
        }
    }
}

impl Device {
    /// Reports the handled packets, or notes that they are to be reported. `report` is `None` if no packet was
    /// handled.
    pub(crate) fn report(&mut self, report: Option<Report>, now: Instant) -> Result<(), Fault> {
        match report {
            None => Ok(()),
            Some(Report::Later) if !self.is_report_due() => {
                self.unreported_since = Some(now);
                Ok(())
            }
            Some(_) => self.report_now(),
        }
    }

    /// Returns whether a quarter of the transmit ring is unreported.
    fn is_report_due(&self) -> bool {
        let mut vring = self.backend.vring(TRANSMIT);
        let ring = vring.as_mut().and_then(|vring| vring.running_mut());
        ring.is_some_and(|ring| u32::from(ring.unpublished()) >= ring.size() / 4)
    }

    /// Reports all handled packets.
    pub(crate) fn report_now(&mut self) -> Result<(), Fault> {
        self.unreported_since = None;
        publish(&self.backend, TRANSMIT)
    }
}

impl Plane {
    /// Reports packets of a sender that has paused.
    pub(crate) fn report_late(&mut self, number: usize) {
        let now = self.now;
        let guest = self.guests.get_mut(number);
        let Some(device) = guest.and_then(|guest| guest.device.as_mut()) else {
            return;
        };
        let is_late = |since: &Instant| now.saturating_duration_since(*since) >= REPORT_DELAY;
        if device.unreported_since.as_ref().is_some_and(is_late) {
            if let Err(fault) = device.report_now() {
                self.end(number, &fault);
            }
        }
    }
}
