//! A port's limits at work.

use std::time::{Duration, Instant};

use super::floods::Floods;
use super::rates::Rates;
use super::rules::LimitRules;
use crate::limits::{GATHER, STUCK_TIMEOUT};

/// How much a port may send and receive.
#[derive(Debug, Default)]
pub struct Limiter {
    /// What it sends, if that is limited.
    pub send: Option<Box<Rates>>,
    /// What it receives, if that is limited.
    pub receive: Option<Box<Rates>>,
    /// What of its frames goes to everybody.
    pub floods: Floods,
}

impl Limiter {
    /// For a port with these rules. All it may have at once is there at the start.
    #[must_use]
    pub fn new(rules: &LimitRules) -> Self {
        Self {
            send: Rates::new(&rules.send),
            receive: Rates::new(&rules.receive),
            floods: Floods::new(&rules.floods),
        }
    }

    /// How long to leave what the port has to send alone; `None` when it may send.
    ///
    /// Long enough for some frames to come together, and no longer than anybody waits.
    #[must_use]
    pub fn held_back(&self, now: Instant) -> Option<Duration> {
        let wait = self.send.as_ref()?.wait(now)?;
        Some(wait.clamp(GATHER, STUCK_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::RateRules;

    #[test]
    fn a_port_is_left_alone_for_long_enough_and_not_too_long() {
        // One frame is paid for in a second, and in 10 µs.
        for (rate, expected) in [(1, STUCK_TIMEOUT), (100_000, GATHER)] {
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
