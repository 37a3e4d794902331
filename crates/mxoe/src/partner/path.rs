//! Whether the path to a partner carries large frames.
//!
//! A connect tells whether the partner takes large frames, and nothing about the interfaces and switches in between. So this
//! side probes the path as RFC 8899 describes it, by a connect that is padded to the longest frame, and sends messages in
//! large frames only once the partner has answered. Each side does so for its own direction. If messages in large frames do
//! not arrive any more, the path is probed again.

use std::time::Duration;

use crate::limits::{LARGE_PIPELINE, PATH_PROBES, PIPELINE, RESEND_TIMEOUT};

#[derive(Debug, Default)]
pub(crate) enum Path {
    /// The partner has not said that it takes large frames.
    #[default]
    Unknown,
    Probing {
        /// The number of the last probe.
        number: Option<u8>,
        sent: u32,
        /// When the next probe is due, or the last one counts as lost.
        at: Duration,
    },
    Large,
    /// No probe was answered.
    Short,
}

impl Path {
    /// Handles what the partner says in its connect, if anything. It may be any number.
    pub(crate) fn learn(&mut self, now: Duration, pipeline: Option<u8>) {
        let takes_large = pipeline.is_some_and(|pipeline| pipeline >= LARGE_PIPELINE);
        if takes_large && matches!(self, Self::Unknown) {
            self.probe_at(now);
        }
    }

    fn probe_at(&mut self, at: Duration) {
        *self = Self::Probing {
            number: None,
            sent: 0,
            at,
        };
    }

    /// Large frames do not seem to arrive.
    pub(crate) fn doubt(&mut self, now: Duration) {
        if matches!(self, Self::Large) {
            self.probe_at(now);
        }
    }

    /// Whether to send a probe now. Ends the probing if the last probe had no answer.
    pub(crate) fn must_probe(&mut self, now: Duration) -> bool {
        match *self {
            Self::Probing { sent, at, .. } if at <= now => {
                if sent >= PATH_PROBES {
                    *self = Self::Short;
                }
                sent < PATH_PROBES
            }
            _ => false,
        }
    }

    /// Notes that the probe with this number was sent.
    pub(crate) fn probed(&mut self, now: Duration, with: u8) {
        if let Self::Probing { number, sent, at } = self {
            *number = Some(with);
            *sent += 1;
            *at = now + RESEND_TIMEOUT;
        }
    }

    /// Handles the answer to a connect with this number. Returns false if that was no probe of the path.
    pub(crate) fn answered(&mut self, to: u8) -> bool {
        let probing = matches!(self, Self::Probing { number, .. } if *number == Some(to));
        if probing {
            *self = Self::Large;
        }
        probing
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Probing { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Whether the partner has not said that it takes large frames.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Binary logarithm of the bytes of a fragment or of a reply to this partner, at most.
    pub(crate) fn pipeline(&self) -> u8 {
        match self {
            Self::Large => LARGE_PIPELINE,
            _ => PIPELINE,
        }
    }
}
