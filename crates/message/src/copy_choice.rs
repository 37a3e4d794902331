//! How long messages of a peer's process are copied: a controller.
//!
//! The kernel copies a message once, but page by page, and between caches as well as past them. Streamed messages are copied twice, by
//! stores that suit the distance of the two processors ([`window::lane`]). Between AMD processors that share a cache, streams are
//! faster by a quarter; elsewhere, the kernel is faster by a half and more. The scheduler changes the distance at any time. So the receiver
//! measures: it asks for a message by either method.
//!
//! An *epoch* is [`EPOCH`] bytes of messages, and those that are being copied with them: messages that are under way together often end
//! together, so the time of some of them says nothing. Its rate is that of the time in which a message was being copied. After some epochs of the present method
//! comes a *trial*: an epoch of the other method that does not count, because it has messages of the present method, and the lane looks for its
//! stores; and one that counts. A trial that confirms the present method makes the next one rarer. One that does
//! not is repeated soon, and several in a row change the method: a single one may have been interrupted.
//!
//! Between processors that are far from each other, the kernel is faster for messages that follow each other, and streams are faster for messages
//! that go to and fro. So each kind ([`Flow`]) has a choice of its own, and so have messages of up to [`MEDIUM_WITH_CREDIT`] bytes: where
//! streams are their present method, the receiver grants [credits](crate::credits), too. A message with a credit takes less time than an offered one.

use std::time::{Duration, Instant};

use crate::limits::{CREDITS, MEDIUM_WITH_CREDIT};

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

/// How the long messages of a sender follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Each was sent after the end of the one before, and after a message of the other side, as requests and answers are.
    Single,
    /// Several are under way at the same time, or go one way only.
    Several,
}

/// The choices of a receiver for the messages of one sender.
#[derive(Debug)]
pub(crate) struct CopyChoices {
    single: CopyChoice,
    several: CopyChoice,
    long_single: CopyChoice,
    long_several: CopyChoice,
}

impl Default for CopyChoices {
    fn default() -> Self {
        Self {
            single: CopyChoice::new(Flow::Single, true),
            several: CopyChoice::new(Flow::Several, true),
            long_single: CopyChoice::new(Flow::Single, false),
            long_several: CopyChoice::new(Flow::Several, false),
        }
    }
}

impl CopyChoices {
    /// Returns the choice for a message of this many bytes.
    pub(crate) fn of(&mut self, flow: Flow, bytes: u64) -> &mut CopyChoice {
        match (flow, bytes <= MEDIUM_WITH_CREDIT) {
            (Flow::Single, true) => &mut self.single,
            (Flow::Several, true) => &mut self.several,
            (Flow::Single, false) => &mut self.long_single,
            (Flow::Several, false) => &mut self.long_several,
        }
    }
}

/// Bytes of an epoch of several messages at a time: as many as a benchmark sends.
const EPOCH: u64 = 4 << 20;

/// The same of single messages.
const SINGLE_EPOCH: u64 = 1 << 20;

/// By how many per cent a message with a credit is faster than one that is offered and streamed, at least
/// (docs/design/2026-11-credits.md).
const CREDIT_GAIN: u64 = 15;

/// Epochs of the present method before a trial, beside the one that it is compared with: of a choice that has had no trial, after a change, and at most.
const INTERVAL_OF_NEW: u32 = 1;
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
    /// Bytes of an epoch.
    epoch: u64,
    /// Streams are with credits.
    has_credits: bool,
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
    /// Those of them without which this epoch does not end: all until it is full, and then those that were being copied.
    open: u32,
    /// The bytes of this epoch, and how long messages were being copied.
    bytes: u64,
    busy: Duration,
    /// Bytes of messages with credits that do not fill an epoch yet.
    credited: u64,
}

impl CopyChoice {
    fn new(flow: Flow, has_credits: bool) -> Self {
        Self {
            epoch: match flow {
                Flow::Single => SINGLE_EPOCH,
                Flow::Several => EPOCH,
            },
            has_credits,
            method: Method::Kernel,
            stage: Stage::Present(INTERVAL_OF_NEW),
            interval: FIRST_INTERVAL,
            against: 0,
            rate: 0,
            pending: 0,
            since: None,
            open: 0,
            bytes: 0,
            busy: Duration::ZERO,
            credited: 0,
        }
    }

    /// Returns the method of a message that begins now.
    pub(crate) fn begin(&mut self, now: Instant) -> Method {
        self.pending += 1;
        self.since.get_or_insert(now);
        self.of_epoch()
    }

    /// Returns the method of this epoch.
    fn of_epoch(&self) -> Method {
        match self.stage {
            Stage::Present(_) => self.method,
            Stage::WarmUp | Stage::Trial => self.method.other(),
        }
    }

    /// The sender reports what it has sent with credits. That takes the place of present epochs, but of the last two before a trial: the last one is
    /// measured.
    pub(crate) fn sent_with_credits(&mut self, bytes: u64) {
        self.credited = self.credited.saturating_add(bytes);
        let epochs = self.credited / self.epoch;
        self.credited %= self.epoch;
        if let Stage::Present(left @ 1..) = self.stage {
            let epochs = u32::try_from(epochs).unwrap_or(u32::MAX);
            self.stage = Stage::Present(left.saturating_sub(epochs).max(1));
        }
    }

    /// Returns how many messages the sender of a streamed one may send with credits now.
    pub(crate) fn grant(&self) -> u32 {
        let (true, Stage::Present(left @ 2..)) = (self.has_credits, self.stage) else {
            return 0;
        };
        let messages = u64::from(left - 1) * self.epoch / MEDIUM_WITH_CREDIT;
        u32::try_from(messages).unwrap_or(CREDITS).min(CREDITS)
    }

    /// A message has been copied.
    pub(crate) fn end(&mut self, bytes: u64, now: Instant) {
        let was_full = self.bytes >= self.epoch;
        self.pending = self.pending.saturating_sub(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.open = match was_full {
            true => self.open.saturating_sub(1),
            false => self.pending,
        };
        let has_ended = self.bytes >= self.epoch && self.open == 0;
        if self.pending == 0 || has_ended {
            let since = self.since.take();
            self.busy += since.map_or(Duration::ZERO, |since| now.duration_since(since));
            self.since = (self.pending > 0).then_some(now);
        }
        if has_ended {
            let micros = u64::try_from(self.busy.as_micros()).unwrap_or(u64::MAX);
            let gain = match self.of_epoch() {
                Method::Stream if self.has_credits => CREDIT_GAIN,
                _ => 0,
            };
            self.end_epoch(self.bytes / micros.max(1) * (100 + gain) / 100);
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
mod tests;
