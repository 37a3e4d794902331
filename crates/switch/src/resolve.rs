//! Looks a frame's destination up in the FDB, and learns its source address.

use crate::batch_entry::Target;
use crate::control::DropReason;
use crate::fdb::FdbKey;
use crate::frame::Head;
use crate::ring_state::LearnCache;
use crate::switch::Switch;

/// The source of a burst of frames, for learning, with a cache of the last look-up.
pub(crate) struct Source<'p> {
    pub(crate) port: u16,
    /// The number of addresses that the FDB may learn from the port.
    limit: u32,
    learn_cache: &'p mut LearnCache,
    /// The last look-up and its result: most frames have the destination of the frame before.
    last: Option<(FdbKey, Target)>,
}

impl<'p> Source<'p> {
    pub(crate) fn new(port: u16, limit: u32, learn_cache: &'p mut LearnCache) -> Self {
        Self {
            port,
            limit,
            learn_cache,
            last: None,
        }
    }
}

impl Switch {
    /// Learns a frame's source address and returns the target of the frame.
    #[inline]
    pub(crate) fn resolve(
        &self,
        head: &Head,
        vlan: u16,
        now: u32,
        source: &mut Source<'_>,
    ) -> Target {
        let from = FdbKey::new(head.source(), vlan);
        source
            .learn_cache
            .note(from, source.port, source.limit, &self.table);
        let destination = FdbKey::new(head.destination(), vlan);
        if let Some((key, target)) = source.last {
            if key == destination {
                return target;
            }
        }
        if let Some(times) = self.look_ups {
            let found = self.table.look_up_times(destination, now, times);
            return target(found, destination, source.port);
        }
        let target = target(
            self.table.lookup(destination, now),
            destination,
            source.port,
        );
        source.last = Some((destination, target));
        target
    }
}

/// Returns the target of a frame whose destination was found at a port, or was not found.
#[inline]
fn target(found: Option<u16>, destination: FdbKey, source: u16) -> Target {
    match found {
        _ if destination.mac().is_group() => Target::Flood,
        Some(port) if port == source => Target::Nowhere(DropReason::Hairpin),
        Some(port) => Target::Port(port),
        None => Target::Flood,
    }
}
