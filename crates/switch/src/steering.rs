//! Steering: which worker reads which transmit ring (compare RSS and XPS in Linux).

/// Most workers of a network; [`WakeSet`] has one bit for each.
pub const MAX_WORKERS: usize = 16;

/// The assignment of transmit rings to workers: round robin by port and pair.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    workers: usize,
}

impl Steering {
    /// Creates the assignment for `workers` workers, at least one and at most [`MAX_WORKERS`].
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.clamp(1, MAX_WORKERS),
        }
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(self) -> usize {
        self.workers
    }

    /// Returns the worker that reads the transmit ring of a port's pair.
    #[must_use]
    pub fn worker(self, port: u16, pair: usize) -> usize {
        (usize::from(port) + pair) % self.workers
    }

    /// Returns those of the first `count` pairs of a port whose transmit rings a worker reads.
    #[inline]
    pub fn pairs(self, port: u16, worker: usize, count: usize) -> impl Iterator<Item = usize> {
        let first = (worker + self.workers - usize::from(port) % self.workers) % self.workers;
        (first..count).step_by(self.workers)
    }
}

/// A set of workers: those that have enabled kicks on a receive ring and must be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeSet(u16);

impl WakeSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a worker.
    pub fn add(&mut self, worker: usize) {
        self.0 |= 1 << (worker % MAX_WORKERS);
    }

    /// Adds all workers of another set.
    #[inline]
    pub fn join(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Returns whether a worker is in the set.
    #[must_use]
    pub fn contains(self, worker: usize) -> bool {
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
    fn a_set_contains_the_workers_that_were_added() {
        let mut wake_set = WakeSet::NONE;
        wake_set.add(3);
        let mut others = WakeSet::NONE;
        others.add(15);
        wake_set.join(others);
        let all = (0..MAX_WORKERS).filter(|worker| wake_set.contains(*worker));
        assert_eq!(all.collect::<Vec<_>>(), [3, 15]);
    }
}
