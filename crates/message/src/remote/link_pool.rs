//! A region, and which of its links are free.

use std::time::{Duration, Instant};

use window::region::Region;

use super::limits::LINKS;

#[derive(Debug)]
pub(super) struct LinkPool {
    pub(super) region: Region,
    free: Vec<u32>,
    /// Those of them that still have memory, and since when nobody uses it.
    resting: Vec<(u32, Instant)>,
    /// Links of the process that served before: somebody may still use them, as long as any of the
    /// VMs runs.
    parked: Vec<u32>,
}

/// How long a link that was given back keeps its memory for the next one.
const REST: Duration = Duration::from_secs(1);

impl LinkPool {
    pub(super) fn new(region: Region) -> Self {
        let (parked, free): (_, Vec<_>) =
            (0..LINKS).rev().partition(|link| region.is_marked(*link));
        let now = Instant::now();
        Self {
            region,
            // Whoever served before may have left memory there.
            resting: free.iter().map(|link| (*link, now)).collect(),
            free,
            parked,
        }
    }

    /// A link that nobody uses.
    pub(super) fn take(&mut self) -> Option<u32> {
        let link = self.free.pop()?;
        self.resting.retain(|(resting, _)| *resting != link);
        self.region.mark(link, true);
        Some(link)
    }

    /// Nobody uses a link any more.
    pub(super) fn give(&mut self, link: u32) {
        self.rest(link);
        self.free.push(link);
    }

    /// Whoever spoke for its users is gone, and they may not have noticed yet: it is taken again after all
    /// others.
    pub(super) fn give_last(&mut self, link: u32) {
        self.rest(link);
        self.free.insert(0, link);
    }

    fn rest(&mut self, link: u32) {
        self.region.mark(link, false);
        self.resting.push((link, Instant::now()));
    }

    /// Give back the memory of links that have rested long enough.
    pub(super) fn empty(&mut self, now: Instant) {
        let region = &self.region;
        self.resting.retain(|(link, since)| {
            let rests = now.saturating_duration_since(*since) < REST;
            // Who is refused keeps it.
            rests || region.empty(*link).is_err()
        });
    }

    /// There is nobody any more.
    pub(super) fn abandon(&mut self) {
        for link in std::mem::take(&mut self.parked) {
            self.give_last(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::remote::layout::region_layout;

    #[test]
    fn links_that_rest_give_their_memory_back_unless_they_are_taken_again() {
        let mut link_pool = LinkPool::new(Region::create(region_layout(1).unwrap()).unwrap());
        let fd = link_pool.region.as_fd().try_clone_to_owned().unwrap();
        let blocks = || rustix::fs::fstat(&fd).unwrap().st_blocks;
        let taken = [link_pool.take().unwrap(), link_pool.take().unwrap()];
        let before = blocks();
        for link in taken {
            link_pool.region.link(link).unwrap().renew().unwrap();
        }
        let used = (blocks() - before) / 2;
        taken.into_iter().for_each(|link| link_pool.give(link));
        let now = Instant::now();
        link_pool.empty(now);
        assert_eq!(blocks(), before + 2 * used, "too early");
        link_pool.take().unwrap();
        link_pool.empty(now + REST);
        assert_eq!(blocks(), before + used);
    }
}
