//! Which stores a producer writes long data with: a controller without a clock.
//!
//! Between processors that share a cache, ordinary stores are the faster ones: the data stays in that cache.
//! Between processors that are far from each other, an ordinary store waits until the line has arrived from
//! the other processor, and non-temporal stores ([`crate::raw`]) are several times as fast. No register tells
//! the distance, and the scheduler changes it: of the program, or of the virtual CPU. So the producer measures.
//! A *trial* writes a part of the data by each kind, and the choice compares the two durations, in any unit.
//!
//! Ordinary stores are the faster ones only where the consumer owned the lines in the lap before. So a trial is made
//! where each lap of the data area begins, and ordinary stores warm this place up in the lap before.
//!
//! A trial that confirms the present kind doubles the number of copies until the next trial. One that does not is
//! repeated at once, and several in a row change the kind: a single one may have been interrupted.

/// The stores that write data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// They leave the data in the caches.
    Ordinary,
    /// They write to memory, past the caches.
    NonTemporal,
}

/// How the next data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// By these stores.
    By(Stores),
    /// A part by ordinary stores, and the rest by non-temporal ones: the consumer owns the lines at the next trial.
    WarmUp,
    /// A part by each kind, and the durations are passed to [`StoreChoice::tried`].
    Trial,
}

/// Copies between two trials: the first number, and the last one.
const FIRST_INTERVAL: u32 = 8;
const LAST_INTERVAL: u32 = 1024;

/// Ordinary stores are kept while they take at most one part in so many more than the others: they also spare the
/// consumer its reads from memory.
const TOLERATED: u64 = 4;

/// Trials in a row that change the kind of stores.
const TRIALS_TO_CHANGE: u32 = 3;

/// The choice of a producer.
#[derive(Debug)]
pub(super) struct StoreChoice {
    stores: Stores,
    /// Copies between the last trial and the next one, and those that are left.
    interval: u32,
    left: u32,
    /// Trials in a row that were against the present kind.
    against: u32,
    /// The consumer owns the lines at the begin of the area.
    warm: bool,
}

impl Default for StoreChoice {
    fn default() -> Self {
        Self::with(Stores::NonTemporal)
    }
}

impl StoreChoice {
    /// Creates a choice that has changed to these stores.
    pub(super) fn with(stores: Stores) -> Self {
        Self {
            stores,
            interval: FIRST_INTERVAL,
            left: FIRST_INTERVAL,
            against: 0,
            warm: stores == Stores::Ordinary,
        }
    }

    /// Makes a trial of the next copy.
    #[cfg(test)]
    pub(super) fn try_next(&mut self) {
        self.left = 0;
    }

    /// Returns the present kind.
    #[inline]
    pub(super) fn stores(&self) -> Stores {
        self.stores
    }

    /// Returns how the next data is written. A trial is made at the begin of the data area only, which each
    /// lap uses.
    #[inline]
    pub(super) fn next(&mut self, at_begin: bool) -> Copy {
        if !at_begin || self.left > 0 {
            self.left = self.left.saturating_sub(1);
            self.warm &= !at_begin || self.stores == Stores::Ordinary;
            return Copy::By(self.stores);
        }
        match std::mem::replace(&mut self.warm, true) {
            false => Copy::WarmUp,
            true => Copy::Trial,
        }
    }

