//! Frames for a pinned address whose VM is not here: it may have moved to another host.
//!
//! A pinned address is not learnt elsewhere, so nothing would ever say that it lives behind an
//! uplink now. Neighbours are none of its business: they do not get such frames.

use crate::batch_entry::BatchEntry;
use crate::context::WorkerContext;
use crate::control::Loss;
use crate::port::Kind;
use crate::sender::Sender;
use crate::switch::Switch;

impl Switch {
    /// Send frames out by every uplink that may have them; returns how many are done with, which
    /// is all.
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
                sender.lose(entry.chain, entry.head.length, Loss::ReceiverDown);
            }
        }
        run.len()
    }
}
