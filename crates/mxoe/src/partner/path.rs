//! Whether a path to a partner carries what this side would send by it: large frames, or datagrams.
//!
//! A connect tells what the partner takes, and nothing about the interfaces, switches and filters in between. So this
//! side probes the path as RFC 8899 describes it, by a connect that is padded to the longest frame, and sends data by that path only once the
//! partner has answered. Each side does so for its own direction. If the data does not arrive any more, the path is probed again.

use std::time::Duration;

use crate::limits::{PATH_PROBES, RESEND_TIMEOUT};

#[derive(Debug, Default)]
pub(crate) enum Path {
    /// The partner has not said that it takes anything by this path.
    #[default]
    Unknown,
    Probing {
        /// The number of the last probe.
        number: Option<u8>,
        sent: u32,
        /// When the next probe is due, or the last one counts as lost.
        at: Duration,
    },
    Open,
    /// No probe was answered.
    Closed,
}

impl Path {
    /// The partner takes what this path would carry.
    pub(crate) fn learn(&mut self, now: Duration) {
        if matches!(self, Self::Unknown) {
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

    /// Data does not seem to arrive by this path.
    pub(crate) fn doubt(&mut self, now: Duration) {
        if self.is_open() {
            self.probe_at(now);
        }
    }

    /// Whether to send a probe now. Ends the probing if the last probe had no answer.
    pub(crate) fn must_probe(&mut self, now: Duration) -> bool {
        match *self {
            Self::Probing { sent, at, .. } if at <= now => {
                if sent >= PATH_PROBES {
                    *self = Self::Closed;
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
            *self = Self::Open;
        }
        probing
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Probing { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Whether the path carries data.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}
