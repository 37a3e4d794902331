//! How long messages of a peer's process are copied: a controller.
//!
//! The kernel copies a message once, but page by page, and between caches as well as past them. Streamed messages are copied twice, by
//! stores that suit the distance of the two processors ([`window::lane`]). Between AMD processors that share a cache, streams are
//! faster by a quarter; elsewhere, the kernel is faster by a half and more. The scheduler changes the distance at any time. So the receiver
//! measures: it asks for a message by either method.
//!
//! An *epoch* is [`EPOCH`] bytes of messages. Its rate is that of the time in which a message was being copied. After some epochs of the present method
//! comes a *trial*: an epoch of the other method that does not count, because it has messages of the present method, and the lane looks for its
//! stores; and one that counts. A trial that confirms the present method makes the next one rarer. One that does
//! not is repeated soon, and several in a row change the method: a single one may have been interrupted.

use std::time::{Duration, Instant};

/// How a message is copied that is in the memory of its sender's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The kernel copies it, once.
    Kernel,
    /// It is streamed through the window.
    Stream,
}

impl Method {
    fn other(self) -> Self {
        match self {
            Self::Kernel => Self::Stream,
            Self::Stream => Self::Kernel,
        }
    }
}

/// Bytes of an epoch: the messages that a benchmark sends at a time.
const EPOCH: u64 = 4 << 20;

/// Epochs of the present method before a trial: at first and after a trial against it, and at most.
const FIRST_INTERVAL: u32 = 8;
const LAST_INTERVAL: u32 = 256;

/// The other method has to be faster by one part in so many, three trials in a row.
const FASTER_BY: u64 = 10;
const TRIALS_TO_CHANGE: u32 = 3;

/// What the present epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// One of the present method, with the number of those that follow.
    Present(u32),
    /// The first of the other method.
    WarmUp,
    /// The one of the other method that counts.
    Trial,
}

/// The choice of a receiver for the messages of one peer.
#[derive(Debug)]
pub(crate) struct CopyChoice {
    method: Method,
    stage: Stage,
    interval: u32,
    /// How many trials in a row were faster.
    against: u32,
    /// Bytes a microsecond of the last epoch of the present method.
    rate: u64,
    /// Messages that are being copied, and since when at least one is, in this epoch.
    pending: u32,
    since: Option<Instant>,
    /// The bytes of this epoch, and how long messages were being copied.
    bytes: u64,
    busy: Duration,
}

impl Default for CopyChoice {
    fn default() -> Self {
        Self {
            method: Method::Kernel,
            stage: Stage::Present(FIRST_INTERVAL),
            interval: FIRST_INTERVAL,
            against: 0,
            rate: 0,
            pending: 0,
            since: None,
            bytes: 0,
            busy: Duration::ZERO,
        }
    }
}

impl CopyChoice {
    /// Returns the method of a message that begins now.
    pub(crate) fn begin(&mut self, now: Instant) -> Method {
        self.pending += 1;
        self.since.get_or_insert(now);
        match self.stage {
            Stage::Present(_) => self.method,
            Stage::WarmUp | Stage::Trial => self.method.other(),
        }
    }

    /// A message has been copied.
    pub(crate) fn end(&mut self, bytes: u64, now: Instant) {
        self.pending = self.pending.saturating_sub(1);
        self.bytes = self.bytes.saturating_add(bytes);
        let is_full = self.bytes >= EPOCH;
        if self.pending == 0 || is_full {
            let since = self.since.take();
            self.busy += since.map_or(Duration::ZERO, |since| now.duration_since(since));
            self.since = (self.pending > 0).then_some(now);
        }
        if is_full {
            let micros = u64::try_from(self.busy.as_micros()).unwrap_or(u64::MAX);
            self.end_epoch(self.bytes / micros.max(1));
            (self.bytes, self.busy) = (0, Duration::ZERO);
        }
    }

