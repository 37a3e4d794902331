//! Forwards frames for a pinned address whose VM is not attached, because it may have migrated to another
//! host.
//!
//! The FDB does not learn a pinned address at another port, so it cannot learn that the address is behind
//! an uplink now. Such frames go to the uplinks only, not to other VMs.

use crate::batch_entry::BatchEntry;
use crate::context::WorkerContext;
use crate::control::DropReason;
use crate::port::Kind;
use crate::sender::Sender;
use crate::switch::Switch;

impl Switch {
    /// Sends frames to every uplink that the rules allow; returns the number of completed frames, which
    /// is all of them.
    #[cold]
    pub(crate) fn send_migrated(
        &self,
        context: &mut WorkerContext,
        sender: &mut Sender<'_>,
        run: &[BatchEntry<'_, '_>],
    ) -> usize {
        for entry in run {
            let mut sent = false;
            for number in (0..).take(self.ports.len()) {
                let port = self.port(number).map(|port| &port.kind);
                if matches!(port, Some(Kind::Uplink(_))) {
                    let (rest, checked) = (entry.rest(), entry.checked());
                    let done =
                        self.deliver_one(context, number, sender.pair, &entry.head, &rest, checked);
                    sent |= done.is_ok();
                }
            }
            if sent {
                sender.finish(entry.chain, entry.head.length);
            } else {
                sender.drop_frame(entry.chain, entry.head.length, DropReason::ReceiverDown);
            }
        }
        run.len()
    }
}
