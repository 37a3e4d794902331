//! Which stores a producer writes long data with: a controller without a clock.
//!
//! There are three kinds, and each is the fastest one somewhere ([`Stores`]). No register tells the processor's kind of
//! caches and the distance of the two processors, and the scheduler changes the distance: of the program, or of the virtual
//! CPU. So the producer measures. A *trial* writes a part of the data by ordinary stores and an equal one by non-temporal
//! ones. Their ratio does not depend on the speed of the machine. A *round* is a trial of each of the two ordinary
//! kinds, and compares the two ratios with each other and with 1.
//!
//! How long an ordinary store takes depends on what the consumer did with the line in the lap before. So a trial is made
//! where each lap of the data area begins, and the kind on trial *warms this place up* in the lap before.
//!
//! A round that confirms the present kind doubles the number of copies until the next one. One that does not is
//! repeated at once, and several in a row with the same result change the kind: a single one may have been interrupted.
//!
//! Some data is never on trial: what is too short, or never begins where the area does. Between processors that are near each other
//! ([`super::distance`]), it is written by ordinary stores instead of non-temporal ones: the consumer reads it while it is in the common cache.
//!
//! QEMU emulates a non-temporal store by an ordinary one, so a trial would compare a kind with itself. An emulated producer
//! has owned lines, without trials: an emulated store fetches few lines at a time, and owned ones cost the consumer little.

/// The stores that write data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// Ordinary stores: the data stays in the caches. A store waits until the line has arrived from the consumer's processor.
    Ordinary,
    /// Ordinary stores, after the consumer owned the line ([`crate::lane`]): some processors then fetch many more lines at a time.
    Owned,
    /// Non-temporal stores ([`crate::raw`]): past the caches to memory, without a fetch. The consumer reads memory.
    NonTemporal,
}

/// How the next data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// By these stores.
    By(Stores),
    /// A part by this ordinary kind, and the rest by non-temporal stores: the lines are as it leaves them at the next trial.
    WarmUp(Stores),
    /// A part by this ordinary kind and a part by non-temporal stores. The durations are passed to [`StoreChoice::tried`].
    Trial(Stores),
}

/// Copies between two rounds: the first number, and the last one.
const FIRST_INTERVAL: u32 = 8;
const LAST_INTERVAL: u32 = 1024;

/// Ordinary stores are kept while they take at most one part in so many more than non-temporal ones: they also spare
/// the consumer its reads from memory.
const TOLERATED: u64 = 4;

/// The consumer has to own the lines only if the producer's stores then take at most this part of the time: a trial does not
/// measure how long the consumer takes for that.
const OWNED_PART: (u64, u64) = (2, 3);

/// Rounds in a row that change the kind of stores.
const ROUNDS_TO_CHANGE: u32 = 3;

/// The ratio of equal durations.
const EQUAL: u64 = 1 << 10;

/// The choice of a producer.
#[derive(Debug)]
pub(super) struct StoreChoice {
    stores: Stores,
    /// Copies between the last round and the next one, and those that are left.
    interval: u32,
    left: u32,
    /// The better kind of the last rounds, and how many in a row found it; none after a round that confirmed `stores`.
    better: Stores,
    against: u32,
    /// What a round knows so far: the ratio of [`Stores::Ordinary`].
    ordinary: Option<u64>,
    /// The kind that last wrote the begin of the area.
    warm: Stores,
    /// A round has ended.
    is_tried: bool,
    /// There are trials.
    is_measured: bool,
}

impl StoreChoice {
    /// Creates the choice of a lane that has carried no data.
    pub(super) fn new(is_emulated: bool) -> Self {
        match is_emulated {
            true => Self {
                is_measured: false,
                ..Self::with(Stores::Owned)
            },
            false => Self::with(Stores::NonTemporal),
        }
    }