    fn end_epoch(&mut self, rate: u64) {
        self.stage = match self.stage {
            Stage::Present(left) => {
                self.rate = rate;
                left.checked_sub(1).map_or(Stage::WarmUp, Stage::Present)
            }
            Stage::WarmUp => Stage::Trial,
            Stage::Trial => {
                self.end_trial(rate > self.rate + self.rate / FASTER_BY);
                Stage::Present(self.interval)
            }
        };
    }

    fn end_trial(&mut self, is_faster: bool) {
        if !is_faster {
            self.against = 0;
            self.interval = (self.interval * 4).min(LAST_INTERVAL);
            return;
        }
        self.against += 1;
        self.interval = 1;
        if self.against == TRIALS_TO_CHANGE {
            self.method = self.method.other();
            self.against = 0;
            self.interval = FIRST_INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Nanoseconds of a message by each method: [kernel, stream].
    type Times = [u64; 2];

    /// A peer that sends windows of messages, all of which begin before the first one ends.
    struct Peer {
        choice: CopyChoice,
        now: Instant,
        /// Messages by the present method, and by the other one.
        counts: [u32; 2],
    }

    const MESSAGE: u64 = 256 << 10;
    const WINDOW: usize = 8;

    impl Peer {
        fn new() -> Self {
            Self {
                choice: CopyChoice::default(),
                now: Instant::now(),
                counts: [0; 2],
            }
        }

        fn send(&mut self, windows: u32, mut times: impl FnMut() -> Times) {
            for _ in 0..windows {
                let methods: Vec<_> = (0..WINDOW).map(|_| self.choice.begin(self.now)).collect();
                for method in methods {
                    let [kernel, stream] = times();
                    let time = if method == Method::Kernel {
                        kernel
                    } else {
                        stream
                    };
                    self.now += Duration::from_nanos(time);
                    self.counts[usize::from(method != self.choice.method)] += 1;
                    self.choice.end(MESSAGE, self.now);
                }
                // The program computes, which is no time of a copy.
                self.now += Duration::from_millis(1);
            }
        }
    }

    const NEAR: Times = [20_000, 15_000];
    const FAR: Times = [20_000, 40_000];

    /// Windows after which the choice has followed a change.
    const FOLLOWED_AFTER: u32 = 2 * (LAST_INTERVAL + 5 * 2 * TRIALS_TO_CHANGE);

    proptest! {
        #[test]
        fn the_choice_follows_each_change(
            phases in prop::collection::vec((any::<bool>(), 1..2000u32, 1..=8u64), 1..8),
        ) {
            let mut peer = Peer::new();
            for (near, windows, factor) in phases {
                let times = if near { NEAR } else { FAR }.map(|time| time * factor);
                peer.send(FOLLOWED_AFTER, || times);
                let best = if near { Method::Stream } else { Method::Kernel };
                prop_assert_eq!(peer.choice.method, best);
                peer.send(windows, || times);
                prop_assert_eq!(peer.choice.method, best);
            }
        }
    }

    #[test]
    fn steady_trials_become_rare() {
        let mut peer = Peer::new();
        peer.send(4000, || FAR);
        peer.counts = [0; 2];
        peer.send(40_000, || FAR);
        let [present, other] = peer.counts;
        assert!(other > 0 && present > 100 * other, "{present} {other}");
    }

    #[test]
    fn an_interrupted_epoch_changes_nothing() {
        let mut peer = Peer::new();
        let mut number = 0;
        let sometimes_late = || {
            number += 1;
            // One message of 97 waits for its processor.
            if number % 97 == 0 {
                [5_000_000; 2]
            } else {
                [20_000; 2]
            }
        };
        peer.send(20_000, sometimes_late);
        assert_eq!(peer.choice.method, Method::Kernel);
    }

    #[test]
    fn a_difference_within_the_scatter_changes_nothing() {
        let mut peer = Peer::new();
        peer.send(4000, || [20_000, 19_000]);
        assert_eq!(peer.choice.method, Method::Kernel);
    }
}
