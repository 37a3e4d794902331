//! Matching of messages with receives.
//!
//! A message matches a receive if its value, under the receive's mask, equals the receive's value.
//! Receives are searched in the order they were posted, messages in the order they arrived. With
//! context ids, some bits of the value select one of many queues, so that no search has to skip
//! entries of other contexts.

use std::collections::VecDeque;

use crate::error::Error;
use crate::limits::CONTEXT_BITS;

/// The value and mask of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    value: u64,
    mask: u64,
}

impl Pattern {
    /// Matches every message.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// Matches messages whose value has these bits where the mask is set.
    ///
    /// # Errors
    /// The value has bits outside the mask.
    pub fn new(value: u64, mask: u64) -> Result<Self, Error> {
        match value & !mask {
            0 => Ok(Self { value, mask }),
            _ => Err(Error::BadMask),
        }
    }

    /// Matches messages of exactly this value.
    #[must_use]
    pub fn exactly(value: u64) -> Self {
        Self {
            value,
            mask: u64::MAX,
        }
    }

    /// Returns whether a message of this value matches.
    #[inline(always)]
    #[must_use]
    pub fn fits(&self, value: u64) -> bool {
        value & self.mask == self.value
    }
}

/// The bits of a match value that are a context id; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    bits: u8,
    shift: u8,
}

impl Contexts {
    /// The context id has `bits` bits, from bit `shift`.
    ///
    /// # Errors
    /// There are more than 16 bits, or they are not within 64.
    pub fn new(bits: u8, shift: u8) -> Result<Self, Error> {
        let inside = bits <= CONTEXT_BITS && u32::from(bits) + u32::from(shift) <= u64::BITS;
        inside
            .then_some(Self { bits, shift })
            .ok_or(Error::BadContext)
    }

    fn mask(self) -> u64 {
        match self.bits {
            0 => 0,
            bits => ((1 << bits) - 1) << self.shift,
        }
    }

    /// Returns whether a pattern selects one context.
    #[inline]
    pub(crate) fn covered_by(self, pattern: &Pattern) -> bool {
        pattern.mask & self.mask() == self.mask()
    }

    #[inline(always)]
    fn of(self, value: u64) -> usize {
        match self.bits {
            0 => 0,
            // At most 16 bits.
            _ => usize::try_from((value & self.mask()) >> self.shift).unwrap_or_default(),
        }
    }
}

/// A queue for each context.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    contexts: Contexts,
    queues: Vec<VecDeque<T>>,
}

impl<T> Queues<T> {
    pub(crate) fn new(contexts: Contexts) -> Self {
        let queues = (0..1usize << contexts.bits).map(|_| VecDeque::new());
        Self {
            contexts,
            queues: queues.collect(),
        }
    }

    /// Appends an item to the queue of a value.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: u64, item: T) {
        if let Some(queue) = self.queues.get_mut(self.contexts.of(value)) {
            queue.push_back(item);
        }
    }

    /// Removes and returns the first item of a value's queue that `fits`.
    #[inline(always)]
    pub(crate) fn take(&mut self, value: u64, mut fits: impl FnMut(&T) -> bool) -> Option<T> {
        let queue = self.queues.get_mut(self.contexts.of(value))?;
        // Usually the first, if there is one.
        if fits(queue.front()?) {
            return queue.pop_front();
        }
        let position = queue.iter().position(fits)?;
        queue.remove(position)
    }

    /// Returns whether a value's queue has an item that `fits`.
    #[inline]
    pub(crate) fn has(&self, value: u64, fits: impl FnMut(&T) -> bool) -> bool {
        let queue = self.queues.get(self.contexts.of(value));
        queue.is_some_and(|queue| queue.iter().any(fits))
    }

    /// Returns the first item that `fits`, in the pattern's context, or in all contexts if it
    /// selects none.
    pub(crate) fn find(&self, pattern: &Pattern, fits: impl Fn(&T) -> bool) -> Option<&T> {
        if self.contexts.covered_by(pattern) {
            let queue = self.queues.get(self.contexts.of(pattern.value))?;
            return queue.iter().find(|item| fits(item));
        }
        self.queues.iter().flatten().find(|item| fits(item))
    }

    /// Returns whether the queue is known to be empty; false if there are many queues, which are
    /// not searched.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.queues.as_slice(), [only] if only.is_empty())
    }

    /// Removes the items that `keep` rejects.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for queue in &mut self.queues {
            queue.retain(&mut keep);
        }
    }
}

impl Pattern {
    /// Returns the value, to select a queue.
    #[inline(always)]
    pub(crate) fn value(&self) -> u64 {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx_6_1_a_mask_hides_bits_and_a_value_has_none_outside() {
        let pattern = Pattern::new(0x10, 0xf0).unwrap();
        assert!(pattern.fits(0x1f) && !pattern.fits(0x2f));
        assert!(matches!(Pattern::new(0x11, 0xf0), Err(Error::BadMask)));
        assert!(Pattern::ANY.fits(u64::MAX) && !Pattern::exactly(1).fits(0));
    }

    #[test]
    fn mx_6_2_contexts_fit_into_a_value() {
        assert!(Contexts::new(16, 48).is_ok() && Contexts::new(0, 64).is_ok());
        assert!(Contexts::new(17, 0).is_err() && Contexts::new(1, 64).is_err());
        let contexts = Contexts::new(4, 60).unwrap();
        assert!(contexts.covered_by(&Pattern::exactly(1)));
        assert!(!contexts.covered_by(&Pattern::new(0, 7 << 60).unwrap()));
    }

    #[test]
    fn mx_6_1_the_first_match_is_taken() {
        let mut queues = Queues::new(Contexts::new(2, 0).unwrap());
        for value in [4u64, 5, 8, 9] {
            queues.push(value, value);
        }
        let pattern = Pattern::new(0, 3).unwrap();
        assert_eq!(queues.find(&pattern, |v| pattern.fits(*v)), Some(&4));
        assert_eq!(queues.take(0, |v| *v > 4), Some(8));
        assert_eq!(queues.take(0, |v| *v > 4), None);
        assert_eq!(queues.find(&Pattern::ANY, |v| *v > 4), Some(&5));
        queues.retain(|v| *v != 5);
        assert_eq!(queues.take(1, |_| true), Some(9));
    }
}
