//! The buffers of outstanding zero-copy sends of one connection, in the order of the sends' numbers.

use std::collections::VecDeque;

/// Keeps the buffer of each send until the send is complete.
#[derive(Debug)]
pub(super) struct Outstanding<B> {
    /// The number of the first outstanding send. The kernel numbers the zero-copy sends of a connection from 0, modulo 2³².
    first: u32,
    /// `None` for sends that completed before earlier ones.
    buffers: VecDeque<Option<B>>,
}

impl<B> Outstanding<B> {
    /// Creates the list of a connection without zero-copy sends.
    pub(super) fn new() -> Self {
        Self {
            first: 0,
            buffers: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Adds the buffer of the next send.
    pub(super) fn push(&mut self, buffer: B) {
        self.buffers.push_back(Some(buffer));
    }

    /// Drops the buffers of the sends `first` to `last`, both included, because they are complete.
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

    /// A send, or the completion of a run of outstanding sends: where the run begins, and its length.
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
        /// For any order and merging of completions, and any first number, exactly the buffers of outstanding sends are
        /// kept.
        #[test]
        fn each_buffer_is_kept_until_its_send_completes(
            begin in prop_oneof![Just(0), (u32::MAX - 20)..=u32::MAX],
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut outstanding: Outstanding<Rc<u32>> = Outstanding { first: begin, buffers: VecDeque::new() };
            let mut all: Vec<(u32, std::rc::Weak<u32>)> = Vec::new();
            // Numbers of the sends that the kernel has not completed.
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
                        // A run of consecutive numbers.
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
