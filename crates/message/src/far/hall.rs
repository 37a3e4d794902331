//! A region, and which of its links are free.

use window::region::Region;

use super::LINKS;

#[derive(Debug)]
pub(super) struct Hall {
    pub(super) region: Region,
    free: Vec<u32>,
    /// Links of the process that served before: somebody may still use them, as long as any of the
    /// VMs runs.
    parked: Vec<u32>,
}

impl Hall {
    pub(super) fn new(region: Region) -> Self {
        let (parked, free) = (0..LINKS).rev().partition(|link| region.is_marked(*link));
        Self {
            region,
            free,
            parked,
        }
    }

    /// A link that nobody uses.
    pub(super) fn take(&mut self) -> Option<u32> {
        let link = self.free.pop()?;
        self.region.mark(link, true);
        Some(link)
    }

    /// Nobody uses a link any more.
    pub(super) fn give(&mut self, link: u32) {
        self.region.mark(link, false);
        self.free.push(link);
    }

    /// There is nobody any more.
    pub(super) fn empty(&mut self) {
        for link in std::mem::take(&mut self.parked) {
            self.give(link);
        }
    }
}
