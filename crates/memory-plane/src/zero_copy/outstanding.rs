//! What is lent to the kernel on one connection, in the order of the sends' numbers.

use std::collections::VecDeque;

/// Holds on what was lent, each until its send is complete.
#[derive(Debug)]
pub(super) struct Outstanding<B> {
    /// The number of the first of them. The kernel counts a connection's lending sends from 0 on, and after the
    /// last `u32` from 0 again.
    first: u32,
    /// None for those that were complete before their elders.
    buffers: VecDeque<Option<B>>,
}

impl<B> Outstanding<B> {
    /// Of a connection that has lent nothing yet.
    pub(super) fn new() -> Self {
        Self {
            first: 0,
            buffers: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The next send has lent this.
    pub(super) fn push(&mut self, buffer: B) {
        self.buffers.push_back(Some(buffer));
    }

    /// The sends of these numbers, both included, are complete: let go of what they lent.
    pub(super) fn complete(&mut self, first: u32, last: u32) {
        let mut number = self.first;
        for buffer in &mut self.buffers {
            if number.wrapping_sub(first) <= last.wrapping_sub(first) {
                *buffer = None;
            }
            number = number.wrapping_add(1);
        }
        while let Some(None) = self.buffers.front() {
            self.buffers.pop_front();
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
        fn each_buffer_is_kept_until_its_send_completes(
            begin in prop_oneof![Just(0), (u32::MAX - 20)..=u32::MAX],
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut outstanding: Outstanding<Rc<u32>> = Outstanding { first: begin, buffers: VecDeque::new() };
            let mut all: Vec<(u32, std::rc::Weak<u32>)> = Vec::new();
            // By what the kernel will say.
            let mut incomplete: Vec<u32> = Vec::new();
            for step in steps {
                match step {
                    Step::Send => {
                        let number = begin.wrapping_add(number(all.len()));
                        let buffer = Rc::new(number);
                        all.push((number, Rc::downgrade(&buffer)));
                        outstanding.push(buffer);
                        incomplete.push(number);
                    }
                    Step::Complete(from, length) if !incomplete.is_empty() => {
                        let from = from.index(incomplete.len());
                        // A run without gaps.
                        let run = (from..incomplete.len().min(from + length))
                            .take_while(|at| incomplete[*at] == incomplete[from].wrapping_add(number(at - from)))
                            .count();
                        let run: Vec<u32> = incomplete.drain(from..from + run).collect();
                        outstanding.complete(run[0], run[run.len() - 1]);
                    }
                    Step::Complete(..) => {}
                }
                for (number, buffer) in &all {
                    prop_assert_eq!(buffer.strong_count() == 1, incomplete.contains(number), "{}", number);
                }
                prop_assert_eq!(outstanding.is_empty(), incomplete.is_empty());
            }
        }
    }

    #[test]
    fn completions_of_unknown_sends_are_ignored() {
        let mut outstanding = Outstanding::new();
        outstanding.push(());
        outstanding.complete(1, 7);
        outstanding.complete(u32::MAX, u32::MAX);
        assert!(!outstanding.is_empty());
        outstanding.complete(0, 0);
        assert!(outstanding.is_empty());
    }
}
