//! Where a frame goes, as the residency table has it, and what the frame teaches the table.

use crate::batch_entry::Target;
use crate::control::Loss;
use crate::fdb::FdbKey;
use crate::frame::Head;
use crate::ring_state::LearnCache;
use crate::switch::Switch;

/// Where frames come from, as the residency table is concerned.
pub(crate) struct Source<'p> {
    pub(crate) port: u16,
    /// Addresses the port may teach.
    limit: u32,
    learn_cache: &'p mut LearnCache,
    /// The last answer: the next frame mostly asks the same.
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
    /// Note a frame's source and find its destination.
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

/// Where a frame goes whose destination was found there, or nowhere.
#[inline]
fn target(found: Option<u16>, destination: FdbKey, source: u16) -> Target {
    match found {
        _ if destination.mac().is_group() => Target::Flood,
        Some(port) if port == source => Target::Nowhere(Loss::Hairpin),
        Some(port) => Target::Port(port),
        None => Target::Flood,
    }
}