    /// Creates a choice that has changed to these stores.
    pub(super) fn with(stores: Stores) -> Self {
        Self {
            stores,
            interval: FIRST_INTERVAL,
            left: FIRST_INTERVAL,
            better: stores,
            against: 0,
            ordinary: None,
            warm: Stores::NonTemporal,
            is_tried: false,
            is_measured: true,
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

    /// Returns how the next data is written that is too short for a trial.
    #[inline]
    pub(super) fn next_short(&mut self, at_begin: bool, is_near: bool) -> Stores {
        let stores = match self.stores {
            Stores::NonTemporal if is_near => Stores::Ordinary,
            stores => stores,
        };
        if at_begin {
            self.warm = stores;
        }
        stores
    }

    /// Returns how the next data is written. A trial is made at the begin of the data area only, which each
    /// lap uses.
    #[inline]
    pub(super) fn next(&mut self, at_begin: bool, is_near: bool) -> Copy {
        if !at_begin || self.left > 0 || !self.is_measured {
            self.left = self.left.saturating_sub(1);
            return Copy::By(self.next_short(at_begin, is_near && !self.is_tried));
        }
        let subject = self.subject();
        match std::mem::replace(&mut self.warm, subject) == subject {
            false => Copy::WarmUp(subject),
            true => Copy::Trial(subject),
        }
    }

    /// Returns the kind on trial.
    fn subject(&self) -> Stores {
        match self.ordinary {
            None => Stores::Ordinary,
            Some(_) => Stores::Owned,
        }
    }

    /// Records how long a trial took to write equally many bytes by the kind on trial and by non-temporal stores.
    pub(super) fn tried(&mut self, subject: u64, non_temporal: u64) {
        let ratio = subject.saturating_mul(EQUAL) / non_temporal.max(1);
        match self.ordinary.take() {
            None => self.ordinary = Some(ratio),
            Some(ordinary) => self.end_round(ordinary, ratio),
        }
    }

    /// Compares the ratios of the two ordinary kinds.
    fn end_round(&mut self, ordinary: u64, owned: u64) {
        self.is_tried = true;
        let limit = match self.stores {
            Stores::NonTemporal => EQUAL,
            Stores::Ordinary | Stores::Owned => EQUAL + EQUAL / TOLERATED,
        };
        let (part, whole) = OWNED_PART;
        let best = match owned.saturating_mul(whole) <= ordinary.saturating_mul(part) {
            true if owned <= limit => Stores::Owned,
            false if ordinary <= limit => Stores::Ordinary,
            _ => Stores::NonTemporal,
        };
        if best == self.stores {
            self.against = 0;
            self.interval = (self.interval * 2).min(LAST_INTERVAL);
            self.left = self.interval;
            return;
        }
        self.against = match best == self.better {
            true => self.against + 1,
            false => 1,
        };
        self.better = best;
        if self.against == ROUNDS_TO_CHANGE {
            *self = Self {
                warm: self.warm,
                is_tried: true,
                ..Self::with(best)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How long the kinds take, in the order of [`Stores`].
    type Durations = [u64; 3];

    /// Makes `count` copies with trials of these durations; returns the number of trials.
    fn copy(choice: &mut StoreChoice, count: u32, mut durations: impl FnMut() -> Durations) -> u32 {
        let mut trials = 0;
        let mut warm = None;
        for number in 0..count {
            let at_begin = number % LAP == 0;
            let next = choice.next(at_begin, false);
            match next {
                Copy::By(stores) => assert_eq!(stores, choice.stores()),
                Copy::WarmUp(subject) => assert_ne!(warm, Some(subject)),
                Copy::Trial(subject) => {
                    assert!(number < LAP || warm == Some(subject));
                    let [ordinary, owned, non_temporal] = durations();
                    let subject = match subject {
                        Stores::Ordinary => ordinary,
                        _ => owned,
                    };
                    choice.tried(subject, non_temporal);
                    trials += 1;
                }
            }
            if at_begin {
                let (Copy::By(kind) | Copy::WarmUp(kind) | Copy::Trial(kind)) = next;
                warm = Some(kind);
            }
        }
        trials
    }

    /// Copies of a lap of the data area.
    const LAP: u32 = 8;

    // Processors as measured: near each other and far from each other on an AMD EPYC, and on an Intel Xeon, where
    // owning costs more than it brings.
    const NEAR: Durations = [1900, 650, 900];
    const FAR: Durations = [5000, 3000, 900];
    const MESH: Durations = [310, 250, 1024];
    const ALL: [(Durations, Stores); 3] = [
        (NEAR, Stores::Owned),
        (FAR, Stores::NonTemporal),
        (MESH, Stores::Ordinary),
    ];

    /// Copies after which the choice has followed a change: each round has two laps of warming up and two trials.
    const FOLLOWED_AFTER: u32 = LAST_INTERVAL + (ROUNDS_TO_CHANGE * 4 + 2) * LAP;

    proptest! {
        /// Phases of different processors, on machines of any speed.
        #[test]
        fn the_choice_follows_each_change(
            phases in prop::collection::vec((0..ALL.len(), FOLLOWED_AFTER..4000, 0..=9u64), 1..20),
        ) {
            let mut choice = StoreChoice::new(false);
            for (kind, copies, factor) in phases {
                let (durations, best) = ALL[kind];
                let durations = || durations.map(|it| it << factor);
                copy(&mut choice, FOLLOWED_AFTER, durations);
                prop_assert_eq!(choice.stores(), best);
                copy(&mut choice, copies - FOLLOWED_AFTER, durations);
                prop_assert_eq!(choice.stores(), best);
            }
        }

        /// Trials of any durations are at most one in each lap.
        #[test]
        fn trials_are_few_whatever_they_measure(
            durations in prop::collection::vec(any::<[u64; 3]>(), 1000),
        ) {
            let mut list = durations.into_iter();
            let trials = copy(&mut StoreChoice::new(false), 1000, || list.next().unwrap());
            prop_assert!(trials <= 1000 / LAP, "{trials}");
        }
    }

    #[test]
    fn steady_trials_become_rare() {
        for (durations, _) in ALL {
            let mut choice = StoreChoice::new(false);
            copy(&mut choice, 4000, || durations);
            let trials = copy(&mut choice, 100 * LAST_INTERVAL, || durations);
            assert!((180..=200).contains(&trials), "{trials}");
        }
    }

    #[test]
    fn ordinary_stores_are_kept_while_they_are_a_little_slower() {
        let mut choice = StoreChoice::new(false);
        copy(&mut choice, 4000, || [200, 120, 100]);
        assert_eq!(choice.stores(), Stores::NonTemporal);
        copy(&mut choice, 4000, || NEAR);
        copy(&mut choice, 4000, || [200, 120, 100]);
        assert_eq!(choice.stores(), Stores::Owned);
        copy(&mut choice, 4000, || [200, 130, 100]);
        assert_eq!(choice.stores(), Stores::NonTemporal);
        copy(&mut choice, 4000, || MESH);
        copy(&mut choice, 4000, || [120, 110, 100]);
        assert_eq!(choice.stores(), Stores::Ordinary);
        copy(&mut choice, 4000, || [130, 110, 100]);
        assert_eq!(choice.stores(), Stores::NonTemporal);
    }

    #[test]
    fn an_interrupted_trial_changes_nothing() {
        let mut choice = StoreChoice::new(false);
        copy(&mut choice, 1000, || NEAR);
        let mut turn = 0;
        let some_are_interrupted = || {
            turn += 1;
            match turn % 5 {
                0 => [1_000_000, 1_000_000, NEAR[2]],
                _ => NEAR,
            }
        };
        let trials = copy(&mut choice, 100_000, some_are_interrupted);
        assert_eq!(choice.stores(), Stores::Owned);
        assert!(trials > 60, "{trials}");
    }

    /// Rounds against the present kind count together only if they agree on another one.
    #[test]
    fn rounds_that_disagree_change_nothing() {
        let mut choice = StoreChoice::new(false);
        let mut trials = 0;
        let disagreeing = || {
            trials += 1;
            match trials % 4 {
                1 | 2 => NEAR,
                _ => MESH,
            }
        };
        copy(&mut choice, 4000, disagreeing);
        assert_eq!(choice.stores(), Stores::NonTemporal);
    }

    /// Data that is too short for a trial leaves the lines as the present kind does.
    #[test]
    fn short_data_at_the_begin_needs_another_warm_up() {
        let mut choice = StoreChoice::new(false);
        choice.try_next();
        assert_eq!(choice.next(true, false), Copy::WarmUp(Stores::Ordinary));
        assert_eq!(choice.next_short(false, false), Stores::NonTemporal);
        assert_eq!(choice.next(true, false), Copy::Trial(Stores::Ordinary));
        assert_eq!(choice.next_short(true, false), Stores::NonTemporal);
        assert_eq!(choice.next(true, false), Copy::WarmUp(Stores::Ordinary));
    }

    #[test]
    fn a_lane_begins_with_non_temporal_stores() {
        assert_eq!(
            StoreChoice::new(false).next(true, false),
            Copy::By(Stores::NonTemporal)
        );
    }

    #[test]
    fn an_emulated_producer_has_owned_lines_without_trials() {
        let mut choice = StoreChoice::new(true);
        let trials = copy(&mut choice, 4000, || unreachable!("no trial"));
        assert_eq!((trials, choice.stores()), (0, Stores::Owned));
        assert_eq!(choice.next_short(true, false), Stores::Owned);
    }

    #[test]
    fn near_each_other_data_that_was_never_on_trial_is_written_by_ordinary_stores() {
        let mut choice = StoreChoice::new(false);
        assert_eq!(choice.next_short(true, true), Stores::Ordinary);
        assert_eq!(choice.warm, Stores::Ordinary);
        assert_eq!(choice.next(false, true), Copy::By(Stores::Ordinary));
        copy(&mut choice, 4000, || FAR);
        assert_eq!(
            choice.next(false, true),
            Copy::By(Stores::NonTemporal),
            "the trials decide"
        );
        assert_eq!(choice.next_short(false, true), Stores::Ordinary);
        for other in [Stores::Owned, Stores::Ordinary] {
            let mut choice = StoreChoice::with(other);
            assert_eq!(choice.next_short(false, true), other);
        }
    }
}
