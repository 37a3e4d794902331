//! What is lent to the kernel on one connection, in the order of the sends' numbers.

use std::collections::VecDeque;

/// Holds on what was lent, each until its send is complete.
#[derive(Debug)]
pub(super) struct Outstanding<H> {
    /// The number of the first of them. The kernel counts a connection's lending sends from 0 on, and after the
    /// last `u32` from 0 again.
    first: u32,
    /// None for those that were complete before their elders.
    holds: VecDeque<Option<H>>,
}

impl<H> Outstanding<H> {
    /// Of a connection that has lent nothing yet.
    pub(super) fn new() -> Self {
        Self {
            first: 0,
            holds: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// The next send has lent this.
    pub(super) fn lent(&mut self, hold: H) {
        self.holds.push_back(Some(hold));
    }

    /// The sends of these numbers, both included, are complete: let go of what they lent.
    pub(super) fn complete(&mut self, first: u32, last: u32) {
        let mut number = self.first;
        for hold in &mut self.holds {
            if number.wrapping_sub(first) <= last.wrapping_sub(first) {
                *hold = None;
            }
            number = number.wrapping_add(1);
        }
        while let Some(None) = self.holds.front() {
            self.holds.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    /// Sends, and completions of runs of what is outstanding: where a run begins and how long it is, as shares.
    #[derive(Clone, Debug)]
    enum Step {
        Send,
        Complete(prop::sample::Index, usize),
    }

    fn number(count: usize) -> u32 {
        count.try_into().unwrap()
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Send),
            (any::<prop::sample::Index>(), 1..6_usize)
                .prop_map(|(from, length)| Step::Complete(from, length)),
        ]
    }

    proptest! {
        /// However completions are merged and ordered, and wherever numbers begin: held is what is
        /// outstanding, and nothing else.
        #[test]
        fn each_is_held_until_it_is_complete(
            begin in prop_oneof![Just(0), (u32::MAX - 20)..=u32::MAX],
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut lent: Outstanding<Rc<u32>> = Outstanding { first: begin, holds: VecDeque::new() };
            let mut all: Vec<(u32, std::rc::Weak<u32>)> = Vec::new();
            // By what the kernel will say.
            let mut open: Vec<u32> = Vec::new();
            for step in steps {
                match step {
                    Step::Send => {
                        let number = begin.wrapping_add(number(all.len()));
                        let hold = Rc::new(number);
                        all.push((number, Rc::downgrade(&hold)));
                        lent.lent(hold);
                        open.push(number);
                    }
                    Step::Complete(from, length) if !open.is_empty() => {
                        let from = from.index(open.len());
                        // A run without gaps.
                        let run = (from..open.len().min(from + length))
                            .take_while(|at| open[*at] == open[from].wrapping_add(number(at - from)))
                            .count();
                        let run: Vec<u32> = open.drain(from..from + run).collect();
                        lent.complete(run[0], run[run.len() - 1]);
                    }
                    Step::Complete(..) => {}
                }
                for (number, hold) in &all {
                    prop_assert_eq!(hold.strong_count() == 1, open.contains(number), "{}", number);
                }
                prop_assert_eq!(lent.is_empty(), open.is_empty());
            }
        }
    }

    #[test]
    fn what_was_never_lent_is_nobodys() {
        let mut lent = Outstanding::new();
        lent.lent(());
        lent.complete(1, 7);
        lent.complete(u32::MAX, u32::MAX);
        assert!(!lent.is_empty());
        lent.complete(0, 0);
        assert!(lent.is_empty());
    }
}
