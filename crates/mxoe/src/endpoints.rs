//! A set of endpoint numbers.

/// A set of endpoint numbers of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoints(pub(crate) [u32; 8]);

impl Endpoints {
    /// Returns the word of a number, and its bit there.
    fn word(&mut self, endpoint: u8) -> Option<(&mut u32, u32)> {
        let word = self.0.get_mut(usize::from(endpoint / 32));
        word.map(|word| (word, 1 << (endpoint % 32)))
    }

    /// Adds a number.
    pub fn insert(&mut self, endpoint: u8) {
        if let Some((word, bit)) = self.word(endpoint) {
            *word |= bit;
        }
    }

    /// Removes a number.
    pub fn remove(&mut self, endpoint: u8) {
        if let Some((word, bit)) = self.word(endpoint) {
            *word &= !bit;
        }
    }

    /// Returns whether the set has a number.
    #[must_use]
    pub fn contains(&self, endpoint: u8) -> bool {
        let word = self.0.get(usize::from(endpoint / 32));
        word.is_some_and(|word| word & 1 << (endpoint % 32) != 0)
    }

    /// Returns whether the set has no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 8]
    }

    /// Returns the set of all other numbers.
    #[must_use]
    pub fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Returns the numbers in order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |endpoint| self.contains(*endpoint))
    }
}
