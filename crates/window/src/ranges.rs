//! The free ranges of a heap: first fit, in whole pages, adjacent ranges merged.

use std::collections::BTreeMap;

/// Allocation granularity, so that no two owners share a page.
const PAGE: u64 = 4096;

/// Free ranges: start to length. No two are adjacent.
#[derive(Debug)]
pub(crate) struct Ranges {
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// All of `length` bytes is free, rounded down to whole pages.
    pub(crate) fn new(length: u64) -> Self {
        let whole = length - length % PAGE;
        let free = (whole > 0).then_some((0, whole));
        Self {
            free: free.into_iter().collect(),
        }
    }

    /// Allocates `length` bytes and returns their start.
    pub(crate) fn allocate(&mut self, length: u64) -> Option<u64> {
        let wanted = length.max(1).checked_next_multiple_of(PAGE)?;
        let fits = |(_, size): &(&u64, &u64)| **size >= wanted;
        let (&start, &size) = self.free.iter().find(fits)?;
        self.free.remove(&start);
        if size > wanted {
            self.free.insert(start + wanted, size - wanted);
        }
        Some(start)
    }

    /// Frees an allocation of `length` bytes.
    pub(crate) fn release(&mut self, start: u64, length: u64) {
        let (mut start, mut size) = (start, length.max(1).next_multiple_of(PAGE));
        if let Some(next) = self.free.remove(&(start + size)) {
            size += next;
        }
        let before = self.free.range(..start).next_back();
        if let Some((&at, &length)) = before.filter(|(at, length)| *at + *length == start) {
            start = at;
            size += length;
        }
        self.free.insert(start, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn allocations_never_overlap_and_all_is_free_in_the_end(
            steps in prop::collection::vec((any::<bool>(), 0u64..40_000, any::<prop::sample::Index>()), 1..200)
        ) {
            let length = 64 * PAGE;
            let mut ranges = Ranges::new(length + 17);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (allocate, size, which) in steps {
                if allocate {
                    if let Some(at) = ranges.allocate(size) {
                        let end = at + size.max(1);
                        prop_assert!(end <= length);
                        for (other, size) in &taken {
                            prop_assert!(end <= *other || other + size.max(&1) <= at);
                        }
                        taken.push((at, size));
                    }
                } else if !taken.is_empty() {
                    let (at, size) = taken.swap_remove(which.index(taken.len()));
                    ranges.release(at, size);
                }
            }
            for (at, size) in taken {
                ranges.release(at, size);
            }
            prop_assert_eq!(ranges.free.into_iter().collect::<Vec<_>>(), vec![(0, length)]);
        }
    }

    #[test]
    fn an_allocation_larger_than_the_free_space_fails() {
        let mut ranges = Ranges::new(2 * PAGE);
        assert_eq!(ranges.allocate(2 * PAGE + 1), None);
        assert_eq!(ranges.allocate(u64::MAX), None);
        assert_eq!(ranges.allocate(2 * PAGE), Some(0));
        assert_eq!(ranges.allocate(1), None);
    }
}
