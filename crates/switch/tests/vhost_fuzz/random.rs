//! A seeded random number generator.

use std::hash::{BuildHasher, RandomState};

/// Returns a random seed.
pub(crate) fn fresh() -> u64 {
    RandomState::new().hash_one(0)
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns true in one of `of` cases.
    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Returns one of these values.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns a number that is likely to find errors: small, at a limit, or random.
    pub(crate) fn edge(&mut self) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            2,
            0xff,
            0xfff,
            0x1000,
            0xffff,
            0x1_0000,
            0x7fff_ffff,
            0xffff_ffff,
            0x1_0000_0000,
            1 << 42,
            1 << 63,
            u64::MAX,
        ];
        match self.below(3) {
            0 => self.pick(&EDGES),
            1 => self
                .pick(&EDGES)
                .wrapping_add(self.below(17))
                .wrapping_sub(8),
            _ => self.next() >> self.below(64),
        }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
