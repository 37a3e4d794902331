//! Which worker reads which transmit ring.

/// Most workers of a network: one bit each in [`WakeSet`].
pub const MAX_WORKERS: usize = 16;

/// Transmit rings spread over workers, in turn by port and pair.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    workers: usize,
}

impl Steering {
    /// Over so many workers, at least one and at most [`MAX_WORKERS`].
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.clamp(1, MAX_WORKERS),
        }
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(self) -> usize {
        self.workers
    }

    /// The worker that reads the transmit ring of a port's pair.
    #[must_use]
    pub fn worker(self, port: u16, pair: usize) -> usize {
        (usize::from(port) + pair) % self.workers
    }

    /// The first `count` pairs of a port, those whose transmit rings a worker reads.
    #[inline]
    pub fn pairs(self, port: u16, worker: usize, count: usize) -> impl Iterator<Item = usize> {
        let first = (worker + self.workers - usize::from(port) % self.workers) % self.workers;
        (first..count).step_by(self.workers)
    }
}

/// A set of workers: those that have asked for a kick of a receive ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeSet(u16);

impl WakeSet {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// Add one.
    pub fn add(&mut self, worker: usize) {
        self.0 |= 1 << (worker % MAX_WORKERS);
    }

    /// Add others.
    #[inline]
    pub fn join(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Whether one is among them.
    #[must_use]
    pub fn has(self, worker: usize) -> bool {
        self.0 >> (worker % MAX_WORKERS) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_one_worker() {
        for workers in 1..=MAX_WORKERS {
            let steering = Steering::new(workers);
            for port in [0, 1, 7, 1023] {
                let mut all = Vec::new();
                for worker in 0..workers {
                    let pairs: Vec<usize> = steering.pairs(port, worker, 16).collect();
                    assert!(
                        pairs
                            .iter()
                            .all(|pair| steering.worker(port, *pair) == worker)
                    );
                    all.extend(pairs);
                }
                all.sort_unstable();
                assert_eq!(all, (0..16).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_set_has_whom_it_was_given() {
        let mut wake_set = WakeSet::NONE;
        wake_set.add(3);
        let mut others = WakeSet::NONE;
        others.add(15);
        wake_set.join(others);
        let all = (0..MAX_WORKERS).filter(|worker| wake_set.has(*worker));
        assert_eq!(all.collect::<Vec<_>>(), [3, 15]);
    }
}
