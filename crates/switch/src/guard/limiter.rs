//! Enforces the rate limits of a port.

use std::time::{Duration, Instant};

use super::floods::Floods;
use super::rates::Rates;
use super::rules::LimitRules;
use crate::limits::{MODERATION_DELAY, STUCK_TIMEOUT};

/// The limits of a port: rates and floods.
#[derive(Debug, Default)]
pub struct Limiter {
    /// The send rate, if it is limited.
    pub send: Option<Box<Rates>>,
    /// The receive rate, if it is limited.
    pub receive: Option<Box<Rates>>,
    /// The limits of flooded frames.
    pub floods: Floods,
}

impl Limiter {
    /// Creates the limits of a port with these rules. The port may use a full burst at the start.
    #[must_use]
    pub fn new(rules: &LimitRules) -> Self {
        Self {
            send: Rates::new(&rules.send),
            receive: Rates::new(&rules.receive),
            floods: Floods::new(&rules.floods),
        }
    }

    /// Returns how long the worker should not serve the port, or `None` when the port may send.
    ///
    /// The time is at least [`MODERATION_DELAY`], so that several frames gather, and at most [`STUCK_TIMEOUT`].
    #[must_use]
    pub fn held_back(&self, now: Instant) -> Option<Duration> {
        let wait = self.send.as_ref()?.wait(now)?;
        Some(wait.clamp(MODERATION_DELAY, STUCK_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::RateRules;

    #[test]
    fn the_time_for_which_a_port_is_held_back_is_bounded() {
        // The first rate needs a second for a frame, the second one 10 µs.
        for (rate, expected) in [(1, STUCK_TIMEOUT), (100_000, MODERATION_DELAY)] {
            let send = RateRules {
                frames: Some(rate),
                burst_ms: 0,
                ..RateRules::default()
            };
            let limiter = Limiter::new(&LimitRules {
                send,
                ..LimitRules::default()
            });
            let now = Instant::now();
            assert_eq!(limiter.held_back(now), None);
            let rates = limiter.send.as_ref().unwrap();
            rates.charge(now, std::iter::once(crate::guard::Cost::of(&frame())));
            assert_eq!(limiter.held_back(now), Some(expected));
        }
    }

    fn frame() -> crate::frame::Head {
        let header = vhost::net_header::NetHeader::NONE;
        crate::frame::Head::of_private(header, &[0; 60]).unwrap().0
    }
}
