//! What happens to a run: consecutive frames of a burst with the same destination.

use crate::batch_entry::BatchEntry;
use crate::control::{Counters, DropReason};
use crate::deliver::count_sent;
use crate::guard::{Cost, Outgoing, Tagging};
use crate::port::Port;
use crate::sender::Sender;
use crate::uplink::Uplink;

/// Returns the number of leading entries with the same target and VLAN.
pub(super) fn same_destination(run: &[BatchEntry<'_, '_>]) -> usize {
    let of = |entry: &BatchEntry<'_, '_>| (entry.target, entry.checked());
    let first = run.first().map(of);
    run.iter()
        .take_while(|entry| Some(of(entry)) == first)
        .count()
}

/// Drops all frames of a run.
pub(super) fn drop_run(
    sender: &mut Sender<'_>,
    run: &[BatchEntry<'_, '_>],
    reason: DropReason,
) -> usize {
    for entry in run {
        sender.drop_frame(entry.chain, entry.head.length, reason);
    }
    run.len()
}

/// Drops frames that exceed the receiver's rate; they count as drops of the receiver.
#[inline]
pub(super) fn drop_beyond(
    sender: &mut Sender<'_>,
    run: &[BatchEntry<'_, '_>],
    receiver: &Port,
) -> usize {
    if !run.is_empty() {
        for entry in run {
            sender.finish(entry.chain, entry.head.length);
        }
        receiver.count_drops(sender.pair, DropReason::ReceiveLimit, run.len());
    }
    run.len()
}

/// Returns the cost of each frame for rate limits.
pub(super) fn costs(run: &[BatchEntry<'_, '_>]) -> impl Iterator<Item = Cost> {
    run.iter().map(|entry| Cost::of(&entry.head))
}

/// Sends a run to the network outside.
pub(super) fn send_out(
    sender: &mut Sender<'_>,
    run: &[BatchEntry<'_, '_>],
    tagging: Tagging,
    uplink: &Uplink,
) -> usize {
    // Collect the counters locally, so that the lock on the queue's counters is not taken during
    // system calls.
    let mut counters = Counters::default();
    let queue = uplink.queue(sender.pair);
    for entry in run {
        match Outgoing::new(tagging, entry.checked(), &entry.head, &entry.rest()) {
            Some(out) => {
                let sent = queue.send(&out.head, &out.rest());
                count_sent(sent, &out.head, &mut counters);
            }
            None => counters.drops.count(DropReason::Untranslatable),
        }
        sender
            .remote_peers
            .add(entry.destination(), entry.head.length.into());
        sender.finish(entry.chain, entry.head.length);
    }
    queue.flush();
    let mut sum = queue.egress();
    *sum = sum.plus(&counters);
    run.len()
}