    /// Records how long a trial took to write equally many bytes by ordinary stores and by non-temporal ones.
    pub(super) fn tried(&mut self, ordinary: u64, non_temporal: u64) {
        let limit = match self.stores {
            Stores::Ordinary => non_temporal.saturating_add(non_temporal / TOLERATED),
            Stores::NonTemporal => non_temporal,
        };
        let better = match ordinary <= limit {
            true => Stores::Ordinary,
            false => Stores::NonTemporal,
        };
        if better == self.stores {
            self.against = 0;
            self.interval = (self.interval * 2).min(LAST_INTERVAL);
            self.left = self.interval;
            return;
        }
        self.against += 1;
        self.left = 0;
        if self.against == TRIALS_TO_CHANGE {
            *self = Self::with(better);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes `count` copies with trials of these durations; returns the number of trials.
    fn copy(
        choice: &mut StoreChoice,
        count: u32,
        mut durations: impl FnMut() -> (u64, u64),
    ) -> u32 {
        let mut trials = 0;
        for number in 0..count {
            match choice.next(number % LAP == 0) {
                Copy::By(stores) => assert_eq!(stores, choice.stores()),
                Copy::WarmUp => assert_eq!(choice.stores(), Stores::NonTemporal),
                Copy::Trial => {
                    let (ordinary, non_temporal) = durations();
                    choice.tried(ordinary, non_temporal);
                    trials += 1;
                }
            }
        }
        trials
    }

    /// Copies of a lap of the data area.
    const LAP: u32 = 8;

    const NEAR: (u64, u64) = (650, 900);
    const FAR: (u64, u64) = (3000, 900);

    fn stores(near: bool) -> Stores {
        match near {
            true => Stores::Ordinary,
            false => Stores::NonTemporal,
        }
    }

    /// Copies after which the choice has followed a change of distance.
    const FOLLOWED_AFTER: u32 = LAST_INTERVAL + (TRIALS_TO_CHANGE + 2) * LAP;

    proptest! {
        /// Phases of different distances; in each, one trial in `noise` is interrupted.
        #[test]
        fn the_choice_follows_each_change_of_distance(
            phases in prop::collection::vec((any::<bool>(), FOLLOWED_AFTER..4000, 0..=9u64), 1..20),
        ) {
            let mut choice = StoreChoice::default();
            for (near, copies, factor) in phases {
                let (ordinary, non_temporal) = if near { NEAR } else { FAR };
                // A machine of any speed.
                let durations = || (ordinary << factor, non_temporal << factor);
                copy(&mut choice, FOLLOWED_AFTER, durations);
                prop_assert_eq!(choice.stores(), stores(near));
                copy(&mut choice, copies - FOLLOWED_AFTER, durations);
                prop_assert_eq!(choice.stores(), stores(near));
            }
        }

        /// Trials of any durations are at most one in each lap.
        #[test]
        fn trials_are_few_whatever_they_measure(
            durations in prop::collection::vec((any::<u64>(), any::<u64>()), 1000),
        ) {
            let mut list = durations.into_iter();
            let trials = copy(&mut StoreChoice::default(), 1000, || list.next().unwrap());
            prop_assert!(trials <= 1000 / LAP, "{trials}");
        }
    }

    #[test]
    fn steady_trials_become_rare() {
        let mut choice = StoreChoice::default();
        copy(&mut choice, 4000, || NEAR);
        let trials = copy(&mut choice, 100 * LAST_INTERVAL, || NEAR);
        assert!((98..=100).contains(&trials), "{trials}");
    }

    #[test]
    fn ordinary_stores_are_kept_while_they_are_a_little_slower() {
        let mut choice = StoreChoice::default();
        copy(&mut choice, 4000, || (120, 100));
        assert_eq!(choice.stores(), Stores::NonTemporal);
        copy(&mut choice, 4000, || NEAR);
        copy(&mut choice, 4000, || (120, 100));
        assert_eq!(choice.stores(), Stores::Ordinary);
        copy(&mut choice, 4000, || (130, 100));
        assert_eq!(choice.stores(), Stores::NonTemporal);
    }

    #[test]
    fn an_interrupted_trial_changes_nothing() {
        let mut choice = StoreChoice::default();
        copy(&mut choice, 1000, || NEAR);
        let mut turn = 0;
        let every_third_is_interrupted = || {
            turn += 1;
            if turn % 3 == 0 {
                (1_000_000, NEAR.1)
            } else {
                NEAR
            }
        };
        let trials = copy(&mut choice, 100_000, every_third_is_interrupted);
        assert_eq!(choice.stores(), Stores::Ordinary);
        assert!(trials > 30, "{trials}");
    }

    #[test]
    fn a_lane_begins_with_non_temporal_stores() {
        assert_eq!(
            StoreChoice::default().next(true),
            Copy::By(Stores::NonTemporal)
        );
    }
}
