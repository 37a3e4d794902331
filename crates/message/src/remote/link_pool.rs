//! The pool of a region's links.

use std::time::{Duration, Instant};

use window::region::Region;

use super::limits::LINKS;

#[derive(Debug)]
pub(super) struct LinkPool {
    pub(super) region: Region,
    free: Vec<u32>,
    /// Free links that still have memory, and since when they are free.
    idle: Vec<(u32, Instant)>,
    /// Links that the broker before this one had in use. Endpoints may still use them, as long
    /// as a VM of the region runs.
    parked: Vec<u32>,
}

/// How long a free link keeps its memory for its next use.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

impl LinkPool {
    pub(super) fn new(region: Region) -> Self {
        let (parked, free): (_, Vec<_>) =
            (0..LINKS).rev().partition(|link| region.is_in_use(*link));
        let now = Instant::now();
        Self {
            region,
            // The broker before this one may have left memory there.
            idle: free.iter().map(|link| (*link, now)).collect(),
            free,
            parked,
        }
    }

    /// Takes a free link.
    pub(super) fn take(&mut self) -> Option<u32> {
        let link = self.free.pop()?;
        self.idle.retain(|(idle, _)| *idle != link);
        self.region.set_in_use(link, true);
        Some(link)
    }

    /// Returns a link to the pool.
    pub(super) fn release(&mut self, link: u32) {
        self.mark_free(link);
        self.free.push(link);
    }

    /// Returns a link whose gateway ended. Its endpoints may not have noticed yet, so this link is
    /// reused last.
    pub(super) fn release_last(&mut self, link: u32) {
        self.mark_free(link);
        self.free.insert(0, link);
    }

    fn mark_free(&mut self, link: u32) {
        self.region.set_in_use(link, false);
        self.idle.push((link, Instant::now()));
    }

    /// Returns the memory of links that have been free for [`IDLE_LIMIT`] to the system.
    pub(super) fn release_idle_memory(&mut self, now: Instant) {
        let region = &self.region;
        self.idle.retain(|(link, since)| {
            let rests = now.saturating_duration_since(*since) < IDLE_LIMIT;
            // If the kernel refuses, the link keeps its memory, and the pool tries again later.
            rests || region.release_memory(*link).is_err()
        });
    }

    /// Returns the parked links: no VM of the region runs any more.
    pub(super) fn release_parked(&mut self) {
        for link in std::mem::take(&mut self.parked) {
            self.release_last(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::remote::layout::region_layout;

    #[test]
    fn idle_links_release_their_memory_unless_they_are_taken_again() {
        let mut link_pool = LinkPool::new(Region::create(region_layout(1).unwrap()).unwrap());
        let fd = link_pool.region.as_fd().try_clone_to_owned().unwrap();
        let blocks = || rustix::fs::fstat(&fd).unwrap().st_blocks;
        let taken = [link_pool.take().unwrap(), link_pool.take().unwrap()];
        let before = blocks();
        for link in taken {
            link_pool.region.link(link).unwrap().reset().unwrap();
        }
        let used = (blocks() - before) / 2;
        taken.into_iter().for_each(|link| link_pool.release(link));
        let now = Instant::now();
        link_pool.release_idle_memory(now);
        assert_eq!(blocks(), before + 2 * used, "too early");
        link_pool.take().unwrap();
        link_pool.release_idle_memory(now + IDLE_LIMIT);
        assert_eq!(blocks(), before + used);
    }
}
